"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups.

Whether a topic exists is decided here, from the metadata; the coordinator takes every name.  A client of replog's says beside a name
which topic it means, by its id: that is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from msgspec import structs

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
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
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets
from replog.errors import AuthorizationError, ErrorCode, GroupIdNotFoundError, ReplogError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, failure_of, group_code
from replog.protocol.handlers.node import (
    COMMIT_OVERLAPPING_BYTES_MAX,
    Call,
    Failure,
    KafkaNode,
    beside,
    fitting,
    require_few,
)
from replog.protocol.written_steps import Steps, visible
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

NEW_MEMBERS_FROM = 9
"""The first version of both that members of KIP-848 may use."""

REFUSED_AS_A_WHOLE_FROM = 2
"""The first version of OffsetFetch with an error of the whole request; before each partition has it."""

SEVERAL_FROM = 8
"""The first version of OffsetFetch that may ask for several groups."""

OVERLAPPING_ELEMENTS_MAX = COMMIT_OVERLAPPING_BYTES_MAX // 3
"""How many topics and partitions a commit may name that is in flight beside others: the shortest one has three bytes."""

ASKED_AT_ONCE = 1_000
"""Topics and partitions that a coordinator looks up in one step."""

_FetchedTopic = OffsetFetchRequest.OffsetFetchRequestTopic | OffsetFetchRequest.OffsetFetchRequestTopics
_CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition
_DeleteTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DeletePartition = OffsetDeleteResponse.OffsetDeleteResponsePartition
_Groups = OffsetFetchRequest.OffsetFetchRequestGroup

