"""Virtual time: nothing waits, everything repeats, a dead process takes no step."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import pytest

from replog.testing.simulated_clock import WALL_START_MS, SimulatedClock
from replog.testing.simulated_process import PROCESS
from replog.testing.virtual_loop import DeadlockError, SimulationError, TooManyStepsError, VirtualLoop
from replog.testing.virtual_threads import VirtualThreads

T = TypeVar("T")


def run(make: Callable[[VirtualLoop], Coroutine[Any, Any, T]], *, seed: int = 1, steps_max: int = 100_000) -> T:
    loop = VirtualLoop(random.Random(seed), steps_max=steps_max)
    return loop.run(make(loop))


# ---- time ----------------------------------------------------------------------------------------------------------------


def test_an_hour_passes_in_no_time() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    began = time.monotonic()
    assert run(main) == pytest.approx(3600, abs=0.001)
    assert time.monotonic() - began < 60


def test_time_outs_follow_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> float:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return loop.time()

    assert run(main) == pytest.approx(5, abs=0.001)


def test_somebody_who_waits_for_ever_is_a_deadlock() -> None:
    async def main(_: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(main)


def test_running_round_and_round_is_found() -> None:
    async def main(_: VirtualLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TooManyStepsError, match="1001 steps"):
        run(main, steps_max=1_000)


def test_cancelled_timers_are_forgotten() -> None:
    async def main(loop: VirtualLoop) -> None:
        for _ in range(1_000):
            with suppress(TimeoutError):
                async with asyncio.timeout(1_000):
                    await asyncio.sleep(0.001)
        assert len(loop._scheduled) < 300
        assert loop.time() < 2

    run(main)


def test_an_exception_that_reaches_nobody_is_noted() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        def fail() -> None:
            raise ValueError("lost")

        loop.call_soon(fail)
        await asyncio.sleep(1)
        return loop.problems

    (problem,) = run(main)
    assert "lost" in problem


# ---- repetition ----------------------------------------------------------------------------------------------------------


async def busy(loop: VirtualLoop) -> int:
    """Threads, sets of tasks, tasks that race."""
    order: list[int] = []

    async def one(number: int) -> None:
        await loop.run_in_executor(None, order.append, number)
        await asyncio.sleep(0.001 * (number % 3))
        order.append(-number)

    tasks = {asyncio.create_task(one(number)) for number in range(50)}
    order.extend(hash(task) for task in tasks)  # a set
    await asyncio.wait(tasks)
    loop.note(repr(order).encode())
    return loop.trace


def test_one_seed_is_one_run() -> None:
    assert run(busy) == run(busy)
    assert run(busy) != run(busy, seed=2)


# ---- threads -------------------------------------------------------------------------------------------------------------


def test_a_real_executor_gets_no_work() -> None:
    async def main(loop: VirtualLoop) -> None:
        with ThreadPoolExecutor(1) as executor:
            began = loop.time()
            assert await loop.run_in_executor(executor, lambda: loop.is_in_thread)
            assert loop.time() > began
            assert not executor._threads  # none was started
        assert not loop.is_in_thread

    run(main)


def test_what_a_thread_raises_arrives() -> None:
    async def main(loop: VirtualLoop) -> None:
        def fail() -> None:
            raise OSError("no disk")

        with pytest.raises(OSError, match="no disk"):
            await loop.run_in_executor(None, fail)

    run(main)


def test_one_thread_does_one_thing_after_the_other() -> None:
    async def main(loop: VirtualLoop) -> None:
        done: list[int] = []
        thread = VirtualThreads(loop, 1)
        await asyncio.gather(*(loop.run_in_executor(thread, done.append, number) for number in range(20)))
        assert done == list(range(20))
        many: list[int] = []
        await asyncio.gather(*(loop.run_in_executor(None, many.append, number) for number in range(20)))
        assert sorted(many) == done != many

    run(main)


def test_a_thread_that_waits_for_others_finds_them_done() -> None:
    async def main(loop: VirtualLoop) -> None:
        threads = VirtualThreads(loop, 2)

        def wait() -> list[int]:
            return list(threads.map(abs, [-1, -2, -3]))

        assert await loop.run_in_executor(threads, wait) == [1, 2, 3]

    run(main)


def test_shutdown_waits_for_what_was_submitted() -> None:
    async def main(loop: VirtualLoop) -> None:
        done: list[int] = []
        threads = VirtualThreads(loop, 1)
        for number in range(3):
            threads.submit(done.append, number)
        dropped = VirtualThreads(loop, 1)
        future = dropped.submit(done.append, 99)
        waiting = dropped.submit(done.append, 100)
        threads.shutdown()
        assert done == [0, 1, 2]
        dropped.shutdown(wait=False, cancel_futures=True)
        assert waiting.cancelled()
        assert not future.done()
        with pytest.raises(RuntimeError):
            threads.submit(done.append, 4)
        await asyncio.sleep(1)
        assert done == [0, 1, 2, 99]

    run(main)


# ---- processes -----------------------------------------------------------------------------------------------------------


class Worker:
    """Works every 100 ms, in tasks, callbacks and threads of its own."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.steps: list[str] = []
        self.loop = loop

    async def run(self) -> None:
        try:
            await asyncio.gather(self.tick("task"), self.tick("other"))
        finally:
            self.steps.append("finally")
            await asyncio.sleep(0.01)
            self.steps.append("never")

    async def tick(self, name: str) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.steps.append(name)
            self.loop.call_later(0.05, self.steps.append, "callback")
            self.loop.run_in_executor(None, self.steps.append, "thread")


