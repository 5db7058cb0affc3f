"""How long do acknowledgements stay away when a node is killed?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, Trace, WrongResultError
from bench.systems.broker_systems import failing_over
from bench.systems.brokers import FailoverReport, FailoverSystem, Killed

RATE_PER_S = 100
BEFORE_S = 1.0
AFTER_S = 1.0
KILLED: tuple[Killed, ...] = ("leader", "leader and controller")
TRACE_BIN_S = 0.05
LONGEST_ACK_GAP_MS = Metric("longest_ack_gap_ms", "ms")


class FailoverScenario(Scenario[FailoverSystem]):
    """A steady producer with the defaults of its client writes to one partition; SIGKILL ends its leader.

    Afterwards every acknowledged record must be in the log at its offset, and nothing else (but for doubles of a producer
    that is not idempotent).  The worst repetition of each system is told as a trace.

    Args:
        before_s: how long to send before the kill.
        after_s: how long to send after acknowledgements came again.
        killed: whom to kill.
        systems: by default all there are.
    """

    name = "failover"
    question = "How long do acknowledgements stay away when a leader is killed?"

    def __init__(
        self,
        before_s: float = BEFORE_S,
        after_s: float = AFTER_S,
        killed: Sequence[Killed] = KILLED,
        systems: Sequence[FailoverSystem] | None = None,
    ) -> None:
        self._before_s = before_s
        self._after_s = after_s
        self._killed = killed
        self._systems = failing_over() if systems is None else systems
        self._traces: dict[tuple[str, str], tuple[float, Trace]] = {}

    def systems(self) -> Sequence[FailoverSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"killed": killed, "rate_per_s": RATE_PER_S} for killed in self._killed]

    def measure(self, system: FailoverSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- a process ends: its CPU time means nothing
        killed = next(name for name in KILLED if name == params["killed"])
        report = system.fail_over(
            killed, rate_per_s=float(params["rate_per_s"]), before_s=self._before_s, after_s=self._after_s
        )
        check(system.name, report)
        gap_s = longest_gap_s(report)
        trace = Trace(self.name, system.name, params, -self._before_s, TRACE_BIN_S, binned(report, self._before_s))
        worst = self._traces.setdefault((system.name, killed), (gap_s, trace))
        self._traces[system.name, killed] = max(worst, (gap_s, trace), key=lambda each: each[0])
        return {LONGEST_ACK_GAP_MS: gap_s * 1000}

    def warm_up(self, system: FailoverSystem, params: Params, meter: Meter) -> None:
        """Does nothing: who is killed is cold when it comes back, and the wait is the other two's."""

    def traces(self) -> Sequence[Trace]:
        return [trace for _, trace in self._traces.values()]


def check(name: str, report: FailoverReport) -> None:
    """Raises WrongResultError when a record is lost, doubled, or not at the offset of its acknowledgement."""
    wrong = sum(sent != found for sent, found in zip(report.sent, report.found, strict=True))
    if wrong:
        raise WrongResultError(f"{name}: {wrong} of {len(report.sent)} records are not at their acknowledged offsets")
    if report.found_count < len(report.sent) or (report.found_count > len(report.sent) and not report.may_double):
        raise WrongResultError(f"{name}: {len(report.sent)} records were sent, the log holds {report.found_count}")


def binned(report: FailoverReport, before_s: float) -> list[int]:
    """How many acknowledgements came in each bin, from `before_s` before the kill (older ones are left out) to the last one."""
    places = [math.floor((at_s - report.killed_s + before_s) / TRACE_BIN_S) for at_s in report.acks_s]
    found = Counter(places)
    return [found[place] for place in range(max(places) + 1)]


def longest_gap_s(report: FailoverReport) -> float:
    """The longest time without an acknowledgement among those that reach beyond the kill."""
    times_s = sorted(report.acks_s)
    return max(later - earlier for earlier, later in pairwise(times_s) if later > report.killed_s)


SCENARIO = FailoverScenario()
