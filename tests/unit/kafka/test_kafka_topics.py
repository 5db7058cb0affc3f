"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords, over a node's port; the state is what the node knows."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from kafka_node_kit import Served, batch, serving

from replog.errors import BrokerNotAvailableError, ErrorCode
from replog.metadata.image import TopicImage
from replog.metadata.records import ResourceType
from replog.protocol.handlers import topics
from replog.protocol.handlers.node import Failure
from replog.protocol.handlers.unkept_configs import UNCHANGEABLE
from replog.rpc.messages import ListOffsetsPartition, ListOffsetsRequest
from replog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

NewTopic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Replicas = CreateTopicsRequest.CreatableReplicaAssignment
Deleted = DeleteTopicsRequest.DeleteTopicState
Grown = CreatePartitionsRequest.CreatePartitionsTopic
Assigned = CreatePartitionsRequest.CreatePartitionsAssignment
Emptied = DeleteRecordsRequest.DeleteRecordsTopic
UpTo = DeleteRecordsRequest.DeleteRecordsPartition
TIMEOUT_MS = 5000
EARLIEST = -2


def creation(*new: CreateTopicsRequest.CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(new), TIMEOUT_MS, validate_only)


def of(answers: list[CreateTopicsResponse.CreatableTopicResult]) -> dict[str, ErrorCode]:
    return {answer.name: ErrorCode(answer.error_code) for answer in answers}


async def seen(it: Served, name: str) -> TopicImage:
    """The topic, once the node knows it."""
    async with asyncio.timeout(60):
        while (found := it.kafka.image.topics_by_name.get(name)) is None:
            await asyncio.sleep(0.001)
    return found


async def gone(it: Served, name: str) -> None:
    async with asyncio.timeout(60):
        while name in it.kafka.image.topics_by_name:
            await asyncio.sleep(0.001)


# ---- create ----------------------------------------------------------------------------------------------------------


async def test_a_topic_may_name_what_is_so_anyway() -> None:
    """As MirrorMaker 2 and others do, which create what they have described elsewhere."""
    async with serving() as it:
        kept = Config("retention.ms", "5")
        throttled = Config("leader.replication.throttled.replicas", "*")
        every = [Config(name, value) for name, value in UNCHANGEABLE.items()]
        asked = creation(
            NewTopic("a", 1, 1, configs=[*every, kept, throttled]),
            NewTopic("b", 1, 1, configs=[Config("compression.type", "zstd")]),
        )
        refused, made = sorted(
            (await it.ask(asked, 7, CreateTopicsResponse)).topics, key=lambda one: not one.error_code
        )
        assert (made.name, made.error_code) == ("a", ErrorCode.NONE)
        assert (refused.name, refused.error_code) == ("b", ErrorCode.INVALID_CONFIG)
        assert refused.error_message == (
            'compression.type = "zstd" cannot be served: topics here have "producer"; leave it out'
        )
        await seen(it, "a")
        assert dict(it.kafka.image.configs[ResourceType.TOPIC, "a"]) == {"retention.ms": "5"}


KAFKAS_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""The configurations of topics of Kafka 4.1.1 (`LogConfig`), each at its default: what a tool names that copies a topic."""


async def test_a_topic_may_name_all_of_kafkas_configurations_at_their_defaults() -> None:
    """When it is created, as MirrorMaker 2 does, and again later, as that does with each round."""
    assert len(KAFKAS_DEFAULTS) == 33
    async with serving() as it:
        every = [Config(name, value) for name, value in KAFKAS_DEFAULTS.items()]
        (made,) = (await it.ask(creation(NewTopic("t", 1, 1, configs=every)), 7, CreateTopicsResponse)).topics
        assert (made.error_code, made.error_message) == (ErrorCode.NONE, None)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            IncrementalAlterConfigsRequest.AlterableConfig(*each)
            for each in ((n, 0, v) for n, v in KAFKAS_DEFAULTS.items())
        ]
        asked = IncrementalAlterConfigsRequest([resource(ResourceType.TOPIC, "t", changes)])
        (altered,) = (await it.ask(asked, 1, IncrementalAlterConfigsResponse)).responses
        assert (altered.error_code, altered.error_message) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("version", CreateTopicsRequest.VERSIONS)
async def test_a_topic_is_created_in_every_version(version: int) -> None:
    async with serving() as it:
        wanted = NewTopic("t", 3, 1, configs=[Config("retention.ms", "5")])
        answer = await it.ask(creation(wanted), version, CreateTopicsResponse)
        (told,) = answer.topics
        assert (told.name, told.error_code, told.error_message) == ("t", 0, None)
        topic = await seen(it, "t")
        assert len(topic.partitions) == 3
        assert it.kafka.image.configs[ResourceType.TOPIC, "t"] == {"retention.ms": "5"}
        if version >= 7:
            assert told.topic_id == topic.topic_id
        if version >= topics.CONFIGS_FROM:
            assert (told.num_partitions, told.replication_factor) == (3, 1)
            configs = {config.name: config for config in told.configs}
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
            assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)


async def test_counts_that_are_left_out_are_those_of_the_cluster() -> None:
    async with serving(num_partitions=4) as it:
        answer = await it.ask(creation(NewTopic("t", -1, -1)), 7, CreateTopicsResponse)
        assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (4, 1)


async def test_a_topic_is_created_by_a_node_that_knows_no_metadata_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes the request on: the change is made, and an error would have the client make it again."""

    def unknown(*_: object) -> None:
        raise BrokerNotAvailableError("node 1 has not read the metadata")

    async with serving() as it:
        monkeypatch.setattr(it.kafka, "configs", unknown)
        answer = await it.ask(creation(NewTopic("t", 2, 1)), 7, CreateTopicsResponse)
        told = answer.topics[0]
        assert (told.error_code, told.num_partitions, told.configs) == (ErrorCode.NONE, 2, [])


