"""Every broker of a cluster takes what Kafka's clients ask of the controller, and passes it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from raw_client import RawClient, raw_client
from served_cluster import served_cluster
from waiting import until

from replog.errors import ErrorCode
from replog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

pytestmark = pytest.mark.cluster

TOPIC, SET, APPEND = 2, 0, 2
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, RawClient]]:
    """A connection to each of three brokers, by id."""
    with served_cluster(tmp_path_factory.mktemp("administered") / "cluster", nodes=3) as cluster, ExitStack() as stack:
        addresses = cluster.bootstrap_servers.split(",")
        yield {number: stack.enter_context(raw_client(one)) for number, one in enumerate(addresses, start=1)}


def create(broker: RawClient, name: str, **counts: int) -> UUID:
    topic = CreateTopicsRequest.CreatableTopic(name, counts.get("partitions", 1), counts.get("replicas", 3))
    (made,) = broker.ask(CreateTopicsRequest([topic], TIMEOUT_MS), 7, CreateTopicsResponse).topics
    assert made.error_code == 0, made
    topic_id: UUID = made.topic_id
    return topic_id


def partitions(broker: RawClient, name: str) -> list[Any]:
    """The partitions that a broker knows; none where it does not know the topic."""
    asked = DescribeTopicPartitionsRequest([DescribeTopicPartitionsRequest.TopicRequest(name)])
    (topic,) = broker.ask(asked, 0, DescribeTopicPartitionsResponse).topics
    found: list[Any] = topic.partitions
    return found


def own_configs(broker: RawClient, name: str) -> dict[str, str]:
    """The configurations that are the topic's own, as a broker knows them."""
    asked = DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(TOPIC, name, None)])
    (topic,) = broker.ask(asked, 4, DescribeConfigsResponse).results
    return {config.name: config.value for config in topic.configs if config.config_source == 1}


def test_topics_come_and_go_by_any_broker(brokers: dict[int, RawClient]) -> None:
    ids = {f"by-{broker_id}": create(broker, f"by-{broker_id}") for broker_id, broker in brokers.items()}
    for broker in brokers.values():
        until(lambda broker=broker: all(partitions(broker, name) for name in ids))  # type: ignore[misc]
    for broker, (name, topic_id) in zip(reversed(brokers.values()), ids.items(), strict=True):
        state = DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)
        (gone,) = broker.ask(DeleteTopicsRequest([state], timeout_ms=TIMEOUT_MS), 6, DeleteTopicsResponse).responses
        assert (gone.error_code, gone.name) == (0, name)
        (again,) = broker.ask(DeleteTopicsRequest([state], timeout_ms=TIMEOUT_MS), 6, DeleteTopicsResponse).responses
        assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_configurations_are_altered_by_any_broker(brokers: dict[int, RawClient]) -> None:
    changed, replaced = IncrementalAlterConfigsRequest, AlterConfigsRequest
    create(brokers[1], "configured")
    for broker_id, broker in brokers.items():
        changes = [changed.AlterableConfig("cleanup.policy", APPEND, "compact")]
        changes.append(changed.AlterableConfig("retention.ms", SET, str(broker_id)))
        asked = changed([changed.AlterConfigsResource(TOPIC, "configured", changes)])
        (told,) = broker.ask(asked, 1, IncrementalAlterConfigsResponse).responses
        assert told.error_code == 0, told
        expected = {"cleanup.policy": "compact,delete", "retention.ms": str(broker_id)}
        until(lambda broker=broker, expected=expected: own_configs(broker, "configured") == expected)  # type: ignore[misc]
    for broker_id, broker in brokers.items():
        values = [replaced.AlterableConfig("segment.bytes", str(2_000_000 + broker_id))]
        whole = replaced([replaced.AlterConfigsResource(TOPIC, "configured", values)])
        (told,) = broker.ask(whole, 2, AlterConfigsResponse).responses
        assert told.error_code == 0, told
        left = {"segment.bytes": str(2_000_000 + broker_id)}
        until(lambda broker=broker, left=left: own_configs(broker, "configured") == left)  # type: ignore[misc]


def test_who_begins_a_reassignment_is_told_of_it_by_any_broker(brokers: dict[int, RawClient]) -> None:
    """It is there, or over: never that nothing is under way while it has not begun."""
    create(brokers[1], "moving", replicas=1)
    for broker in brokers.values():
        until(lambda broker=broker: bool(partitions(broker, "moving")))  # type: ignore[misc]
    (before,) = partitions(brokers[1], "moving")
    asked, item = AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsRequest.ReassignablePartition
    target = [broker_id for broker_id in brokers if broker_id not in before.replica_nodes]
    for broker in brokers.values():
        request = asked(TIMEOUT_MS, True, [asked.ReassignableTopic("moving", [item(0, target)])])  # noqa: FBT003 -- a message
        told = broker.ask(request, 1, AlterPartitionReassignmentsResponse)
        assert told.responses[0].partitions[0].error_code == 0
        moving = broker.ask(ListPartitionReassignmentsRequest(TIMEOUT_MS), 0, ListPartitionReassignmentsResponse).topics
        (now,) = partitions(broker, "moving")
        assert set(now.replica_nodes) >= set(target)
        assert moving or set(now.replica_nodes) == set(target)
        target.reverse()


def test_all_brokers_tell_the_same_cluster(brokers: dict[int, RawClient]) -> None:
    quorum = DescribeQuorumRequest
    asked = quorum([quorum.TopicData("__cluster_metadata", [quorum.PartitionData(0)])])
    create(brokers[1], "stored")
    for broker_id, broker in brokers.items():
        cluster = broker.ask(DescribeClusterRequest(), 2, DescribeClusterResponse)
        assert [one.broker_id for one in cluster.brokers] == [1, 2, 3]
        told = broker.ask(asked, 2, DescribeQuorumResponse)
        (partition,) = told.topics[0].partitions
        assert [one.replica_id for one in partition.current_voters] == [1, 2, 3]
        assert partition.leader_id == cluster.controller_id
        (directory,) = broker.ask(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse).results
        assert f"node-{broker_id}" in directory.log_dir, "its own"
