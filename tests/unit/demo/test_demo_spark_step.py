"""How the demo ends the Spark job that it started."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from examples.demo import spark_step


async def test_dead_processes_that_nobody_reaps_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without an init the group of the job never becomes empty."""
    signals: list[int] = []

    def signal_session(_session: int, number: int) -> bool:
        signals.append(number)
        return True

    job = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await job.wait()
    monkeypatch.setattr(spark_step, "_signal_session", signal_session)
    monkeypatch.setattr(spark_step, "END_TIMEOUT_S", 0.05)
    async with asyncio.timeout(60):
        await spark_step._end_session(job)
    assert signals.count(signal.SIGKILL) == 1
