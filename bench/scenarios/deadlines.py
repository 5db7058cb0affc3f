"""What do the deadlines of waiting requests cost?"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.deadline_queues import SYSTEMS, DeadlineQueue, DeadlineSystem

WAITING = (100, 10_000, 100_000)
OPERATIONS = 200_000
TIMEOUTS_MS = (500, 30_000)
"""Of fetches and produces, by default."""
PER_MS = 10
"""Operations that begin in one millisecond."""
OPERATION_NS = Metric("operation_ns", "ns")


class DeadlinesScenario(Scenario[DeadlineSystem]):
    """Operations begin with a deadline and end before it ("completed"), or when it has come ("expired").

    As on a broker, the next deadline is asked for after each change, and time goes on in milliseconds.

    Args:
        operations: timed, in each case.
        waiting: how many wait at any time, of those that are completed.
    """

    name = "deadlines"
    question = "What do the deadlines of waiting requests cost, in one bucket a millisecond and in a hierarchical timing wheel?"

    def __init__(self, operations: int = OPERATIONS, waiting: Sequence[int] = WAITING) -> None:
        self._operations = operations
        self._waiting = waiting

    def systems(self) -> Sequence[DeadlineSystem]:
        return SYSTEMS

    def cases(self) -> Sequence[Params]:
        completed: list[Params] = [{"fate": "completed", "waiting": waiting} for waiting in self._waiting]
        return [*completed, {"fate": "expired"}]

    def measure(self, system: DeadlineSystem, params: Params, meter: Meter) -> Measured:
        queue = system.new_queue()
        rng = random.Random(1)
        timeouts = rng.choices(TIMEOUTS_MS, k=self._operations)
        if params["fate"] == "expired":
            with meter.timed() as timing:
                expired = _expire(queue, timeouts)
        else:
            with meter.timed() as timing:
                expired = _complete(queue, timeouts, int(params["waiting"]))
        expected = self._operations if params["fate"] == "expired" else 0
        if expired != expected or queue.next_deadline_ms() is not None:
            raise WrongResultError(f"{system.name}: {expired} of {expected} operations have expired")
        return {OPERATION_NS: timing.wall_s / self._operations * 1e9}


def _complete(queue: DeadlineQueue, timeouts: Sequence[int], waiting: int) -> int:
    """Of so many that wait the oldest ends when another begins, in so short a time that none expires."""
    expired = 0
    for number, timeout_ms in enumerate(timeouts):
        now_ms = number * TIMEOUTS_MS[0] // (2 * waiting)
        queue.add(number, now_ms + timeout_ms)
        queue.discard(number - waiting)
        due_ms = queue.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            expired += len(queue.pop_expired(now_ms))
    for number in range(len(timeouts) - waiting, len(timeouts)):
        queue.discard(number)
    return expired


def _expire(queue: DeadlineQueue, timeouts: Sequence[int]) -> int:
    expired = 0
    for number, timeout_ms in enumerate(timeouts):
        now_ms = number // PER_MS
        queue.add(number, now_ms + timeout_ms)
        due_ms = queue.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            expired += len(queue.pop_expired(now_ms))
    while (due_ms := queue.next_deadline_ms()) is not None:
        expired += len(queue.pop_expired(due_ms))
    return expired


SCENARIO = DeadlinesScenario()
