"""Wall and CPU time of a piece of work, over this process and those of the system under test.

Why CPU time beside wall time: on shared cores it is the steadier figure, and with brokers in other processes it is the
only one that says what the work costs altogether.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class Timing:
    """Filled in when the timed block ends; seconds."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    brokers_cpu_s: float = 0.0


class Meter:
    """Times blocks.

    Args:
        process_ids: processes whose CPU time counts beside our own.  Of one that has ended in the block only what was
            seen before counts, so that a block that kills a process has no negative time.
        client_ids: processes whose CPU time counts, but is not in `brokers_cpu_s`.
    """

    def __init__(self, process_ids: Sequence[int] = (), client_ids: Sequence[int] = ()) -> None:
        self._process_ids = tuple(process_ids)
        self._client_ids = tuple(client_ids)

    @contextmanager
    def timed(self) -> Iterator[Timing]:
        timing = Timing()
        others_before = self._others_cpu_s()
        cpu_before = time.process_time()
        wall_before = time.perf_counter()
        yield timing
        timing.wall_s = time.perf_counter() - wall_before
        timing.cpu_s = time.process_time() - cpu_before
        for process_id, after in self._others_cpu_s().items():
            spent_s = after - others_before.get(process_id, 0.0)
            timing.cpu_s += spent_s
            timing.brokers_cpu_s += 0.0 if process_id in self._client_ids else spent_s

    def _others_cpu_s(self) -> dict[int, float]:
        found = {}
        for process_id in (*self._process_ids, *self._client_ids):
            try:
                times = psutil.Process(process_id).cpu_times()
            except psutil.NoSuchProcess:
                continue
            found[process_id] = times.user + times.system
        return found


def timed_rounds(meter: Meter, work: Callable[[], object], *, at_least_s: float) -> tuple[Timing, int]:
    """Repeats short work until `at_least_s` have passed, at least once: one round alone is shorter than its noise.

    Returns:
        The time of all rounds together, and how many there were.
    """
    rounds = 0
    with meter.timed() as timing:
        end = time.perf_counter() + at_least_s
        while rounds == 0 or time.perf_counter() < end:
            work()
            rounds += 1
    return timing, rounds