async def test_replicas_are_where_the_client_wants_them() -> None:
    async with serving() as it:
        wanted = NewTopic("t", -1, -1, [Replicas(1, [1]), Replicas(0, [1])])
        assert of((await it.ask(creation(wanted), 7, CreateTopicsResponse)).topics) == {"t": ErrorCode.NONE}
        assert len((await seen(it, "t")).partitions) == 2
        gap = NewTopic("gap", -1, -1, [Replicas(0, [1]), Replicas(2, [1])])
        twice = NewTopic("twice", -1, -1, [Replicas(0, [1]), Replicas(0, [1])])
        unknown = NewTopic("unknown", -1, -1, [Replicas(0, [9])])
        counted = NewTopic("counted", 1, -1, [Replicas(0, [1])])
        answer = await it.ask(creation(gap, twice, unknown, counted), 7, CreateTopicsResponse)
        assert of(answer.topics) == {
            "gap": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "twice": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "unknown": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "counted": ErrorCode.INVALID_REQUEST,
        }


async def test_each_topic_fails_for_itself() -> None:
    async with serving() as it:
        await it.create("old")
        wanted = [
            NewTopic("good", 1, 1),
            NewTopic("old", 1, 1),
            NewTopic("no/name", 1, 1),
            NewTopic("none", 0, 1),
            NewTopic("copies", 1, 2),
            NewTopic("config", 1, 1, configs=[Config("retension.ms", "5")]),
            NewTopic("null", 1, 1, configs=[Config("retention.ms", None)]),
            NewTopic("again", 1, 1),
            NewTopic("again", 1, 1),
        ]
        answer = await it.ask(creation(*wanted), 7, CreateTopicsResponse)
        assert of(answer.topics) == {
            "good": ErrorCode.NONE,
            "old": ErrorCode.TOPIC_ALREADY_EXISTS,
            "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "none": ErrorCode.INVALID_PARTITIONS,
            "copies": ErrorCode.INVALID_REPLICATION_FACTOR,
            "config": ErrorCode.INVALID_CONFIG,
            "null": ErrorCode.INVALID_CONFIG,
            "again": ErrorCode.INVALID_REQUEST,
        }
        told = {one.name: one for one in answer.topics}
        assert 'Did you mean "retention.ms"?' in told["config"].error_message
        assert all(one.error_message for one in answer.topics if one.error_code)
        await seen(it, "good")
        assert set(it.kafka.image.topics_by_name) == {"old", "good"}


async def test_a_topic_that_is_only_judged_is_not_created() -> None:
    async with serving() as it:
        good, bad = NewTopic("t", 2, 1), NewTopic("u", 1, 5)
        answer = await it.ask(creation(good, bad, validate_only=True), 7, CreateTopicsResponse)
        assert of(answer.topics) == {"t": ErrorCode.NONE, "u": ErrorCode.INVALID_REPLICATION_FACTOR}
        assert answer.topics[0].topic_id == UUID(int=0)
        assert of((await it.ask(creation(good), 7, CreateTopicsResponse)).topics) == {"t": ErrorCode.NONE}


