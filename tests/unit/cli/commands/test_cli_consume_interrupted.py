"""What `replog consume --group` commits when Ctrl-C comes: what was taken from it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replog.cli.commands import consume
from replog.errors import ReplogError


class Committing:
    """What is asked of a consumer."""

    def __init__(self, error: ReplogError | None = None) -> None:
        self.commits = 0
        self._error = error

    async def commit(self) -> None:
        self.commits += 1
        if self._error is not None:
            raise self._error


async def commits(printing: asyncio.Future[None], error: ReplogError | None = None) -> int:
    consumer: Any = Committing(error)
    await consume._commit_printed(consumer, printing)
    count: int = consumer.commits
    return count


async def test_output_under_way_is_waited_for() -> None:
    printing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(printing.set_result, None)
    assert await commits(printing) == 1


async def test_what_nobody_takes_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "LAST_PRINT_S", 0.01)
    assert await commits(asyncio.get_running_loop().create_future()) == 0


async def test_what_could_not_be_written_is_not_committed() -> None:
    printing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    printing.set_exception(BrokenPipeError())
    assert await commits(printing) == 0


async def test_a_commit_that_fails_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    printing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    printing.set_result(None)
    assert await commits(printing, ReplogError("others have it")) == 1
    assert "will be printed again: others have it" in capsys.readouterr().err
