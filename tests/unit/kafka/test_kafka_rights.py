"""What clients are told without a right, over a node's port: Kafka's codes, and nothing of what they may not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from uuid import UUID

import pytest
from kafka_node_kit import Served, batch, serving
from rights_kit import AllowedOnly, Grant, govern

from replog.access.authorizer import OPEN
from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.controller.requests import DrainBroker, ForkTopic
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.coordinator.transactions.requests import ForgetTransactionalId, Incarnation, PrepareTransaction
from replog.errors import ErrorCode
from replog.metadata.records import ResourceType as ConfigsOf
from replog.protocol.handlers.node import Failure
from replog.protocol.private import FIRST_KEY, PRIVATE_APIS, PrivateAnswer, PrivateRequest
from replog.protocol.rights.needs import Inside, Need
from replog.protocol.rights.table import RIGHTS
from replog.protocol.served import SERVED
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.node_messages import DescribeConfigsRequest as OurDescribeConfigsRequest
from replog.rpc.node_messages import DescribeNodeConfigsRequest, DescribeNodeRequest, LocateSegmentsRequest
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, DESCRIBE_CONFIGS = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceKind.TOPIC,
    ResourceKind.GROUP,
    ResourceKind.CLUSTER,
    ResourceKind.TRANSACTIONAL_ID,
)
ON_CLUSTER: Grant = (DESCRIBE, CLUSTER, CLUSTER_NAME)
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


@asynccontextmanager
async def guarded(*grants: Grant, **keys: object) -> AsyncIterator[tuple[Served, AllowedOnly]]:
    """A node with the topics `mine` and `secret`, whose clients may do what is granted."""
    async with serving(offsets_topic_num_partitions=1, **keys) as it:
        await it.create("mine")
        await it.create("secret")
        authorizer = AllowedOnly(*grants)
        govern(it, authorizer)
        yield it, authorizer


# ---- the table -------------------------------------------------------------------------------------------------------


def test_each_api_that_is_served_has_its_row_and_no_other() -> None:
    assert {api.key for api in SERVED} == set(RIGHTS)
    assert all(api.right is RIGHTS[api.key] and (api.right.needs or api.right.note) for api in SERVED)
    of_everybody = {"SaslHandshake", "SaslAuthenticate", "RenewDelegationToken", "ExpireDelegationToken"}
    assert {api.name for api in SERVED if not api.right.needs} == of_everybody
    assert {api.API_KEY for api in PRIVATE_APIS.values()} <= set(RIGHTS)


def test_what_is_named_in_a_row_is_in_the_messages() -> None:
    failure = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    for api in SERVED:
        for need in api.right.needs:
            if not isinstance(need, (Need, Inside)):
                request = api.load().request
                answer: Any = api.load().refuse(request(), failure)  # type: ignore[call-arg]
                assert need.asked in request.__struct_fields__, api.name  # type: ignore[union-attr]
                assert need.told in answer.__struct_fields__, api.name


# ---- produce and fetch -----------------------------------------------------------------------------------------------


def _produce(*topics: str, transactional_id: str | None = None, **others: Any) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(0, batch(b"v", **others))]
    named = [ProduceRequest.TopicProduceData(topic, partition_data=data) for topic in topics]
    return ProduceRequest(transactional_id, acks=-1, timeout_ms=5000, topic_data=named)


async def test_a_produce_is_refused_by_topic_and_the_rest_is_written() -> None:
    async with guarded((WRITE, TOPIC, "mine")) as (it, _):
        answer = await it.ask(_produce("secret", "mine", "none"), 12, ProduceResponse)
        told = {topic.name: topic.partition_responses[0] for topic in answer.responses}
        assert {name: one.error_code for name, one in told.items()} == {"mine": 0, "secret": NO_TOPIC, "none": NO_TOPIC}
        text = told["secret"].error_message or ""
        assert all(word in text for word in ("User:ANONYMOUS", "127.0.0.1", "WRITE", '"secret"', "allow"))


async def test_topics_by_id_are_refused_by_their_names() -> None:
    async with guarded((WRITE, TOPIC, "mine")) as (it, _):
        ids = {name: topic.topic_id for name, topic in it.kafka.image.topics_by_name.items()}
        request = _produce("", "", "")
        wanted = [ids["mine"], ids["secret"], type(ids["mine"])(int=99)]
        for topic, topic_id in zip(request.topic_data, wanted, strict=True):
            topic.topic_id = topic_id
        answer = await it.ask(request, 13, ProduceResponse)
        told = {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses}
        assert [told[each] for each in wanted] == [0, NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_the_name_of_a_topic_that_is_asked_for_by_its_id_is_not_told() -> None:
    async with guarded() as (it, _):
        topic_id = it.kafka.image.topics_by_name["secret"].topic_id
        produced = _produce("")
        produced.topic_data[0].topic_id = topic_id
        (topic,) = (await it.ask(produced, 13, ProduceResponse)).responses
        state = DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)
        (gone,) = (await it.ask(DeleteTopicsRequest([state], timeout_ms=5000), 6, DeleteTopicsResponse)).responses
        for code, text in (
            (topic.partition_responses[0].error_code, topic.partition_responses[0].error_message),
            (gone.error_code, gone.error_message),
        ):
            assert code == NO_TOPIC
            assert "of the id that was asked for" in text
            assert "secret" not in text


async def test_transactional_batches_need_the_transactional_id() -> None:
    async with guarded((WRITE, TOPIC, "mine")) as (it, authorizer):
        request = _produce(
            "mine", transactional_id="t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        answer = await it.ask(request, 12, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == NO_TRANSACTION
        assert (WRITE, TRANSACTION, "t") in authorizer.asked


def _fetch(*topics: str, session_id: int = 0, epoch: int = 0, wait_ms: int = 0) -> FetchRequest:
    asked = [
        FetchRequest.FetchTopic(name, partitions=[FetchRequest.FetchPartition(0, partition_max_bytes=1 << 20)])
        for name in topics
    ]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=asked
    )


def _told(answer: FetchResponse) -> dict[str, int]:
    return {topic.topic: partition.error_code for topic in answer.responses for partition in topic.partitions}


async def test_a_fetch_is_refused_by_topic() -> None:
    async with guarded((READ, TOPIC, "mine")) as (it, _):
        answer = await it.ask(_fetch("secret", "mine"), 12, FetchResponse)
        assert _told(answer) == {"mine": 0, "secret": NO_TOPIC}
        assert answer.session_id == 0, "no session with what is refused"


async def test_a_right_that_is_taken_away_ends_a_session_in_the_next_fetch() -> None:
    async with guarded((READ, TOPIC, "mine"), (READ, TOPIC, "secret")) as (it, authorizer):
        first = await it.ask(_fetch("secret", "mine"), 12, FetchResponse)
        assert first.session_id > 0
        again = await it.ask(_fetch(session_id=first.session_id, epoch=1), 12, FetchResponse)
        assert (again.session_id, again.error_code) == (first.session_id, 0)
        authorizer.deny((READ, TOPIC, "secret"))
        ended = await it.ask(_fetch(session_id=first.session_id, epoch=2), 12, FetchResponse)
        assert (_told(ended), ended.session_id) == ({"secret": NO_TOPIC}, 0)
        lost = await it.ask(_fetch(session_id=first.session_id, epoch=3), 12, FetchResponse)
        assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_goes_on_without_a_topic_that_it_has_forgotten() -> None:
    async with guarded((READ, TOPIC, "mine"), (READ, TOPIC, "secret"), (WRITE, TOPIC, "mine")) as (it, authorizer):
        first = await it.ask(_fetch("secret", "mine"), 12, FetchResponse)
        forgetting = _fetch(session_id=first.session_id, epoch=1)
        forgetting.forgotten_topics_data = [FetchRequest.ForgottenTopic("secret", partitions=[0])]
        await it.ask(forgetting, 12, FetchResponse)
        authorizer.deny((READ, TOPIC, "secret"))
        await it.ask(_produce("mine"), 12, ProduceResponse)
        goes_on = await it.ask(_fetch(session_id=first.session_id, epoch=2), 12, FetchResponse)
        assert (_told(goes_on), goes_on.session_id) == ({"mine": 0}, first.session_id)


async def test_a_fetch_that_waits_while_its_right_is_taken_away_gets_no_records() -> None:
    async with guarded((READ, TOPIC, "mine")) as (it, authorizer):
        reader = await it.client()
        waiting = asyncio.create_task(it.ask(_fetch("mine", wait_ms=20_000), 12, FetchResponse, reader))
        await it.until(it.waiting_fetches)
        authorizer.deny((READ, TOPIC, "mine"))
        authorizer.allow((WRITE, TOPIC, "mine"))
        writer = await it.client()
        await it.ask(_produce("mine"), 12, ProduceResponse, writer)
        answer = await waiting
        assert _told(answer) == {"mine": NO_TOPIC}
        assert not any(one.records for topic in answer.responses for one in topic.partitions)


async def test_offsets_need_describe() -> None:
    async with guarded((DESCRIBE, TOPIC, "mine")) as (it, _):
        asked = [
            ListOffsetsRequest.ListOffsetsTopic(name, [ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)])
            for name in ("secret", "mine", "none")
        ]
        answer = await it.ask(ListOffsetsRequest(-1, topics=asked), 7, ListOffsetsResponse)
        told = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        assert told == {"mine": 0, "secret": NO_TOPIC, "none": NO_TOPIC}


# ---- metadata --------------------------------------------------------------------------------------------------------


def _named(*names: str, **others: Any) -> MetadataRequest:
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names], **others)


async def test_metadata_hide_what_may_not_be_described() -> None:
    async with guarded((DESCRIBE, TOPIC, "mine"), (READ, TOPIC, "mine")) as (it, _):
        every = await it.ask(MetadataRequest(None, include_topic_authorized_operations=True), 12, MetadataResponse)
        assert [topic.name for topic in every.topics] == ["mine"]
        assert every.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
        named = await it.ask(_named("mine", "secret", "none"), 12, MetadataResponse)
        told = {topic.name: (topic.error_code, topic.topic_id.int > 0, len(topic.partitions)) for topic in named.topics}
        assert told == {"mine": (0, True, 1), "secret": (NO_TOPIC, False, 0), "none": (NO_TOPIC, False, 0)}
        secret_id = it.kafka.image.topics_by_name["secret"].topic_id
        asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(secret_id, None)])
        (by_id,) = (await it.ask(asked, 12, MetadataResponse)).topics
        assert (by_id.error_code, by_id.name, by_id.partitions) == (NO_TOPIC, None, [])


async def test_answers_are_kept_for_those_who_have_the_same_rights() -> None:
    async with guarded((DESCRIBE, TOPIC, "mine"), (DESCRIBE, TOPIC, "secret")) as (it, authorizer):
        before = await it.ask(MetadataRequest(None), 12, MetadataResponse)
        assert [topic.name for topic in before.topics] == ["mine", "secret"]
        authorizer.deny((DESCRIBE, TOPIC, "secret"))
        after = await it.ask(MetadataRequest(None), 12, MetadataResponse)
        assert [topic.name for topic in after.topics] == ["mine"], "not the answer that was kept"
        govern(it, OPEN)
        everybody = await it.ask(MetadataRequest(None), 12, MetadataResponse)
        assert [topic.name for topic in everybody.topics] == ["mine", "secret"]


async def test_a_topic_is_not_made_by_whoever_may_not_create_it() -> None:
    async with guarded(
        (DESCRIBE, TOPIC, "new"), (DESCRIBE, TOPIC, "other"), (CREATE, TOPIC, "new"), auto_create_topics_enable=True
    ) as (it, _):
        answer = await it.ask(_named("new", "other", allow_auto_topic_creation=True), 12, MetadataResponse)
        told = {topic.name: topic.error_code for topic in answer.topics}
        assert told["other"] == NO_TOPIC
        assert told["new"] != NO_TOPIC
        assert "other" not in it.kafka.image.topics_by_name


async def test_pages_of_partitions_hide_topics() -> None:
    async with guarded((DESCRIBE, TOPIC, "mine")) as (it, _):
        every = await it.ask(DescribeTopicPartitionsRequest(), 0, DescribeTopicPartitionsResponse)
        assert [topic.name for topic in every.topics] == ["mine"]
        named = DescribeTopicPartitionsRequest([DescribeTopicPartitionsRequest.TopicRequest("secret")])
        (told,) = (await it.ask(named, 0, DescribeTopicPartitionsResponse)).topics
        assert (told.error_code, told.topic_id.int, told.partitions) == (NO_TOPIC, 0, [])


async def test_operations_on_the_cluster_are_told_to_those_who_may_describe_it() -> None:
    async with guarded() as (it, authorizer):
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        first = await it.ask(asked, 1, DescribeClusterResponse)
        assert (first.cluster_authorized_operations, len(first.brokers)) == (0, 1)
        authorizer.allow(ON_CLUSTER, (ALTER, CLUSTER, CLUSTER_NAME))
        told = await it.ask(asked, 1, DescribeClusterResponse)
        assert told.cluster_authorized_operations == 1 << DESCRIBE | 1 << ALTER


# ---- groups ----------------------------------------------------------------------------------------------------------


async def test_groups_are_refused_to_members_and_operators() -> None:
    async with guarded() as (it, authorizer):
        beat = await it.ask(HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse)
        assert beat.error_code == NO_GROUP
        found = await it.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, FindCoordinatorResponse)
        assert [one.error_code for one in found.coordinators] == [NO_GROUP] * 2
        authorizer.allow((DESCRIBE, GROUP, "h"))
        found = await it.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, FindCoordinatorResponse)
        assert {one.key: one.error_code == NO_GROUP for one in found.coordinators} == {"g": True, "h": False}


async def test_a_new_member_needs_the_group_and_to_see_its_topics() -> None:
    async with guarded() as (it, authorizer):
        asked = ConsumerGroupHeartbeatRequest(
            "g",
            "AAAAAAAAAAAAAAAAAAAAAA",
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["secret"],
            topic_partitions=[],
        )
        assert (await it.ask(asked, 1, ConsumerGroupHeartbeatResponse)).error_code == NO_GROUP
        authorizer.allow((READ, GROUP, "g"))
        told = await it.ask(asked, 1, ConsumerGroupHeartbeatResponse)
        assert (told.error_code, '"secret"' in (told.error_message or "")) == (NO_TOPIC, True)


def _commit(*topics: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequest.OffsetCommitRequestPartition(0, 7)]
    return OffsetCommitRequest(
        "g",
        -1,
        "",
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name, partitions=partitions) for name in topics],
    )


NO_COORDINATOR_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


async def committed(it: Served, *topics: str) -> dict[str, int]:
    """What a commit is told of each topic, once the group has a coordinator."""
    told = dict.fromkeys(topics, int(ErrorCode.NOT_COORDINATOR))
    async with asyncio.timeout(20):
        while NO_COORDINATOR_YET & set(told.values()):
            await it.kafka.find_coordinators(["g"])
            answer = await it.ask(_commit(*topics), 8, OffsetCommitResponse)
            told = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
            await asyncio.sleep(0.01)
    return told


async def test_offsets_of_groups_need_the_group_and_the_topic() -> None:
    async with guarded((READ, TOPIC, "mine"), (DESCRIBE, TOPIC, "mine")) as (it, authorizer):
        refused = await it.ask(_commit("mine"), 8, OffsetCommitResponse)
        assert [topic.partitions[0].error_code for topic in refused.topics] == [NO_GROUP]
        authorizer.allow((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DELETE, GROUP, "g"))
        assert await committed(it, "mine", "secret") == {"mine": 0, "secret": NO_TOPIC}
        for topics in (None, ["mine", "secret"]):
            named = (
                None
                if topics is None
                else [OffsetFetchRequest.OffsetFetchRequestTopics(one, partition_indexes=[0]) for one in topics]
            )
            group = OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=named)
            asked = OffsetFetchRequest(groups=[group, OffsetFetchRequest.OffsetFetchRequestGroup("h", topics=None)])
            mine, other = (await it.ask(asked, 8, OffsetFetchResponse)).groups
            told = {one.name: (one.partitions[0].error_code, one.partitions[0].committed_offset) for one in mine.topics}
            assert told == {"mine": (0, 7)} | ({} if topics is None else {"secret": (NO_TOPIC, -1)})
            assert (other.error_code, other.topics) == (NO_GROUP, [])
        forget = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(name, [OffsetDeleteRequest.OffsetDeleteRequestPartition(0)])
            for name in ("mine", "secret")
        ]
        deleted = await it.ask(OffsetDeleteRequest("g", forget), 0, OffsetDeleteResponse)
        assert {one.name: one.partitions[0].error_code for one in deleted.topics} == {"mine": 0, "secret": NO_TOPIC}
        assert (await it.ask(ListGroupsRequest(), 4, ListGroupsResponse)).groups == []


async def test_lists_leave_groups_out() -> None:
    async with guarded((READ, GROUP, "g"), (READ, TOPIC, "mine")) as (it, authorizer):
        assert await committed(it, "mine") == {"mine": 0}
        assert (await it.ask(ListGroupsRequest(), 4, ListGroupsResponse)).groups == []
        for grant in ((DESCRIBE, GROUP, "g"), ON_CLUSTER):
            authorizer.allow(grant)
            assert [one.group_id for one in (await it.ask(ListGroupsRequest(), 4, ListGroupsResponse)).groups] == ["g"]
            authorizer.deny(grant)


# ---- transactions ----------------------------------------------------------------------------------------------------


async def test_producers_need_their_id() -> None:
    async with guarded() as (it, authorizer):

        async def given(name: str | None = None) -> int:
            code: int = (await it.ask(InitProducerIdRequest(name, 1000), 4, InitProducerIdResponse)).error_code
            return code

        assert (await given(), await given("t")) == (NO_CLUSTER, NO_TRANSACTION)
        for grant in ((AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME), (WRITE, TOPIC, "any")):
            authorizer.allow(grant)
            assert await given() == 0
            authorizer.deny(grant)
        end = await it.ask(EndTxnRequest("t", 1, 0, committed=True), 3, EndTxnResponse)
        assert end.error_code == NO_TRANSACTION


async def test_none_of_the_partitions_is_added_if_one_may_not_be_written() -> None:
    async with guarded((WRITE, TRANSACTION, "t"), (WRITE, TOPIC, "mine")) as (it, _):
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name, [0]) for name in ("mine", "secret")]
        asked = AddPartitionsToTxnRequest([], "t", 1, 0, topics)
        answer = await it.ask(asked, 3, AddPartitionsToTxnResponse)
        told = [one.results_by_partition[0].partition_error_code for one in answer.results_by_topic_v3_and_below]
        assert told == [ErrorCode.OPERATION_NOT_ATTEMPTED, NO_TOPIC]
        asked.v3_and_below_transactional_id = "other"
        answer = await it.ask(asked, 3, AddPartitionsToTxnResponse)
        told = [one.results_by_partition[0].partition_error_code for one in answer.results_by_topic_v3_and_below]
        assert told == [NO_TRANSACTION] * 2
        of_brokers = AddPartitionsToTxnRequest([AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction("t", 1, 0)])
        assert (await it.ask(of_brokers, 4, AddPartitionsToTxnResponse)).error_code == NO_CLUSTER


async def test_markers_need_alter_or_cluster_action() -> None:
    async with guarded() as (it, authorizer):
        topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic("mine", [0])]
        asked = WriteTxnMarkersRequest([WriteTxnMarkersRequest.WritableTxnMarker(7, 0, False, topics, 0)])

        async def written() -> int:
            answer = await it.ask(asked, 1, WriteTxnMarkersResponse)
            code: int = answer.markers[0].topics[0].partitions[0].error_code
            return code

        assert await written() == NO_CLUSTER
        for operation in (ALTER, AclOperation.CLUSTER_ACTION):
            authorizer.allow((operation, CLUSTER, CLUSTER_NAME))
            assert await written() == 0
            authorizer.deny((operation, CLUSTER, CLUSTER_NAME))


# ---- administration --------------------------------------------------------------------------------------------------


async def test_topics_are_created_by_name_or_by_a_right_on_the_cluster() -> None:
    async with guarded((CREATE, TOPIC, "a"), (DESCRIBE_CONFIGS, TOPIC, "a")) as (it, authorizer):

        async def created(*names: str) -> dict[str, tuple[int, int]]:
            topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
            answer = await it.ask(CreateTopicsRequest(topics, 5000), 7, CreateTopicsResponse)
            return {one.name: (one.error_code, one.topic_config_error_code) for one in answer.topics}

        assert await created("a", "b") == {"a": (0, 0), "b": (NO_TOPIC, 0)}
        authorizer.allow((CREATE, CLUSTER, CLUSTER_NAME))
        assert await created("b") == {"b": (0, NO_TOPIC)}, "there, and its configuration is not told"


@pytest.mark.parametrize("version", [5, 6])
async def test_topics_are_deleted_by_those_who_may(version: int) -> None:
    async with guarded((DELETE, TOPIC, "mine")) as (it, _):
        names = ("mine", "secret", "none")
        request = (
            DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)
            if version == 5
            else DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(name) for name in names], timeout_ms=5000)
        )
        answer = await it.ask(request, version, DeleteTopicsResponse)
        assert {one.name: one.error_code for one in answer.responses} == {
            "mine": 0,
            "secret": NO_TOPIC,
            "none": NO_TOPIC,
        }
        assert "secret" in it.kafka.image.topics_by_name


async def test_a_topic_that_is_deleted_by_an_id_does_not_tell_its_name() -> None:
    async with guarded() as (it, _):
        secret = it.kafka.image.topics_by_name["secret"].topic_id
        unknown = type(secret)(int=99)
        states = [DeleteTopicsRequest.DeleteTopicState(topic_id=one) for one in (secret, unknown)]
        answer = await it.ask(DeleteTopicsRequest(states, timeout_ms=5000), 6, DeleteTopicsResponse)
        told = {one.topic_id: (one.name, one.error_code) for one in answer.responses}
        assert told == {secret: (None, NO_TOPIC), unknown: (None, ErrorCode.UNKNOWN_TOPIC_ID)}


async def test_configurations_are_of_topics_or_of_the_cluster() -> None:
    async with guarded((DESCRIBE_CONFIGS, TOPIC, "mine")) as (it, _):
        kind = DescribeConfigsRequest.DescribeConfigsResource
        asked = [kind(2, "secret"), kind(2, "mine"), kind(4, "1")]
        answer = await it.ask(DescribeConfigsRequest(asked), 4, DescribeConfigsResponse)
        told = {(one.resource_type, one.resource_name): (one.error_code, bool(one.configs)) for one in answer.results}
        assert told == {(2, "mine"): (0, True), (2, "secret"): (NO_TOPIC, False), (4, "1"): (NO_CLUSTER, False)}


async def test_the_cluster_is_altered_by_those_who_may() -> None:
    async with guarded() as (it, authorizer):
        answer = await it.ask(UnregisterBrokerRequest(9), 0, UnregisterBrokerResponse)
        assert answer.error_code == NO_CLUSTER
        assert "ALTER" in (answer.error_message or "")
        authorizer.allow((ALTER, CLUSTER, CLUSTER_NAME))
        answer = await it.ask(UnregisterBrokerRequest(9), 0, UnregisterBrokerResponse)
        assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


# ---- our own APIs ----------------------------------------------------------------------------------------------------


class AnyAnswer(PrivateAnswer):
    """The answer to any of our own requests, which has no key of its own."""

    API_KEY: ClassVar = FIRST_KEY


async def _private(it: Served, question: Any) -> int:
    asked = PrivateRequest(PRIVATE_APIS[type(question)], question, 5000)
    code: int = (await it.ask(asked, 0, AnyAnswer)).error_code
    return code


async def test_locations_of_files_need_the_cluster_and_the_topic() -> None:
    async with guarded() as (it, authorizer):
        topic_id = it.kafka.image.topics_by_name["secret"].topic_id
        asked = LocateSegmentsRequest(topic_id, 0, -1, 0, 1, "elsewhere")
        assert await _private(it, asked) == NO_CLUSTER
        authorizer.allow(ON_CLUSTER)
        assert await _private(it, asked) == NO_TOPIC
        authorizer.allow((READ, TOPIC, "secret"))
        assert await _private(it, asked) not in {NO_CLUSTER, NO_TOPIC}
        unknown = LocateSegmentsRequest(type(topic_id)(int=99), 0, -1, 0, 1, "elsewhere")
        assert await _private(it, unknown) == NO_TOPIC


async def test_a_fork_needs_rights_to_read_the_source_and_its_configuration() -> None:
    """Goal: who may create a topic does not read another one by it.  CREATE of the copy is the controller's to ask for."""
    async with guarded((READ, TOPIC, "secret")) as (it, authorizer):
        asked = ForkTopic("secret", UUID(int=99), "new", (0,))
        assert await _private(it, asked) == NO_TOPIC, "the configuration is copied, too"
        authorizer.allow((DESCRIBE_CONFIGS, TOPIC, "secret"))
        assert await _private(it, asked) == ErrorCode.UNKNOWN_TOPIC_ID


