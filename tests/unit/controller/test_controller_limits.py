"""What one request may ask for: beyond it the answer names the limit, nothing has changed, and the term goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from uuid import UUID

import pytest
from controller_kit import Quorum, alterable
from msgspec.structs import replace

from replog.controller.config import ControllerConfig
from replog.controller.events import offset_control
from replog.controller.managers.registration import LOG_DIRS_MAX
from replog.controller.requests import (
    REPLICAS_PER_REQUEST_MAX,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterPartition,
    AlterPartitionReassignments,
    ConfigEntry,
    ControllerRequest,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    ElectLeaders,
    Heartbeat,
    IsrMember,
    NamedPartition,
    NewPartitions,
    NewTopic,
    OfflineReplica,
    PartitionIsrChange,
    Reassignment,
    RegisterController,
    ReplicaEnd,
    ReportReplicas,
)
from replog.controller.state.configuration import CONFIGS_MAX
from replog.controller.state.features import FEATURES_MAX
from replog.errors import ErrorCode, InvalidRequestError, PolicyViolationError
from replog.metadata.image import CLUSTER_DEFAULTS
from replog.metadata.records import (
    ElectionType,
    MetadataRecord,
    PartitionRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
    encoded_bytes_max,
)

RETENTION = ConfigEntry("retention.ms", "5")
LIMITS = ControllerConfig(max_records_per_request=10, max_replicas_per_request=15, max_bytes_per_record=2_000)


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    quorum = Quorum(1, config=LIMITS)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    yield quorum
    assert quorum.resigned == []


def test_a_topic_has_as_many_partitions_as_one_request_may_make(quorum: Quorum) -> None:
    assert quorum.ask_create(NewTopic("fits", 9, 1)).error is ErrorCode.NONE
    end_offset = quorum.end_offset
    for wide in (NewTopic("wide", 10, 1), NewTopic("wide", 6, 3)):
        refused = quorum.ask_create(wide)
        assert refused.error is ErrorCode.POLICY_VIOLATION
        assert "one request makes at most 1" in refused.message
    assert quorum.end_offset == end_offset


@pytest.mark.parametrize(
    ("partitions", "replicas", "configs"), [(100, 1, ()), (10, 1, ()), (9, 1, (RETENTION,)), (100, 3, ()), (6, 3, ())]
)
def test_what_is_advised_where_there_are_too_many_partitions_works(
    quorum: Quorum, partitions: int, replicas: int, configs: tuple[ConfigEntry, ...]
) -> None:
    refused = quorum.ask_create(NewTopic("t", partitions, replicas, configs=configs))
    assert refused.error is ErrorCode.POLICY_VIOLATION
    first, grown = map(int, re.findall(r"--partitions (\d+)`", refused.message))
    assert quorum.ask_create(NewTopic("t", first, replicas, configs=configs)).error is ErrorCode.NONE
    too_many = quorum.ask(CreatePartitions((NewPartitions("t", first + 100),)))
    assert isinstance(too_many, CreatePartitionsResponse)
    assert too_many.topics[0].message.endswith(f"Add at most {grown - first} at a time")
    response = quorum.ask(CreatePartitions((NewPartitions("t", grown),)))
    assert isinstance(response, CreatePartitionsResponse)
    assert response.topics[0].error is ErrorCode.NONE


def test_a_topic_for_which_a_request_has_no_room_left_goes_into_another(quorum: Quorum) -> None:
    response = quorum.ask(CreateTopics((NewTopic("first", 9, 1), NewTopic("second", 3, 1))))
    assert isinstance(response, CreateTopicsResponse)
    assert [topic.error for topic in response.topics] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert response.topics[1].message.endswith("Create the topic in a request of its own")


def test_a_topic_grows_in_steps(quorum: Quorum) -> None:
    quorum.ask_create(NewTopic("t", 9, 1))
    for count, expected in ((20, ErrorCode.POLICY_VIOLATION), (19, ErrorCode.NONE), (29, ErrorCode.NONE)):
        response = quorum.ask(CreatePartitions((NewPartitions("t", count),)))
        assert isinstance(response, CreatePartitionsResponse)
        assert response.topics[0].error is expected
    assert len(quorum.image.topics_by_name["t"].partitions) == 29


def test_topics_with_many_partitions_are_deleted_one_by_one(quorum: Quorum) -> None:
    for name in ("a", "b", "c"):
        quorum.ask_create(NewTopic(name, 6, 1))
    response = quorum.ask(DeleteTopics(("a", "b")))
    assert isinstance(response, DeleteTopicsResponse)
    assert [topic.error for topic in response.topics] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert "deletes at most 10 partitions" in response.topics[1].message
    assert sorted(quorum.image.topics_by_name) == ["b", "c"]


def test_a_topic_of_any_size_can_be_deleted(quorum: Quorum) -> None:
    quorum.ask_create(NewTopic("t", 9, 1))
    quorum.ask(CreatePartitions((NewPartitions("t", 19),)))
    quorum.ask(DeleteTopics(("t",)))
    assert not quorum.image.topics_by_name


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopics(tuple(NewTopic(f"t{n}", 1, 1) for n in range(11))),
        CreatePartitions(tuple(NewPartitions(f"t{n}", 1) for n in range(11))),
        DeleteTopics(tuple(f"t{n}" for n in range(11))),
        ElectLeaders(ElectionType.PREFERRED, tuple(NamedPartition("t", n) for n in range(11))),
        AlterPartitionReassignments(tuple(Reassignment("t", n, (1,)) for n in range(11))),
        AlterConfigs(tuple(AlterConfigsResource(ResourceType.TOPIC, f"t{n}", ()) for n in range(11))),
        AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "t", (alterable("retention.ms", "1"),) * 11),)),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_names_a_bounded_number_of_things(quorum: Quorum, request_: ControllerRequest) -> None:
    with pytest.raises(PolicyViolationError, match="at most 10, not 11; ask in several requests"):
        quorum.ask(request_)


def test_all_leaders_are_elected_in_several_requests(quorum: Quorum) -> None:
    for name in ("a", "b"):
        quorum.create(name, 1, 2, partitions=7)
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    for key in [(name, n) for name in ("a", "b") for n in range(7)]:
        quorum.alter_isr(key[0], (2, 1), key[1])
    assert [len(quorum.elect(ElectionType.PREFERRED)) for _ in range(2)] == [2, 1]
    assert all(quorum.partition(name, n).leader == 1 for name in ("a", "b") for n in range(7))


def test_a_record_that_is_too_large_is_refused_before_anything_has_changed(quorum: Quorum) -> None:
    before, end_offset = quorum.leader.committed_state_hash(), quorum.end_offset
    request = quorum.register_request(4, rack="r" * 2_000)
    with pytest.raises(InvalidRequestError, match="RegisterBrokerRecord of up to"):
        quorum.ask(request)
    assert (quorum.leader.committed_state_hash(), quorum.end_offset) == (before, end_offset)
    quorum.register(4)


def test_records_that_are_large_together_are_no_large_record() -> None:
    quorum = Quorum(1, config=ControllerConfig(max_bytes_per_record=330))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    assert quorum.ask_create(NewTopic("t", 20, 1)).error is ErrorCode.NONE
    with pytest.raises(InvalidRequestError, match="a RegisterBrokerRecord of up to 389 bytes"):
        quorum.ask(quorum.register_request(2, rack="r" * 49))


def test_each_record_of_a_request_is_measured_once(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times was a fifth of what the controller computes for a topic."""
    measured: list[MetadataRecord] = []

    def measure(record: MetadataRecord) -> int:
        measured.append(record)
        return encoded_bytes_max(record)

    monkeypatch.setattr(offset_control, "encoded_bytes_max", measure)
    assert quorum.ask_create(NewTopic("t", 4, 1)).error is ErrorCode.NONE
    assert [type(record) for record in measured] == [TopicRecord, *[PartitionRecord] * 4]


