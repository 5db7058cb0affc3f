"""What operators ask for, beyond creating and deleting topics, and what they are refused."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from controller_kit import CLUSTER_ID, Quorum, alterable
from msgspec.structs import replace

from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    AlterConfigs,
    AlterConfigsResource,
    AlterPartition,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    CreatePartitions,
    CreatePartitionsResponse,
    ElectLeaders,
    FeatureUpdate,
    NamedPartition,
    NewPartitions,
    NewTopic,
    PartitionIsrChange,
    Reassignment,
    RegisterController,
    TopicResult,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.controller.state.configuration import ConfigurationControl, ElectionSettings
from replog.errors import (
    BrokerIdNotRegisteredError,
    ErrorCode,
    FeatureUpdateFailedError,
    InconsistentClusterIdError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import (
    ConfigRecord,
    ElectionType,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ResourceType,
    SupportedFeature,
)

OLD = (SupportedFeature("metadata.version", 1, 1),)


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    return quorum


@pytest.fixture
def old_quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """A cluster whose controllers have been upgraded, and whose feature level has not."""
    monkeypatch.setattr(
        "replog.controller.state.features.FeatureControl.bootstrap_records",
        lambda _: (FeatureLevelRecord("metadata.version", 1),),
    )
    quorum = Quorum(1, config=ControllerConfig(max_records_per_batch=3))
    quorum.claim(1)
    quorum.commit()
    return quorum


# ---- partitions -------------------------------------------------------------------------------------------------------


def grow(quorum: Quorum, *topics: NewPartitions, validate_only: bool = False) -> tuple[TopicResult, ...]:
    response = quorum.ask(CreatePartitions(topics, validate_only))
    assert isinstance(response, CreatePartitionsResponse)
    return response.topics


def test_a_topic_grows(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    assert grow(quorum, NewPartitions("flights", 4), validate_only=True)[0].num_partitions == 4
    assert len(quorum.image.topics_by_name["flights"].partitions) == 1
    (result,) = grow(quorum, NewPartitions("flights", 4))
    assert (result.error, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 4, 2)
    (result,) = grow(quorum, NewPartitions("flights", 5, ((3, 1),)))
    assert result.error is ErrorCode.NONE
    partitions = quorum.image.topics_by_name["flights"].partitions
    assert {len(partition.replicas) for partition in partitions.values()} == {2}
    assert partitions[4].replicas == (3, 1)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (NewPartitions("unknown", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("flights", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("flights", 0), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("flights", 2, ((1, 2), (2, 3))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("flights", 2, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("flights", 2, ((1, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("flights", 10**9), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_growth_that_is_refused(quorum: Quorum, item: NewPartitions, error: ErrorCode) -> None:
    quorum.create("flights", 1, 2)
    assert grow(quorum, item)[0].error is error
    assert [result.error for result in grow(quorum, item, item)] == [ErrorCode.INVALID_REQUEST] * 2


# ---- elections and reassignments --------------------------------------------------------------------------------------


def test_elections_that_cannot_be(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    with pytest.raises(InvalidRequestError):
        quorum.ask(ElectLeaders(ElectionType.CLEAN))
    assert quorum.elect(ElectionType.UNCLEAN, "flights", "unknown") == {
        "flights": ErrorCode.ELECTION_NOT_NEEDED,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert quorum.elect(ElectionType.PREFERRED) == {}  # of all: nothing to say where nothing is to be done
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(2, want_fence=True)
    assert quorum.elect(ElectionType.UNCLEAN, "flights") == {"flights": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_operator_may_elect_uncleanly_where_the_topic_does_not(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    quorum.alter_isr("flights", (1,))
    quorum.heartbeat(1, want_fence=True)
    assert quorum.partition("flights").leader == -1
    assert quorum.elect(ElectionType.UNCLEAN) == {"flights": ErrorCode.NONE}
    assert (quorum.partition("flights").leader, quorum.partition("flights").leader_recovery_state.name) == (
        2,
        "RECOVERING",
    )


def test_naming_a_partition_twice_elects_once(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    quorum.alter_isr("flights", (2, 1))
    partition = NamedPartition("flights", 0)
    quorum.ask(ElectLeaders(ElectionType.PREFERRED, (partition, partition)))
    assert quorum.partition("flights").leader == 1


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((2, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_reassignments_that_are_refused(quorum: Quorum, replicas: tuple[int, ...] | None, error: ErrorCode) -> None:
    quorum.create("flights", 1, 2)
    assert quorum.reassign("flights", replicas) is error
    item = Reassignment("flights", 0, (3,))
    other = replace(item, topic="unknown")
    response = quorum.ask(AlterPartitionReassignments((item, item, other)))
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    refused = [ErrorCode.INVALID_REQUEST] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [result.error for result in response.partitions] == refused


def test_the_number_of_replicas_changes_only_if_that_is_allowed(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    keep = {"allow_replication_factor_change": False}
    assert quorum.reassign("flights", (3,), **keep) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert quorum.reassign("flights", (3, 1), **keep) is ErrorCode.NONE
    assert quorum.reassign("flights", (3, 1, 2), **keep) is ErrorCode.INVALID_REPLICATION_FACTOR
    length = len(quorum.log)
    assert quorum.reassign("flights", (3, 1), **keep) is ErrorCode.NONE
    assert len(quorum.log) == length  # it is on its way there


def test_another_order_of_the_same_replicas_is_done_at_once(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    assert quorum.reassign("flights", (2, 1)) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 1), 1, 0)
    assert quorum.elect(ElectionType.PREFERRED, "flights") == {"flights": ErrorCode.NONE}


def test_a_replica_that_is_gone_is_fenced_by_a_new_leader_epoch(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    quorum.reassign("flights", (1,))
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1,), (1,), 1, 1)


def half_way(quorum: Quorum) -> None:
    """`flights` moves from brokers 1 and 2 to 3 and 4; 3 has caught up."""
    quorum.start(4)
    quorum.create("flights", 1, 2)
    assert quorum.reassign("flights", (3, 4)) is ErrorCode.NONE
    assert quorum.alter_isr("flights", (1, 2, 3)) is ErrorCode.NONE


def test_what_only_a_replaced_target_added_goes_when_the_new_one_completes(quorum: Quorum) -> None:
    half_way(quorum)
    assert quorum.reassign("flights", (4, 1)) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.isr) == ((4, 1, 2, 3), (1, 2, 3))
    assert (partition.adding_replicas, partition.removing_replicas) == ((3, 4), (2, 3))
    assert quorum.alter_isr("flights", (1, 2, 3, 4)) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((4, 1), (1, 4), False)
    assert (partition.leader, partition.leader_epoch) == (1, 1), "broker 3 must not follow in the epoch in which it did"


def test_what_only_a_replaced_target_added_goes_when_the_new_one_is_cancelled(quorum: Quorum) -> None:
    half_way(quorum)
    assert quorum.reassign("flights", (4, 1)) is ErrorCode.NONE
    assert quorum.reassign("flights", None) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (set(partition.replicas), partition.isr, partition.is_reassigning) == ({1, 2}, (1, 2), False)


def test_moving_back_to_where_it_was_is_done_at_once(quorum: Quorum) -> None:
    half_way(quorum)
    assert quorum.reassign("flights", (1, 2)) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2), (1, 2), False)
    assert partition.leader_epoch == 1


def test_a_leader_that_only_a_replaced_target_added_leads_until_another_has_everything(quorum: Quorum) -> None:
    half_way(quorum)
    for broker_id in (1, 2):
        quorum.heartbeat(broker_id, want_fence=True)
    assert quorum.reassign("flights", (4, 1)) is ErrorCode.NONE
    partition = quorum.partition("flights")
    assert (partition.leader, partition.isr, partition.removing_replicas) == (3, (3,), (2, 3))
    assert quorum.reassign("flights", None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert quorum.alter_isr("flights", (3, 4)) is ErrorCode.NONE
    assert quorum.partition("flights").leader == 3
    quorum.heartbeat(1)
    assert quorum.alter_isr("flights", (3, 4, 1)) is ErrorCode.NEW_LEADER_ELECTED
    partition = quorum.partition("flights")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 1), (4, 1), 4)


def test_a_thousand_partitions_shrink_in_one_request_and_one_batch(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, partitions=1_000)
    changes: list[PartitionIsrChange] = [quorum.isr_change("flights", (1,), number) for number in range(1_000)]
    length = len(quorum.log)
    response = quorum.ask(AlterPartition(1, quorum.broker_epoch(1), tuple(changes)))
    assert isinstance(response, AlterPartitionResponse)
    assert {result.error for result in response.partitions} == {ErrorCode.NONE}
    (batch,) = quorum.log[length:]
    assert len(batch.records) == 1_000
    assert {type(record) for record in batch.records} == {PartitionChangeRecord}


# ---- brokers ----------------------------------------------------------------------------------------------------------


def test_only_what_is_gone_and_empty_is_forgotten(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    with pytest.raises(BrokerIdNotRegisteredError):
        quorum.ask(UnregisterBroker(9))
    with pytest.raises(InvalidRequestError, match="is alive"):
        quorum.ask(UnregisterBroker(3))
    quorum.heartbeat(2, want_fence=True)
    with pytest.raises(InvalidRequestError, match="1 replicas"):
        quorum.ask(UnregisterBroker(2))
    quorum.heartbeat(3, want_fence=True)
    quorum.drain(3)
    quorum.ask(UnregisterBroker(3))
    assert 3 not in quorum.image.brokers
    assert quorum.image.drained_brokers == frozenset()


def test_a_drained_broker_gets_no_new_replicas(quorum: Quorum) -> None:
    with pytest.raises(BrokerIdNotRegisteredError):
        quorum.drain(9)
    assert quorum.drain(1) == 0
    length = len(quorum.log)
    assert quorum.drain(1) == 0
    assert len(quorum.log) == length
    quorum.ask_create(NewTopic("flights", 6, 2))
    assert 1 not in {r for p in quorum.image.topics_by_name["flights"].partitions.values() for r in p.replicas}
    assert quorum.ask_create(NewTopic("taxis", 1, 3)).error is ErrorCode.INVALID_REPLICATION_FACTOR
    quorum.drain(1, drained=False)
    assert quorum.ask_create(NewTopic("taxis", 1, 3)).error is ErrorCode.NONE


def test_draining_prefers_a_rack_without_the_partition() -> None:
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    for broker_id, rack in enumerate("ABAB", 1):
        quorum.register(broker_id, rack=rack)
        quorum.heartbeat(broker_id)
    quorum.create("flights", 2, 1)
    quorum.drain(2)
    for _ in range(3):
        quorum.now_ms += 1_001
        quorum.tick()
        quorum.commit()
    assert quorum.partition("flights").adding_replicas == (4,)  # broker 3 shares a rack with broker 1


# ---- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ((), InvalidRequestError),
        ((FeatureUpdate("metadata.version", 2),) * 2, InvalidRequestError),
        ((FeatureUpdate("metadata.version", 6),), FeatureUpdateFailedError),
        ((FeatureUpdate("metadata.version", 1, allow_downgrade=True),), FeatureUpdateFailedError),
        ((FeatureUpdate("metadata.version", -1),), FeatureUpdateFailedError),
        ((FeatureUpdate("wings", 1),), FeatureUpdateFailedError),
    ],
)
def test_feature_updates_that_are_refused(
    quorum: Quorum, updates: tuple[FeatureUpdate, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        quorum.ask(UpdateFeatures(updates))


def test_a_level_is_finalized_once_every_node_supports_it(old_quorum: Quorum) -> None:
    quorum, update = old_quorum, UpdateFeatures((FeatureUpdate("metadata.version", 2),))
    old_broker = replace(quorum.register_request(1), supported_features=OLD)
    silent_broker = replace(quorum.register_request(2), supported_features=())
    for request in (old_broker, silent_broker):
        quorum.ask(request)
        with pytest.raises(FeatureUpdateFailedError, match=f"broker {request.broker_id} supports 1 to 1"):
            quorum.ask(update)
        quorum.ask(replace(request, incarnation_id=UUID(int=77), supported_features=SUPPORTED_FEATURES))
    quorum.ask(replace(update, validate_only=True))
    assert quorum.image.features == {"metadata.version": 1}
    quorum.ask(update)
    assert quorum.image.features == {"metadata.version": 2}
    quorum.ask(update)
    with pytest.raises(UnsupportedVersionError, match="Upgrade that node"):
        quorum.ask(replace(old_broker, incarnation_id=UUID(int=78)))


def test_what_a_level_brings_is_refused_below_it(old_quorum: Quorum) -> None:
    quorum = old_quorum
    quorum.start(1, 2)
    quorum.create("flights", 1)
    for ask in (
        lambda: quorum.drain(1),
        lambda: quorum.reassign("flights", (2,)),
        lambda: quorum.ask(controller_request(1)),
        lambda: quorum.create("taxis", 1, partitions=9),  # more than a batch: a transaction
    ):
        with pytest.raises(UnsupportedVersionError, match=r"need metadata\.version 2"):
            ask()


def controller_request(controller_id: int) -> RegisterController:
    return RegisterController(controller_id, CLUSTER_ID, UUID(int=controller_id), "localhost", 9, SUPPORTED_FEATURES)


def test_controllers_register(quorum: Quorum) -> None:
    request = controller_request(1)
    quorum.ask(request)
    assert quorum.image.controllers[1].supported_features == SUPPORTED_FEATURES
    length = len(quorum.log)
    quorum.ask(request)
    assert len(quorum.log) == length
    with pytest.raises(InconsistentClusterIdError):
        quorum.ask(replace(request, cluster_id="another"))
    with pytest.raises(UnsupportedVersionError):
        quorum.ask(replace(request, supported_features=OLD))
    with pytest.raises(InvalidRequestError):
        quorum.ask(replace(request, controller_id=-1))


def test_a_partition_is_judged_by_the_changes_of_its_own_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """By those of all topics a request for a few thousand of them took ten seconds."""
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2)
    names = [f"t{number}" for number in range(20)]
    for name in names:
        quorum.create(name, 1, 2)
    looked_at: list[int] = []
    settings = ConfigurationControl.election_settings

    def noted(self: ConfigurationControl, topic: str, pending: Sequence[ConfigRecord] = ()) -> ElectionSettings:
        looked_at.append(len(pending))
        return settings(self, topic, pending)

    monkeypatch.setattr(ConfigurationControl, "election_settings", noted)
    entries = (alterable("min.insync.replicas", "2"),)
    quorum.ask(AlterConfigs(tuple(AlterConfigsResource(ResourceType.TOPIC, name, entries) for name in names)))
    assert looked_at == [1] * len(names)
