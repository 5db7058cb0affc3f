"""What the timeline says of records of the metadata log."""

from __future__ import annotations

from uuid import UUID

from replog.console.partition_history import PartitionHistory
from replog.console.timeline import start_offset
from replog.metadata import MetadataImage
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ElectionType,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

TOPIC, OTHER = UUID(int=1), UUID(int=2)


def told(*records: MetadataRecord) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Returns (offset, what, why) of the moments of partition 0 that follow from records, a batch each."""
    history = PartitionHistory(TOPIC, 0, MetadataImage())
    for offset, record in enumerate(records):
        history.take([(offset, 1_000 + offset, record)])
    return [(each.offset, each.what, each.why) for each in history.moments]


CREATED = PartitionRecord(0, TOPIC, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=0, partition_epoch=0)


def fenced(broker_id: int, *, is_fenced: bool = True) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id, 7, fenced=is_fenced)


def test_a_dead_leader_is_why_another_one_leads_and_news_of_others_are_not() -> None:
    moments = told(
        CREATED,
        fenced(3),
        fenced(1),
        PartitionChangeRecord(0, OTHER, leader=2),
        PartitionChangeRecord(0, TOPIC, leader=2, isr=(2, 3)),
    )
    assert moments[0] == (0, ("created on brokers 1, 2, 3, led by broker 1",), ())
    assert moments[1:] == [
        (
            4,
            ("broker 2 leads instead of broker 1", "broker 1 left the ISR"),
            ("broker 1 was fenced: its process or its heartbeats had ended",),
        )
    ]


def test_the_reason_may_stand_behind_the_change_in_one_batch() -> None:
    history = PartitionHistory(TOPIC, 0, MetadataImage())
    change = PartitionChangeRecord(0, TOPIC, isr=(1, 2))
    history.take([(0, -1, CREATED)])
    history.take([(1, -1, change), (2, -1, fenced(3))])
    history.take([(3, -1, fenced(3, is_fenced=False))])
    history.take([(4, -1, PartitionChangeRecord(0, TOPIC, isr=(1, 2, 3)))])
    assert [each.why for each in history.moments][1:] == [
        ("broker 3 was fenced: its process or its heartbeats had ended",),
        ("broker 3 served again",),
    ]


def test_who_falls_behind_and_catches_up_is_told_by_the_leader() -> None:
    moments = told(
        CREATED,
        PartitionChangeRecord(0, TOPIC, isr=(1, 2), elr=(3,)),
        PartitionChangeRecord(0, TOPIC, isr=(1, 2, 3), elr=()),
    )
    assert [why for _, _, why in moments[1:]] == [
        ("its leader, broker 1, saw that it did not keep up",),
        ("its leader, broker 1, saw that it had caught up",),
    ]
    assert moments[1][1] == ("broker 3 left the ISR", "broker 3 stays eligible to lead")


def test_the_kind_of_an_election_is_a_reason() -> None:
    unclean = PartitionChangeRecord(0, TOPIC, leader=3, isr=(3,), election_type=ElectionType.UNCLEAN)
    (_, what, why) = told(CREATED, PartitionChangeRecord(0, TOPIC, leader=-1, isr=()), unclean)[2]
    assert what == ("broker 3 leads, before nobody", "broker 3 joined the ISR")
    assert why == ("an unclean election: what the new leader lacked was given up",)


def test_what_a_transaction_takes_back_has_not_happened() -> None:
    assert told(BeginTransactionRecord("t"), CREATED, AbortTransactionRecord("no room")) == []


def test_it_knows_which_replicas_were_fenced() -> None:
    history = PartitionHistory(TOPIC, 0, MetadataImage())
    registered = [RegisterBrokerRecord(each, UUID(int=9), 5, "h", 1, (), fenced=False) for each in (1, 2)]
    history.take((offset, -1, record) for offset, record in enumerate([*registered, CREATED]))
    assert history.moments[-1].fenced == (3,)


def test_it_begins_as_early_as_an_image_allows_and_not_too_early() -> None:
    assert start_offset([100, 200], 0, 300) == 0
    assert start_offset([100, 200], 100, 300) == 100
    assert start_offset([100, 900_000], 0, 1_000_000) == 900_000
    assert start_offset([], 0, 1_000_000) == 0