def test_a_record_that_is_too_large_is_measured_once(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 100,000 parts takes a tenth of a second, in which the controller does nothing else."""
    measured: list[MetadataRecord] = []

    def measure(record: MetadataRecord) -> int:
        measured.append(record)
        return encoded_bytes_max(record)

    monkeypatch.setattr(offset_control, "encoded_bytes_max", measure)
    with pytest.raises(InvalidRequestError, match="RegisterBrokerRecord of up to"):
        quorum.ask(quorum.register_request(4, rack="r" * 2_000))
    assert len(measured) == 1


def test_a_change_of_several_batches_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: 9,000 entries of access control lists were walked through three times, for most of 150 ms of one step."""
    measured: list[MetadataRecord] = []

    def measure(record: MetadataRecord) -> int:
        measured.append(record)
        return encoded_bytes_max(record)

    monkeypatch.setattr(offset_control, "encoded_bytes_max", measure)
    quorum = Quorum(1, config=ControllerConfig(max_records_per_step=10))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    assert quorum.ask_create(NewTopic("t", 45, 1)).error is ErrorCode.NONE
    assert sum(isinstance(each, PartitionRecord) for each in measured) == 45


@pytest.mark.parametrize("request_of", ["log_dirs", "features", "features of a controller"])
def test_lists_of_a_registration_are_counted_before_a_record_is_made_of_them(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, request_of: str
) -> None:
    """Trap: a record of 100,000 features was walked through three times, for most of a second, before it was refused."""

    def walk(_record: MetadataRecord) -> int:
        raise AssertionError("nothing is measured")

    feature, registration = SupportedFeature("f", 1, 1), quorum.register_request(4)
    requests: dict[str, ControllerRequest] = {
        "log_dirs": replace(registration, log_dirs=tuple(UUID(int=number) for number in range(LOG_DIRS_MAX + 1))),
        "features": replace(registration, supported_features=(feature,) * (FEATURES_MAX + 1)),
        "features of a controller": RegisterController(
            4, registration.cluster_id, UUID(int=4), "localhost", 9_004, (feature,) * (FEATURES_MAX + 1)
        ),
    }
    monkeypatch.setattr(offset_control, "encoded_bytes_max", walk)
    with pytest.raises(InvalidRequestError, match=r"names 1,001 .*, 1,000 may be"):
        quorum.ask(requests[request_of])


def test_a_broker_id_of_thousands_of_digits_is_none(quorum: Quorum) -> None:
    response = quorum.ask(AlterConfigs((AlterConfigsResource(ResourceType.BROKER, "9" * 5_000, ()),)))
    assert isinstance(response, AlterConfigsResponse)
    assert response.resources[0].error is ErrorCode.INVALID_CONFIG
    assert len(response.resources[0].message) < 300


def test_a_broker_tells_of_as_many_replicas_as_one_request_may_name(quorum: Quorum) -> None:
    """It has more: it asks several times."""
    epoch, topic_id = quorum.broker_epoch(1), UUID(int=1)
    replica, end = OfflineReplica(topic_id, 0), ReplicaEnd(topic_id, 0, 0, 0)
    change = PartitionIsrChange(topic_id, 0, 0, 0, (IsrMember(1, epoch),))
    for count, is_refused in ((REPLICAS_PER_REQUEST_MAX, False), (REPLICAS_PER_REQUEST_MAX + 1, True)):
        for request in (
            Heartbeat(1, epoch, 0, offline_replicas=(replica,) * count),
            ReportReplicas(1, epoch, (end,) * count),
            AlterPartition(1, epoch, (change,) * count),
        ):
            with pytest.raises(PolicyViolationError, match="ask in several") if is_refused else nullcontext():
                quorum.ask(request)


def test_a_resource_has_as_many_configurations_as_listeners_may_have_names() -> None:
    """Any name of a listener is taken, and each could have two limits."""
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()

    def codes(first: int, count: int) -> list[ErrorCode]:
        limits = (alterable(f"listener.name.l{first + n}.max.connections", "5") for n in range(count))
        response = quorum.ask(AlterConfigs((AlterConfigsResource(ResourceType.BROKER, "", tuple(limits)),)))
        return [one.error for one in response.resources]  # type: ignore[union-attr]

    before = len(quorum.image.configs.get(CLUSTER_DEFAULTS, {}))
    assert codes(0, CONFIGS_MAX - before) == [ErrorCode.NONE]
    assert codes(CONFIGS_MAX, 1) == [ErrorCode.INVALID_CONFIG]
    assert codes(0, 1) == [ErrorCode.NONE], "one that is there is changed"
    assert len(quorum.image.configs[CLUSTER_DEFAULTS]) == CONFIGS_MAX