_DENIED = (-1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""What is told in place of an offset, its leader epoch, its metadata and its error, of a topic that is hidden."""

_Asked = TypeVar("_Asked", CommitOffsets, CommitTransactionalOffsets, FetchOffsets, DeleteOffsets)
_Topic = TypeVar("_Topic", TopicToCommit, TopicToFetch, TopicToForget)

_Piece: TypeAlias = list[tuple[int, _Topic]]
"""What a coordinator is asked in one step: topics, or parts of some, each with its place among all."""

# ---- in pieces --------------------------------------------------------------------------------------------------------


def in_pieces(topics: Iterable[_Topic]) -> list[_Piece[_Topic]]:
    """Divides what is asked of a coordinator, so that none of its steps holds the loop.

    There is at least one piece, since the coordinator also checks who asks.
    """
    pieces: list[_Piece[_Topic]] = [[]]
    left = ASKED_AT_ONCE
    for place, topic in enumerate(topics):
        for first in range(0, max(1, len(topic.partitions)), ASKED_AT_ONCE):
            some = topic.partitions[first : first + ASKED_AT_ONCE]
            if left <= 0:
                pieces.append([])
                left = ASKED_AT_ONCE
            pieces[-1].append((place, structs.replace(topic, partitions=some)))
            left -= 1 + len(some)
    return pieces


async def coordinated(
    node: KafkaNode,
    asked: _Asked,
    pieces: Sequence[_Piece[_Topic]],
    told_if_gone: Callable[[_Topic], Any] | None = None,
) -> list[Any]:
    """Returns what the coordinator tells of each topic, asked for one piece after the other.

    Args:
        node: The node.
        asked: The request, without its topics.
        pieces: The topics.
        told_if_gone: The function that returns what is told of a topic where the group went with an earlier piece; None:
            that is an error.

    Raises:
        ReplogError: It refuses a piece; what was asked before is done, and may be asked for again.
    """
    found: dict[int, Any] = {}
    for piece in pieces:
        topics = tuple(topic for _, topic in piece)
        try:
            told = (await node.coordinate(asked.group_id, structs.replace(asked, topics=topics), TIMEOUT_MS)).topics
        except GroupIdNotFoundError:
            if told_if_gone is None or not found:
                raise
            told = [told_if_gone(topic) for topic in topics]
        for (place, _), one in zip(piece, told, strict=True):
            before = found[place].partitions if place in found else ()
            found[place] = structs.replace(one, partitions=before + one.partitions)
    return list(found.values())


# ---- commit -----------------------------------------------------------------------------------------------------------


async def offset_commit(node: KafkaNode, request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    """Keeps offsets of a group."""
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    may_overlap = count <= OVERLAPPING_ELEMENTS_MAX  # it takes its place before it waits for anything
    topics = await beside(0 if may_overlap else count, _all_to_commit, node.image, request.topics)
    asked = CommitOffsets(
        request.group_id,
        (),
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
    )
    try:
        told = await coordinated(node, asked, [list(enumerate(topics))] if may_overlap else in_pieces(topics))
    except ReplogError as error:
        return refuse_offset_commit(request, Failure(_commit_code(error.code, request, call.version), error.told))
    return await beside(count, _all_committed, request, topics, told)


def refuse_offset_commit(request: OffsetCommitRequest, failure: Failure) -> OffsetCommitResponse:
    """Returns the answer to a request that failed as a whole."""
    code = group_code(failure.code)
    return OffsetCommitResponse(
        topics=[
            _CommitTopic(
                topic.name, topic.topic_id, [_CommitPartition(each.partition_index, code) for each in topic.partitions]
            )
            for topic in request.topics
        ],
        request_error_code=code,
        error_message=failure.message,
    )


def _all_to_commit(
    image: MetadataImage, topics: Iterable[OffsetCommitRequest.OffsetCommitRequestTopic]
) -> tuple[TopicToCommit, ...]:
    return tuple(_to_commit(image, topic) for topic in topics)


def _to_commit(image: MetadataImage, topic: OffsetCommitRequest.OffsetCommitRequestTopic) -> TopicToCommit:
    """Returns the offsets of those partitions that there are; all of them where the client says which topic it means."""
    if topic.named_topic_id != NO_TOPIC_ID:
        return TopicToCommit(topic.name, topic.named_topic_id, tuple(map(_offset, topic.partitions)))
    found = image.topics_by_name.get(topic.name)
    if found is None:
        return TopicToCommit(topic.name, NO_TOPIC_ID, ())
    offsets = (_offset(each) for each in topic.partitions if each.partition_index in found.partitions)
    return TopicToCommit(topic.name, found.topic_id, tuple(offsets))


def _offset(each: OffsetCommitRequest.OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
    )


def _all_committed(
    request: OffsetCommitRequest, kept: Iterable[TopicToCommit], outcomes: Iterable[TopicOutcome]
) -> OffsetCommitResponse:
    told = zip(request.topics, kept, outcomes, strict=True)
    return OffsetCommitResponse(
        topics=[
            _CommitTopic(topic.name, topic.topic_id, _committed(topic, some, outcome.partitions))
            for topic, some, outcome in told
        ]
    )


def _committed(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, kept: TopicToCommit, outcomes: Sequence[PartitionOutcome]
) -> list[_CommitPartition]:
    """Returns the outcome of each partition that the client has named, in its order."""
    known = {offset.partition: outcome.error for offset, outcome in zip(kept.partitions, outcomes, strict=True)}
    return [
        _outcome(each.partition_index, known[each.partition_index])
        if each.partition_index in known
        else _CommitPartition(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for each in topic.partitions
    ]


def _outcome(partition: int, error: ReplogError | None) -> _CommitPartition:
    return _CommitPartition(partition, _code(error), "" if error is None else fitting(error.told))


def _code(error: ReplogError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else group_code(error.code)


def _commit_code(code: ErrorCode, request: OffsetCommitRequest, version: int) -> ErrorCode:
    """Returns an error of a commit as clients of the request's version know it."""
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if version >= NEW_MEMBERS_FROM:
        return code
    if code is ErrorCode.GROUP_ID_NOT_FOUND and request.generation_id_or_member_epoch >= 0:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.UNSUPPORTED_VERSION if code is ErrorCode.STALE_MEMBER_EPOCH else code


# ---- fetch ------------------------------------------------------------------------------------------------------------


async def offset_fetch(node: KafkaNode, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    """Returns offsets of groups."""
    image = node.image
    if call.version >= SEVERAL_FROM:
        require_few(len(request.groups), "groups")
        first = {
            group.group_id: group for group in reversed(request.groups)
        }  # each is answered once, however often named
        asked_for = (first[name] for name in dict.fromkeys(group.group_id for group in request.groups))
        groups = [await _group(node, image, group, call, request.require_stable) for group in asked_for]
        return OffsetFetchResponse(groups=groups)
    try:
        asked = FetchOffsets(request.group_id, None, wants_stable=request.require_stable)
        allowed, denied = await _divided(request.topics, request.group_id, call.rights)
        found = await _fetched(node, asked, image, allowed, call.rights)
    except ReplogError as error:
        refusal = refuse_offset_fetch(request, failure_of(error))
        if isinstance(error, AuthorizationError) and call.version >= REFUSED_AS_A_WHOLE_FROM:
            refusal.topics = []
        return refusal
    return OffsetFetchResponse(
        topics=[*await beside(_size(found), _old_topics, found), *map(_denied_old_topic, denied)]
    )


def refuse_offset_fetch(request: OffsetFetchRequest, failure: Failure) -> OffsetFetchResponse:
    """Returns the answer to a request that failed as a whole; in the first version each partition says so."""
    code = group_code(failure.code)
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponse.OffsetFetchResponsePartition(number, -1, -1, "", code)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(group.group_id, error_code=code, error_message=failure.message)
            for group in request.groups
        ],
    )


