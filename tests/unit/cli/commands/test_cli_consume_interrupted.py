"""What `replog consume --group` commits when Ctrl-C comes: what was taken from it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from replog import client
from replog.cli import common
from replog.cli.commands import consume
from replog.cli.records import member_reader
from replog.errors import ReplogError

PATIENCE_S = 60.0


class Committing:
    """What is asked of a consumer."""

    def __init__(self, error: ReplogError | None = None) -> None:
        self.commits = 0
        self._error = error

    async def commit(self) -> None:
        self.commits += 1
        if self._error is not None:
            raise self._error


async def commits(printing: asyncio.Future[int], error: ReplogError | None = None) -> int:
    consumer: Any = Committing(error)
    await consume._commit_printed(consumer, printing)
    count: int = consumer.commits
    return count


async def test_ctrl_c_between_a_batch_and_the_next_poll_commits_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the next member prints nothing again; a consumer that is closed commits by itself only what was asked past."""
    consumer, begun, taken = Committing(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def nothing(*_: object) -> list[object]:
        return []

    def write(records: list[object]) -> int:
        loop.call_soon_threadsafe(begun.set)
        assert taken.wait(PATIENCE_S)
        return len(records)

    monkeypatch.setattr(common, "admin_of", lambda *_: asyncio.sleep(0, nullcontext()))
    monkeypatch.setattr(client, "Consumer", lambda *_, **__: nullcontext(consumer))
    monkeypatch.setattr(member_reader, "MemberReader", lambda *_: SimpleNamespace(begin=nothing, poll=nothing))
    chosen: Any = SimpleNamespace(print=write)
    monkeypatch.setattr(consume, "LAST_PRINT_S", PATIENCE_S)
    command = asyncio.create_task(
        consume._consume_as_member("b", "t", "g", "earliest", None, chosen, follow=True, timeout_s=None)
    )
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    command.cancel()
    loop.call_soon(taken.set)
    await asyncio.wait([command])
    assert (command.cancelled(), consumer.commits) == (True, 1)


async def test_output_under_way_is_waited_for() -> None:
    printing: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(printing.set_result, 0)
    assert await commits(printing) == 1


async def test_what_nobody_takes_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "LAST_PRINT_S", 0.01)
    assert await commits(asyncio.get_running_loop().create_future()) == 0


async def test_what_could_not_be_written_is_not_committed() -> None:
    printing: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    printing.set_exception(BrokenPipeError())
    assert await commits(printing) == 0


async def test_a_commit_that_fails_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    printing: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    printing.set_result(0)
    assert await commits(printing, ReplogError("others have it")) == 1
    assert "will be printed again: others have it" in capsys.readouterr().err
