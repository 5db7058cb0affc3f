"""Questions about groups, put to Kafka as it answers in several versions and to the handlers of a replog broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from answering_broker import CoordinatingBroker, refusing

from replog.client.protocol.questions.group_members import FindCoordinator
from replog.client.protocol.questions.table import question_of
from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.consumers.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DeleteGroup,
    DeleteGroupResponse,
)
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    GroupType,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitOffsetsResponse,
    CommittedOffset,
    DeleteOffsets,
    FetchOffsets,
    FetchOffsetsResponse,
    OffsetToCommit,
    PartitionOutcome,
    TopicOffsets,
    TopicOutcome,
    TopicToCommit,
    TopicToFetch,
    TopicToForget,
)
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownTopicIdError,
    UnstableOffsetCommitError,
    UnsupportedVersionError,
)
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from replog.wire.messages.delete_groups import DeleteGroupsResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest
from replog.wire.messages.find_coordinator import FindCoordinatorResponse as Found
from replog.wire.messages.join_group import JoinGroupResponse as Joined
from replog.wire.messages.leave_group import LeaveGroupRequest
from replog.wire.messages.leave_group import LeaveGroupResponse as Left
from replog.wire.messages.list_groups import ListGroupsRequest
from replog.wire.messages.list_groups import ListGroupsResponse as Listed
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

A, B = UUID(int=0xA), UUID(int=0xB)
COMMIT, FETCH = OffsetCommitRequest.API_KEY, OffsetFetchRequest.API_KEY


async def put(broker: CoordinatingBroker, question: Any) -> Any:
    ask = question_of(type(question))
    assert ask is not None
    return await ask(broker, question, 1000)


async def passed_on(question: Any, answer: Any = None) -> tuple[Any, Any]:
    """What a replog broker's coordinator is asked, and what the client is told of its answer."""
    seen: list[Any] = []

    def coordinate(request: Any) -> Any:
        seen.append(request)
        return answer

    told = await put(CoordinatingBroker(coordinate=coordinate), question)
    return seen[0], told


# ---- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_found_in_every_version(version: int) -> None:
    def answer(request: FindCoordinatorRequest) -> Found:
        assert "g" in {request.key, *request.coordinator_keys}
        return Found(node_id=7, coordinators=[Found.Coordinator("g", 7)])

    broker = CoordinatingBroker(answer, newest={FindCoordinatorRequest.API_KEY: version})
    assert await put(broker, FindCoordinator("g")) == 7


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_without_a_coordinator_there_is_its_error(version: int) -> None:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = Found(error_code=code, coordinators=[Found.Coordinator("g", -1, "", -1, code, None)])
    broker = CoordinatingBroker(lambda _: answer, newest={FindCoordinatorRequest.API_KEY: version})
    with pytest.raises(CoordinatorNotAvailableError, match=r"broker:9092 refuses to say who coordinates group 'g': .*"):
        await put(broker, FindCoordinator("g"))


HEARTBEAT = ConsumerHeartbeat(
    "g", "m", 3, "i", "rack", 1000, ("t", "u"), None, None, {A: frozenset({0, 2}), B: frozenset({1})}, "me"
)


@pytest.mark.parametrize("given", [HEARTBEAT, ConsumerHeartbeat("g", "m", -1, client_id="me")])
async def test_a_heartbeat_reaches_the_coordinator_as_it_was_said(given: ConsumerHeartbeat) -> None:
    answer = ConsumerHeartbeatResponse("m", 4, 5000, {B: frozenset({1, 2})})
    assert await passed_on(given, answer) == (given, answer)


async def test_a_refused_heartbeat_keeps_code_and_text() -> None:
    broker = CoordinatingBroker(coordinate=refusing(FencedMemberEpochError("fenced by a test")))
    with pytest.raises(FencedMemberEpochError, match=r"^fenced by a test$"):
        await put(broker, HEARTBEAT)


async def test_where_there_are_no_such_groups_a_member_is_told_what_they_need() -> None:
    code = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    missing = CoordinatingBroker(missing=(ConsumerGroupHeartbeatRequest.API_KEY,))
    for broker in (missing, CoordinatingBroker(lambda _: code)):
        with pytest.raises(UnsupportedVersionError, match=r"broker:9092 serves no ConsumerGroupHeartbeat.*KIP-848"):
            await put(broker, HEARTBEAT)


