"""The driver: order, deadlines, one run after what arrived together, and an end that nobody misses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from broker_kit import FakeClock, wait_until

from replog.broker.driver import RUN_MS, Driver
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError, StorageError, TopicExistsError
from tests.quiet import quiet_for


class Log:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.lines: list[str] = []
        self.failures: list[BaseException] = []
        self.deadline_ms: int | None = None
        self.driver = Driver(
            "driver",
            self.clock,
            tick=self.tick,
            next_deadline_ms=lambda: self.deadline_ms,
            after_drain=lambda: self.lines.append("drained"),
            on_failure=self.failures.append,
        )

    def tick(self) -> None:
        self.deadline_ms = None
        self.lines.append("tick")

    def work(self, name: str) -> None:
        self.driver.submit(lambda: self.lines.append(name))


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Log]:
    log = Log()
    log.driver.start()
    try:
        yield log
    finally:
        await log.driver.stop()


async def test_work_that_arrives_together_is_run_in_order_and_drained_once() -> None:
    async with running() as log:
        for name in "abc":
            log.work(name)
        await wait_until(lambda: log.lines)
        assert log.lines == ["a", "b", "c", "drained"]


async def test_much_work_is_run_in_turns_with_other_tasks() -> None:
    """Goal: the ends of four thousand fsyncs do not hold the loop for a tenth of a second."""

    def work() -> None:
        log.clock.monotonic_ms += RUN_MS // 2
        log.lines.append("work")

    async with running() as log:
        for _ in range(4):
            log.driver.submit(work)
        await wait_until(lambda: log.lines.count("work") == 4)
        assert log.lines == ["work", "work", "drained"] * 2


async def test_work_submitted_by_work_runs_in_the_next_round() -> None:
    async with running() as log:
        log.driver.submit(lambda: log.work("later"))
        await wait_until(lambda: "later" in log.lines)
        assert log.lines == ["drained", "later", "drained"]


async def test_a_deadline_ticks_and_not_before() -> None:
    async with running() as log:
        log.deadline_ms = log.clock.now_ms() + 10_000
        log.driver.wake()
        await log.driver.call(lambda: None)
        assert "tick" not in log.lines
        log.clock.monotonic_ms += 10_000
        log.driver.wake()
        await wait_until(lambda: "tick" in log.lines)


async def test_a_deadline_that_came_closer_is_noticed() -> None:
    async with running() as log:
        await log.driver.call(lambda: None)  # sleeps without a deadline now
        log.deadline_ms = log.clock.now_ms()
        log.driver.wake()
        await wait_until(lambda: "tick" in log.lines)


async def test_call_returns_and_raises() -> None:
    def refuse() -> None:
        raise TopicExistsError("there is one")

    async with running() as log:
        assert await log.driver.call(lambda: 5) == 5
        with pytest.raises(TopicExistsError):
            await log.driver.call(refuse)
        assert await log.driver.call(lambda: 6) == 6
        assert log.failures == []


async def test_a_caller_that_left_is_not_served() -> None:
    async with running() as log:
        call = asyncio.create_task(log.driver.call(lambda: log.lines.append("served")))
        await asyncio.sleep(0)
        call.cancel()
        await log.driver.call(lambda: None)
        assert "served" not in log.lines


async def test_a_bug_ends_the_driver_and_nothing_runs_after_it() -> None:
    async with running() as log:
        log.driver.submit(lambda: log.lines[99])
        log.work("after")
        await wait_until(lambda: log.failures)
        assert isinstance(log.failures[0], IndexError)
        log.work("later")
        await asyncio.sleep(0)
        assert log.lines == []


async def test_who_waits_when_a_bug_ends_the_driver_is_told() -> None:
    """Nobody may wait for ever for an answer of a driver that is gone."""
    async with running() as log:
        calls = [
            asyncio.create_task(log.driver.call(lambda: log.lines[99])),
            asyncio.create_task(log.driver.call(list)),
        ]
        done, _ = await asyncio.wait(calls, timeout=60)
        assert [type(task.exception()) for task in calls] == [BrokerClosedError] * 2, done
        assert len(log.failures) == 1
        with pytest.raises(BrokerClosedError):
            await log.driver.call(list)


async def test_a_failed_disk_is_told_to_the_caller_and_ends_the_driver() -> None:
    def fail() -> None:
        raise StorageError("disk")

    async with running() as log:
        with pytest.raises(StorageError):
            await log.driver.call(fail)
        await wait_until(lambda: log.failures)


async def test_stop_tells_who_waits() -> None:
    log = Log()  # never started
    call = asyncio.create_task(log.driver.call(list))
    await asyncio.sleep(0)
    await log.driver.stop()
    with pytest.raises(BrokerClosedError):
        await call


async def test_halt_within_work_stops_what_waits_behind_it() -> None:
    async with running() as log:
        log.driver.submit(log.driver.halt)
        log.work("after")
        await quiet_for(0.01)
        assert log.lines == []
        assert log.failures == []


async def test_a_watched_task_is_heard_when_it_dies() -> None:
    async def die() -> None:
        raise ValueError("bug")

    failures: list[BaseException] = []
    watched_task(die(), name="mortal", on_failure=failures.append)
    await wait_until(lambda: failures)
    assert isinstance(failures[0], ValueError)


async def test_a_cancelled_watched_task_is_no_failure() -> None:
    failures: list[BaseException] = []
    task = watched_task(asyncio.sleep(60), name="mortal", on_failure=failures.append)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert failures == []
