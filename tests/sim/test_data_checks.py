"""What the data simulation checks beside the replicas of one partition: each check can fail."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.controller.messages import CommittedRecords
from replog.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from tests.sim.committed_partition import CommittedPartition
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.data_topics import OtherTopic, RecreatedTopic, Sent, UncleanTopic

TOPIC_ID = UUID(int=7)


def broker(broker_id: int, *, directory: int = 99) -> RegisterBrokerRecord:
    directories = (UUID(int=directory),)
    return RegisterBrokerRecord(broker_id, UUID(int=broker_id), 1, "127.0.0.1", 9_000, directories, fenced=False)


def partition(**values: object) -> PartitionRecord:
    state = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, "leader_epoch": 0, "partition_epoch": 0, **values}
    return PartitionRecord(0, TOPIC_ID, **state)  # type: ignore[arg-type]  # by name


def reported(*records: MetadataRecord, lost_disk: int | None = None) -> list[str]:
    """What is found while these commit, each for itself."""
    found: list[str] = []
    watched = CommittedPartition("flights", found.append, lambda *_: None, keeps_membership=True)
    if lost_disk is not None:
        watched.lost_disks[lost_disk] = (UUID(int=99),)
    for offset, record in enumerate((*map(broker, range(1, 6)), TopicRecord("flights", TOPIC_ID), *records)):
        watched.take(CommittedRecords(offset, offset + 1, 1, (record,)))
    return found


MOVING = partition(replicas=(4, 2, 3, 1), adding_replicas=(4,), removing_replicas=(1,))


def moved(replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        0, TOPIC_ID, leader=isr[0], isr=isr, replicas=replicas, adding_replicas=(), removing_replicas=()
    )


def test_a_replica_makes_place_for_one_in_the_isr() -> None:
    assert reported(MOVING, moved((4, 2, 3), (4, 2, 3))) == []
    (violation,) = reported(MOVING, moved((4, 2, 3), (2, 3)))
    assert violation.startswith("R13 [1] of the replicas [4, 2, 3, 1] make place for [4, 2, 3], of which [4] are not")


def test_a_reassignment_may_be_cancelled() -> None:
    """What is being added goes at any time."""
    assert reported(MOVING, moved((1, 2, 3), (1, 2, 3))) == []
    assert reported(MOVING, moved((1, 2, 3), (2, 3))) == []


def test_a_reassignment_to_members_of_the_isr_is_one_record() -> None:
    assert reported(MOVING, moved((4, 3), (4, 3))) == []
    assert reported(partition(), moved((2, 3), (2,)))[0].startswith("R13 [1] of the replicas [1, 2, 3]")


def test_another_disk_is_not_eligible() -> None:
    kept = partition(isr=(2,), elr=(1,), leader=2)
    assert reported(kept, broker(1)) == []
    late, new = broker(1), broker(1, directory=100)
    assert reported(kept, late, lost_disk=1) == [], "a process from before the loss has registered, late"
    assert reported(kept, late, new, lost_disk=1) == ["R10 broker 1 has another disk, and is in the ELR [1]"]


def test_a_registration_may_commit_when_another_process_runs() -> None:
    """What counts is whether the process that has registered found an unclean end, not the one that runs by then."""
    asked: list[tuple[int, UUID]] = []
    watched = CommittedPartition("flights", lambda _: None, lambda *who: asked.append(who), keeps_membership=False)
    for offset, record in enumerate(
        (broker(2), TopicRecord("flights", TOPIC_ID), partition(isr=(2,), leader=2, elr=(1,)), broker(1))
    ):
        watched.take(CommittedRecords(offset, offset + 1, 1, (record,)))
    assert asked == [(1, UUID(int=1))]


def altered(value: int) -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, "flights", "min.insync.replicas", str(value))


def test_who_hears_late_may_go_by_an_older_minimum() -> None:
    """The metadata say 2, then 1 at offset 1, then 3 at offset 2: what counts is what was heard and what came since."""
    watched = CommittedPartition("flights", lambda _: None, lambda *_: None, keeps_membership=True, min_isr=2)
    for offset, record in enumerate((TopicRecord("flights", TOPIC_ID), altered(1), altered(3))):
        watched.take(CommittedRecords(offset, offset + 1, 1, (record,)))
    assert watched.min_isr == 3
    assert [watched.least_min_isr(end_offset) for end_offset in (0, 1, 2, 3)] == [1, 1, 1, 3]


# ---- topics that may lose records --------------------------------------------------------------------------------------


@pytest.fixture
def simulation() -> DataSimulation:
    made = DataSimulation(0)
    made.discard()
    return made


def topic(simulation: DataSimulation, kind: type[OtherTopic] = UncleanTopic) -> OtherTopic:
    """Three records, of which the last was sent at 9 s and acknowledged at offset 2."""
    made = kind(simulation)
    made.sent = [Sent(b"a", 1.0, 1.1, 0), Sent(b"b", 2.0), Sent(b"c", 9.0, 9.1, 2)]
    return made


def test_only_what_was_sent_before_may_be_lost(simulation: DataSimulation) -> None:
    violations: list[str] = []
    topic(simulation).must_be_there({0: b"b", 1: b"x", 2: b"c"}, 5.0, violations.append)
    assert violations == []
    topic(simulation).must_be_there({0: b"a", 1: b"c"}, 5.0, violations.append)
    assert len(violations) == 1
    assert violations[0].startswith("lost_write: b'c'")


def test_without_a_reason_nothing_may_be_lost(simulation: DataSimulation) -> None:
    violations: list[str] = []
    topic(simulation).must_be_there({0: b"b", 2: b"c"}, -1.0, violations.append)
    assert [violation[:16] for violation in violations] == ["lost_write: b'a'"]


def test_nothing_is_there_twice_or_from_nobody(simulation: DataSimulation) -> None:
    violations: list[str] = []
    topic(simulation).must_be_sent_once({0: b"a", 1: b"b"}, violations.append)
    assert violations == []
    topic(simulation).must_be_sent_once({0: b"a", 1: b"a"}, violations.append)
    topic(simulation).must_be_sent_once({0: b"nobody's"}, violations.append)
    assert [violation.split(":")[0] for violation in violations] == ["duplicate", "inconsistent_offsets"]


def test_nothing_of_a_deleted_topic_is_in_the_next(simulation: DataSimulation) -> None:
    found, violations = {0: b"a", 2: b"c"}, list[str]()
    recreated = topic(simulation, RecreatedTopic)
    assert isinstance(recreated, RecreatedTopic)
    recreated.judge(found, 0.0, violations.append)
    assert violations == []
    recreated.gone.add(b"a")
    recreated.judge(found, 0.0, violations.append)
    assert [violation[:10] for violation in violations] == ["risen: b'a"]