async def test_a_regular_expression_needs_the_version_that_has_one() -> None:
    broker = CoordinatingBroker(
        lambda _: ConsumerGroupHeartbeatResponse(), newest={ConsumerGroupHeartbeatRequest.API_KEY: 0}
    )
    with pytest.raises(UnsupportedVersionError, match="up to version 0, which has no regular expression"):
        await put(broker, ConsumerHeartbeat("g", "m", 0, subscribed_regex="t.*"))


# ---- members of the classic protocol ------------------------------------------------------------------------------------

JOIN = JoinGroup("g", "m", "consumer", (Protocol("range", b"\0\1"),), 9_000, 8_000, "i", "why", client_id="me")
LEAVE = LeaveGroup("g", (LeavingMember("m", "i", "why"),))


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (
            JOIN,
            JoinGroupResponse(
                "m", 4, "consumer", "range", "m", (JoinedMember("m", "i", b"\0\1"),), skip_assignment=True
            ),
        ),
        (SyncGroup("g", "m", 4, {"m": b"\2"}, "i", "consumer", "range"), SyncGroupResponse("consumer", "range", b"\2")),
        (ClassicHeartbeat("g", "m", 4, "i"), ClassicHeartbeatResponse()),
    ],
)
async def test_what_a_member_asks_reaches_the_coordinator_and_the_answer_the_member(given: Any, answer: Any) -> None:
    assert await passed_on(given, answer) == (given, answer)


@pytest.mark.parametrize("version", range(6))
async def test_a_member_leaves_in_every_version(version: int) -> None:
    broker = CoordinatingBroker(lambda _: Left(), newest={LeaveGroupRequest.API_KEY: version})
    assert await put(broker, LEAVE) == LeaveGroupResponse(())
    request = broker.asked[-1][0]
    assert [request.member_id] if version < 3 else [each.member_id for each in request.members] == ["m"]


async def test_a_member_that_joins_first_is_told_its_id() -> None:
    with pytest.raises(MemberIdRequiredError) as raised:
        await put(CoordinatingBroker(coordinate=refusing(MemberIdRequiredError("come again", "m-7"))), JOIN)
    assert raised.value.member_id == "m-7"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no assignor in common with range: give them one of these"),
        (ErrorCode.FENCED_INSTANCE_ID, "give each its own group_instance_id"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "do not allow the session time-out of 9000 ms"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "no such member"),
    ],
)
async def test_a_refused_join_says_what_to_do(code: ErrorCode, text: str) -> None:
    with pytest.raises(ReplogError, match=text) as raised:
        await put(CoordinatingBroker(lambda _: Joined(error_code=code, member_id="m", protocol_name="")), JOIN)
    assert raised.value.code is code


# ---- offsets ----------------------------------------------------------------------------------------------------------

TOPICS = (
    TopicToCommit("t", A, (OffsetToCommit(0, 5, 2, "text"), OffsetToCommit(1, 6))),
    TopicToCommit("u", B, (OffsetToCommit(0, 7),)),
)


def keep(request: OffsetCommitRequest, codes: Mapping[int, int] | None = None) -> OffsetCommitResponse:
    """Kafka's answer to a commit: a code for each partition of the first topic that has one."""
    topic, part = OffsetCommitResponse.OffsetCommitResponseTopic, OffsetCommitResponse.OffsetCommitResponsePartition
    told = [
        topic(
            each.name,
            each.topic_id,
            [part(p.partition_index, (codes or {}).get(p.partition_index, 0)) for p in each.partitions],
        )
        for each in request.topics
    ]
    return OffsetCommitResponse(topics=told[::-1])  # in any order


def all_kept(*topics: TopicToCommit) -> CommitOffsetsResponse:
    return CommitOffsetsResponse(
        tuple(
            TopicOutcome(each.topic, each.topic_id, tuple(PartitionOutcome(p.partition) for p in each.partitions))
            for each in topics
        )
    )


async def test_a_commit_reaches_our_coordinator_with_the_ids_of_its_topics() -> None:
    """The broker's metadata knows neither topic: whoever knows the id is believed, as members are."""
    given = CommitOffsets("g", TOPICS, "m", "i", 3)
    asked, told = await passed_on(given, all_kept(*TOPICS))
    assert asked == given
    assert told == all_kept(*TOPICS)


@pytest.mark.parametrize("version", range(2, 11))
async def test_kafka_is_told_ids_where_it_takes_them(version: int) -> None:
    broker = CoordinatingBroker(keep, newest={COMMIT: version})
    assert await put(broker, CommitOffsets("g", TOPICS)) == all_kept(*TOPICS)
    ((request, at),) = broker.asked
    assert at == version
    names, ids = [each.name for each in request.topics], [each.topic_id for each in request.topics]
    assert (names, ids) == (["", ""], [A, B]) if version == 10 else (["t", "u"], [NO_TOPIC_ID] * 2)


