"""The parts of `make test` are all of it, and what shares something costly is run by one process."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.side_by_side import LONGEST, SHARE_NOTHING, Scheduler, in_order, unit_of

ROOT = Path(__file__).parents[2]


ON_REQUEST = ["tests/deploy", "tests/kafka/suites"]
"""In no run of all tests."""


def test_each_folder_of_tests_is_in_one_part() -> None:
    recipes = re.findall(r"^test-[\w-]+:\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [folder for recipe in recipes for folder in re.findall(r"tests/[\w/]+", recipe)]
    folders = {_part_of(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(recipes) == 5
    assert {*ON_REQUEST} <= folders
    assert sorted(named) == sorted(folders)


def _part_of(path: Path) -> str:
    asked = (folder for folder in ON_REQUEST if path.is_relative_to(folder))
    return next(asked, f"tests/{path.parts[1]}")


@pytest.mark.parametrize("folder", ["tests/kafka/", "tests/spark/"])
def test_what_takes_long_to_start_is_started_once(folder: str) -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("test_*.py")}
    files = found.difference(SHARE_NOTHING)
    assert len(files) > 1
    assert {unit_of(f"{file}::test_it[a::b]") for file in files} == {folder}


def test_a_file_is_run_by_one_process() -> None:
    assert unit_of("tests/cluster/test_a.py::TestB::test_c[d::e]") == "tests/cluster/test_a.py"


def test_what_shares_nothing_is_run_by_a_process_of_its_own() -> None:
    assert all((ROOT / file).is_file() for file in SHARE_NOTHING)
    assert [unit_of(f"{file}::test_it") for file in SHARE_NOTHING] == list(SHARE_NOTHING)


def test_what_takes_longest_is_begun_before_what_is_short() -> None:
    """Example: one process would still run the Spark tests while the others have nothing left."""
    short = ["tests/sim/test_c.py", "tests/unit/test_d.py"]
    collected = ["tests/cluster/test_a.py::x", "tests/kafka/test_b.py::x", *(f"{file}::x" for file in short)]
    collected += ["tests/spark/test_b.py::x", *(f"{file}::x" for file in SHARE_NOTHING)]
    assert in_order(collected) == ["tests/cluster/test_a.py", *LONGEST, *short]


class Process:
    """A process for tests that runs nothing, and keeps what it was told to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_gets_the_units_in_this_order() -> None:
    collected = [f"tests/sim/test_{number}.py::x" for number in range(4)] + ["tests/spark/test_a.py::x"]
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"])
    scheduler, process = Scheduler(config, None), Process()
    scheduler.add_node(process)
    scheduler.add_node_collection(process, collected)
    scheduler.schedule()
    assert process.told[:2] == [4, 0]
