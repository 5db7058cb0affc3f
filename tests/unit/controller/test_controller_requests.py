"""What each request is answered, and in which order its rules are checked."""

from __future__ import annotations

from uuid import UUID

import pytest
from controller_kit import Quorum, directory
from msgspec.structs import replace

from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsResponse,
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterPartition,
    AlterPartitionResponse,
    ConfigEntry,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    Heartbeat,
    IsrMember,
    NewTopic,
    PartitionIsrChange,
    PartitionIsrResult,
    RegisterBrokerResponse,
    ReportReplicas,
    TopicResult,
)
from replog.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRequestError,
    StaleBrokerEpochError,
)
from replog.log import METADATA_TOPIC
from replog.metadata.config_keys import FLUSH_POLICY, RETENTION_MS
from replog.metadata.records import LeaderRecoveryState, RegisterBrokerRecord, ResourceType
from replog.metadata.topic_names import RESERVED_NAME


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1, config=ControllerConfig(min_insync_replicas=2))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    return quorum


# ---- registration -----------------------------------------------------------------------------------------------------


def test_a_registration_is_one_batch_with_the_registration_last(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3, partitions=2)
    end_offset = quorum.end_offset
    assert quorum.register(1, incarnation=2) == end_offset
    batch = quorum.log[-1]
    assert [type(record).__name__ for record in batch.records] == [
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "RegisterBrokerRecord",
    ]
    record = batch.records[-1]
    assert isinstance(record, RegisterBrokerRecord)
    assert (batch.base_offset, record.broker_epoch, record.fenced) == (end_offset, end_offset, True)


def test_the_same_incarnation_keeps_its_epoch_and_its_state(quorum: Quorum) -> None:
    epoch, length = quorum.broker_epoch(1), len(quorum.log)
    assert quorum.register(1) == epoch
    assert len(quorum.log) == length
    moved = replace(quorum.register_request(1), host="elsewhere")
    assert quorum.ask(moved) == RegisterBrokerResponse(epoch)
    assert (quorum.image.brokers[1].host, quorum.image.brokers[1].fenced) == ("elsewhere", False)


def test_another_directory_waits_for_the_session_of_the_old_one(quorum: Quorum) -> None:
    request = quorum.register_request(1, 2, directory_number=5)
    with pytest.raises(DuplicateBrokerRegistrationError):
        quorum.ask(request)
    quorum.now_ms += 9_001
    assert isinstance(quorum.ask(request), RegisterBrokerResponse)