async def _group(
    node: KafkaNode,
    image: MetadataImage,
    group: _Groups,
    call: Call,
    wants_stable: bool,
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    has_members = call.version >= NEW_MEMBERS_FROM
    asked = FetchOffsets(
        group.group_id,
        None,
        group.member_id if has_members else None,
        group.member_epoch if has_members else -1,
        wants_stable,
    )
    try:
        allowed, denied = await _divided(group.topics, group.group_id, call.rights)
        found = await _fetched(node, asked, image, allowed, call.rights)
    except ReplogError as error:
        failure = failure_of(error)
        return OffsetFetchResponse.OffsetFetchResponseGroup(
            group.group_id, error_code=failure.code, error_message=failure.message
        )
    told = await beside(_size(found), _all_topics if group.topics is None else _topics, found)
    return OffsetFetchResponse.OffsetFetchResponseGroup(group.group_id, [*told, *map(_denied_topic, denied)])


async def _divided(
    topics: Sequence[_FetchedTopic] | None, group_id: str, rights: Rights
) -> tuple[Sequence[_FetchedTopic] | None, list[_FetchedTopic]]:
    """Returns the topics whose offsets a client may know, and the others.

    Raises:
        GroupAuthorizationError: It may not know those of the group.
    """
    rights.require(AclOperation.DESCRIBE, ResourceKind.GROUP, group_id)
    if topics is None or rights.is_open:
        return topics, []
    allowed, denied, steps = list[_FetchedTopic](), list[_FetchedTopic](), Steps()
    for topic in topics:
        may_know = rights.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic.name)
        (allowed if may_know else denied).append(topic)
        await steps.next()
    return allowed, denied


async def _fetched(
    node: KafkaNode,
    asked: FetchOffsets,
    image: MetadataImage,
    topics: Sequence[_FetchedTopic] | None,
    rights: Rights,
) -> list[TopicOffsets]:
    """Returns the coordinator's answer for topics, some at a time; None: for all that the group has and the client may see."""
    if topics is None:
        every: FetchOffsetsResponse = await node.coordinate(asked.group_id, asked, TIMEOUT_MS)
        if rights.is_open:
            return list(every.topics)
        return await visible(
            every.topics, lambda each: rights.sees(AclOperation.DESCRIBE, ResourceKind.TOPIC, each.topic)
        )
    count = sum(1 + len(each.partition_indexes) for each in topics)
    pieces: list[_Piece[TopicToFetch]] = await beside(count, lambda: in_pieces(_to_fetch(image, topics)))
    return await coordinated(node, asked, pieces)


def _to_fetch(image: MetadataImage, topics: Iterable[_FetchedTopic]) -> Iterable[TopicToFetch]:
    return (TopicToFetch(each.name, _meant_id(image, each), tuple(each.partition_indexes)) for each in topics)


def _meant_id(image: MetadataImage, topic: _FetchedTopic) -> UUID:
    """Returns the id of the topic whose offsets are asked for: what the client says, else what the name stands for now."""
    if isinstance(topic, OffsetFetchRequest.OffsetFetchRequestTopics):
        if topic.is_any_topic:
            return NO_TOPIC_ID
        if topic.named_topic_id != NO_TOPIC_ID:
            return topic.named_topic_id
    known = image.topics_by_name.get(topic.name)
    return NO_TOPIC_ID if known is None else known.topic_id


