"""Fetch: records of the partitions that a consumer asks for, or that its session holds, as buffers of the node's log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from replog.errors import ErrorCode, InvalidRequestError
from replog.metadata.image import MetadataImage
from replog.metadata.topic_names import topic_name_trouble
from replog.protocol.fetch_sessions import FetchKey, SessionRefusal
from replog.protocol.handlers.metadata import reachable
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, own_text
from replog.protocol.handlers.partitions import FOLLOWER, LEADER_CHANGES, endpoints, told_code
from replog.rpc.messages import CONSUMER_REPLICA_ID, Buffer, FetchPartition, FetchResult
from replog.rpc.messages import FetchRequest as NodeRequest
from replog.rpc.messages import FetchResponse as NodeResponse
from replog.rpc.request_limits import check_partitions
from replog.wire.messages.fetch import FetchRequest, FetchResponse

BY_ID_FROM = 13
"""The first version that names topics by their ids (KIP-516)."""

STORAGE_ERROR_FROM = 6
"""The first version whose clients know KAFKA_STORAGE_ERROR (KIP-112)."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

NOTHING = NodeResponse(0, (), ())
"""The answer of a node that is asked for nothing."""

Told = FetchResponse.PartitionData


async def fetch(node: KafkaNode, request: FetchRequest, call: Call) -> FetchResponse:
    """Reads, or waits for enough records as long as the client wants."""
    _check(request)
    by_id = call.version >= BY_ID_FROM
    impossible = [] if by_id else _take_out_impossible(request)
    loop = asyncio.get_running_loop()
    turn = node.fetch_sessions.turn(request, by_id=by_id, now_ms=loop.time() * 1000)
    if isinstance(turn, SessionRefusal):
        return FetchResponse(error_code=turn.error)
    check_partitions(len(turn.partitions))
    told = await _read(node, request, turn.partitions, call)
    session_id, news = turn.answer(told, loop.time() * 1000)
    response = FetchResponse(session_id=session_id, responses=[*_by_topic(news), *impossible])
    leaders = (each.current_leader.leader_id for each in told.values() if each.current_leader is not None)
    response.node_endpoints = [FetchResponse.NodeEndpoint(*at) for at in endpoints(node, leaders)]
    return response


def refuse_fetch(request: FetchRequest, failure: Failure) -> FetchResponse:
    """Returns the answer to a request that failed as a whole; versions below 7 have a code for each partition only."""
    return FetchResponse(error_code=failure.code, responses=[_refused_topic(t, failure.code) for t in request.topics])


def _check(request: FetchRequest) -> None:
    state = request.replica_state
    if request.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        raise InvalidRequestError(FOLLOWER)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequestError(f"isolation_level is {request.isolation_level}, and may be 0 or 1 (read_committed)")
    forgotten = sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    check_partitions(forgotten + sum(len(topic.partitions) for topic in request.topics))


def _take_out_impossible(request: FetchRequest) -> list[FetchResponse.FetchableTopicResponse]:
    """Takes names that no topic can have out of the request, and answers them: a session would keep texts of any length."""
    impossible = [topic for topic in request.topics if topic_name_trouble(topic.topic) is not None]
    if impossible:
        request.topics = [topic for topic in request.topics if topic_name_trouble(topic.topic) is None]
    return [_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in impossible]


# ---- what the node is asked ------------------------------------------------------------------------------------------


async def _read(
    node: KafkaNode, request: FetchRequest, asked: Mapping[FetchKey, FetchRequest.FetchPartition], call: Call
) -> dict[FetchKey, Told]:
    """Returns the result of each partition, in the order in which they are asked for."""
    placed = await beside(len(asked), _all_placed, node.image, asked)
    known = tuple(partition for partition in placed.values() if partition is not None)
    answered = NOTHING
    if known:
        answered = await node.fetch(_node_request(node, request, known), call.unread)
    is_committed = request.isolation_level == READ_COMMITTED
    return await beside(len(asked), _all_told, placed, answered, call.version, is_committed=is_committed)


def _all_placed(
    image: MetadataImage, asked: Mapping[FetchKey, FetchRequest.FetchPartition]
) -> dict[FetchKey, FetchPartition | None]:
    return {key: _placed(image, key, partition) for key, partition in asked.items()}


