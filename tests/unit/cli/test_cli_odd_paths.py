"""Folders with names that somebody, somewhere, has: every command that takes a path takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import Replog

import replog
from replog.errors import StorageError
from tests.unit.cli.odd_paths import LOOP, ODD_NAMES, TOO_LONG

VALUES = [b"a", b"b", b"c"]
ROOTS = os.pathsep.join(path for path in sys.path if path)
"""Where this process found the modules, for commands that run elsewhere."""


@pytest.fixture(params=ODD_NAMES, ids=[ascii(name) for name in ODD_NAMES])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative, in a working directory that is left for another before anything of it is used again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    return Path(request.param)


def filled(folder: Path) -> None:
    with replog.open_log(folder, maintenance_interval_ms=0) as log:
        log.append_many(VALUES)


def test_a_log_lives_through_a_change_of_the_working_directory(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with replog.open_log(folder, maintenance_interval_ms=0, segment_bytes=1 << 20) as log:
        os.chdir(tmp_path / "elsewhere")
        log.append_many(VALUES)
        log.maintain()
        log.truncate_before(1)
        assert [record.value for record in log] == VALUES[1:]
    with replog.open_log(tmp_path / folder, read_only=True) as log:
        os.chdir(tmp_path)
        assert [record.value for record in log] == VALUES[1:]
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_log_for_tasks_lives_through_it_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    async with replog.open_log_async(folder) as log:
        os.chdir(tmp_path / "elsewhere")
        await log.append_many(VALUES)
        assert [record.value async for record in log] == VALUES
    assert list((tmp_path / "elsewhere").iterdir()) == []


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "dump": lambda folder: ["log", "dump", "--json", "--", str(folder / "log-0")],
    "verify": lambda folder: ["log", "verify", "--json", "--", str(folder)],
    "repair": lambda folder: ["log", "repair", "--json", "--", str(folder)],
    "export": lambda folder: ["log", "export", "--to", "jsonl", "--output", "-", "--", str(folder / "log-0")],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_files(folder: Path, replog: Replog, command: str) -> None:
    filled(folder)
    done = replog(*COMMANDS[command](folder))
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    shown = [str(row["path"]) for row in rows if "path" in row]
    assert rows if command == "export" else any(folder.name in path for path in shown)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "export"])
def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path, command: str) -> None:
    """Goal: where stdout is strictly UTF-8, as in most locales, a row comes out and is JSON."""
    name = Path(ODD_NAMES[-1])
    filled(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-m", "replog", *COMMANDS[command](name)],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ROOTS},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert any(name.name in str(row.get("path", "")) for row in rows)


BAD = {
    "a loop of links": LOOP,
    "a name that is too long": TOO_LONG,
    "a path that is too long": "/".join(["x" * 200] * 30),
}


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_paths_that_cannot_be_are_one_line(tmp_path: Path, replog: Replog, command: str, name: str) -> None:
    (tmp_path / LOOP).symlink_to(tmp_path / LOOP)
    done = replog(*COMMANDS[command](tmp_path / name))
    assert done.status in {1, 2}
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
def test_an_export_into_such_a_path_is_refused(tmp_path: Path, replog: Replog, name: str) -> None:
    (tmp_path / LOOP).symlink_to(tmp_path / LOOP)
    filled(tmp_path / "log")
    done = replog("log", "export", "--to", "jsonl", "--output", tmp_path / name, tmp_path / "log/log-0")
    assert done.status in {1, 2}
    assert done.err.startswith("error: ")
    assert (tmp_path / LOOP).is_symlink()


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_log_in_such_a_path_is_refused(tmp_path: Path, name: str, read_only: bool) -> None:
    (tmp_path / LOOP).symlink_to(tmp_path / LOOP)
    with pytest.raises(StorageError, match=r"Too many levels of symbolic links|File name too long|is no folder"):
        replog.open_log(tmp_path / name, read_only=read_only)