def test_a_directory_that_went_missing_is_an_unclean_restart(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    quorum.now_ms += 9_001
    request = quorum.register_request(1, 2, directory_number=5, previous=quorum.broker_epoch(1))
    quorum.ask(request)
    flights = quorum.partition("flights")
    assert (flights.isr, flights.elr, flights.last_known_elr) == ((2,), (), ())  # nor is it waited for


def test_registrations_that_are_refused(quorum: Quorum) -> None:
    request = quorum.register_request(4)
    with pytest.raises(InconsistentClusterIdError):
        quorum.ask(replace(request, cluster_id="other"))
    for log_dirs in ((), (directory(4), directory(4)), (directory(2),)):
        with pytest.raises(InvalidRequestError):
            quorum.ask(replace(request, log_dirs=log_dirs))
    with pytest.raises(InvalidRequestError):
        quorum.ask(replace(request, broker_id=-1))


# ---- heartbeats -------------------------------------------------------------------------------------------------------


def test_a_broker_serves_once_it_has_applied_its_registration(quorum: Quorum) -> None:
    quorum.register(4)
    registered_at = quorum.end_offset - 1
    early = quorum.heartbeat(4, offset=registered_at)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    late = quorum.heartbeat(4, offset=registered_at + 1)
    assert (late.is_caught_up, late.is_fenced) == (True, False)


def test_a_broker_may_ask_for_the_fence(quorum: Quorum) -> None:
    assert quorum.heartbeat(1, want_fence=True).is_fenced
    assert quorum.image.brokers[1].fenced
    both = quorum.heartbeat(2, want_fence=True, want_shut_down=True)
    assert (both.is_fenced, both.should_shut_down) == (True, True)
    assert quorum.image.brokers[2].fenced


def test_who_leads_nothing_stops_at_once(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    assert quorum.heartbeat(2, want_shut_down=True).should_shut_down
    assert quorum.partition("flights").elr == (2,)


def test_a_controlled_shutdown_goes_on_under_the_next_controller() -> None:
    quorum = Quorum(1, 2)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2)
    quorum.create("flights", 1, 2)
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down  # 2 has not told yet how far it is
    quorum.heartbeat(2)
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down
    assert not quorum.image.brokers[1].in_controlled_shutdown


@pytest.mark.parametrize("broker_id", [1, 9])
def test_only_registered_incarnations_are_heard(quorum: Quorum, broker_id: int) -> None:
    expected = StaleBrokerEpochError if broker_id == 1 else BrokerIdNotRegisteredError
    for request in (
        Heartbeat(broker_id, 10**6, 0),
        AlterPartition(broker_id, 10**6, ()),
        AllocateProducerIds(broker_id, 10**6),
        ReportReplicas(broker_id, 10**6, ()),
    ):
        with pytest.raises(expected):
            quorum.ask(request)


# ---- AlterPartition ---------------------------------------------------------------------------------------------------


def alter(quorum: Quorum, *changes: PartitionIsrChange, sender: int = 1) -> tuple[PartitionIsrResult, ...]:
    response = quorum.ask(AlterPartition(sender, quorum.broker_epoch(sender), changes))
    assert isinstance(response, AlterPartitionResponse)
    return response.partitions


def test_alter_partition_answers_with_the_state_after_it(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    change = quorum.isr_change("flights", (1, 2))
    (result,) = alter(quorum, change)
    partition = quorum.partition("flights")
    assert (result.error, result.isr, result.partition_epoch) == (ErrorCode.NONE, (1, 2), 1)
    assert (result.leader, result.leader_epoch) == (partition.leader, partition.leader_epoch) == (1, 0)
    length = len(quorum.log)
    (again,) = alter(quorum, quorum.isr_change("flights", (1, 2)))
    assert (again.error, again.partition_epoch, len(quorum.log)) == (ErrorCode.NONE, 1, length)


def test_alter_partition_checks_in_kafkas_order(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    alter(quorum, quorum.isr_change("flights", (1, 2)))
    quorum.heartbeat(3, want_fence=True)
    good = quorum.isr_change("flights", (1, 2))
    stranger = (IsrMember(1, -1), IsrMember(9, -1))
    fenced = (IsrMember(1, -1), IsrMember(3, quorum.broker_epoch(3)))
    # each is wrong in its own way and in every way of those below it
    wrong = replace(good, new_isr=stranger, partition_epoch=0)
    recovering = LeaderRecoveryState.RECOVERING
    for change, error, sender in (
        (replace(wrong, topic_id=UUID(int=5), leader_epoch=9), ErrorCode.UNKNOWN_TOPIC_ID, 2),
        (replace(wrong, partition_id=7, leader_epoch=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2),
        (replace(wrong, leader_epoch=9), ErrorCode.NOT_CONTROLLER, 2),
        (replace(wrong, leader_epoch=-1, partition_epoch=9), ErrorCode.NOT_CONTROLLER, 2),
        (replace(wrong, leader_epoch=-1), ErrorCode.FENCED_LEADER_EPOCH, 2),
        (wrong, ErrorCode.INVALID_REQUEST, 2),
        (wrong, ErrorCode.INVALID_UPDATE_VERSION, 1),
        (replace(good, new_isr=stranger), ErrorCode.INVALID_REQUEST, 1),
        (replace(good, new_isr=(IsrMember(2, -1),)), ErrorCode.INVALID_REQUEST, 1),
        (replace(good, new_isr=(IsrMember(1, -1), IsrMember(1, -1))), ErrorCode.INVALID_REQUEST, 1),
        (replace(good, new_isr=fenced, leader_recovery_state=recovering), ErrorCode.INVALID_REQUEST, 1),
        (replace(good, new_isr=fenced), ErrorCode.INELIGIBLE_REPLICA, 1),
        (good, ErrorCode.NONE, 1),
    ):
        assert alter(quorum, change, sender=sender)[0].error is error, change


def test_a_new_member_is_the_incarnation_that_caught_up(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    alter(quorum, quorum.isr_change("flights", (1, 2)))
    good = quorum.isr_change("flights", (1, 2, 3))
    for epoch in (-1, quorum.broker_epoch(3) + 1):
        change = replace(good, new_isr=(*good.new_isr[:2], IsrMember(3, epoch)))
        assert alter(quorum, change)[0].error is ErrorCode.INELIGIBLE_REPLICA
    kept = replace(good, new_isr=(IsrMember(1, -1), IsrMember(2, -1), good.new_isr[2]))
    assert alter(quorum, kept)[0].error is ErrorCode.NONE


def test_one_proposal_per_partition_and_request(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    change = quorum.isr_change("flights", (1, 2))
    results = alter(quorum, change, replace(change, new_isr=change.new_isr[:1]))
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert quorum.partition("flights").isr == (1, 2)


# ---- topics -----------------------------------------------------------------------------------------------------------


def create(quorum: Quorum, *topics: NewTopic, validate_only: bool = False) -> tuple[TopicResult, ...]:
    response = quorum.ask(CreateTopics(topics, validate_only=validate_only))
    assert isinstance(response, CreateTopicsResponse)
    return response.topics


def test_a_topic_by_counts(quorum: Quorum) -> None:
    (result,) = create(quorum, NewTopic("flights", num_partitions=6, replication_factor=3))
    topic = quorum.image.topics_by_name["flights"]
    assert (result.error, result.topic_id, result.num_partitions, result.replication_factor) == (
        ErrorCode.NONE,
        topic.topic_id,
        6,
        3,
    )
    assert {partition.leader for partition in topic.partitions.values()} == {1, 2, 3}
    assert all(partition.isr == partition.replicas for partition in topic.partitions.values())


def test_counts_have_defaults(quorum: Quorum) -> None:
    (result,) = create(quorum, NewTopic("flights"))
    assert (result.num_partitions, result.replication_factor) == (1, 1)


def test_only_active_replicas_begin_in_the_isr(quorum: Quorum) -> None:
    quorum.heartbeat(1, want_fence=True)
    (result,) = create(quorum, NewTopic("flights", assignments=((1, 2, 3),)))
    assert result.error is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((2, 3), 2, 0)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("line\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("old.topic"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("old_topic"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("t", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", num_partitions=10**12), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", num_partitions=1, assignments=((1,),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((1,), (1, 2))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((1, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs=(ConfigEntry("flush.policy", "never"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=(ConfigEntry("flush.polity", "os"),)), ErrorCode.INVALID_CONFIG),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, NewTopic) else value.name,
)
def test_topics_that_are_refused_do_not_stop_the_others(quorum: Quorum, topic: NewTopic, error: ErrorCode) -> None:
    quorum.create("old_topic", 1)
    results = create(quorum, topic, NewTopic("other"))
    assert [result.error for result in results] == [error, ErrorCode.NONE]
    assert results[0].message
    assert sorted(quorum.image.topics_by_name) == ["old_topic", "other"]


def test_names_collide_within_a_request_too(quorum: Quorum) -> None:
    twice = create(quorum, NewTopic("t"), NewTopic("t"))
    assert [result.error for result in twice] == [ErrorCode.INVALID_REQUEST] * 2
    dots = create(quorum, NewTopic("a.b"), NewTopic("a_b"))
    assert [result.error for result in dots] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_no_topic_without_a_live_broker() -> None:
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    assert create(quorum, NewTopic("t"))[0].error is ErrorCode.INVALID_REPLICATION_FACTOR
    quorum.register(1)
    assert create(quorum, NewTopic("t"))[0].error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(quorum, NewTopic("t", assignments=((1,),)))[0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_bounds_count_the_whole_request() -> None:
    quorum = Quorum(1, config=ControllerConfig(max_topics=3, max_partitions=5, max_records_per_batch=7))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    partitions = create(quorum, NewTopic("a", 3), NewTopic("b", 3), NewTopic("c", 1))
    assert [result.error.name for result in partitions] == ["NONE", "POLICY_VIOLATION", "NONE"]
    topics = create(quorum, NewTopic("d"), NewTopic("e"))
    assert [result.error.name for result in topics] == ["NONE", "POLICY_VIOLATION"]


def test_validate_only_changes_nothing(quorum: Quorum) -> None:
    length = len(quorum.log)
    (result,) = create(quorum, NewTopic("flights"), validate_only=True)
    assert (result.error, result.topic_id, len(quorum.log)) == (ErrorCode.NONE, None, length)


def test_delete_topics(quorum: Quorum) -> None:
    quorum.create("flights", 1, flush_policy="always")
    response = quorum.ask(DeleteTopics(("flights", "unknown", "twice", "twice")))
    assert isinstance(response, DeleteTopicsResponse)
    assert [result.error.name for result in response.topics] == [
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
    ]
    assert not quorum.image.topics_by_name
    quorum.create("flights", 2)
    assert quorum.image.config_value("flights", FLUSH_POLICY) == "auto"


def test_no_topic_is_called_like_the_metadata_log(quorum: Quorum) -> None:
    """Each node would take its folder for that of a topic that is gone, set it aside, and stop."""
    assert RESERVED_NAME == METADATA_TOPIC
    for validate_only in (True, False):
        (result,) = create(quorum, NewTopic(METADATA_TOPIC), validate_only=validate_only)
        assert result.error is ErrorCode.INVALID_REQUEST
    assert not quorum.image.topics_by_name


def test_topics_are_deleted_by_their_ids(quorum: Quorum) -> None:
    quorum.create("flights", 1)
    flights = quorum.image.topics_by_name["flights"].topic_id
    quorum.create("named", 1)
    named = quorum.image.topics_by_name["named"].topic_id
    response = quorum.ask(DeleteTopics(("named",), (flights, UUID(int=1), named, UUID(int=2), UUID(int=2))))
    assert isinstance(response, DeleteTopicsResponse)
    assert [(result.name, result.error.name) for result in response.topics] == [
        ("named", "NONE"),
        ("flights", "NONE"),
        ("", "UNKNOWN_TOPIC_ID"),
        ("", "INVALID_REQUEST"),
        ("", "INVALID_REQUEST"),
        ("", "INVALID_REQUEST"),
    ]
    assert not quorum.image.topics_by_name
    quorum.create("flights", 1)
    again = quorum.ask(DeleteTopics((), (flights,)))
    assert isinstance(again, DeleteTopicsResponse)
    assert again.topics[0].error is ErrorCode.UNKNOWN_TOPIC_ID, "that topic is gone; the one of its name is another"
    assert "flights" in quorum.image.topics_by_name


# ---- configurations and producer ids ----------------------------------------------------------------------------------


def test_configs_are_set_removed_and_left_alone(quorum: Quorum) -> None:
    quorum.create("flights", 1)

    def alter_configs(*entries: tuple[str, str | None]) -> None:
        quorum.configure(ResourceType.TOPIC, "flights", **dict(entries))

    alter_configs(("retention.ms", "5"), ("flush.policy", "os"))
    length = len(quorum.log)
    alter_configs(("retention.ms", "5"), ("segment.ms", None))
    assert len(quorum.log) == length
    alter_configs(("retention.ms", None))
    assert quorum.image.configs[ResourceType.TOPIC, "flights"] == {"flush.policy": "os"}


def test_resources_fail_each_for_itself(quorum: Quorum) -> None:
    quorum.create("flights", 1)
    minimum = AlterableConfig("min.insync.replicas", value="1")
    retention = AlterableConfig("log.retention.ms", value="1")
    resources = {
        (ResourceType.TOPIC, "unknown", (minimum,)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (ResourceType.TOPIC, "flights", (minimum,)): ErrorCode.NONE,
        (ResourceType.BROKER, "1", (minimum,)): ErrorCode.INVALID_CONFIG,  # elections depend on it: not per broker
        (ResourceType.BROKER, "2", (retention,)): ErrorCode.NONE,
        (ResourceType.BROKER, "7", (retention,)): ErrorCode.BROKER_ID_NOT_REGISTERED,
        (ResourceType.BROKER, "one", (retention,)): ErrorCode.INVALID_CONFIG,
        (ResourceType.BROKER, "", (minimum, minimum)): ErrorCode.INVALID_CONFIG,
    }
    request = AlterConfigs(tuple(AlterConfigsResource(*resource) for resource in resources))
    assert quorum.ask(replace(request, validate_only=True)) == quorum.ask(request)
    response = quorum.ask(request)
    assert isinstance(response, AlterConfigsResponse)
    assert [result.error for result in response.resources] == list(resources.values())
    assert quorum.image.configs[ResourceType.BROKER, "2"] == {"log.retention.ms": "1"}
    assert quorum.image.config_value("flights", RETENTION_MS, broker_id=2) == 1
    assert quorum.image.config_value("flights", RETENTION_MS) != 1


@pytest.mark.parametrize(
    "config",
    [
        AlterableConfig("retention.ms"),
        AlterableConfig("retention.ms", value="soon"),
        AlterableConfig("retention.hours", value="1"),
        AlterableConfig("auto.leader.rebalance.enable", value="false"),
    ],
)
def test_configs_that_are_refused(quorum: Quorum, config: AlterableConfig) -> None:
    quorum.create("flights", 1)
    response = quorum.ask(AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "flights", (config,)),)))
    assert isinstance(response, AlterConfigsResponse)
    assert response.resources[0].error is ErrorCode.INVALID_CONFIG


def test_a_new_log_begins_with_the_minimum_isr_in_force(quorum: Quorum) -> None:
    assert quorum.image.configs[ResourceType.BROKER, ""] == {"min.insync.replicas": "2"}
    assert quorum.image.features == {"metadata.version": 5, "transaction.version": 2}


def test_producer_id_blocks_do_not_overlap(quorum: Quorum) -> None:
    blocks = [quorum.ask(AllocateProducerIds(1, quorum.broker_epoch(1))) for _ in range(3)]
    assert blocks == [AllocateProducerIdsResponse(first, 1000) for first in (0, 1000, 2000)]
    assert quorum.image.next_producer_id == 3000
