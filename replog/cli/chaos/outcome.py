"""What came of the faults, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from replog.cli.chaos.load import Acknowledgement
from replog.testing.history import Anomaly, AnomalyKind

_LOST = frozenset({AnomalyKind.LOST_WRITE, AnomalyKind.UNSEEN, AnomalyKind.STALE_READ})


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault that happened.  Times are seconds of the event loop.

    Attributes:
        began_s: when it was made to happen.
        flowing_s: when every partition took records again.
        settled_s: when every replica was in sync again.
        unavailable_s: the longest time without an acknowledgement in one partition.
        lost_count, duplicated_count: records that it is blamed for, see `blamed`.
    """

    name: str
    nodes: tuple[int, ...]
    began_s: float
    flowing_s: float
    settled_s: float
    unavailable_s: float
    lost_count: int = 0
    duplicated_count: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run.

    Attributes:
        start_s: of the load; times of the others are relative to the same clock.
        skipped: faults that could not happen here, and why.
        links: by what they were cut.
    """

    start_s: float
    sent_count: int
    acknowledged: Sequence[Acknowledgement]
    unknown_count: int
    injected: Sequence[Injected]
    anomalies: Sequence[Anomaly]
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    links: str = "proxies"

    @property
    def lost_count(self) -> int:
        """Acknowledged records that are not there."""
        return sum(anomaly.kind in _LOST for anomaly in self.anomalies)

    @property
    def duplicated_count(self) -> int:
        """Records that are there twice."""
        return sum(anomaly.kind is AnomalyKind.DUPLICATE for anomaly in self.anomalies)

    def acknowledged_during(self, one: Injected) -> int:
        """Records acknowledged from when a fault began until every replica was in sync again."""
        return sum(one.began_s <= acknowledgement.acked_s <= one.settled_s for acknowledgement in self.acknowledged)

    @property
    def other_anomalies(self) -> Counter[str]:
        """What else went wrong, by kind."""
        return Counter(
            str(anomaly.kind)
            for anomaly in self.anomalies
            if anomaly.kind not in _LOST and anomaly.kind is not AnomalyKind.DUPLICATE
        )


def combined(outcomes: Sequence[Outcome], skipped: Mapping[str, str], links: str) -> Outcome:
    """One after the other, as if they were one run."""
    return Outcome(
        outcomes[0].start_s if outcomes else 0.0,
        sum(one.sent_count for one in outcomes),
        [acknowledgement for one in outcomes for acknowledgement in one.acknowledged],
        sum(one.unknown_count for one in outcomes),
        [injected for one in outcomes for injected in one.injected],
        [anomaly for one in outcomes for anomaly in one.anomalies],
        skipped,
        links,
    )


def blamed(
    injected: Sequence[Injected], acknowledged: Iterable[Acknowledgement], anomalies: Sequence[Anomaly], topic: str
) -> list[Injected]:
    """The faults of one load with what was lost and doubled: each counts for the first one that was not over when the
    record was acknowledged.  Records of other topics, and those acknowledged after the last fault, count for none.

    Args:
        injected: in the order in which they happened.
        acknowledged: by the load.
        anomalies: in its history.
        topic: that it writes.
    """
    acked_s = {(one.partition, one.offset): one.acked_s for one in acknowledged}
    counts: Counter[tuple[int, bool]] = Counter()
    for anomaly in anomalies:
        is_lost, is_double = anomaly.kind in _LOST, anomaly.kind is AnomalyKind.DUPLICATE
        at_s = acked_s.get((anomaly.partition[1], anomaly.offset)) if anomaly.partition[0] == topic else None
        number = next((n for n, one in enumerate(injected) if at_s is not None and at_s <= one.settled_s), None)
        if number is not None and (is_lost or is_double):
            counts[number, is_lost] += 1
    return [
        replace(one, lost_count=counts[number, True], duplicated_count=counts[number, False])
        for number, one in enumerate(injected)
    ]


def unavailable_s(
    acknowledged: Iterable[Acknowledgement], partitions_count: int, began_s: float, end_s: float
) -> float:
    """The longest time without an acknowledgement in one partition, of those times that reach into [began_s, end_s].

    Args:
        acknowledged: in the order of their coming, some before `began_s` and some after `end_s`.
        partitions_count: all of them are written all the time.
        began_s: of the fault.
        end_s: of looking.
    """
    times: list[list[float]] = [[] for _ in range(partitions_count)]
    for one in acknowledged:
        times[one.partition].append(one.acked_s)
    gaps = [
        later - earlier
        for of_partition in times
        for earlier, later in pairwise(of_partition)
        if later > began_s and earlier < end_s
    ]
    return max(gaps, default=end_s - began_s)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank; of a sorted sequence that is not empty."""
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]
