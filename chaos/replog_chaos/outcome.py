"""What came of the faults, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from replog.testing.history import Anomaly, AnomalyKind
from replog_chaos.load import Acknowledgement

_LOST = frozenset({AnomalyKind.LOST_WRITE, AnomalyKind.UNSEEN, AnomalyKind.STALE_READ})


class Injected(Struct, frozen=True):
    """One fault that happened.  Times are seconds of the event loop.

    Attributes:
        began_s: The time when it was made to happen.
        flowing_s: The time when every partition took records again.
        settled_s: The time when every replica was in sync again.
        unavailable_s: The longest time without an acknowledgement in one partition.
        lost_count, duplicated_count: The records that it is blamed for, see `blamed`.
    """

    name: str
    nodes: tuple[int, ...]
    began_s: float
    flowing_s: float
    settled_s: float
    unavailable_s: float
    lost_count: int = 0
    duplicated_count: int = 0


class FaultOutcome(Struct, frozen=True):
    """What came of one run.

    Attributes:
        start_s: The time when the load began; the other times are by the same clock.
        skipped: The faults that could not happen here, and why.
        unknown_because: The number of sends without a certain outcome, by what their client was told.
        links: The means by which links were cut.
        transport: What the nodes met over.
        by_client: The number of acknowledged records of each client that wrote.
        stored_count: The number of records that are said to be there, and not where; they are not among the acknowledged.
    """

    start_s: float
    sent_count: int
    acknowledged: Sequence[Acknowledgement]
    unknown_because: Mapping[str, int]
    injected: Sequence[Injected]
    anomalies: Sequence[Anomaly]
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    links: str = "proxies"
    transport: str = "grpc"
    by_client: Mapping[str, int] = field(default_factory=dict[str, int])
    stored_count: int = 0

    @property
    def unknown_count(self) -> int:
        """Sends without a certain outcome."""
        return sum(self.unknown_because.values())

    @property
    def lost_count(self) -> int:
        """Acknowledged records that are not there."""
        return sum(anomaly.kind in _LOST for anomaly in self.anomalies)

    @property
    def duplicated_count(self) -> int:
        """Records that are there twice."""
        return sum(anomaly.kind is AnomalyKind.DUPLICATE for anomaly in self.anomalies)

    def acknowledged_during(self, one: Injected) -> int:
        """Counts the records acknowledged from when a fault began until every replica was in sync again."""
        return sum(one.began_s <= acknowledgement.acked_s <= one.settled_s for acknowledgement in self.acknowledged)

    @property
    def other_anomalies(self) -> Counter[str]:
        """What else went wrong, by kind."""
        return Counter(
            str(anomaly.kind)
            for anomaly in self.anomalies
            if anomaly.kind not in _LOST and anomaly.kind is not AnomalyKind.DUPLICATE
        )


def combined(outcomes: Sequence[FaultOutcome], skipped: Mapping[str, str], links: str, transport: str) -> FaultOutcome:
    """Joins outcomes, one after the other, as if they were one run."""
    return FaultOutcome(
        outcomes[0].start_s if outcomes else 0.0,
        sum(one.sent_count for one in outcomes),
        [acknowledgement for one in outcomes for acknowledgement in one.acknowledged],
        sum((Counter(one.unknown_because) for one in outcomes), Counter[str]()),
        [injected for one in outcomes for injected in one.injected],
        [anomaly for one in outcomes for anomaly in one.anomalies],
        skipped,
        links,
        transport,
        dict(sum((Counter(one.by_client) for one in outcomes), Counter[str]())),
        sum(one.stored_count for one in outcomes),
    )


def blamed(
    injected: Sequence[Injected], acknowledged: Iterable[Acknowledgement], anomalies: Sequence[Anomaly], topic: str
) -> list[Injected]:
    """Returns the faults of one load with the counts of what was lost and doubled.

    A record counts for the first fault that was not over when it was acknowledged.  Records of other topics, and those
    acknowledged after the last fault, count for none.

    Args:
        injected: The faults in the order in which they happened.
        acknowledged: The acknowledgements that the load got.
        anomalies: The anomalies in the history of the load.
        topic: The topic that the load writes.
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
    """Returns the longest time without an acknowledgement in one partition, of those that reach into [began_s, end_s].

    Args:
        acknowledged: The acknowledgements in the order of their coming, some before `began_s` and some after `end_s`.
        partitions_count: The number of partitions; all of them are written all the time.
        began_s: The time when the fault began.
        end_s: The end of the time that is looked at.
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
    """Returns a percentile of a sorted sequence that is not empty, by the nearest rank."""
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]