async def test_without_an_id_a_commit_goes_by_the_name() -> None:
    broker = CoordinatingBroker(keep)
    nameless = TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 5),))
    assert await put(broker, CommitOffsets("g", (nameless,))) == all_kept(nameless)
    assert broker.asked[0][1] == 9


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.STALE_MEMBER_EPOCH, StaleMemberEpochError),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CoordinatorLoadInProgressError),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, RecordTooLargeError),
        (9999, ReplogError),
    ],
)
async def test_what_is_wrong_with_the_whole_commit_is_raised(code: int, kind: type[ReplogError]) -> None:
    """Kafka says it beside each partition that there is, and of the others that there is no such."""
    codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1: code}
    broker = CoordinatingBroker(lambda request: keep(request, codes), newest={COMMIT: 9})
    with pytest.raises(kind, match="the commit of group 'g'"):
        await put(broker, CommitOffsets("g", TOPICS, "m", None, 3))


async def test_what_is_wrong_with_one_partition_is_told_beside_it() -> None:
    codes = {1: ErrorCode.UNKNOWN_TOPIC_ID}
    told = await put(CoordinatingBroker(lambda request: keep(request, codes)), CommitOffsets("g", TOPICS))
    assert [[type(each.error) for each in topic.partitions] for topic in told.topics] == [
        [type(None), UnknownTopicIdError],
        [type(None)],
    ]
    assert "broker:9092 refuses the commit of group 'g' in t-1: there is no topic of this id" in str(
        told.topics[0].partitions[1].error
    )


async def test_texts_of_our_coordinator_survive_a_commit() -> None:
    stale = CoordinatingBroker(coordinate=refusing(StaleMemberEpochError("epoch 3, and it is 4")))
    with pytest.raises(StaleMemberEpochError, match=r"^epoch 3, and it is 4$"):
        await put(stale, CommitOffsets("g", TOPICS, "m", None, 3))
    long = OffsetMetadataTooLargeError("the text has 5000 characters")
    outcome = CommitOffsetsResponse((TopicOutcome("u", B, (PartitionOutcome(0, long),)),))
    _, told = await passed_on(CommitOffsets("g", TOPICS[1:]), outcome)
    assert str(told.topics[0].partitions[0].error) == str(long)


KEPT = {("t", 0): (5, 2, "text"), ("t", 1): (-1, -1, None)}


