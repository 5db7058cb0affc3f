"""`replog chaos` is a neighbour of the package: present, missing or broken, it must not matter to the other commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

CHAOS = Path(__file__).parents[4] / "chaos"

PROGRAM = """
import sys
sys.path = [folder for folder in {paths!r} if folder]
from replog.cli.main import main
status = main({arguments!r})
sys.stdout.flush()
sys.stderr.write("imported" if "replog_chaos" in sys.modules else "")
sys.exit(status)
"""


class Ended(NamedTuple):
    """How a command line ended; stderr ends with a word where the neighbour was imported."""

    status: int
    out: str
    err: str


def replog(chaos: Path | None, *arguments: str) -> Ended:
    """Runs a command line in a process that finds the neighbour in this folder, or nowhere."""
    paths = [*([str(chaos)] if chaos else []), *(path for path in sys.path if path and Path(path).resolve() != CHAOS)]
    program = PROGRAM.format(paths=paths, arguments=arguments)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=CHAOS.root)
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder whose neighbour cannot be imported."""
    (tmp_path / "replog_chaos").mkdir()
    (tmp_path / "replog_chaos" / "__init__.py").write_text("raise RuntimeError('broken')\n")
    return tmp_path


def test_help_names_the_neighbour_and_does_not_import_it() -> None:
    status, out, err = replog(CHAOS, "--help")
    assert (status, err) == (0, "")
    assert " chaos " in out


def test_its_commands_are_there() -> None:
    status, out, err = replog(CHAOS, "chaos", "list")
    assert (status, err) == (0, "imported")
    assert "kill-leader" in out
    status, out, _ = replog(CHAOS, "chaos", "--help")
    assert (status, " run " in out, " list " in out) == (0, True, True)
    status, _, err = replog(CHAOS, "chaos", "lst")
    assert (status, err) == (
        2,
        "error: No such command 'lst'. Did you mean 'list'? See `replog chaos --help`.\nimported",
    )


def test_a_broken_neighbour_is_no_matter_of_help(broken: Path) -> None:
    status, out, err = replog(broken, "--help")
    assert (status, err) == (0, "")
    assert " chaos " in out
    status, _, err = replog(broken, "chaos", "list")
    assert (status, "RuntimeError: broken" in err) == (1, True)


def test_without_it_help_does_not_name_it() -> None:
    status, out, err = replog(None, "--help")
    assert (status, err) == (0, "")
    assert "topics" in out
    assert "chaos" not in out


@pytest.mark.parametrize("arguments", [(), ("list",), ("run", "--rounds", "2")])
def test_without_it_the_command_says_where_it_is(arguments: tuple[str, ...]) -> None:
    status, out, err = replog(None, "chaos", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: replog chaos is not part of the installed package. In a checkout ")