def test_what_the_end_of_the_loop_lets_others_begin_is_ended_too() -> None:
    """Else a coroutine that never ran is told to whoever runs when it is found."""
    begun: list[Coroutine[Any, Any, None]] = []
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        pass

    async def fails_at_its_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            begun.append(work())
            tasks.append(asyncio.create_task(begun[0]))

    async def main(loop: VirtualLoop) -> None:
        loop.create_task(fails_at_its_end())
        await asyncio.sleep(1)

    run(main)
    assert [coroutine.cr_frame for coroutine in begun] == [None]


def test_a_killed_process_takes_no_step() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("p")
        worker = Worker(loop)
        task = process.create_task(worker.run())
        told: list[str] = []
        process.on_kill.append(lambda: told.append("killed"))
        await asyncio.sleep(1.02)  # callbacks and threads are under way
        count = len(worker.steps)
        assert count > 40
        process.kill()
        process.kill()
        assert told == ["killed"]
        assert worker.steps[count:] == ["finally"]  # unwound at once, without another step
        await asyncio.sleep(10)
        assert worker.steps[count:] == ["finally"]
        assert not task.done()
        assert loop.problems == []

    run(main)


def test_what_a_killed_process_would_have_heard_is_no_problem() -> None:
    """Who sets an error is unwound as well as who waits for it, and that it is unheard is found when no process runs."""
    loop = VirtualLoop(random.Random(1))

    async def set_when_it_ends(future: asyncio.Future[None]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            future.set_exception(OSError("gone"))

    async def serve() -> None:
        future = loop.create_future()
        asyncio.create_task(set_when_it_ends(future))  # noqa: RUF006 -- it ends with the process
        await future

    async def main() -> None:
        process = loop.new_process("p")
        process.create_task(serve())
        await asyncio.sleep(1)
        process.kill()
        loop.create_future().set_exception(OSError("of the living"))

    loop.run(main())
    gc.collect()
    assert [each.split(": ")[1] for each in loop.problems] == ["OSError('of the living')"]


def test_an_error_that_a_killed_process_was_to_hear_later_is_no_problem() -> None:
    """Whoever waits for several tasks hears of one that has failed when the last one ends."""
    loop = VirtualLoop(random.Random(1))

    async def fail() -> None:
        raise OSError("first")

    async def wait_for_both() -> None:
        await asyncio.gather(fail(), asyncio.sleep(100), return_exceptions=True)

    async def main() -> None:
        process = loop.new_process("p")
        process.create_task(wait_for_both())
        await asyncio.sleep(1)
        process.kill()

    loop.run(main())
    gc.collect()
    assert loop.problems == []


def test_a_task_that_a_dead_process_begins_never_runs() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("p")
        begun: list[str] = []

        async def child() -> None:
            begun.append("child")

        async def parent() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                begun.append("parent")
                asyncio.create_task(child())  # noqa: RUF006 -- it is to be dropped

        process.create_task(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)
        assert begun == ["parent"]

    run(main)


def test_a_process_that_dies_in_a_thread_does_no_more_in_threads() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        process = loop.new_process("p")
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await loop.run_in_executor(None, done.append, "closes its files")

        process.create_task(work())
        await asyncio.sleep(1)
        await loop.run_in_executor(None, process.kill)
        await asyncio.sleep(1)
        return done

    assert run(main) == []


def test_blocks_that_wait_are_ended_with_their_process() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def serve() -> None:
        try:
            try:
                await wait("work")
            finally:
                await wait("clean up")
        except RuntimeError:
            pass
        finally:
            await wait("say goodbye")

    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("node")
        process.create_task(serve())
        await asyncio.sleep(1)
        process.kill()
        assert ended == ["work", "clean up", "say goodbye"]

    run(main)


def test_nothing_that_a_block_waits_for_is_left_suspended() -> None:
    """An exit stack goes on with the next callback whatever ends the one before, and all of them wait."""
    ended: list[int] = []
    left: list[object] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for number in range(5):
                stack.push_async_callback(wait, number)

    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("node")
        process.create_task(serve())
        await asyncio.sleep(1)
        process.kill()
        assert ended == [4, 3, 2, 1, 0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", left.append)
        run(main)
        gc.collect()
    assert left == []


def test_code_that_cannot_be_ended_is_named() -> None:
    async def stay() -> None:
        for _ in range(102):  # one more than it is asked to end
            with suppress(BaseException):
                await asyncio.get_running_loop().create_future()

    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("node")
        process.create_task(stay())
        await asyncio.sleep(1)
        with pytest.raises(SimulationError, match="stay"):
            process.kill()

    run(main)


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("p")
        worker = Worker(loop)
        process.create_task(worker.run())
        await asyncio.sleep(1.02)
        process.pause()
        count = len(worker.steps)
        await asyncio.sleep(10)
        assert process.is_paused
        assert len(worker.steps) == count
        process.resume()
        await asyncio.sleep(0.01)
        after = worker.steps[count:]
        assert after.count("task") == 1  # its timer fired once, long ago
        await asyncio.sleep(1)
        assert len(worker.steps) > count + 40
        process.kill()

    run(main)


def test_everything_knows_its_process() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.new_process("p")
        found: list[object] = []

        async def look() -> None:
            found.append(PROCESS.get())
            await loop.run_in_executor(None, lambda: found.append(PROCESS.get()))

        await process.create_task(look())
        await look()
        assert found == [process, process, None, None]

    run(main)


# ---- clocks --------------------------------------------------------------------------------------------------------------


def test_clocks_of_one_machine() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = SimulatedClock(loop, monotonic_start_ms=5_000)
        await asyncio.sleep(2)
        assert clock.now_ms() == 7_000
        assert clock.wall_ms() == WALL_START_MS + 2_000
        clock.jump_wall(-100_000)
        assert clock.wall_ms() == WALL_START_MS + 2_000 - 100_000
        assert clock.now_ms() == 7_000
        clock.stall(500)
        await asyncio.sleep(0.4)
        assert clock.now_ms() == 7_000
        await asyncio.sleep(0.2)
        assert clock.now_ms() == 7_600
        later = clock.of_new_process(1)
        assert later.now_ms() == 2_601
        assert later.wall_ms() == clock.wall_ms()

    run(main)
