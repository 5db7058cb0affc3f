"""A real Kafka and a replog broker answer the same to who administers them, in every version, right or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from brokers import Broker, of_kafka, of_replog
from kafka_node import KafkaNode
from raw_client import raw_client
from served_cluster import ServedCluster
from sides import EXPLAINED, UNKNOWN_ID, Side, Sides, differences, sides
from waiting import until

from replog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from replog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from replog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from replog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from replog.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT_MS = 20_000

PREFIX = "administered-"

NEW_ID = ("topic_id",)
"""A topic that is made has another id on each side."""

Topic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Replicas = CreateTopicsRequest.CreatableReplicaAssignment


@pytest.fixture(scope="module")
def both(kafka_broker: KafkaNode, replog_broker: ServedCluster) -> Iterator[Sides]:
    """The two brokers."""
    with sides(Side(_named(of_kafka(kafka_broker))), Side(_named(of_replog(replog_broker)))) as pair:
        yield pair


def _named(broker: Broker) -> Broker:
    """The same broker, which creates topics under names that no other tests on it have."""
    return replace(broker, create=lambda name, *others: broker.create(PREFIX + name, *others))


def made(both: Sides, partitions: int = 1, **configs: object) -> str:
    """A topic on both; its name."""
    return PREFIX + both.topic(partitions, **configs)


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CreateTopicsRequest.VERSIONS)
def test_create_topics(both: Sides, version: int) -> None:
    old, new = made(both), f"created-{version}"
    topics = [
        Topic(new, 2, 1, configs=[Config("retention.ms", "5")]),
        Topic(f"{new}-assigned", -1, -1, [Replicas(0, [1]), Replicas(1, [1])]),
        Topic(old, 1, 1),
        Topic("no/name", 1, 1),
        Topic("__cluster_metadata", 1, 1),
        Topic("nothing", 0, 1),
        Topic("copies", 1, 2),
        Topic("config", 1, 1, configs=[Config("retention.mx", "5")]),
        Topic("null", 1, 1, configs=[Config("retention.ms", None)]),
        Topic("again", 1, 1),
        Topic("again", 1, 1),
        Topic("gap", -1, -1, [Replicas(0, [1]), Replicas(2, [1])]),
        Topic("unknown", -1, -1, [Replicas(0, [99])]),
        Topic("counted", 1, -1, [Replicas(0, [1])]),
    ]
    both.same(CreateTopicsRequest(topics, TIMEOUT_MS), version, CreateTopicsResponse, beside=(*NEW_ID, "configs"))


@pytest.mark.parametrize("version", DeleteTopicsRequest.VERSIONS)
def test_delete_topics(both: Sides, version: int) -> None:
    state, gone = DeleteTopicsRequest.DeleteTopicState, made(both)
    by_name = DeleteTopicsRequest(topic_names=[gone, "none"], timeout_ms=TIMEOUT_MS)
    states = [state(gone), state("none"), state(), state(topic_id=UNKNOWN_ID), state("both", UNKNOWN_ID)]
    asked = by_name if version < 6 else DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS)
    both.same(asked, version, DeleteTopicsResponse, beside=NEW_ID)


@pytest.mark.parametrize("version", CreatePartitionsRequest.VERSIONS)
def test_create_partitions(both: Sides, version: int) -> None:
    topic, assigned = CreatePartitionsRequest.CreatePartitionsTopic, CreatePartitionsRequest.CreatePartitionsAssignment
    grown, placed, wrong, same, one, two = (made(both) for _ in range(6))
    topics = [topic(one, 2, []), topic(two, 3, []), topic("missing", 2, [])]  # a list that is empty is not left out
    topics += [topic(grown, 3, None), topic(placed, 2, [assigned([1])]), topic(wrong, 2, [assigned([99])])]
    topics += [topic(same, 1, None), topic("none", 2, None), topic("twice", 2, None), topic("twice", 2, None)]
    both.same(CreatePartitionsRequest(topics, TIMEOUT_MS), version, CreatePartitionsResponse)


@pytest.mark.parametrize("version", DeleteRecordsRequest.VERSIONS)
def test_delete_records(both: Sides, version: int) -> None:
    topic, upto = DeleteRecordsRequest.DeleteRecordsTopic, DeleteRecordsRequest.DeleteRecordsPartition
    wanted = [topic(made(both, 2), [upto(0, 0), upto(1, 5), upto(9, 0)]), topic("none", [upto(0, 0)])]
    wanted.append(topic(made(both, cleanup_policy="compact"), [upto(0, 0)]))
    both.same(DeleteRecordsRequest(wanted, TIMEOUT_MS), version, DeleteRecordsResponse)


def test_describe_topic_partitions(both: Sides) -> None:
    asked, name = DescribeTopicPartitionsRequest, made(both, 3)
    topics = [asked.TopicRequest(name), asked.TopicRequest("zzz"), asked.TopicRequest("zz/z")]
    for limit, cursor in ((2000, None), (2, None), (1, (name, 2)), (0, (name, 1)), (9, (name, 7)), (9, (name, -1))):
        begin = None if cursor is None else asked.Cursor(*cursor)
        both.same(asked(topics, limit, begin), 0, DescribeTopicPartitionsResponse, beside=NEW_ID)
    both.same(asked(topics, 9, asked.Cursor("other", 0)), 0, DescribeTopicPartitionsResponse, beside=NEW_ID)


# ---- quotas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", AlterClientQuotasRequest.VERSIONS)
def test_client_quotas(both: Sides, version: int) -> None:
    entry, op = AlterClientQuotasRequest.EntryData, AlterClientQuotasRequest.OpData

    def of(**names: str | None) -> list[AlterClientQuotasRequest.EntityData]:
        return [AlterClientQuotasRequest.EntityData(kind.replace("_", "-"), name) for kind, name in names.items()]

    rate, user = [op("producer_byte_rate", 5.0)], f"quota-{version}"
    wanted = [
        entry(of(user=user), [op("producer_byte_rate", 7.0), op("consumer_byte_rate", 9.0)]),
        entry(of(user=user, client_id=None), rate),
        entry(of(client_id=user), [op("producer_byte_rate", remove=True)]),
        entry([], rate),
        entry(of(group="a"), rate),
        entry(of(ip="1.2.3.4", user=user), rate),
        entry(of(ip="not an address"), rate),
        entry(of(user="a"), [op("no_such_rate", 5.0)]),
        entry(of(user="b"), [op("producer_byte_rate", 0.0)]),
        entry(of(user="c"), [op("producer_byte_rate", 1.5)]),
        entry(of(user="d"), [op("producer_byte_rate", 1.0), op("producer_byte_rate", 2.0)]),
        entry(of(user=user, client_id="x"), [op("request_percentage", 0.25), op("controller_mutation_rate", 12.5)]),
        entry(of(user="e"), [op("connection_creation_rate", 5.0)]),
        entry(of(ip="192.0.2.7"), [op("connection_creation_rate", 5.0)]),
        entry(of(ip="192.0.2.8"), [op("connection_creation_rate", 2147483648.0)]),
        entry(of(ip="192.0.2.9"), [op("connection_creation_rate", 2.5)]),
        entry(of(ip="192.0.2.10"), [op("controller_mutation_rate", 2.0)]),
        entry(of(user="f"), [op("controller_mutation_rate", -1.0)]),
    ]
    both.same(AlterClientQuotasRequest(wanted), version, AlterClientQuotasResponse)
    part = DescribeClientQuotasRequest.ComponentData
    known = DescribeClientQuotasRequest([part("user", 0, user)])
    for side in both:
        until(lambda side=side: len(side.answer(known, version, DescribeClientQuotasResponse, None)["entries"]) == 3)
    for parts, strict in (
        ([part("user", 0, user)], False),
        ([part("user", 0, user)], True),
        ([part("user", 0, user), part("client-id", 1, None)], True),
        ([part("user", 0, user), part("client-id", 2, None)], False),
        ([part("user", 0, user), part("user", 1, None)], False),
        ([part("user", 0, None)], False),
        ([part("user", 3, None)], False),
        ([part("ip", 2, None), part("user", 2, None)], False),
        ([part("group", 2, None)], False),
        ([part("ip", 0, "192.0.2.7")], True),
        ([part("ip", 1, None)], False),
    ):
        asked = DescribeClientQuotasRequest(parts, strict)
        both.same(asked, version, DescribeClientQuotasResponse)
    removed = [entry(of(user=user), [op("consumer_byte_rate", remove=True)])]
    both.same(AlterClientQuotasRequest(removed), version, AlterClientQuotasResponse)


def test_controller_mutations_over_the_quota(both: Sides) -> None:
    """Strict versions are refused while there is a debt, earlier ones done, and both wait: each question has a connection of its own."""
    asked, default = AlterClientQuotasRequest, AlterClientQuotasRequest.EntityData("client-id", None)
    key, beside = "controller_mutation_rate", (*NEW_ID, "configs", "throttle_time_ms", "error_message")
    grown, deleted = made(both), made(both)
    growth = CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic(grown, 3, None)], TIMEOUT_MS)
    deletion = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(deleted)], [deleted], TIMEOUT_MS)

    def topics(name: str, partitions: int, *, validate_only: bool = False) -> CreateTopicsRequest:
        return CreateTopicsRequest([Topic(PREFIX + name, partitions, 1)], TIMEOUT_MS, validate_only)

    both.same(asked([asked.EntryData([default], [asked.OpData(key, 0.5)])]), 1, AlterClientQuotasResponse)
    known = DescribeClientQuotasRequest([DescribeClientQuotasRequest.ComponentData("client-id", 1, None)])
    try:
        for side in both:
            until(lambda side=side: side.answer(known, 1, DescribeClientQuotasResponse, None)["entries"])
        for request, version, answer, is_throttled in (
            (topics("judged", 60, validate_only=True), 6, CreateTopicsResponse, False),
            (topics("refused", 1), 6, CreateTopicsResponse, True),
            (growth, 3, CreatePartitionsResponse, True),
            (deletion, 5, DeleteTopicsResponse, True),
            (topics("done", 1), 5, CreateTopicsResponse, True),
            (growth, 2, CreatePartitionsResponse, True),
            (deletion, 4, DeleteTopicsResponse, True),
        ):
            told = [side.answer(request, version, answer) for side in both]
            assert list(differences(*told, {*EXPLAINED, *beside})) == []
            assert [each["throttle_time_ms"] > 0 for each in told] == [is_throttled] * 2, told
            both.hang_up()
    finally:
        both.same(asked([asked.EntryData([default], [asked.OpData(key, remove=True)])]), 1, AlterClientQuotasResponse)


# ---- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
def test_describe_configs(both: Sides, version: int) -> None:
    named = ["max.message.bytes", "cleanup.policy", "min.cleanable.dirty.ratio", "message.timestamp.type", "no.such"]
    one = DescribeConfigsRequest.DescribeConfigsResource
    resources = [one(TOPIC, made(both, max_message_bytes=5000), named), one(TOPIC, "none", named)]
    resources += [one(TOPIC, "no/name", None), one(BROKER, "99", None), one(BROKER, "x", None)]
    for synonyms in (False, True):
        both.same(DescribeConfigsRequest(resources, synonyms), version, DescribeConfigsResponse)
    both.same(DescribeConfigsRequest([one(99, "x", None)]), version, DescribeConfigsResponse)


@pytest.mark.parametrize("version", IncrementalAlterConfigsRequest.VERSIONS)
def test_incremental_alter_configs(both: Sides, version: int) -> None:
    asked, change = IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequest.AlterableConfig
    changes = [
        [change("retention.ms", SET, "7"), change("cleanup.policy", APPEND, "compact")],
        [change("retention.ms", DELETE, None), change("cleanup.policy", SUBTRACT, "compact")],
        [change("retention.mx", SET, "7")],
        [change("retention.mx", DELETE, None)],
        [change("retention.ms", SET, "soon")],
        [change("retention.ms", SET, None)],
        [change("retention.ms", SET, "7"), change("retention.ms", SET, "8")],
        [change("retention.ms", APPEND, "7")],
        [],
    ]
    resources = [asked.AlterConfigsResource(TOPIC, made(both, cleanup_policy="delete"), each) for each in changes]
    resources += [asked.AlterConfigsResource(TOPIC, name, changes[0]) for name in ("none", "no/name", "twice", "twice")]
    resources.append(asked.AlterConfigsResource(99, "x", changes[0]))
    for validate_only in (True, False):
        for resource in resources:
            both.same(asked([resource], validate_only), version, IncrementalAlterConfigsResponse)


@pytest.mark.parametrize("version", AlterConfigsRequest.VERSIONS)
def test_alter_configs(both: Sides, version: int) -> None:
    asked, value = AlterConfigsRequest, AlterConfigsRequest.AlterableConfig
    name = made(both, retention_ms=5, flush_ms=9)
    for values in ([value("flush.ms", "7")], [value("flush.ms", None)], [value("flush.mx", "7")], []):
        both.same(asked([asked.AlterConfigsResource(TOPIC, name, values)]), version, AlterConfigsResponse)
    both.same(asked([asked.AlterConfigsResource(BROKER, "", [])]), version, AlterConfigsResponse)
    both.same(asked([asked.AlterConfigsResource(TOPIC, "none", [])]), version, AlterConfigsResponse)


def test_list_config_resources(both: Sides) -> None:
    for version, types in ((0, []), (1, [BROKER]), (1, [GROUP]), (1, [99]), (1, [TOPIC, 0])):
        both.same(ListConfigResourcesRequest(types), version, ListConfigResourcesResponse)


# ---- the cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
def test_describe_cluster(both: Sides, version: int) -> None:
    for operations in (False, True):
        both.same(DescribeClusterRequest(operations), version, DescribeClusterResponse)
    for endpoint_type in (2, 3) if version else ():
        both.same(DescribeClusterRequest(endpoint_type=endpoint_type), version, DescribeClusterResponse)


def test_unregister_broker(both: Sides) -> None:
    both.same(UnregisterBrokerRequest(99), 0, UnregisterBrokerResponse)


@pytest.mark.parametrize("version", ElectLeadersRequest.VERSIONS)
def test_elect_leaders(both: Sides, version: int) -> None:
    wanted = [ElectLeadersRequest.TopicPartitions(made(both), [0, 9]), ElectLeadersRequest.TopicPartitions("none", [0])]
    for election_type in (0, 1, 7) if version else (0,):
        both.same(ElectLeadersRequest(election_type, wanted, TIMEOUT_MS), version, ElectLeadersResponse)


@pytest.mark.parametrize("version", AlterPartitionReassignmentsRequest.VERSIONS)
def test_reassignments(both: Sides, version: int) -> None:
    asked, to = AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsRequest.ReassignablePartition
    name = made(both, 4)
    moves = [to(0, [1]), to(1, None), to(2, [99]), to(3, []), to(9, [1])]
    topics = [asked.ReassignableTopic(name, moves), asked.ReassignableTopic("none", [to(0, [1])])]
    both.same(asked(TIMEOUT_MS, True, topics), version, AlterPartitionReassignmentsResponse)  # noqa: FBT003 -- a message
    named = [ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name, [0, 9])]
    for listed in (None, named):
        both.same(ListPartitionReassignmentsRequest(TIMEOUT_MS, listed), 0, ListPartitionReassignmentsResponse)


# ---- disks and producers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeLogDirsRequest.VERSIONS)
def test_describe_log_dirs(both: Sides, version: int) -> None:
    topics = [DescribeLogDirsRequest.DescribableLogDirTopic(made(both, 2), [0, 1, 9])]
    own = ("log_dir", "usable_bytes")
    for asked in (DescribeLogDirsRequest(topics), DescribeLogDirsRequest([])):
        both.same(asked, version, DescribeLogDirsResponse, beside=own)


@pytest.mark.parametrize("version", AlterReplicaLogDirsRequest.VERSIONS)
def test_alter_replica_log_dirs(both: Sides, version: int) -> None:
    asked, topic = AlterReplicaLogDirsRequest, AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    name = made(both)

    def into_its_own(
        wanted: AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic, side: Side
    ) -> AlterReplicaLogDirsRequest:
        with raw_client(side.broker.servers) as client:
            (directory,) = client.ask(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse).results
        return asked([asked.AlterReplicaLogDir(directory.log_dir, [wanted])])

    for wanted in (topic(name, [0, 9]), topic("none", [0])):  # one by one: Kafka answers topics in any order
        both.same(partial(into_its_own, wanted), version, AlterReplicaLogDirsResponse)
    nowhere = asked([asked.AlterReplicaLogDir("/no/such/folder", [topic(name, [0])])])
    both.same(nowhere, version, AlterReplicaLogDirsResponse)


def test_describe_producers(both: Sides) -> None:
    topic = DescribeProducersRequest.TopicRequest
    wanted = [topic(made(both), [0, 9]), topic("none", [0]), topic("no/name", [0])]
    both.same(DescribeProducersRequest(wanted), 0, DescribeProducersResponse)