def _all_told(
    placed: Mapping[FetchKey, FetchPartition | None], answered: NodeResponse, version: int, *, is_committed: bool
) -> dict[FetchKey, Told]:
    answers = zip(answered.results, answered.batches, strict=True)
    unknown = _code(ErrorCode.UNKNOWN_TOPIC_ID, version)
    return {
        key: _refused(key[1], unknown)
        if partition is None
        else _told(*next(answers), version, is_committed=is_committed)
        for key, partition in placed.items()
    }


def _placed(image: MetadataImage, key: FetchKey, asked: FetchRequest.FetchPartition) -> FetchPartition | None:
    """Returns the node's request for a partition; None: it does not know the topic (yet, or any more)."""
    name, partition_id = key
    topic = image.topics_by_name.get(name) if isinstance(name, str) else image.topics_by_id.get(name)
    if topic is None:
        return None
    return FetchPartition(
        topic.topic_id,
        partition_id,
        asked.fetch_offset,
        leader_epoch=asked.current_leader_epoch,
        last_fetched_epoch=asked.last_fetched_epoch,
        max_bytes=max(1, asked.partition_max_bytes),  # the first batch is sent whole, even if it is larger
    )


def _node_request(node: KafkaNode, request: FetchRequest, partitions: tuple[FetchPartition, ...]) -> NodeRequest:
    return NodeRequest(
        correlation_id=0,
        timeout_ms=node.request_timeout_ms,
        replica_id=CONSUMER_REPLICA_ID,
        broker_epoch=-1,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=max(1, request.max_bytes),
        partitions=partitions,
        read_committed=request.isolation_level == READ_COMMITTED,
        near=_near(node, request.rack_id),
    )


def _near(node: KafkaNode, rack: str) -> tuple[int, ...]:
    """Returns the brokers in a consumer's rack, as far as it can reach them."""
    if not rack:
        return ()
    return tuple(broker_id for broker_id in reachable(node) if node.image.brokers[broker_id].rack == rack)


# ---- what the client is told -----------------------------------------------------------------------------------------


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Returns the code that a consumer is told: at a code that it does not expect here, Java's ends with an exception."""
    return told_code(code, by_id=version >= BY_ID_FROM, knows_storage=version >= STORAGE_ERROR_FROM)


def _told(result: FetchResult, records: Buffer, version: int, *, is_committed: bool) -> Told:
    told = _refused(result.partition_id, _code(result.error, version))
    if result.error in LEADER_CHANGES and result.leader_id >= 0:
        told.current_leader = FetchResponse.LeaderIdAndEpoch(result.leader_id, result.leader_epoch)
    if result.error is not ErrorCode.NONE:
        told.error_message = own_text(result.error, result.message)
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            told.start_offset, told.end_offset = result.log_start_offset, result.log_end_offset
        return told
    told.high_watermark = result.high_watermark
    told.last_stable_offset = result.last_stable_offset
    told.log_start_offset = result.log_start_offset
    told.preferred_read_replica = result.preferred_replica
    told.records = records if isinstance(records, bytes) else memoryview(records)
    if result.diverging is not None:
        told.diverging_epoch = FetchResponse.EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
    if is_committed:
        told.aborted_transactions = [
            FetchResponse.AbortedTransaction(each.producer_id, each.first_offset) for each in result.aborted
        ]
    return told


def _refused(partition_id: int, code: ErrorCode) -> Told:
    """Returns a partition without records: empty instead of null, at which librdkafka gives up the whole answer."""
    return Told(partition_id, code, high_watermark=-1, aborted_transactions=None, records=b"")


def _refused_topic(topic: FetchRequest.FetchTopic, code: ErrorCode) -> FetchResponse.FetchableTopicResponse:
    refused = [_refused(partition.partition, code) for partition in topic.partitions]
    return FetchResponse.FetchableTopicResponse(topic.topic, topic.topic_id, refused)


def _by_topic(news: Mapping[FetchKey, Told]) -> list[FetchResponse.FetchableTopicResponse]:
    """Returns the partitions that are told of under their topics, in order."""
    topics: dict[object, FetchResponse.FetchableTopicResponse] = {}
    for (name, _), told in news.items():
        answer = topics.get(name)
        if answer is None:
            answer = topics[name] = FetchResponse.FetchableTopicResponse()
            if isinstance(name, str):
                answer.topic = name
            else:
                answer.topic_id = name
        answer.partitions.append(told)
    return list(topics.values())
