"""`replog dev`: one broker until a signal comes, and the lines that it says can be pasted."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import PATIENCE_S, command, replog_here

pytestmark = pytest.mark.cluster


def started(tmp_path: Path, *arguments: object) -> tuple[subprocess.Popen[str], list[str]]:
    """Returns the process, and the lines that it says once its broker serves."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command("dev", "--port", 0, *arguments), stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    if process.stdout is None:
        raise AssertionError
    return process, [process.stdout.readline() for _ in range(4)]


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    status = process.wait(PATIENCE_S)
    if process.stdout is not None:
        process.stdout.close()
    return status


def test_its_lines_can_be_pasted_and_its_folder_goes(tmp_path: Path) -> None:
    process, lines = started(tmp_path)
    names = f'replog() {{ {shlex.join(command())} "$@"; }}\npython() {{ {shlex.quote(sys.executable)} "$@"; }}\n'
    done = subprocess.run(["bash", "-c", names + "".join(lines[1:])], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(
        "created rides: 1 partition, 1 replica each\n1 record acknowledged\nhello\nRecordMetadata("
    )
    assert len(list(tmp_path.iterdir())) == 1
    assert ended(process, signal.SIGINT) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_is_there_at_the_next_start(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    process, lines = started(tmp_path, "--keep", "kept")
    assert "its data stay in kept" in lines[0]
    servers = lines[1].strip().partition("=")[2]
    assert replog_here("topics", "create", "mine", "-b", servers).status == 0
    assert ended(process, signal.SIGTERM) == 0
    process, lines = started(tmp_path, "--keep", kept)
    servers = lines[1].strip().partition("=")[2]
    assert replog_here("topics", "list", "-b", servers).out == "mine\n"
    assert ended(process, signal.SIGTERM) == 0
    assert list(tmp_path.iterdir()) == [kept]


def test_where_nobody_reads_its_lines_it_ends_and_leaves_nothing(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as stdout:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            command("dev", "--port", 0),
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=PATIENCE_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = replog_here("dev", "--port", taken.getsockname()[1])
    assert (done.status, done.out) == (2, "")
    assert "is in use: choose another, or 0 for any that is free" in done.err
    (tmp_path / "file").touch()
    done = replog_here("dev", "--port", 0, "--keep", tmp_path / "file")
    assert (done.status, done.out) == (2, "")
    assert done.err == f"error: --keep {tmp_path}/file is no folder: name another\n"