def tell(request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Kafka's answer to a fetch, in whichever version."""
    old, new = OffsetFetchResponse.OffsetFetchResponsePartition, OffsetFetchResponse.OffsetFetchResponsePartitions
    rows = [(number, *kept) for (_, number), kept in KEPT.items()]
    topic_id = next((each.topic_id for group in request.groups for each in group.topics or ()), NO_TOPIC_ID)
    topics = [OffsetFetchResponse.OffsetFetchResponseTopics("t", topic_id, [new(*row) for row in rows])]
    return OffsetFetchResponse(
        topics=[OffsetFetchResponse.OffsetFetchResponseTopic("t", [old(*row) for row in rows])],
        groups=[OffsetFetchResponse.OffsetFetchResponseGroup("g", topics)],
    )


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("topic_id", [A, NO_TOPIC_ID])
async def test_offsets_are_fetched_in_every_version(version: int, topic_id: UUID) -> None:
    broker = CoordinatingBroker(tell, newest={FETCH: version})
    told = await put(broker, FetchOffsets("g", (TopicToFetch("t", topic_id, (1, 0)),)))
    epoch = 2 if version >= 5 else -1
    offsets = (CommittedOffset(1), CommittedOffset(0, 5, epoch, "text"))
    assert told == FetchOffsetsResponse((TopicOffsets("t", topic_id, offsets),))
    assert broker.asked[0][1] == (min(version, 9) if topic_id == NO_TOPIC_ID else version)


async def test_all_offsets_of_a_group_come_by_name() -> None:
    told = await put(CoordinatingBroker(tell), FetchOffsets("g"))
    assert [(each.topic, each.topic_id) for each in told.topics] == [("t", NO_TOPIC_ID)]
    with pytest.raises(UnsupportedVersionError, match="up to version 1, which cannot tell all"):
        await put(CoordinatingBroker(tell, newest={FETCH: 1}), FetchOffsets("g"))


@pytest.mark.parametrize("topic_id", [A, NO_TOPIC_ID])
async def test_our_coordinator_is_asked_for_the_topic_that_is_meant(topic_id: UUID) -> None:
    """Of any topic of the name where the id is zero: so a member sees that one was made anew."""
    given = FetchOffsets("g", (TopicToFetch("t", topic_id, (0,)),), "m", 3)
    answer = FetchOffsetsResponse((TopicOffsets("t", topic_id, (CommittedOffset(0, 5, 2, "text"),)),))
    assert await passed_on(given, answer) == (given, answer)


async def test_our_coordinator_tells_of_all_offsets_whose_topic_they_are_and_when_they_were_committed() -> None:
    answer = FetchOffsetsResponse((TopicOffsets("t", A, (CommittedOffset(0, 5, 2, "text", 1_700_000_000_000),)),))
    assert await passed_on(FetchOffsets("g"), answer) == (FetchOffsets("g"), answer)


async def test_a_refused_fetch_says_why() -> None:
    ours = CoordinatingBroker(coordinate=refusing(StaleMemberEpochError("epoch 3, and it is 4")))
    with pytest.raises(StaleMemberEpochError, match=r"^epoch 3, and it is 4$"):
        await put(ours, FetchOffsets("g", None, "m", 3))
    part = OffsetFetchResponse.OffsetFetchResponsePartitions(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    topic = OffsetFetchResponse.OffsetFetchResponseTopics("t", A, [part])
    kafkas = OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup("g", [topic])])
    with pytest.raises(UnstableOffsetCommitError, match="ask again when it has"):
        await put(CoordinatingBroker(lambda _: kafkas), FetchOffsets("g", (TopicToFetch("t", A, (0,)),), "m", 3))


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_member_of_the_classic_protocol_commits_in_every_version(version: int) -> None:
    """Goal: the generation is told in the field that later is the epoch's."""
    broker = CoordinatingBroker(keep, newest={COMMIT: version})
    await put(broker, CommitOffsets("g", TOPICS, "m", None, 3))
    request, told = broker.asked[-1]
    assert (told, request.member_id, request.generation_id_or_member_epoch) == (version, "m", 3)


async def test_offsets_of_what_there_is_not_are_forgotten_already() -> None:
    part, topic = OffsetDeleteResponse.OffsetDeleteResponsePartition, OffsetDeleteResponse.OffsetDeleteResponseTopic
    codes = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    answer = OffsetDeleteResponse(topics=[topic("t", [part(*each) for each in enumerate(codes)])])
    question = DeleteOffsets("g", (TopicToForget("t", (0, 1, 2)),))
    (told,) = (await put(CoordinatingBroker(lambda _: answer), question)).topics
    assert [type(each.error) for each in told.partitions] == [type(None), type(None), GroupSubscribedToTopicError]
    assert "stop them first" in str(told.partitions[2].error)
    gone = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(GroupIdNotFoundError, match="there is no such group"):
        await put(CoordinatingBroker(lambda _: gone), question)


# ---- what operators ask -----------------------------------------------------------------------------------------------


async def test_a_group_is_deleted_or_it_is_said_why_not() -> None:
    assert await passed_on(DeleteGroup("g")) == (DeleteGroup("g"), DeleteGroupResponse())
    ours = CoordinatingBroker(coordinate=refusing(NonEmptyGroupError("it has 2 members")))
    with pytest.raises(NonEmptyGroupError, match=r"^it has 2 members$"):
        await put(ours, DeleteGroup("g"))
    result = DeleteGroupsResponse.DeletableGroupResult("g", ErrorCode.NON_EMPTY_GROUP)
    with pytest.raises(NonEmptyGroupError, match="broker:9092 refuses to delete group 'g': the group has members"):
        await put(CoordinatingBroker(lambda _: DeleteGroupsResponse(results=[result])), DeleteGroup("g"))


