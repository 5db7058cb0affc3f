"""Snapshots: an image as records is the same image again, and a node that loads one differs in nothing (T2)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_histories import bounded, contents, in_transaction, records_of, replayed

from replog.errors import InvariantViolationError
from replog.metadata import AwaitedReport, MetadataDelta, MetadataImage, awaiting_report, image_records
from replog.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)

A, B = UUID(int=1), UUID(int=2)


def partition(topic_id: UUID, partition_id: int, *replicas: int) -> PartitionRecord:
    return PartitionRecord(partition_id, topic_id, replicas, replicas, replicas[0], 0, 0)


@bounded
@given(st.data())
def test_image_to_records_to_image_is_the_identity(data: st.DataObject) -> None:
    image = replayed(records_of(data))
    assert contents(replayed(list(image_records(image)))) == contents(image)


@bounded
@given(st.data())
def test_equal_images_give_equal_records_however_they_came_about(data: st.DataObject) -> None:
    records = records_of(data)
    at_once = replayed(records)
    one_by_one = MetadataImage()
    for record in records:
        one_by_one = replayed([record], one_by_one)
    assert list(image_records(one_by_one)) == list(image_records(at_once))


def test_kinds_stand_in_the_order_of_kafka() -> None:
    image = replayed(
        [TopicRecord("b", B), partition(B, 1, 2), partition(B, 0, 1), TopicRecord("a", A), partition(A, 0, 1)]
    )
    shown = [
        f"{type(record).__name__} {getattr(record, 'name', getattr(record, 'partition_id', ''))}"
        for record in image_records(image)
    ]
    assert shown == ["TopicRecord a", "PartitionRecord 0", "TopicRecord b", "PartitionRecord 0", "PartitionRecord 1"]


def test_inside_a_transaction_there_is_nothing_to_write() -> None:
    image = replayed([TopicRecord("a", A), BeginTransactionRecord("t"), TopicRecord("b", B)])
    with pytest.raises(InvariantViolationError, match="inside a transaction"):
        image_records(image)


@bounded
@given(st.data())
def test_between_two_images_is_what_must_change(data: st.DataObject) -> None:
    before = replayed(records_of(data))
    after = replayed(records_of(data, before), before)
    delta = MetadataDelta.between(before, after)
    assert contents(delta.apply(after.end_offset, after.epoch)) == contents(after)


@bounded
@given(st.data(), st.integers(1, 3))
def test_a_snapshot_brings_the_local_changes_of_the_records_it_stands_for(data: st.DataObject, broker_id: int) -> None:
    """But for the partitions that ended as they began: nothing has to be done about those."""
    before = replayed(records_of(data))
    records = records_of(data, before)
    by_records = MetadataDelta(before)
    for record in records:
        by_records.replay(record)
    after = by_records.apply(before.end_offset + len(records), 1)
    by_snapshot = MetadataDelta.between(before, after)
    expected, found = by_records.local_changes(broker_id), by_snapshot.local_changes(broker_id)
    assert set(found.deletes) == set(expected.deletes)
    assert set(found.leaders) <= set(expected.leaders)
    assert set(found.followers) <= set(expected.followers)
    unchanged = {
        (each.topic_id, each.partition_id)
        for each in {*expected.leaders, *expected.followers} - {*found.leaders, *found.followers}
    }
    for topic_id, partition_id in unchanged:
        assert before.partition(topic_id, partition_id) == after.partition(topic_id, partition_id)


def test_a_snapshot_deletes_what_it_does_not_mention() -> None:
    before = replayed([TopicRecord("a", A), partition(A, 0, 1, 2), TopicRecord("b", B), partition(B, 0, 2)])
    after = replayed([TopicRecord("b", B), partition(B, 0, 2)])
    delta = MetadataDelta.between(before, after)
    changes = delta.local_changes(1)
    assert [(local.topic_name, local.partition_id) for local in changes.deletes] == [("a", 0)]
    assert (changes.leaders, changes.followers, delta.local_changes(2).leaders) == ((), (), ())
    assert list(delta.apply(9, 1).topics_by_name) == ["b"]


def test_topics_of_one_name_and_two_ids_are_two_topics() -> None:
    before = replayed([TopicRecord("a", A), partition(A, 0, 1)])
    after = replayed([TopicRecord("a", B), partition(B, 0, 1)])
    delta = MetadataDelta.between(before, after)
    changes = delta.local_changes(1)
    assert [local.topic_id for local in changes.deletes] == [A]
    assert [local.topic_id for local in changes.leaders] == [B]
    assert delta.apply(9, 1).topics_by_name["a"].topic_id == B


def test_what_no_record_can_do_is_refused() -> None:
    before = replayed([TopicRecord("a", A), partition(A, 0, 1), partition(A, 1, 1)])
    with pytest.raises(InvariantViolationError, match="a-1 is gone without its topic"):
        MetadataDelta.between(before, replayed([TopicRecord("a", A), partition(A, 0, 1)]))
    renamed = replayed([TopicRecord("b", A), partition(A, 0, 1), partition(A, 1, 1)])
    with pytest.raises(InvariantViolationError, match='was "a" and is "b"'):
        MetadataDelta.between(before, renamed)


@bounded
@given(st.data(), st.booleans(), st.integers(0, 40))
def test_a_transaction_counts_at_its_end_or_not_at_all(data: st.DataObject, aborted: bool, cut: int) -> None:
    before = replayed(records_of(data, max_size=10))
    inside = records_of(data, before, max_size=10)
    records = in_transaction(inside, aborted=aborted)
    cut = min(cut, len(records) - 1)
    middle = replayed(records[:cut], before)
    assert contents(middle) | {"open_transaction": None} == contents(before)
    after = replayed(records[cut:], middle)  # a delta may end inside of it
    assert contents(after) == contents(before if aborted else replayed(inside, before))


def test_a_change_inside_a_transaction_is_of_the_state_at_its_end() -> None:
    inside = [TopicRecord("a", A), partition(A, 0, 1, 2), PartitionChangeRecord(0, A, leader=2), RemoveTopicRecord(A)]
    assert contents(replayed(in_transaction(inside, aborted=False))) == contents(MetadataImage())


@bounded
@given(st.data())
def test_the_index_of_awaited_reports_follows_from_the_topics(data: st.DataObject) -> None:
    image = MetadataImage()
    for _ in range(4):
        image = replayed(records_of(data, image, max_size=8), image)
        expected = {
            (topic.topic_id, partition_id): partition
            for topic in image.topics_by_id.values()
            for partition_id, partition in topic.partitions.items()
            if partition.awaits_reports
        }
        assert dict(image.awaiting_reports) == expected
    snapshot = MetadataDelta.between(MetadataImage(), image).apply(image.end_offset, 1)
    assert snapshot.awaiting_reports == image.awaiting_reports


def test_records_may_follow_a_difference() -> None:
    delta = MetadataDelta.between(MetadataImage(), replayed([TopicRecord("a", A), partition(A, 0, 1)]))
    with pytest.raises(InvariantViolationError, match="created twice"):
        delta.replay(TopicRecord("a", B))
    delta.replay(RemoveTopicRecord(A))
    delta.replay(TopicRecord("a", B))
    assert list(delta.apply(4, 1).topics_by_id) == [B]


def test_a_difference_keeps_an_open_transaction() -> None:
    inside = replayed([BeginTransactionRecord("t"), TopicRecord("a", A)])
    delta = MetadataDelta.between(MetadataImage(), inside)
    assert not delta.changed_topics
    delta.replay(EndTransactionRecord())
    assert list(delta.apply(3, 1).topics_by_name) == ["a"]


def test_configs_are_in_order_of_their_names() -> None:
    records = [ConfigRecord(ResourceType.TOPIC, "a", name, "1") for name in ("x", "b", "c")]
    assert list(image_records(replayed([*records]))) == sorted(records, key=lambda record: record.name)


def test_a_partition_awaits_reports_until_it_has_a_leader_or_is_gone() -> None:
    waiting = [PartitionRecord(number, A, (1, 2), (), -1, 0, 0, last_known_elr=(1,)) for number in (0, 1)]
    image = replayed([TopicRecord("a", A), *waiting])
    assert awaiting_report(image, 1) == [AwaitedReport("a", A, 0), AwaitedReport("a", A, 1)]
    assert awaiting_report(image, 2) == []
    elected = PartitionChangeRecord(0, A, leader=1, isr=(1,), last_known_elr=())
    assert list(replayed([elected], image).awaiting_reports) == [(A, 1)]
    assert not replayed([RemoveTopicRecord(A)], image).awaiting_reports
