"""A program beside a node: kept running, ended with the node, whatever ends that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from node_kit import config

from replog.broker import companion
from replog.broker.companion import Companion
from replog.broker.node.console import open_console
from replog.config.kinds import Endpoint

PATIENCE_S = 20.0
SERVES = ["sh", "-c", "echo $$; exec cat > /dev/null"]
"""Says its process id, and ends when its standard input does."""

STUBBORN = ["sh", "-c", "trap '' TERM INT; echo $$; while :; do sleep 60 < /dev/null; done"]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def started() -> AsyncIterator[Callable[[list[str]], Companion]]:
    made: list[Companion] = []

    def start(arguments: list[str]) -> Companion:
        made.append(Companion("page", arguments))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        await each.stop()


async def test_it_says_its_first_line_and_ends_with_its_input(started: Callable[[list[str]], Companion]) -> None:
    page = started(SERVES)
    pid = int(await page.first_line())
    assert is_there(pid)
    await page.stop()
    assert not is_there(pid)


async def test_one_that_ends_is_started_again_after_ever_longer_pauses(
    started: Callable[[list[str]], Companion], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion, "PAUSE_S_MIN", 0.01)
    page = started(["sh", "-c", "exit 3"])
    await until(lambda: page.starts_count == 4)
    told = [record.getMessage() for record in caplog.records if "status 3" in record.getMessage()]
    assert [text.rpartition(" in ")[2] for text in told[:3]] == ["0.01 s", "0.02 s", "0.04 s"]


async def test_one_that_was_killed_serves_again(
    started: Callable[[list[str]], Companion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "PAUSE_S_MIN", 0.01)
    page = started(SERVES)
    os.kill(int(await page.first_line()), signal.SIGKILL)
    await until(lambda: page.starts_count == 2)


async def test_one_that_does_not_end_is_killed(
    started: Callable[[list[str]], Companion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "GRACE_S", 0.05)
    page = started(STUBBORN)
    pid = int(await page.first_line())
    await page.stop()
    assert not is_there(pid)


async def test_a_program_that_is_not_there_is_told_and_tried_again(
    started: Callable[[list[str]], Companion], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion, "PAUSE_S_MIN", 0.01)
    page = started(["/no/such/program"])
    await until(lambda: page.starts_count == 2)
    assert "page could not be started" in caplog.text


@pytest.mark.parametrize("turns", range(4))
async def test_who_stops_while_it_is_being_started_leaves_nothing(turns: int) -> None:
    page = Companion("page", SERVES)
    page.start()
    for _ in range(turns):
        await asyncio.sleep(0)
    await page.stop()
    with pytest.raises(asyncio.CancelledError):
        await page.first_line()


OWNER = """
import asyncio
from replog.broker.companion import Companion

async def main():
    page = Companion("page", ["sh", "-c", "echo $$; exec cat > /dev/null"])
    page.start()
    print(await page.first_line(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_it_ends_by_itself_when_the_node_was_killed() -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(await owner.stdout.readline())
    owner.kill()
    await owner.wait()
    await until(lambda: not is_there(pid))


async def test_the_console_is_not_made_of_what_lies_in_the_working_directory(tmp_path: Path) -> None:
    """Trap: `python -m` looks there first, so that a file of the user's called typer.py was run instead."""
    pytest.importorskip("aiohttp", reason="the console needs the extra replog[console]")
    console = open_console(config(str(tmp_path), console_listener=Endpoint("127.0.0.1", 0)), "127.0.0.1:1")
    assert console is not None
    (tmp_path / "typer.py").write_text("raise SystemExit(9)")
    until_help = [*console._arguments[: console._arguments.index("replog.console") + 1], "--help"]
    assert subprocess.run(until_help, cwd=tmp_path, capture_output=True, check=False).returncode == 0
