"""DescribeCluster and DescribeTopicPartitions, over a node's port."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka_node_kit import Served, serving

from replog.errors import ErrorCode
from replog.kafka.handlers import cluster, topic_partitions
from replog.kafka.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from replog.kafka.handlers.node import Failure
from replog.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

Named = DescribeTopicPartitionsRequest.TopicRequest
Cursor = DescribeTopicPartitionsRequest.Cursor


# ---- the cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
async def test_the_brokers_are_told(version: int) -> None:
    async with serving(broker_rack="r") as it:
        answer = await it.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "c", 1)
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == it.node.kafka_address
        assert (broker.broker_id, broker.rack, broker.is_fenced) == (1, "r", False)
        assert answer.cluster_authorized_operations == NOT_ASKED
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await it.ask(asked, version, DescribeClusterResponse)
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


async def test_controllers_have_no_endpoint_here() -> None:
    async with serving() as it:
        codes = {}
        for endpoint_type in (cluster.CONTROLLERS, 3):
            asked = DescribeClusterRequest(endpoint_type=endpoint_type)
            answer = await it.ask(asked, 2, DescribeClusterResponse)
            assert answer.error_message
            assert not answer.brokers
            codes[endpoint_type] = answer.error_code
        assert codes == {2: ErrorCode.MISMATCHED_ENDPOINT_TYPE, 3: ErrorCode.UNSUPPORTED_ENDPOINT_TYPE}


# ---- partitions, page by page ----------------------------------------------------------------------------------------


async def page(
    it: Served, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    begin = None if cursor is None else Cursor(*cursor)
    request = DescribeTopicPartitionsRequest([Named(name) for name in names], limit, begin)
    answer = await it.ask(request, 0, DescribeTopicPartitionsResponse)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def told(answer: DescribeTopicPartitionsResponse) -> dict[str | None, list[int]]:
    return {topic.name: [one.partition_index for one in topic.partitions] for topic in answer.topics}


async def test_partitions_are_told_with_who_may_lead_them() -> None:
    async with serving() as it:
        topic_id = await it.create("t", partitions=2)
        answer = await page(it, "t", "none", "no/name")
        topic = {one.name: one for one in answer.topics}["t"]
        assert (topic.topic_id, topic.error_code, topic.topic_authorized_operations) == (topic_id, 0, TOPIC_OPERATIONS)
        (first, _) = topic.partitions
        assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 0)
        assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1], [1], [])
        assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])
        assert {one.name: one.error_code for one in answer.topics} == {
            "t": 0,
            "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert answer.next_cursor is None


async def test_pages_follow_each_other() -> None:
    async with serving() as it:
        for name in ("a", "b", "c"):
            await it.create(name, partitions=3)
        pages, cursor = [], None
        while True:
            answer = await page(it, limit=2, cursor=cursor)
            pages.append(told(answer))
            if answer.next_cursor is None:
                break
            cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        assert pages == [{"a": [0, 1]}, {"a": [2], "b": [0]}, {"b": [1, 2]}, {"c": [0, 1]}, {"c": [2]}]
        whole = await page(it, "c", "a", limit=3)
        assert (told(whole), whole.next_cursor.topic_name, whole.next_cursor.partition_index) == (
            {"a": [0, 1, 2]},
            "c",
            0,
        )
        assert told(await page(it, limit=0)) == {"a": [0]}, "a page has at least one"
        assert told(await page(it, cursor=("b", 7))) == {"b": [], "c": [0, 1, 2]}


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_a_page_that_cannot_begin_is_refused(cursor: tuple[str, int]) -> None:
    async with serving() as it:
        await it.create("a")
        answer = await page(it, "a", cursor=cursor)
        assert [(one.name, one.error_code) for one in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]


def test_what_fails_as_a_whole_is_told() -> None:
    failure = Failure(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
    answer = cluster.refuse_describe_cluster(DescribeClusterRequest(), failure)
    assert (answer.error_code, answer.error_message) == (failure.code, failure.message)
    pages = topic_partitions.refuse_describe_topic_partitions(DescribeTopicPartitionsRequest([Named("t")]), failure)
    assert [(one.name, one.topic_id, one.error_code) for one in pages.topics] == [("t", UUID(int=0), failure.code)]
