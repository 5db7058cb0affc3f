"""DescribeCluster, UnregisterBroker, UpdateFeatures and DescribeTopicPartitions, over a node's port."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from kafka_node_kit import Served, serving
from registered_broker import register

from replog.client import Admin
from replog.client.protocol.questions.cluster import FeatureRange
from replog.errors import ErrorCode, FeatureUpdateFailedError
from replog.metadata.features import METADATA_VERSION, TRANSACTION_VERSION
from replog.protocol.handlers import cluster, topic_partitions
from replog.protocol.handlers.metadata import NOT_ASKED
from replog.protocol.handlers.node import Failure
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from replog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

Feature = UpdateFeaturesRequest.FeatureUpdateKey
Named = DescribeTopicPartitionsRequest.TopicRequest
Cursor = DescribeTopicPartitionsRequest.Cursor

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
TOPIC_OPERATIONS = 0b1101_1111_1000


# ---- the cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
async def test_the_brokers_are_told(version: int) -> None:
    async with serving(broker_rack="r") as it:
        answer = await it.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "c", 1)
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == it.node.address
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


async def test_fenced_brokers_are_told_to_who_asks_for_them() -> None:
    async with serving() as it:
        await register(it, 2)
        for version in DescribeClusterRequest.VERSIONS:
            answer = await it.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
            assert [one.broker_id for one in answer.brokers] == [1]
        answer = await it.ask(DescribeClusterRequest(include_fenced_brokers=True), 2, DescribeClusterResponse)
        assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(1, False), (2, True)]
        assert (answer.brokers[1].host, answer.brokers[1].port) == ("elsewhere", 9092)


async def test_a_broker_that_is_gone_is_forgotten() -> None:
    async with serving() as it:
        await register(it, 2)
        codes = []
        for broker_id in (2, 1, 7):
            answer = await it.ask(UnregisterBrokerRequest(broker_id), 0, UnregisterBrokerResponse)
            assert (answer.error_message is None) == (answer.error_code == 0)
            codes.append(answer.error_code)
        assert codes == [0, ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED]
        async with asyncio.timeout(60):
            while 2 in it.kafka.image.brokers:
                await asyncio.sleep(0.001)


# ---- features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", UpdateFeaturesRequest.VERSIONS)
async def test_features_are_updated_together(version: int) -> None:
    async with serving() as it:
        level = it.kafka.image.features[METADATA_VERSION]
        as_it_is = Feature(METADATA_VERSION, level)
        answer = await it.ask(UpdateFeaturesRequest(5000, [as_it_is]), version, UpdateFeaturesResponse)
        assert (answer.error_code, answer.error_message) == (0, None)
        if version < 2:
            assert [(one.feature, one.error_code) for one in answer.results] == [(METADATA_VERSION, 0)]
        wanted = [as_it_is, Feature("no.such", 3)]
        answer = await it.ask(UpdateFeaturesRequest(5000, wanted), version, UpdateFeaturesResponse)
        assert answer.error_code == ErrorCode.FEATURE_UPDATE_FAILED
        assert "no.such 3" in answer.error_message


async def test_a_level_is_lowered_only_where_it_may_be() -> None:
    async with serving() as it:
        codes = []
        for version, feature in (
            (0, Feature("some", -1, allow_downgrade=True)),
            (1, Feature("some", 0, upgrade_type=2)),
            (1, Feature("some", 0, upgrade_type=9)),
            (1, Feature(METADATA_VERSION, 1, upgrade_type=3)),
        ):
            answer = await it.ask(UpdateFeaturesRequest(5000, [feature]), version, UpdateFeaturesResponse)
            codes.append(answer.error_code)
        assert codes == [
            ErrorCode.FEATURE_UPDATE_FAILED,
            0,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.FEATURE_UPDATE_FAILED,
        ]
        nothing = await it.ask(UpdateFeaturesRequest(5000, []), 1, UpdateFeaturesResponse)
        assert nothing.error_code == 0


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


async def test_the_level_of_transactions_goes_down_and_up_again_and_clients_are_told() -> None:
    async with serving() as it, Admin(it.node.address) as admin:

        async def told(version: int) -> tuple[dict[str, int], set[str]]:
            found = await it.ask(ApiVersionsRequest("raw", "1"), version, ApiVersionsResponse)
            levels = {one.name: one.max_version_level for one in found.finalized_features}
            return levels, {one.name for one in found.supported_features}

        assert await told(4) == ({METADATA_VERSION: 5, TRANSACTION_VERSION: 2}, {METADATA_VERSION, TRANSACTION_VERSION})
        assert (await told(3))[1] == {METADATA_VERSION}, "older clients cannot read that level 0 is supported"
        with pytest.raises(FeatureUpdateFailedError, match="downgrade"):
            await admin.update_features({TRANSACTION_VERSION: 0})
        with pytest.raises(FeatureUpdateFailedError, match="supports 0 to 2"):
            await admin.update_features({TRANSACTION_VERSION: 3})
        await admin.update_features({TRANSACTION_VERSION: 0}, allow_downgrade=True)
        assert (await told(4))[0] == {METADATA_VERSION: 5}
        assert (await admin.describe_features())[TRANSACTION_VERSION] == FeatureRange(0, 0, 2)
        await admin.update_features({TRANSACTION_VERSION: 1})
        assert (await admin.describe_features())[TRANSACTION_VERSION] == FeatureRange(1, 0, 2)


def test_what_fails_as_a_whole_is_told() -> None:
    failure = Failure(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
    pages = topic_partitions.refuse_describe(DescribeTopicPartitionsRequest([Named("t")]), failure)
    assert [(one.name, one.topic_id, one.error_code) for one in pages.topics] == [("t", UUID(int=0), failure.code)]
