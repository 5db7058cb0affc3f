"""Standard streams that are closed, full or no longer read: a line or silence, a status, never a traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

REPLOG = [sys.executable, "-m", "replog"]


class Ended(NamedTuple):
    """How a command line of a shell ended."""

    status: int
    out: str
    err: str


def shell(line: str) -> Ended:
    """Runs a line in bash; `replog` in it is the command of this interpreter."""
    done = subprocess.run(
        ["bash", "-c", f'replog() {{ {shlex.join(REPLOG)} "$@"; }}\n{line}'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


PRINTING = ["--version", "--help", "storage random-uuid", "topics create --help"]


@pytest.mark.parametrize("command", PRINTING)
def test_a_closed_stdout_is_told(command: str) -> None:
    assert shell(f"replog {command} >&-") == (1, "", "error: stdout: closed\n")


@pytest.mark.parametrize("command", PRINTING)
def test_a_full_disk_behind_stdout_is_told(command: str) -> None:
    assert shell(f"replog {command} > /dev/full") == (1, "", "error: stdout: No space left on device\n")


@pytest.mark.parametrize("command", PRINTING)
def test_a_reader_that_has_gone_is_no_error_to_talk_about(command: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as unread:
        arguments = [*REPLOG, *command.split()]
        done = subprocess.run(arguments, stdout=unread, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_without_a_stderr_the_status_says_it(redirection: str) -> None:
    assert shell(f"replog cluster status --dir no-such {redirection}") == (2, "", "")
    assert shell(f"replog topics lst {redirection}") == (2, "", "")
    assert shell(f"replog --version {redirection}").status == 0


def test_all_three_may_be_closed() -> None:
    assert shell("replog --version <&- >&- 2>&-") == (1, "", "")
    assert shell("replog cluster status --dir no-such <&- >&-").err.startswith("error: no cluster in no-such")