async def test_all_metadata_are_for_those_who_may_know_all_topics() -> None:
    async with guarded(*((operation, TOPIC, "mine") for operation in (DESCRIBE, DESCRIBE_CONFIGS))) as (it, authorizer):
        assert await _private(it, WaitForMetadata()) == NO_TOPIC
        authorizer.allow((DESCRIBE, TOPIC, "secret"))
        assert await _private(it, WaitForMetadata()) == NO_TOPIC, "they tell configurations, too"
        authorizer.allow((DESCRIBE_CONFIGS, TOPIC, "secret"))
        assert await _private(it, WaitForMetadata()) == 0


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        (DescribeNodeRequest(), NO_CLUSTER),
        (DescribeNodeConfigsRequest(), NO_CLUSTER),
        (OurDescribeConfigsRequest(ConfigsOf.TOPIC, "secret"), NO_TOPIC),
        (OurDescribeConfigsRequest(ConfigsOf.BROKER, "1"), NO_CLUSTER),
        (DrainBroker(1, drained=True), NO_CLUSTER),
        (ForkTopic("secret", UUID(int=1), "new", (0,)), NO_TOPIC),
        (WaitForGroupNews("g", "m", 1, 0), NO_GROUP),
        (PrepareTransaction("t", Incarnation(1, 0)), NO_TRANSACTION),
        (ForgetTransactionalId("t"), NO_TRANSACTION),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_our_own_questions_are_refused(question: Any, refused: ErrorCode) -> None:
    async with guarded() as (it, _):
        assert await _private(it, question) == refused
