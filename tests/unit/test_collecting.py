"""A run in several processes that collect a unit when it is its turn: what it says is what a run in one process says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collecting import collects_in_turn

ROOT = Path(__file__).parents[2]


def run_of(folder: Path, *arguments: str, **files: str) -> tuple[int, list[str]]:
    """Runs tests in two processes; returns the exit code and the lines that are said at the end."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    options = ["-n2", "-rA", "-q", "-p", "xdist", "-p", "no:cacheprovider", "--no-header", *arguments]
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": "/usr/bin:/bin",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.partition("short test summary info")[2].splitlines()[1:]


def test_each_outcome_is_reported(tmp_path: Path) -> None:
    """Note: what ends with a process fails where nothing is left to be run, under the name of the last unit."""
    fails = (
        "import pytest\n@pytest.fixture(scope='session')\ndef lasting():\n    yield\n    raise OSError('at the end')\n"
        "def test_passes(lasting): pass\ndef test_fails(): assert not 1\ndef test_skips(): pytest.skip('why')"
    )
    skips = "import pytest\npytest.skip('all of it', allow_module_level=True)"
    code, said = run_of(tmp_path, test_a=fails, test_b=skips, test_c="import no_such")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert sorted(line.partition(" - ")[0] for line in said[:-1]) == [
        f"ERROR {next(line.split()[1] for line in said if '(end)' in line)}",
        "ERROR test_c.py",
        "FAILED test_a.py::test_fails",
        "PASSED test_a.py::test_passes",
        "SKIPPED [1] test_a.py:8: why",
        "SKIPPED [1] test_b.py:2: all of it",
    ]
    assert "1 failed, 1 passed, 2 skipped, 2 errors" in said[-1]


def test_a_process_that_dies_fails_the_test_that_it_ran_and_no_other_file(tmp_path: Path) -> None:
    dies = "import os\ndef test_a(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\ndef test_z(): pass"
    others = {f"test_{name}": "def test_it(): pass" for name in "bcd"}
    code, said = run_of(tmp_path, test_a=dies, **others)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert [line.partition(" - ")[0] for line in said if line.startswith("FAILED")] == ["FAILED test_a.py::test_dies"]
    assert {line.split()[1] for line in said if line.startswith("PASSED")} == {
        "test_a.py::test_a", "test_b.py::test_it", "test_c.py::test_it", "test_d.py::test_it",
    }  # fmt: skip


@pytest.mark.parametrize(("chosen", "passed"), [("two and not one", ["test_a.py::test_two"]), ("no_such", [])])
def test_what_is_chosen_by_name_runs(tmp_path: Path, chosen: str, passed: list[str]) -> None:
    code, said = run_of(tmp_path, "-k", chosen, test_a="def test_one(): pass\ndef test_two(): pass", test_b="")
    assert [line.split()[1] for line in said if line.startswith("PASSED")] == passed
    assert code == (pytest.ExitCode.OK if passed else pytest.ExitCode.NO_TESTS_COLLECTED)


@pytest.mark.parametrize(
    ("arguments", "options", "in_turn"),
    [(["tests"], {}, True), (["tests/test_a.py::test_it"], {}, False), (["tests"], {"lf": True}, False)],
)
def test_what_chooses_among_all_tests_has_them_collected_first(
    arguments: list[str], options: dict[str, bool], *, in_turn: bool
) -> None:
    config: Any = SimpleNamespace(args=arguments, getoption=options.get)
    assert collects_in_turn(config) == in_turn


def test_looks_for_garbage_spare_what_was_collected(tmp_path: Path) -> None:
    """Each would walk over all modules that a file is the first to load."""
    kept = "import gc\nKEPT = [[]]\ndef test_kept(): assert not any(each is KEPT for each in gc.get_objects())"
    code, said = run_of(tmp_path, test_a=kept)
    assert (code, said[:1]) == (pytest.ExitCode.OK, ["PASSED test_a.py::test_kept"])