def _size(found: Iterable[TopicOffsets]) -> int:
    return sum(1 + len(topic.partitions) for topic in found)


def _topics(found: Iterable[TopicOffsets]) -> list[OffsetFetchResponse.OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponse.OffsetFetchResponseTopics(
            topic.topic,
            topic.topic_id,
            [OffsetFetchResponse.OffsetFetchResponsePartitions(*_told(each)) for each in topic.partitions],
        )
        for topic in found
    ]


def _all_topics(found: Sequence[TopicOffsets]) -> list[OffsetFetchResponse.OffsetFetchResponseTopics]:
    """Returns everything that a group has: for operators, who want to know of which topic it is, and when it was committed."""
    told = _topics(found)
    for topic, source in zip(told, found, strict=True):
        topic.named_topic_id = source.topic_id
        for each, offset in zip(topic.partitions, source.partitions, strict=True):
            each.commit_timestamp = offset.commit_timestamp
    return told


def _denied_topic(topic: _FetchedTopic) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    kind = OffsetFetchResponse.OffsetFetchResponsePartitions
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        topic.name, partitions=[kind(number, *_DENIED) for number in topic.partition_indexes]
    )


def _denied_old_topic(topic: _FetchedTopic) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    kind = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse.OffsetFetchResponseTopic(
        topic.name, [kind(number, *_DENIED) for number in topic.partition_indexes]
    )


def _old_topics(found: Iterable[TopicOffsets]) -> list[OffsetFetchResponse.OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            topic.topic,
            [OffsetFetchResponse.OffsetFetchResponsePartition(*_told(each)) for each in topic.partitions],
        )
        for topic in found
    ]


def _told(offset: CommittedOffset) -> tuple[int, int, int, str, ErrorCode]:
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT if offset.is_unstable else ErrorCode.NONE
    return offset.partition, offset.offset, offset.leader_epoch, offset.metadata, code


# ---- delete -----------------------------------------------------------------------------------------------------------


async def offset_delete(node: KafkaNode, request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:  # noqa: ARG001 -- the shape of handlers
    """Forgets offsets of a group, of topics that no member reads."""
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    topics = await beside(count, _to_forget, node.image, request.topics)
    try:
        told = await coordinated(node, DeleteOffsets(request.group_id, ()), in_pieces(topics), _forgotten)
    except ReplogError as error:
        return refuse_offset_delete(request, failure_of(error))
    return await beside(count, _all_deleted, request, told)


def refuse_offset_delete(_request: OffsetDeleteRequest, failure: Failure) -> OffsetDeleteResponse:
    """Returns the answer to a request that failed as a whole."""
    return OffsetDeleteResponse(error_code=group_code(failure.code))


def refuse_topic_of_offset_delete(
    topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, failure: Failure
) -> OffsetDeleteResponse.OffsetDeleteResponseTopic:
    """Returns what is told of a topic that is refused for itself."""
    return _DeleteTopic(topic.name, [_DeletePartition(each.partition_index, failure.code) for each in topic.partitions])


def _to_forget(
    image: MetadataImage, topics: Iterable[OffsetDeleteRequest.OffsetDeleteRequestTopic]
) -> tuple[TopicToForget, ...]:
    return tuple(TopicToForget(each.name, tuple(_known(image, each))) for each in topics)


def _forgotten(topic: TopicToForget) -> TopicOutcome:
    return TopicOutcome(topic.topic, NO_TOPIC_ID, tuple(map(PartitionOutcome, topic.partitions)))


def _all_deleted(request: OffsetDeleteRequest, outcomes: Iterable[TopicOutcome]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            _DeleteTopic(topic.name, _deleted(topic, outcome.partitions))
            for topic, outcome in zip(request.topics, outcomes, strict=True)
        ]
    )


def _known(image: MetadataImage, topic: OffsetDeleteRequest.OffsetDeleteRequestTopic) -> Iterable[int]:
    found = image.topics_by_name.get(topic.name)
    numbers = (each.partition_index for each in topic.partitions)
    return (number for number in numbers if found is not None and number in found.partitions)


def _deleted(
    topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, outcomes: Sequence[PartitionOutcome]
) -> list[_DeletePartition]:
    known = {outcome.partition: _code(outcome.error) for outcome in outcomes}
    return [
        _DeletePartition(each.partition_index, known.get(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        for each in topic.partitions
    ]
