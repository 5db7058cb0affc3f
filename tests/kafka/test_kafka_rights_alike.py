"""A real Kafka and a replog broker with the same access control lists answer a client without rights the same, field by field.

Both let everybody do what no entry speaks of: so the client that is asked for nothing, ANONYMOUS, makes the topics and the entries, and
is denied what they protect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from brokers import of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from served_cluster import served_cluster
from sides import Side, Sides, sides
from waiting import until

from replog.access.entries import AclOperation, PatternType, Permission, ResourceKind
from replog.config.access_keys import AuthorizerClass
from replog.records import encode_batch
from replog.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)

pytestmark = pytest.mark.cluster

OPEN, DENIED, SEEN, READ, WRITTEN, NONE = TOPICS = ("open", "denied", "seen", "read", "written", "none")
MADE = TOPICS[:-1]
TIMEOUT_MS = 20_000
UNLIKE_FETCHED = ("records", "aborted_transactions")
"""Batches have the offsets of their own log; of a partition that is refused Kafka tells no aborted transactions, and we null."""
TOPIC_CONFIGS = 2

ENTRIES = [
    (kind, name, PatternType.LITERAL, principal, operation)
    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID)
    for name, principal, operation in (
        (DENIED, "User:alice", AclOperation.ALL),
        (SEEN, "User:ANONYMOUS", AclOperation.DESCRIBE),
        (READ, "User:ANONYMOUS", AclOperation.READ),
        (WRITTEN, "User:ANONYMOUS", AclOperation.WRITE),
    )
    if (kind, name) not in {(ResourceKind.GROUP, WRITTEN), (ResourceKind.TRANSACTIONAL_ID, READ)}
] + [(ResourceKind.TOPIC, "hidden-", PatternType.PREFIXED, "User:alice", AclOperation.ALL)]


@pytest.fixture(scope="module")
def both(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """The two brokers with their topics, a record in each, and the entries."""
    folder = tmp_path_factory.mktemp("rights")
    node = KafkaNode(
        kafka,
        folder / "kafka",
        {"authorizer.class.name": AuthorizerClass.STANDARD.value, "allow.everyone.if.no.acl.found": "true"},
    )
    ours: dict[str, Any] = {
        "authorizer_class_name": AuthorizerClass.STANDARD.value,
        "allow_everyone_if_no_acl_found": True,
        "offsets_topic_num_partitions": 1,
        "transaction_state_log_num_partitions": 1,
    }
    node.start()
    try:
        with (
            served_cluster(folder / "ours", 1, **ours) as cluster,
            sides(Side(of_kafka(node)), Side(of_replog(cluster))) as pair,
        ):
            for side in pair:
                _prepare(side)
            yield pair
    finally:
        node.give_up()


def _prepare(side: Side) -> None:
    for name in MADE:
        side.ids[name] = side.broker.create(name, 1, {})
    side.answer(produced(12), 12, produce.ProduceResponse)
    groups = find_coordinator.FindCoordinatorRequest(coordinator_keys=[OPEN])
    until(lambda: _codes(side.answer(groups, 4, find_coordinator.FindCoordinatorResponse)["coordinators"]) == {0})
    ids = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[OPEN])
    until(lambda: _codes(side.answer(ids, 4, find_coordinator.FindCoordinatorResponse)["coordinators"]) == {0})
    every = side.answer(metadata.MetadataRequest(None), 12, metadata.MetadataResponse)
    side.ids |= {each["name"]: UUID(each["topic_id"]) for each in every["topics"] if each["name"] not in side.ids}
    made = create_acls.CreateAclsRequest(
        [
            create_acls.CreateAclsRequest.AclCreation(*where, principal, "*", operation, Permission.ALLOW)
            for *where, principal, operation in ENTRIES
        ]
    )
    assert _codes(side.answer(made, 3, create_acls.CreateAclsResponse)["results"]) == {0}
    asked = metadata.MetadataRequest([metadata.MetadataRequest.MetadataRequestTopic(name="hidden-x")])
    until(lambda: _codes(side.answer(asked, 12, metadata.MetadataResponse)["topics"]) == {29})


def _codes(told: list[dict[str, Any]]) -> set[int]:
    return {each["error_code"] for each in told}


def produced(version: int, transactional_id: str | None = None) -> Callable[[Side], produce.ProduceRequest]:
    """A record for each topic."""
    batch = encode_batch([(1, None, b"v", ())])

    def request(side: Side) -> produce.ProduceRequest:
        data = [produce.ProduceRequest.PartitionProduceData(0, batch)]
        topics = [
            produce.ProduceRequest.TopicProduceData(name, side.ids.get(name, UUID(int=7)), data)
            for name in TOPICS
            if version < 13 or name != NONE
        ]
        return produce.ProduceRequest(transactional_id, -1, TIMEOUT_MS, topics)

    return request


def test_the_first_records_are_there_and_more_only_where_one_may_write(both: Sides) -> None:
    told = both.same(produced(12), 12, produce.ProduceResponse)
    codes = {each["name"]: each["partition_responses"][0]["error_code"] for each in told["responses"]}
    assert codes == {OPEN: 0, DENIED: 29, SEEN: 29, READ: 29, WRITTEN: 0, NONE: 3}
    both.same(produced(13), 13, produce.ProduceResponse)


def test_fetch(both: Sides) -> None:
    partition = fetch.FetchRequest.FetchPartition(0, partition_max_bytes=1 << 20)

    def request(side: Side, *, by_id: bool) -> fetch.FetchRequest:
        topics = [
            fetch.FetchRequest.FetchTopic("" if by_id else name, side.ids.get(name, UUID(int=7)), [partition])
            for name in MADE
        ]
        return fetch.FetchRequest(max_bytes=1 << 20, topics=topics, isolation_level=1)

    for version in (11, 12):
        told = both.same(lambda side: request(side, by_id=False), version, fetch.FetchResponse, beside=UNLIKE_FETCHED)
        codes = {each["topic"]: each["partitions"][0]["error_code"] for each in told["responses"]}
        assert codes == {OPEN: 0, DENIED: 29, SEEN: 29, READ: 0, WRITTEN: 29}
    both.same(lambda side: request(side, by_id=True), 17, fetch.FetchResponse, beside=UNLIKE_FETCHED)


@pytest.mark.parametrize("version", [1, 4, 8, 9, 10, 12, 13])
def test_metadata(both: Sides, version: int) -> None:
    of = metadata.MetadataRequest.MetadataRequestTopic
    named = [of(name=name) for name in TOPICS] + [of(name="hidden-x")]
    for topics in (named, None):
        asked = metadata.MetadataRequest(topics, allow_auto_topic_creation=False)
        if version >= 8:
            asked.include_topic_authorized_operations = True
        both.same(asked, version, metadata.MetadataResponse, beside=("controller_id",))
    if version >= 12:
        both.same(
            lambda side: metadata.MetadataRequest([of(side.ids[name], None) for name in MADE]),
            version,
            metadata.MetadataResponse,
        )


def test_offsets(both: Sides) -> None:
    asked = list_offsets.ListOffsetsRequest
    topics = [asked.ListOffsetsTopic(name, [asked.ListOffsetsPartition(0, -1, -2)]) for name in TOPICS]
    both.same(asked(-1, 1, topics), 7, list_offsets.ListOffsetsResponse)
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochRequest
    of = [epochs.OffsetForLeaderTopic(name, [epochs.OffsetForLeaderPartition(0, -1, 0)]) for name in TOPICS]
    both.same(epochs(-1, of), 4, offset_for_leader_epoch.OffsetForLeaderEpochResponse, beside=("end_offset",))
    deleted = delete_records.DeleteRecordsRequest
    upto = [deleted.DeleteRecordsTopic(name, [deleted.DeleteRecordsPartition(0, 0)]) for name in TOPICS]
    both.same(deleted(upto, TIMEOUT_MS), 2, delete_records.DeleteRecordsResponse)
    of_producers = describe_producers.DescribeProducersRequest
    both.same(
        of_producers([of_producers.TopicRequest(name, [0]) for name in TOPICS]),
        0,
        describe_producers.DescribeProducersResponse,
    )


def test_topics_are_changed_only_by_who_may(both: Sides) -> None:
    created = create_topics.CreateTopicsRequest
    wanted = [created.CreatableTopic(name, 1, 1) for name in ("hidden-new", DENIED, "made")]
    for version in (5, 7):
        both.same(
            created(wanted, TIMEOUT_MS, validate_only=True),
            version,
            create_topics.CreateTopicsResponse,
            beside=("topic_id", "configs"),
        )
    grown = create_partitions.CreatePartitionsRequest
    both.same(
        grown([grown.CreatePartitionsTopic(name, 3, None) for name in TOPICS], TIMEOUT_MS, validate_only=True),
        3,
        create_partitions.CreatePartitionsResponse,
    )
    gone = delete_topics.DeleteTopicsRequest
    denied = (DENIED, SEEN, READ, WRITTEN, NONE)
    both.same(gone(topic_names=list(denied), timeout_ms=TIMEOUT_MS), 5, delete_topics.DeleteTopicsResponse)
    both.same(
        gone([gone.DeleteTopicState(name) for name in denied], timeout_ms=TIMEOUT_MS),
        6,
        delete_topics.DeleteTopicsResponse,
    )
    both.same(
        lambda side: gone(
            [gone.DeleteTopicState(topic_id=side.ids[name]) for name in (DENIED, READ)], timeout_ms=TIMEOUT_MS
        ),
        6,
        delete_topics.DeleteTopicsResponse,
        beside=("name",),
    )


def test_configurations(both: Sides) -> None:
    asked = describe_configs.DescribeConfigsRequest
    of = [asked.DescribeConfigsResource(TOPIC_CONFIGS, name, ["retention.ms"]) for name in TOPICS]
    both.same(asked(of), 4, describe_configs.DescribeConfigsResponse)
    altered = incremental_alter_configs.IncrementalAlterConfigsRequest
    change = [altered.AlterableConfig("retention.ms", 0, "-1")]
    resources = [altered.AlterConfigsResource(TOPIC_CONFIGS, name, change) for name in TOPICS]
    both.same(altered(resources, validate_only=True), 1, incremental_alter_configs.IncrementalAlterConfigsResponse)


def test_described_partitions(both: Sides) -> None:
    asked = describe_topic_partitions.DescribeTopicPartitionsRequest
    for topics in ([asked.TopicRequest(name) for name in TOPICS], []):
        both.same(asked(topics), 0, describe_topic_partitions.DescribeTopicPartitionsResponse)


@pytest.mark.parametrize("kind", [0, 1])
def test_coordinators(both: Sides, kind: int) -> None:
    keys = [OPEN, DENIED, SEEN, READ, WRITTEN]
    asked = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    both.same(asked, 4, find_coordinator.FindCoordinatorResponse)
    for key in keys:
        both.same(find_coordinator.FindCoordinatorRequest(key, kind), 3, find_coordinator.FindCoordinatorResponse)


@pytest.mark.parametrize("group", [DENIED, SEEN])
def test_members(both: Sides, group: str) -> None:
    protocols = [join_group.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")]
    joining = join_group.JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", protocols)
    both.same(joining, 9, join_group.JoinGroupResponse)
    both.same(sync_group.SyncGroupRequest(group, 1, "m", None, "consumer", "range"), 5, sync_group.SyncGroupResponse)
    both.same(heartbeat.HeartbeatRequest(group, 1, "m"), 4, heartbeat.HeartbeatResponse)
    leaving = leave_group.LeaveGroupRequest(group, members=[leave_group.LeaveGroupRequest.MemberIdentity("m")])
    both.same(leaving, 5, leave_group.LeaveGroupResponse)
    beating = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group, "m" * 22, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=[OPEN], topic_partitions=[]
    )
    both.same(beating, 1, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)


def test_a_member_subscribes_to_no_topic_that_it_may_not_describe(both: Sides) -> None:
    beating = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        OPEN, "m" * 22, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=[OPEN, DENIED], topic_partitions=[]
    )
    both.same(beating, 1, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)


@pytest.mark.parametrize("group", [OPEN, DENIED, SEEN, READ])
def test_committed_offsets(both: Sides, group: str) -> None:
    commits = offset_commit.OffsetCommitRequest
    topics = [
        commits.OffsetCommitRequestTopic(name, partitions=[commits.OffsetCommitRequestPartition(0, 1)])
        for name in TOPICS
    ]
    both.same(commits(group, topics=topics), 9, offset_commit.OffsetCommitResponse)
    asked = offset_fetch.OffsetFetchRequest
    for named in ([asked.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in TOPICS], None):
        both.same(
            asked(groups=[asked.OffsetFetchRequestGroup(group, topics=named)]), 9, offset_fetch.OffsetFetchResponse
        )
    one = [asked.OffsetFetchRequestTopic(name, [0]) for name in TOPICS]
    both.same(asked(group, one), 7, offset_fetch.OffsetFetchResponse)
    deleted = offset_delete.OffsetDeleteRequest
    of = [deleted.OffsetDeleteRequestTopic(name, [deleted.OffsetDeleteRequestPartition(0)]) for name in TOPICS]
    both.same(deleted(group, of), 0, offset_delete.OffsetDeleteResponse)


def test_groups_are_listed_described_and_deleted_as_far_as_one_may(both: Sides) -> None:
    groups = [DENIED, SEEN, READ]
    both.same(
        describe_groups.DescribeGroupsRequest(groups, include_authorized_operations=True),
        5,
        describe_groups.DescribeGroupsResponse,
    )
    both.same(
        consumer_group_describe.ConsumerGroupDescribeRequest([DENIED]),
        0,
        consumer_group_describe.ConsumerGroupDescribeResponse,
    )
    both.same(delete_groups.DeleteGroupsRequest([DENIED, SEEN]), 2, delete_groups.DeleteGroupsResponse)
    told = both.ours.answer(list_groups.ListGroupsRequest(), 4, list_groups.ListGroupsResponse)
    assert not {each["group_id"] for each in told["groups"]} & {DENIED}


@pytest.mark.parametrize("transactional_id", [DENIED, SEEN])
def test_transactions(both: Sides, transactional_id: str) -> None:
    beginning = init_producer_id.InitProducerIdRequest(transactional_id, 10_000)
    both.same(beginning, 4, init_producer_id.InitProducerIdResponse)
    adding = add_partitions_to_txn.AddPartitionsToTxnRequest
    topics = [adding.AddPartitionsToTxnTopic(name, [0]) for name in (OPEN, DENIED)]
    both.same(
        adding([adding.AddPartitionsToTxnTransaction(transactional_id, 1, 0, topics=topics)]),
        3,
        add_partitions_to_txn.AddPartitionsToTxnResponse,
    )
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id, 1, 0, OPEN)
    both.same(offsets, 3, add_offsets_to_txn.AddOffsetsToTxnResponse)
    both.same(end_txn.EndTxnRequest(transactional_id, 1, 0, committed=True), 3, end_txn.EndTxnResponse)
    commits = txn_offset_commit.TxnOffsetCommitRequest
    of = [
        commits.TxnOffsetCommitRequestTopic(name, [commits.TxnOffsetCommitRequestPartition(0, 1)])
        for name in (OPEN, DENIED)
    ]
    both.same(commits(transactional_id, OPEN, 1, 0, topics=of), 3, txn_offset_commit.TxnOffsetCommitResponse)
    both.same(commits(OPEN, DENIED, 1, 0, topics=of), 3, txn_offset_commit.TxnOffsetCommitResponse)
    both.same(
        describe_transactions.DescribeTransactionsRequest([DENIED]),
        0,
        describe_transactions.DescribeTransactionsResponse,
    )
    both.same(list_transactions.ListTransactionsRequest(), 1, list_transactions.ListTransactionsResponse)
