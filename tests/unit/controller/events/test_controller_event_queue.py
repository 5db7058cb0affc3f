"""The order in which a controller does things."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replog.controller.events.queue import EventQueue, Run


class Ran:
    """What ran, by name, in order."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue
        self.names: list[str] = []

    def named(self, name: str) -> Run:
        return lambda _now_ms: self.names.append(name)

    def up_to(self, now_ms: int) -> list[str]:
        while (run := self._queue.take_due(now_ms)) is not None:
            run(now_ms)
        names, self.names = self.names, []
        return names


def test_events_run_in_order_and_the_activation_first() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.append(ran.named("a"))
    queue.append(ran.named("b"))
    queue.prepend(ran.named("activation"))
    assert len(queue) == 3
    assert ran.up_to(0) == ["activation", "a", "b"]
    assert len(queue) == 0


def test_what_is_due_by_time_runs_before_what_is_queued() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.append(ran.named("queued"))
    queue.defer("late", 20, ran.named("late"))
    queue.defer("early", 10, ran.named("early"))
    assert queue.next_deadline_ms() == 10
    assert ran.up_to(20) == ["early", "late", "queued"]
    assert queue.next_deadline_ms() is None


def test_a_tag_is_there_once() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.defer("task", 10, ran.named("first"))
    queue.defer("task", 30, ran.named("second"))
    assert ran.up_to(29) == []
    assert queue.next_deadline_ms() == 30
    assert ran.up_to(30) == ["second"]
    queue.defer("task", 40, ran.named("third"))
    assert queue.cancel_deferred("task")
    assert not queue.cancel_deferred("task")
    assert ran.up_to(50) == []


def test_a_task_that_defers_itself_runs_once_a_round() -> None:
    queue = EventQueue()
    runs: list[int] = []

    def task(now_ms: int) -> None:
        runs.append(now_ms)
        queue.defer("task", now_ms + 1, task)

    queue.defer("task", 0, task)
    Ran(queue).up_to(5)
    assert runs == [5]
    assert queue.next_deadline_ms() == 6


def test_a_queued_event_times_out_instead_of_running() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.is_held = True
    queue.append(ran.named("a"), 10, ran.named("a is late"))
    queue.append(ran.named("b"), 30, ran.named("b is late"))
    assert ran.up_to(9) == []
    assert ran.up_to(10) == ["a is late"]
    queue.is_held = False
    assert ran.up_to(29) == ["b"]
    assert ran.up_to(99) == []


def test_an_event_without_anybody_to_tell_just_goes() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.is_held = True
    queue.append(ran.named("a"), 10)
    assert ran.up_to(10) == []
    assert len(queue) == 0


def test_a_cancelled_event_does_not_run() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    event = queue.append(ran.named("a"), 10, ran.named("late"))
    assert queue.cancel(event)
    assert not queue.cancel(event)
    assert ran.up_to(20) == []


def test_clearing_gives_back_what_was_queued() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    queue.defer("task", 5, ran.named("task"))
    gone = queue.append(ran.named("gone"))
    queue.append(ran.named("a"), 10)
    queue.cancel(gone)
    for event in queue.clear():
        event.run(0)
    assert ran.names == ["a"]
    assert (len(queue), queue.next_deadline_ms()) == (0, None)
    ran.names.clear()
    assert ran.up_to(99) == []


def test_deadlines_of_events_that_ran_do_not_pile_up() -> None:
    queue = EventQueue()
    ran = Ran(queue)
    for number in range(1_000):
        queue.append(ran.named("a"), 10**9)
        queue.defer("task", 10**6 + number, ran.named("task"))
        ran.up_to(0)
    assert len(queue._timed) < 100


@given(st.lists(st.tuples(st.sampled_from(("append", "prepend", "defer", "run")), st.integers(0, 20)), max_size=40))
def test_every_event_runs_once_or_times_out(actions: list[tuple[str, int]]) -> None:
    queue = EventQueue()
    ran = Ran(queue)
    seen: list[str] = []
    expected: set[str] = set()
    now_ms = 0
    for number, (action, time_ms) in enumerate(actions):
        name = f"{action} {number}"
        match action:
            case "append":
                queue.append(ran.named(name), now_ms + time_ms, ran.named(name))
                expected.add(name)
            case "prepend":
                queue.prepend(ran.named(name))
                expected.add(name)
            case "defer":
                queue.defer(name, now_ms + time_ms, ran.named(name))
                expected.add(name)
            case _:
                now_ms += time_ms
                seen += ran.up_to(now_ms)
    seen += ran.up_to(10**6)
    assert sorted(seen) == sorted(expected)
