"""Image and delta: what is shared, what changed, what must not be."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.errors import InvariantViolationError
from replog.metadata import MetadataDelta, MetadataImage, awaiting_report
from replog.metadata.config_keys import FLUSH_POLICY, MIN_INSYNC_REPLICAS, RETENTION_MS
from replog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)

FLIGHTS, TAXIS, FLIGHTS_AGAIN = UUID(int=1), UUID(int=2), UUID(int=3)


def register(broker_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, UUID(int=epoch), epoch, "localhost", 9000, (UUID(int=broker_id),))


def partition(topic_id: UUID, partition_id: int = 0, replicas: tuple[int, ...] = (1, 2)) -> PartitionRecord:
    return PartitionRecord(partition_id, topic_id, replicas, replicas, replicas[0], leader_epoch=0, partition_epoch=0)


BASE: tuple[MetadataRecord, ...] = (
    register(1, 0),
    register(2, 1),
    TopicRecord("flights", FLIGHTS),
    partition(FLIGHTS, 0),
    partition(FLIGHTS, 1, (2, 1)),
    TopicRecord("taxis", TAXIS),
    partition(TAXIS, 0, (2, 3)),
    ConfigRecord(ResourceType.TOPIC, "flights", "retention.ms", "5"),
)


def delta_of(image: MetadataImage, *records: MetadataRecord) -> MetadataDelta:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


@pytest.fixture
def image() -> MetadataImage:
    return delta_of(MetadataImage(), *BASE).apply(8, 1)


def test_an_image_holds_what_was_replayed(image: MetadataImage) -> None:
    assert (image.end_offset, image.epoch) == (8, 1)
    assert sorted(image.brokers) == [1, 2]
    assert image.topics_by_name["flights"] is image.topics_by_id[FLIGHTS]
    assert image.partition(FLIGHTS, 1).leader == 2  # type: ignore[union-attr]
    assert image.partition(FLIGHTS, 2) is None
    assert image.partition(UUID(int=99), 0) is None


def test_a_change_shares_everything_it_does_not_touch(image: MetadataImage) -> None:
    after = delta_of(image, PartitionChangeRecord(0, FLIGHTS, isr=(1,))).apply(9, 1)
    assert after.topics_by_id[TAXIS] is image.topics_by_id[TAXIS]
    assert after.partition(FLIGHTS, 1) is image.partition(FLIGHTS, 1)
    assert after.brokers is image.brokers
    assert after.configs is image.configs
    assert image.partition(FLIGHTS, 0).isr == (1, 2)  # type: ignore[union-attr]
    assert after.partition(FLIGHTS, 0).isr == (1,)  # type: ignore[union-attr]


def test_nothing_changed_shares_all_tables(image: MetadataImage) -> None:
    after = delta_of(image, NoOpRecord()).apply(9, 2)
    assert (after.end_offset, after.epoch) == (9, 2)
    assert after.topics_by_id is image.topics_by_id


def test_brokers(image: MetadataImage) -> None:
    delta = delta_of(
        image, BrokerRegistrationChangeRecord(1, 0, fenced=False), UnregisterBrokerRecord(2, 1), register(3, 10)
    )
    after = delta.apply(11, 1)
    assert {broker_id: broker and broker.fenced for broker_id, broker in delta.changed_brokers.items()} == {
        1: False,
        2: None,
        3: True,
    }
    assert sorted(after.brokers) == [1, 3]


def test_a_topic_deleted_and_created_again_in_one_delta(image: MetadataImage) -> None:
    delta = delta_of(
        image, RemoveTopicRecord(FLIGHTS), TopicRecord("flights", FLIGHTS_AGAIN), partition(FLIGHTS_AGAIN, 0, (1, 3))
    )
    after = delta.apply(11, 1)
    assert after.topics_by_name["flights"].topic_id == FLIGHTS_AGAIN
    assert FLIGHTS not in after.topics_by_id
    assert (ResourceType.TOPIC, "flights") not in after.configs
    assert list(delta.changed_partitions()) == [(FLIGHTS_AGAIN, 0)]


def test_a_topic_created_and_deleted_in_one_delta_leaves_nothing(image: MetadataImage) -> None:
    new = UUID(int=7)
    delta = delta_of(image, TopicRecord("trains", new), partition(new), RemoveTopicRecord(new))
    assert not delta.removed_topics
    assert not delta.changed_partitions()
    assert "trains" not in delta.apply(11, 1).topics_by_name


def test_local_changes_delete_lead_follow(image: MetadataImage) -> None:
    delta = delta_of(
        image,
        PartitionChangeRecord(0, FLIGHTS, leader=2),
        PartitionChangeRecord(1, FLIGHTS, replicas=(2, 3)),
        RemoveTopicRecord(TAXIS),
    )

    def names(broker_id: int) -> list[list[str]]:
        changes = delta.local_changes(broker_id)
        groups = (changes.deletes, changes.leaders, changes.followers)
        return [[f"{local.topic_name}-{local.partition_id}" for local in group] for group in groups]

    assert names(1) == [["flights-1"], [], ["flights-0"]]
    assert names(2) == [["taxis-0"], ["flights-0", "flights-1"], []]
    assert names(3) == [["taxis-0"], [], ["flights-1"]]


def test_configs(image: MetadataImage) -> None:
    delta = delta_of(
        image,
        ConfigRecord(ResourceType.TOPIC, "flights", "retention.ms", None),
        ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "7"),
        ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "2"),
        ConfigRecord(ResourceType.TOPIC, "taxis", "min.insync.replicas", "3"),
    )
    after = delta.apply(12, 1)
    assert image.config_value("flights", RETENTION_MS) == 5
    assert after.config_value("flights", RETENTION_MS) == 7
    assert after.config_value("flights", MIN_INSYNC_REPLICAS) == 2
    assert after.config_value("taxis", MIN_INSYNC_REPLICAS) == 3
    assert MetadataImage().config_value("any", FLUSH_POLICY) == "auto"


def test_producer_ids_and_features(image: MetadataImage) -> None:
    after = delta_of(image, ProducerIdsRecord(1, 0, 1000), FeatureLevelRecord("metadata.version", 1)).apply(10, 1)
    assert after.next_producer_id == 1000
    assert after.features == {"metadata.version": 1}
    with pytest.raises(InvariantViolationError):
        MetadataDelta(after).replay(ProducerIdsRecord(1, 0, 999))


@pytest.mark.parametrize(
    "record",
    [
        UnregisterBrokerRecord(9, 0),
        UnregisterBrokerRecord(1, 5),
        BrokerRegistrationChangeRecord(9, 0, fenced=True),
        TopicRecord("flights", UUID(int=50)),
        RemoveTopicRecord(UUID(int=50)),
        partition(UUID(int=50)),
        partition(FLIGHTS, 0),
        PartitionChangeRecord(0, UUID(int=50), leader=1),
        PartitionChangeRecord(5, FLIGHTS, leader=1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_image_is_refused(image: MetadataImage, record: MetadataRecord) -> None:
    with pytest.raises(InvariantViolationError):
        MetadataDelta(image).replay(record)


def test_a_removed_topic_is_unknown_at_once(image: MetadataImage) -> None:
    delta = delta_of(image, RemoveTopicRecord(FLIGHTS))
    with pytest.raises(InvariantViolationError):
        delta.replay(PartitionChangeRecord(0, FLIGHTS, leader=1))


def test_awaiting_report(image: MetadataImage) -> None:
    lost = PartitionChangeRecord(1, FLIGHTS, leader=-1, isr=(), last_known_elr=(1, 2))
    waiting = delta_of(image, lost).apply(9, 1)
    assert [(awaited.topic_name, awaited.partition_id) for awaited in awaiting_report(waiting, 1)] == [("flights", 1)]
    assert awaiting_report(waiting, 3) == []
    assert awaiting_report(image, 1) == []
