"""ListOffsets and OffsetForLeaderEpoch: the start and end of a partition, its offset at a time, the end of a leader epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from msgspec import Struct

from replog.errors import ErrorCode, InvalidRequestError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import Call, Failure, KafkaNode, own_text
from replog.protocol.handlers.partitions import FOLLOWER, named_topic, told_code
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    FROM_OFFSET_TIMESTAMP,
    LARGEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEndPartition,
    EpochEndsRequest,
    ListOffsetsPartition,
    ListOffsetsResult,
)
from replog.rpc.messages import ListOffsetsRequest as NodeRequest
from replog.rpc.request_limits import check_partitions
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5

SINCE: Mapping[int, int] = MappingProxyType(
    {
        LATEST_TIMESTAMP: 1,
        EARLIEST_TIMESTAMP: 1,
        LARGEST_TIMESTAMP: 7,
        EARLIEST_LOCAL_TIMESTAMP: 8,
        LATEST_TIERED_TIMESTAMP: 9,
    }
)
"""The version of ListOffsets from which on each timestamp that is no time has its meaning."""

OFFSET_NOT_AVAILABLE_FROM = 5
"""The first version of ListOffsets whose clients know OFFSET_NOT_AVAILABLE (KIP-207)."""

READ_COMMITTED = 1

Listed = ListOffsetsResponse.ListOffsetsPartitionResponse
Ended = OffsetForLeaderEpochResponse.EpochEndOffset


class _Listing(Struct, frozen=True):
    """A partition whose offset the node knows: the place of its answer, the client's request and the node's."""

    answer: Listed
    timestamp: int
    partition: ListOffsetsPartition


class _Ending(Struct, frozen=True):
    """A partition for which the node knows where an epoch ended."""

    answer: Ended
    partition: EpochEndPartition


# ---- ListOffsets -----------------------------------------------------------------------------------------------------


async def list_offsets(node: KafkaNode, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """Returns an offset of each partition."""
    _check(request.replica_id, request.topics)
    response, listings = _listings(node.image, request, call.version)
    if listings:
        asked = NodeRequest(tuple(listing.partition for listing in listings))
        timeout_ms = request.timeout_ms if request.timeout_ms > 0 else node.request_timeout_ms
        found = await node.call(asked, timeout_ms)
        for listing, result in zip(listings, found.results, strict=True):
            _fill_listed(listing, result, call.version)
    return response


def refuse_list_offsets(request: ListOffsetsRequest, failure: Failure) -> ListOffsetsResponse:
    """Returns the answer to a request that failed as a whole."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            topic.name,
            [Listed(each.partition_index, failure.code, error_message=failure.message) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _listings(
    image: MetadataImage, request: ListOffsetsRequest, version: int
) -> tuple[ListOffsetsResponse, list[_Listing]]:
    """Returns the answer with the partitions that are refused at once, and those that the node decides."""
    response, listings = ListOffsetsResponse(), []
    named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    for topic in request.topics:
        known = named_topic(image, topic.name, topic.topic_id)
        answers = ListOffsetsResponse.ListOffsetsTopicResponse(topic.name)
        response.topics.append(answers)
        for each in {each.partition_index: each for each in topic.partitions}.values():
            answer = Listed(each.partition_index)
            answers.partitions.append(answer)
            if not _is_served(each.timestamp, version):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            elif named[topic.name, each.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif known is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                is_committed = request.isolation_level == READ_COMMITTED
                listings.append(_Listing(answer, each.timestamp, _node_partition(known.topic_id, each, is_committed)))
    return response, listings


def _is_served(timestamp: int, version: int) -> bool:
    """Whether clients of a version may ask for a timestamp."""
    return timestamp >= 0 or timestamp == FROM_OFFSET_TIMESTAMP or version >= SINCE.get(timestamp, version + 1)


def _node_partition(
    topic_id: UUID, asked: ListOffsetsRequest.ListOffsetsPartition, is_committed: bool
) -> ListOffsetsPartition:
    timestamp = asked.timestamp
    if timestamp in (EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP):
        timestamp = EARLIEST_TIMESTAMP  # all records are local; for the other the node only says whether it leads
    return ListOffsetsPartition(
        topic_id,
        asked.partition_index,
        timestamp,
        asked.current_leader_epoch,
        read_committed=is_committed,
        from_offset=asked.from_offset,
    )


def _fill_listed(listing: _Listing, result: ListOffsetsResult, version: int) -> None:
    answer, code = listing.answer, told_code(result.error)
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_FROM:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    answer.error_code, answer.error_message = code, own_text(result.error, result.message)
    if code is not ErrorCode.NONE or listing.timestamp == LATEST_TIERED_TIMESTAMP:
        return  # nothing is tiered
    answer.offset, answer.timestamp = result.offset, result.timestamp
    if result.offset >= 0:
        answer.leader_epoch = result.leader_epoch


# ---- OffsetForLeaderEpoch --------------------------------------------------------------------------------------------


async def offset_for_leader_epoch(
    node: KafkaNode,
    request: OffsetForLeaderEpochRequest,
    call: Call,  # noqa: ARG001 -- the shape of handlers
) -> OffsetForLeaderEpochResponse:
    """Returns where epochs ended, by which a consumer finds out whether records that it has read are gone (KIP-320)."""
    _check(request.replica_id, request.topics)
    response, endings = OffsetForLeaderEpochResponse(), []
    for topic in request.topics:
        known = named_topic(node.image, topic.topic, topic.topic_id)
        answers = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic.topic)
        response.topics.append(answers)
        for each in topic.partitions:
            answer = Ended(ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, each.partition)
            answers.partitions.append(answer)
            if known is not None:
                asked = EpochEndPartition(
                    known.topic_id, each.partition, each.leader_epoch, leader_epoch=each.current_leader_epoch
                )
                endings.append(_Ending(answer, asked))
    if endings:
        ends = EpochEndsRequest(tuple(ending.partition for ending in endings))
        found = await node.call(ends, node.request_timeout_ms)
        for ending, result in zip(endings, found.results, strict=True):
            ending.answer.error_code, ending.answer.error_message = (
                told_code(result.error),
                own_text(result.error, result.message),
            )
            ending.answer.leader_epoch, ending.answer.end_offset = result.epoch, result.end_offset
    return response


def refuse_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, failure: Failure
) -> OffsetForLeaderEpochResponse:
    """Returns the answer to a request that failed as a whole."""
    topics = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic.topic,
            [Ended(failure.code, each.partition, error_message=failure.message) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _check(
    replica_id: int,
    topics: Sequence[ListOffsetsRequest.ListOffsetsTopic | OffsetForLeaderEpochRequest.OffsetForLeaderTopic],
) -> None:
    if replica_id >= 0:
        raise InvalidRequestError(FOLLOWER)
    check_partitions(sum(len(topic.partitions) for topic in topics))