async def test_a_deletion_that_the_log_did_not_take_in_time_may_be_done_yet() -> None:
    """Brokers tell members that the coordinator is not available; who deletes has to know that it may be gone next time."""
    ours = CoordinatingBroker(coordinate=refusing(RequestTimedOutError("not committed in 5000 ms")))
    with pytest.raises(RequestTimedOutError, match="not committed in 5000 ms"):
        await put(ours, DeleteGroup("g"))
    result = DeleteGroupsResponse.DeletableGroupResult("g", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(RequestTimedOutError, match="its log did not take the change in time"):
        await put(CoordinatingBroker(lambda _: DeleteGroupsResponse(results=[result])), DeleteGroup("g"))
    early = CoordinatingBroker(coordinate=refusing(CoordinatorNotAvailableError("it has no leader; ask again")))
    with pytest.raises(CoordinatorNotAvailableError, match="it has no leader"):  # nobody has begun to delete it
        await put(early, DeleteGroup("g"))


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(version: int) -> None:
    groups = [
        Listed.ListedGroup("c", "consumer", "Stable", "Classic"),
        Listed.ListedGroup("n", "consumer", "Empty", "consumer"),
        Listed.ListedGroup("s", "share", "Stable", "Share"),
    ]
    broker = CoordinatingBroker(lambda _: Listed(groups=groups), newest={ListGroupsRequest.API_KEY: version})
    told = await put(broker, ListGroups())
    has_types = version >= 5
    states = ["Stable", "Empty"] if version >= 4 else ["", ""]
    kinds = [GroupType.CLASSIC, GroupType.CONSUMER if has_types else GroupType.CLASSIC]
    found = [ListedGroup(*each) for each in zip("cn", ["consumer"] * 2, states, kinds, strict=True)]
    assert list(told.groups[:2]) == found
    assert len(told.groups) == (2 if has_types else 3)


async def test_states_and_types_that_a_broker_does_not_know_are_not_left_out_silently() -> None:
    for version, question in ((3, ListGroups(("Stable",))), (4, ListGroups((), ("classic",)))):
        broker = CoordinatingBroker(lambda _: Listed(), newest={ListGroupsRequest.API_KEY: version})
        with pytest.raises(UnsupportedVersionError, match=f"up to version {version}, which knows no"):
            await put(broker, question)


async def test_our_groups_are_listed_as_they_are() -> None:
    answer = ListGroupsResponse((ListedGroup("g", "consumer", "Stable", GroupType.CONSUMER),))
    asked, told = await passed_on(ListGroups(("stable",), ("consumer",)), answer)
    assert (asked, told) == (ListGroups(("stable",), ("consumer",)), answer)
    loading = CoordinatingBroker(coordinate=refusing(CoordinatorLoadInProgressError("shard 3 is read")))
    with pytest.raises(CoordinatorLoadInProgressError, match=r"^shard 3 is read$"):
        await put(loading, ListGroups())


async def test_a_group_of_the_classic_protocol_is_described() -> None:
    member = DescribedMember("m", "i", "me", "127.0.0.1", b"wants", b"got")
    answer = DescribedGroup("g", "Stable", "consumer", "range", (member,))
    assert await passed_on(DescribeGroup("g"), answer) == (DescribeGroup("g"), answer)


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_there_is_not_is_dead_or_not_found(version: int) -> None:
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    dead = DescribeGroupsResponse.DescribedGroup(code, None, "g", "Dead")
    broker = CoordinatingBroker(
        lambda _: DescribeGroupsResponse(groups=[dead]), newest={DescribeGroupsRequest.API_KEY: version}
    )
    with pytest.raises(GroupIdNotFoundError):
        await put(broker, DescribeGroup("g"))


async def test_a_group_of_kip_848_is_described() -> None:
    member = DescribedConsumer("m", "i", "r", 4, "me", "127.0.0.1", ("t",), "t.*", {A: frozenset({0})}, {})
    old = DescribedConsumer("c", None, None, 4, "me", "127.0.0.1", ("t",), "", group_type=GroupType.CLASSIC)
    answer = DescribedConsumerGroup("g", "Stable", 5, 4, "uniform", (member, old))
    assert await passed_on(DescribeConsumerGroup("g"), answer) == (DescribeConsumerGroup("g"), answer)


async def test_a_host_is_told_without_the_slash_that_java_puts_before_it() -> None:
    member = DescribedMember("m", None, "me", "/127.0.0.1", b"", b"")
    _, told = await passed_on(DescribeGroup("g"), DescribedGroup("g", "Stable", "consumer", "range", (member,)))
    assert [each.client_host for each in told.members] == ["127.0.0.1"]


async def test_a_broker_without_groups_of_kip_848_has_none() -> None:
    """So that an operator is told of the classic group of that name instead."""
    key, described = ConsumerGroupDescribeRequest.API_KEY, ConsumerGroupDescribeResponse.DescribedGroup
    switched_off = ConsumerGroupDescribeResponse(groups=[described(ErrorCode.UNSUPPORTED_VERSION, None, "g")])
    for broker in (CoordinatingBroker(missing=(key,)), CoordinatingBroker(lambda _: switched_off)):
        with pytest.raises(GroupIdNotFoundError, match="no groups of KIP-848"):
            await put(broker, DescribeConsumerGroup("g"))
