"""One item ahead in a thread: in order, within its bound, with its error, and gone when nobody wants more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import cast

import pytest

from replog.client.ranges.range_client import RangeClient
from replog.client.ranges.range_reader import RangeReader
from replog.client.ranges.read_ahead import AHEAD, Stop, read_ahead
from replog.client.sync.loop_thread import LoopThread

LIMIT_S = 30


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "replog-read-ahead"]


def test_all_items_in_order_and_never_more_than_the_bound_ahead() -> None:
    made: list[int] = []

    def make(_stop: Stop) -> Generator[int, None, None]:
        for number in range(200):
            made.append(number)
            yield number

    for taken, number in enumerate(read_ahead(make), 1):
        assert number == taken - 1
        assert len(made) <= taken + AHEAD
    assert (len(made), threads()) == (200, [])


def test_the_next_item_is_made_while_the_last_one_is_used() -> None:
    is_next_begun = threading.Event()

    def make(_stop: Stop) -> Generator[str, None, None]:
        yield "first"
        is_next_begun.set()
        yield "second"

    items = read_ahead(make)
    assert next(items) == "first"
    assert is_next_begun.wait(LIMIT_S), "nobody has asked for it yet"
    assert list(items) == ["second"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_comes_behind_what_was_made_before_it(kind: type[BaseException]) -> None:
    def make(_stop: Stop) -> Generator[int, None, None]:
        yield 1
        yield 2
        raise kind("broken")

    items = read_ahead(make)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(kind, match="broken"):
        next(items)
    assert threads() == []


def test_a_task_that_ends_early_ends_the_thread_and_closes_what_it_reads() -> None:
    """Goal: also where it waits for a broker."""
    waits, woken, closed = threading.Event(), threading.Event(), threading.Event()

    def make(stop: Stop) -> Generator[int, None, None]:
        try:
            yield 1
            with stop.waking(woken.set):
                waits.set()
                assert woken.wait(LIMIT_S)
            yield 2
        finally:
            closed.set()

    items = read_ahead(make)
    assert next(items) == 1
    assert waits.wait(LIMIT_S)
    items.close()
    assert (woken.is_set(), closed.is_set(), threads()) == (True, True, [])


def test_an_error_in_the_task_ends_the_thread() -> None:
    closed = threading.Event()

    def make(_stop: Stop) -> Generator[int, None, None]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    items = read_ahead(make)
    next(items)
    with pytest.raises(ZeroDivisionError):
        items.throw(ZeroDivisionError())
    assert (closed.is_set(), threads()) == (True, [])


def test_a_thread_that_the_reading_waits_for_can_end_it() -> None:
    """Goal: the garbage collector may end it in any thread, also in the one whose answer is waited for."""
    waits, answer, answered = threading.Event(), threading.Event(), list[bool]()

    def make(_stop: Stop) -> Generator[int, None, None]:
        yield 1
        waits.set()
        answered.append(answer.wait(LIMIT_S))
        yield 2

    def end() -> None:
        items.close()
        answer.set()

    items = read_ahead(make)
    assert next(items) == 1
    assert waits.wait(LIMIT_S)
    (thread,) = (each for each in threading.enumerate() if each.name == "replog-read-ahead")
    other = threading.Thread(target=end)
    other.start()
    other.join()
    thread.join()
    assert answered == [True]


def test_the_thread_of_the_loop_can_end_a_read_that_waits_for_it() -> None:
    given_up = threading.Event()
    client, thread = RangeClient.__new__(RangeClient), LoopThread.acquire(given_up)
    client._thread = thread
    reader = cast("RangeReader", SimpleNamespace(give_up=given_up.set))

    async def end() -> None:
        client._give_up(reader)

    try:
        thread.run(end)
        assert given_up.wait(LIMIT_S)
    finally:
        LoopThread.release(given_up)
    client._give_up(reader)  # the waiting ended with the loop


FORK = """
import os, signal
from replog.errors import BrokerClosedError
from replog.client.ranges.read_ahead import read_ahead
def make(stop):
    yield from range(9)
items = read_ahead(make)
assert next(items) == 0
pid = os.fork()
if not pid:
    signal.alarm(20)
    try:
        got = list(items)
    except BrokerClosedError as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert list(items) == list(range(1, 9))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    path = ":".join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", FORK], check=True, env={"PYTHONPATH": path}, timeout=60)


def test_who_begins_to_wait_after_the_end_is_woken_at_once() -> None:
    stop, woken = Stop(), threading.Event()
    stop.set()
    with stop.waking(woken.set):
        assert woken.is_set()
    with Stop().waking(woken.clear):
        pass
    assert woken.is_set(), "nobody ended that one"
