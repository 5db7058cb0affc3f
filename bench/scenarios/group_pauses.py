"""How long is a partition of a group not read when a member leaves, restarts or is killed, and do the others go on?"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.group_readers import GroupReaders, Handed, ReadingGroup
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.replog_brokers import ReplogBrokers

MEMBERS = 3
PARTITIONS = 12
RATE_PER_S = 1_000
HEARTBEAT_MS = 1_000
SESSION_MS = 5_000
SETTLE_S = 1.0
STEADY_S = 3.0
AFTER_S = 1.0

HANDOVER_MS = Metric("handover_ms", "ms")
OTHERS_PAUSE_MS = Metric("others_pause_ms", "ms")
STEADY_PAUSE_MS = Metric("steady_pause_ms", "ms")

CONFIG = {
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
}
KAFKA_CONFIG = {
    **CONFIG,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
}

Owners = Mapping[int, int]
"""The member that was handed the last record of each partition."""


class GroupPausesScenario(Scenario[GroupReaders]):
    """Three members, each a process of its own, read twelve partitions; a producer sends a record to each every `spacing_ms`.

    Each member notes when its application is handed each record.  No time below `spacing_ms` can be found: it is the floor of
    all metrics, and nothing is taken off them.
    `steady_pause_ms` is the longest time between two records of a partition before anything happens, which is the floor on
    this machine; `handover_ms` the longest afterwards of those that more than one member was handed records of, whoever it
    was; `others_pause_ms` that of the partitions that stayed with their member.  A killed member is put out when its session
    has ended, `session_ms` after its last heartbeat, which is as old as the time between two heartbeats at most.
    `a process starts` is beside what happens to members: one imports their client, joins nothing, and ends.  What others pause
    then is what a restart costs them on this machine without any change of the group.

    Every record must have been handed out at least once.

    Args:
        steady_s: How long to look before anything happens, seconds.
        after_s: How long to look on when every partition is read again, seconds.
        systems: By default all there are; their brokers have `CONFIG`.
    """

    name = "group-pauses"
    question = "How long is a partition not read when a member leaves, restarts or is killed, and do the others go on?"

    def __init__(
        self,
        steady_s: float = STEADY_S,
        after_s: float = AFTER_S,
        systems: Sequence[GroupReaders] | None = None,
    ) -> None:
        self._steady_s = steady_s
        self._after_s = after_s
        self._systems = _systems() if systems is None else systems

    def systems(self) -> Sequence[GroupReaders]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        group = {
            "members": MEMBERS,
            "partitions": PARTITIONS,
            "rate_per_s": RATE_PER_S,
            "spacing_ms": 1_000 * PARTITIONS // RATE_PER_S,
            "heartbeat_ms": HEARTBEAT_MS,
        }
        return [
            {"work": "one leaves", **group},
            {"work": "one restarts", **group},
            {"work": "a process starts", **group},
            {"work": "one is killed", **group, "session_ms": SESSION_MS},
        ]

    def measure(self, system: GroupReaders, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- processes end: their CPU time means nothing
        with system.topic(PARTITIONS) as topic, system.group(topic) as group:
            system.begin_sending(RATE_PER_S, PARTITIONS)
            for _ in range(MEMBERS):
                group.start_member()
            group.wait_until(lambda handed: is_shared(owners(handed), group.members), "every member reads its share")
            time.sleep(SETTLE_S)
            steady_from_s = time.monotonic()
            time.sleep(self._steady_s)
            event_s = time.monotonic()
            disturb(group, str(params["work"]))
            time.sleep(self._after_s)
            sent = system.end_sending(PARTITIONS)
            group.wait_until(lambda handed: not missing(sent, handed), "every record is handed out")
            handed = [each for each in group.handed() if each.at_s >= steady_from_s]
            check(system.name, sent, group.handed())
        return pauses(handed, event_s)


def disturb(group: ReadingGroup, work: str) -> None:
    """Has something happen, to one member or beside them; returns when every partition is read by one that runs."""
    if work == "a process starts":
        group.import_client()
        return
    before = group.members
    victim = min(before)
    if work == "one is killed":
        group.kill_member(victim)
    else:
        group.close_member(victim)
    if work != "one restarts":
        group.wait_until(lambda handed: set(owners(handed).values()) <= group.members, "others read what it has left")
        return
    group.start_member()
    group.wait_until(lambda handed: is_shared(owners(handed), group.members), "the new member reads its share")


def owners(handed: Sequence[Handed]) -> Owners:
    """Returns who was handed the last record of each partition.

    Args:
        handed: What was handed out, by time.
    """
    return {each.partition: each.member for each in handed}


def is_shared(found: Owners, members: Collection[int]) -> bool:
    """Whether these members, and nobody else, read equally many of all partitions."""
    counts = Counter(found.values())
    return len(found) == PARTITIONS and counts == dict.fromkeys(members, PARTITIONS // len(members))


def pauses(handed: Sequence[Handed], event_s: float) -> dict[Metric, float]:
    """Returns the metrics; without one of partitions that stayed, or moved, where there were none.

    Args:
        handed: What was handed out from the time on that counts, by time.
        event_s: When something happened.
    """
    readers: dict[int, set[int]] = defaultdict(set)
    before: dict[int, float] = defaultdict(float)
    after: dict[int, float] = defaultdict(float)
    times: dict[int, list[float]] = defaultdict(list)
    for each in handed:
        readers[each.partition].add(each.member)
        times[each.partition].append(each.at_s)
    for partition, at_s in times.items():
        for earlier_s, later_s in pairwise(at_s):
            gaps = before if later_s < event_s else after
            gaps[partition] = max(gaps[partition], 1_000 * (later_s - earlier_s))
    moved = [gap_ms for partition, gap_ms in after.items() if len(readers[partition]) > 1]
    stayed = [gap_ms for partition, gap_ms in after.items() if len(readers[partition]) == 1]
    found = {HANDOVER_MS: moved, OTHERS_PAUSE_MS: stayed, STEADY_PAUSE_MS: before.values()}
    return {metric: max(gaps_ms) for metric, gaps_ms in found.items() if gaps_ms}


def missing(sent: Collection[tuple[int, int]], handed: Sequence[Handed]) -> set[tuple[int, int]]:
    """Returns partition and offset of what nobody was handed."""
    return set(sent) - {(each.partition, each.offset) for each in handed}


def check(name: str, sent: Collection[tuple[int, int]], handed: Sequence[Handed]) -> None:
    """Raises WrongResultError when a record was handed out to nobody, or one that was never sent."""
    if lost := missing(sent, handed):
        raise WrongResultError(f"{name}: {len(lost)} of {len(sent)} records were handed out to nobody, as {min(lost)}")
    if foreign := {(each.partition, each.offset) for each in handed} - set(sent):
        raise WrongResultError(f"{name}: {len(foreign)} records were handed out that nobody sent, as {min(foreign)}")


def _systems() -> list[GroupReaders]:
    ours = ReplogBrokers(config=CONFIG)
    return [
        GroupReaders("replog", ours, "replog"),
        GroupReaders("replog-librdkafka", ours, "librdkafka"),
        GroupReaders("kafka-librdkafka", KafkaBrokers(config=KAFKA_CONFIG), "librdkafka"),
    ]


SCENARIO = GroupPausesScenario()