# ---- delete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, topics.BY_ID_FROM))
async def test_topics_are_deleted_by_name(version: int) -> None:
    async with serving() as it:
        await it.create("t")
        asked = DeleteTopicsRequest(topic_names=["t", "none", ""], timeout_ms=TIMEOUT_MS)
        answer = await it.ask(asked, version, DeleteTopicsResponse)
        assert [(one.name, one.error_code) for one in answer.responses] == [
            ("t", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        await gone(it, "t")


async def test_topics_are_deleted_by_name_or_id() -> None:
    async with serving() as it:
        by_id, by_name, kept = await it.create("i"), await it.create("n"), await it.create("k")
        unknown = UUID(int=7)
        states = [Deleted(topic_id=by_id), Deleted("n"), Deleted(topic_id=unknown), Deleted("k", kept), Deleted()]
        answer = await it.ask(DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS), 6, DeleteTopicsResponse)
        assert {(one.name, one.topic_id, one.error_code) for one in answer.responses} == {
            ("i", by_id, ErrorCode.NONE),
            ("n", by_name, ErrorCode.NONE),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
            ("k", kept, ErrorCode.INVALID_REQUEST),
            (None, UUID(int=0), ErrorCode.INVALID_REQUEST),
        }
        await gone(it, "i")
        await gone(it, "n")
        assert set(it.kafka.image.topics_by_name) == {"k"}


async def test_a_topic_that_is_named_in_two_ways_is_deleted_once() -> None:
    async with serving() as it:
        topic_id = await it.create("t")
        asked = DeleteTopicsRequest([Deleted("t"), Deleted(topic_id=topic_id)], timeout_ms=TIMEOUT_MS)
        answer = await it.ask(asked, 6, DeleteTopicsResponse)
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        await gone(it, "t")


# ---- grow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CreatePartitionsRequest.VERSIONS)
async def test_topics_grow(version: int) -> None:
    async with serving() as it:
        for name in ("t", "placed", "same", "wrong", "one", "two"):
            await it.create(name)
        wanted = [
            Grown("t", 3, None),
            Grown("placed", 2, [Assigned([1])]),
            Grown("same", 1, None),
            Grown("wrong", 2, [Assigned([9])]),
            Grown("one", 2, []),
            Grown("two", 3, []),
            Grown("none", 2, None),
            Grown("twice", 2, None),
            Grown("twice", 3, None),
        ]
        asked = CreatePartitionsRequest(wanted, TIMEOUT_MS)
        answer = await it.ask(
            CreatePartitionsRequest(wanted, TIMEOUT_MS, validate_only=True), version, CreatePartitionsResponse
        )
        assert len(it.kafka.image.topics_by_name["t"].partitions) == 1
        answer = await it.ask(asked, version, CreatePartitionsResponse)
        assert {one.name: one.error_code for one in answer.results} == {
            "t": ErrorCode.NONE,
            "placed": ErrorCode.NONE,
            "same": ErrorCode.INVALID_PARTITIONS,
            "wrong": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "one": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "two": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        assert all((one.error_message is None) == (one.error_code == 0) for one in answer.results)
        async with asyncio.timeout(60):
            while len(it.kafka.image.topics_by_name["t"].partitions) < 3:
                await asyncio.sleep(0.001)


# ---- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DeleteRecordsRequest.VERSIONS)
async def test_records_are_deleted_by_their_leader(version: int) -> None:
    async with serving() as it:
        topic_id = await it.create(partitions=2)
        await it.create("kept", cleanup_policy="compact")
        await it.produce(batch(b"a", b"b", b"c"), batch(b"d"))
        wanted = [
            Emptied("t", [UpTo(0, 2), UpTo(1, 5), UpTo(9, 0)]),
            Emptied("kept", [UpTo(0, 0)]),
            Emptied("none", [UpTo(0, 0)]),
        ]
        answer = await it.ask(DeleteRecordsRequest(wanted, TIMEOUT_MS), version, DeleteRecordsResponse)
        assert [
            [(one.partition_index, one.low_watermark, one.error_code) for one in topic.partitions]
            for topic in answer.topics
        ] == [
            [
                (0, 2, ErrorCode.NONE),
                (1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
                (9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
            [(0, -1, ErrorCode.POLICY_VIOLATION)],
            [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        ]
        asked = ListOffsetsRequest((ListOffsetsPartition(topic_id, 0, EARLIEST),))
        assert (await it.kafka.call(asked, TIMEOUT_MS)).results[0].offset == 2
        everything = DeleteRecordsRequest([Emptied("t", [UpTo(0, -1)])], TIMEOUT_MS)
        answer = await it.ask(everything, version, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].low_watermark == 4, "-1 is the high watermark"


# ---- as a whole ------------------------------------------------------------------------------------------------------


def test_what_fails_as_a_whole_is_told_of_each() -> None:
    failure = Failure(ErrorCode.NOT_CONTROLLER, "try again")
    created = topics.refuse_create_topics(creation(NewTopic("t"), NewTopic("u")), failure)
    assert of(created.topics) == {"t": ErrorCode.NOT_CONTROLLER, "u": ErrorCode.NOT_CONTROLLER}
    assert created.topics[0].error_message == "try again"
    by_id = topics.refuse_delete_topics(DeleteTopicsRequest([Deleted(topic_id=UUID(int=5))]), failure)
    assert [(one.name, one.topic_id, one.error_code) for one in by_id.responses] == [(None, UUID(int=5), failure.code)]
    by_name = topics.refuse_delete_topics(DeleteTopicsRequest(topic_names=["t"]), failure)
    assert [(one.name, one.error_code) for one in by_name.responses] == [("t", failure.code)]
    grown = topics.refuse_create_partitions(CreatePartitionsRequest([Grown("t", 2)]), failure)
    assert [(one.name, one.error_code) for one in grown.results] == [("t", failure.code)]
    deleted = topics.refuse_delete_records(DeleteRecordsRequest([Emptied("t", [UpTo(3, 0)])]), failure)
    (partition,) = deleted.topics[0].partitions
    assert (partition.partition_index, partition.low_watermark, partition.error_code) == (3, -1, failure.code)
