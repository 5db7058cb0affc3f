"""TxnOffsetCommit: offsets of a group that count if a producer's transaction is committed (KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    OffsetToCommit,
    TopicOutcome,
    TopicToCommit,
)
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, GetCommitPermit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import ErrorCode, ReplogError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS, group_code
from replog.protocol.handlers.groups.group_offsets import coordinated, in_pieces
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

KNOWS_LOADING_FROM: Final = 2
"""The first version whose clients ask again where the coordinator is being read."""

KNOWS_ABORTABLE_FROM: Final = 4
"""The first version whose clients know TRANSACTION_ABORTABLE."""

JOINS_FROM: Final = 5
"""The first version with which the partition of the group becomes part of the transaction."""

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_ToldTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_ToldPartition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


async def txn_offset_commit(node: KafkaNode, request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    """Keeps offsets of a group until the end of a transaction."""
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    topics = await beside(count, _all_to_commit, node.image, request.topics)
    asked = CommitTransactionalOffsets(
        request.group_id,
        (),
        TransactionWriter(request.producer_id, request.producer_epoch),
        0,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
    )
    try:
        permit = await node.commit_permit(
            request.transactional_id,
            GetCommitPermit(asked.group_id, asked.writer),
            only_verifies=call.version < JOINS_FROM,
            timeout_ms=TIMEOUT_MS,
        )
        told = await coordinated(node, structs.replace(asked, permit=permit), in_pieces(topics))
    except ReplogError as error:
        return _refused(request, _code(error.code, call.version))
    return await beside(count, _all_committed, request, topics, told)


def refuse_txn_offset_commit(request: TxnOffsetCommitRequest, failure: Failure) -> TxnOffsetCommitResponse:
    """Returns the answer to a request that failed as a whole."""
    return _refused(request, group_code(failure.code))


def _all_to_commit(image: MetadataImage, topics: Iterable[_Topic]) -> tuple[TopicToCommit, ...]:
    """Returns the offsets of those partitions that there are."""
    return tuple(_to_commit(image, topic) for topic in topics)


def _to_commit(image: MetadataImage, topic: _Topic) -> TopicToCommit:
    found = image.topics_by_name.get(topic.name)
    if found is None:
        return TopicToCommit(topic.name, NO_TOPIC_ID, ())
    offsets = (
        OffsetToCommit(
            each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
        )
        for each in topic.partitions
        if each.partition_index in found.partitions
    )
    return TopicToCommit(topic.name, found.topic_id, tuple(offsets))


def _all_committed(
    request: TxnOffsetCommitRequest, kept: Iterable[TopicToCommit], outcomes: Iterable[TopicOutcome]
) -> TxnOffsetCommitResponse:
    told = zip(request.topics, kept, outcomes, strict=True)
    return TxnOffsetCommitResponse(
        topics=[_ToldTopic(topic.name, _committed(topic, some, outcome)) for topic, some, outcome in told]
    )


def _committed(topic: _Topic, kept: TopicToCommit, outcome: TopicOutcome) -> list[_ToldPartition]:
    """Returns the outcome of each partition that the client has named, in its order."""
    codes = {
        offset.partition: ErrorCode.NONE if each.error is None else group_code(each.error.code)
        for offset, each in zip(kept.partitions, outcome.partitions, strict=True)
    }
    return [
        _ToldPartition(each.partition_index, codes.get(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        for each in topic.partitions
    ]


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _ToldTopic(topic.name, [_ToldPartition(each.partition_index, code) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Returns an error as clients of the request's version know it."""
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    told = group_code(code)
    if told is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return told
