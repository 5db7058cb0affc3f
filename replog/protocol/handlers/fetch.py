"""Fetch: records of the partitions that a consumer asks for, or that its session holds, as buffers of the node's log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.errors import ErrorCode, InvalidRequestError
from replog.metadata.image import MetadataImage
from replog.protocol.fetch_sessions import Named, SessionRefusal
from replog.protocol.handlers.metadata import reachable
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, fitting, own_text
from replog.protocol.handlers.partitions import FOLLOWER, LEADER_CHANGES, endpoints, told_code
from replog.protocol.written_steps import Steps
from replog.replication.fetch_positions import PartitionKey
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

ENDS_SESSION = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors after which a consumer begins anew: the broker serves none of its partitions, or a name may mean another topic now."""

Told = FetchResponse.PartitionData


async def fetch(node: KafkaNode, request: FetchRequest, call: Call) -> FetchResponse:
    """Reads, or waits for enough records as long as the client wants."""
    names_count = _check(request)
    by_id, image, rights = call.version >= BY_ID_FROM, node.image, call.rights
    named, unknown = await beside(names_count, _named, image, request, by_id=by_id)
    denied, rights_version = _Denied(by_id), rights.authorizer.version
    if not rights.is_open:
        await _take_out_denied(named, image, rights, denied)
    now_ms = asyncio.get_running_loop().time() * 1000
    turn = node.fetch_sessions.turn(request, named, now_ms=now_ms, closed=call.caller.closed)
    if isinstance(turn, SessionRefusal):
        return FetchResponse(error_code=turn.error)
    is_last = True
    try:
        answered = NOTHING
        if turn.positions is not None and not rights.is_open:
            await _find_denied(turn.positions.asked, turn.topic_ids, image, rights, denied)
        if denied.ends_session:
            pass  # it is told at once, and begins anew without it
        elif turn.positions is not None or named.partitions:
            check_partitions(len(turn.positions.asked if turn.positions is not None else ()))
            unread = None if request.offsets_only else call.unread
            answered = await node.fetch(_node_request(node, request, named, call.listener), unread, turn.positions)
        if rights.authorizer.version != rights_version:  # perhaps while it waited
            answered = await _without_denied(answered, node.image, rights, denied)
        is_last = bool(unknown or denied.partitions) or any(result.error in ENDS_SESSION for result in answered.results)
    finally:  # what a client that has gone, or whose fetch failed, was told is not known
        session_id = node.fetch_sessions.finish(turn, is_last=is_last)
    response = await beside(len(answered.results), _response, request, answered, turn.names, call.version)
    response.session_id = session_id
    response.responses += [_unknown_topic(topic, rights, call.version) for topic in unknown]
    response.responses += _denied_topics(denied)
    leaders = (r.leader_id for r in answered.results if r.error in LEADER_CHANGES and r.leader_id >= 0)
    response.node_endpoints = [FetchResponse.NodeEndpoint(*at) for at in endpoints(node, leaders, call.listener)]
    return response


def refuse_fetch(request: FetchRequest, failure: Failure) -> FetchResponse:
    """Returns the answer to a request that failed as a whole; versions below 7 have a code for each partition only."""
    return FetchResponse(error_code=failure.code, responses=[_refused_topic(t, failure.code) for t in request.topics])


def _check(request: FetchRequest) -> int:
    """Returns how many partitions a request names; raises where it may not be asked."""
    state = request.replica_state
    if request.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        raise InvalidRequestError(FOLLOWER)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequestError(f"isolation_level is {request.isolation_level}, and may be 0 or 1 (read_committed)")
    forgotten = sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    count = forgotten + sum(len(topic.partitions) for topic in request.topics)
    check_partitions(count)
    return count


# ---- what the client may not read -------------------------------------------------------------------------------------


class _Denied(Struct):
    """The partitions that are refused for want of a right, and why.

    Attributes:
        by_id: Whether topics are asked for by their ids.
        texts: The text of each topic, with its name, by its id.
        partitions: The partitions.
        ends_session: Whether the session had such partitions: what it asked for before is not asked for now.
    """

    by_id: bool
    texts: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    partitions: list[PartitionKey] = field(default_factory=list)
    ends_session: bool = False


async def _look(topic_ids: Iterable[UUID], image: MetadataImage, rights: Rights, denied: _Denied) -> set[UUID]:
    """Returns those topics that the client may not read; each is looked at anew."""
    found, steps = set[UUID](), Steps()
    for topic_id in topic_ids:
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            refused = rights.refused(AclOperation.READ, ResourceKind.TOPIC, topic.name, by_id=denied.by_id)
            if refused is not None:
                found.add(topic_id)
                denied.texts[topic_id] = topic.name, fitting(str(refused))
        await steps.next()
    return found


async def _take_out_denied(named: Named, image: MetadataImage, rights: Rights, denied: _Denied) -> None:
    """Takes out of what a fetch names what its client may not read, so that no session ever has it."""
    topic_ids = dict.fromkeys(topic_id for topic_id, _ in named.partitions)
    if refused := await _look(topic_ids, image, rights, denied):
        denied.partitions += [key for key in named.partitions if key[0] in refused]
        for key in denied.partitions:
            del named.partitions[key]


async def _find_denied(
    asked: Iterable[PartitionKey], topic_ids: Iterable[UUID], image: MetadataImage, rights: Rights, denied: _Denied
) -> None:
    """Finds what a session has and its client may not read any more."""
    if refused := await _look(list(topic_ids), image, rights, denied):
        found = [key for key in asked if key[0] in refused]
        denied.partitions += found
        denied.ends_session = bool(found)  # of topics that it has forgotten nothing is asked


async def _without_denied(
    answered: NodeResponse, image: MetadataImage, rights: Rights, denied: _Denied
) -> NodeResponse:
    """Returns an answer without what its client may not read any more."""
    topic_ids = dict.fromkeys(result.topic_id for result in answered.results)
    refused = await _look(topic_ids, image, rights, denied)
    if not refused:
        return answered
    denied.partitions += [(one.topic_id, one.partition_id) for one in answered.results if one.topic_id in refused]
    left = [
        (result, records)
        for result, records in zip(answered.results, answered.batches, strict=True)
        if result.topic_id not in refused
    ]
    return replace(answered, results=tuple(one for one, _ in left), batches=tuple(records for _, records in left))


def _denied_topics(denied: _Denied) -> list[FetchResponse.FetchableTopicResponse]:
    topics: dict[UUID, FetchResponse.FetchableTopicResponse] = {}
    for topic_id, number in denied.partitions:
        name, text = denied.texts[topic_id]
        topic = topics.setdefault(topic_id, FetchResponse.FetchableTopicResponse(name, topic_id))
        told = _refused(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        told.error_message = text
        topic.partitions.append(told)
    return list(topics.values())


# ---- what the node is asked ------------------------------------------------------------------------------------------


def _named(image: MetadataImage, request: FetchRequest, *, by_id: bool) -> tuple[Named, list[FetchRequest.FetchTopic]]:
    """Returns the node's questions for the partitions that are named, and the topics that it does not know (yet, or any more)."""
    named, unknown = Named({}, {}, by_id), []
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics_by_name.get(asked.topic)
        if topic is None:
            unknown.append(asked)
            continue
        if not by_id:
            named.names[topic.topic_id] = topic.name
        for each in asked.partitions:
            named.partitions[topic.topic_id, each.partition] = FetchPartition(
                topic.topic_id,
                each.partition,
                each.fetch_offset,
                leader_epoch=each.current_leader_epoch,
                last_fetched_epoch=each.last_fetched_epoch,
                max_bytes=max(1, each.partition_max_bytes),  # the first batch is sent whole, even if it is larger
            )
    return named, unknown


def _node_request(node: KafkaNode, request: FetchRequest, named: Named, listener: str) -> NodeRequest:
    return NodeRequest(
        correlation_id=0,
        timeout_ms=node.request_timeout_ms,
        replica_id=CONSUMER_REPLICA_ID,
        broker_epoch=-1,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=max(1, request.max_bytes),
        partitions=tuple(named.partitions.values()),
        read_committed=request.isolation_level == READ_COMMITTED,
        near=_near(node, request.rack_id, listener),
        offsets_only=request.offsets_only,
    )


def _near(node: KafkaNode, rack: str, listener: str) -> tuple[int, ...]:
    """Returns the brokers in a consumer's rack, as far as it can reach them."""
    if not rack:
        return ()
    return tuple(broker_id for broker_id in reachable(node, listener) if node.image.brokers[broker_id].rack == rack)


# ---- what the client is told -----------------------------------------------------------------------------------------


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Returns the code that a consumer is told: at a code that it does not expect here, Java's ends with an exception."""
    return told_code(code, by_id=version >= BY_ID_FROM, knows_storage=version >= STORAGE_ERROR_FROM)


def _response(request: FetchRequest, answered: NodeResponse, names: Mapping[UUID, str], version: int) -> FetchResponse:
    """Returns the node's answer under its topics, in order."""
    topics: dict[UUID, FetchResponse.FetchableTopicResponse] = {}
    for result, records in zip(answered.results, answered.batches, strict=True):
        topic = topics.get(result.topic_id)
        if topic is None:
            name = names.get(result.topic_id, "")
            topic = topics[result.topic_id] = FetchResponse.FetchableTopicResponse(name, result.topic_id)
        topic.partitions.append(_told(result, records, request, version))
    return FetchResponse(responses=list(topics.values()))


def _told(result: FetchResult, records: Buffer, request: FetchRequest, version: int) -> Told:
    told = _refused(result.partition_id, _code(result.error, version))
    if result.leader_id >= 0 and (request.offsets_only or result.error in LEADER_CHANGES):
        told.current_leader = FetchResponse.LeaderIdAndEpoch(result.leader_id, result.leader_epoch)
    if result.error is not ErrorCode.NONE:
        told.error_message = own_text(result.error, result.message)
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            told.start_offset, told.end_offset = result.log_start_offset, result.log_end_offset
        return told
    told.high_watermark = result.high_watermark
    told.size_bytes = result.size_bytes
    told.last_stable_offset = result.last_stable_offset
    told.log_start_offset = result.log_start_offset
    told.preferred_read_replica = result.preferred_replica
    told.records = records if isinstance(records, bytes) else memoryview(records)
    if result.diverging is not None:
        told.diverging_epoch = FetchResponse.EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
    if request.isolation_level == READ_COMMITTED:
        told.aborted_transactions = [
            FetchResponse.AbortedTransaction(each.producer_id, each.first_offset) for each in result.aborted
        ]
    return told


def _refused(partition_id: int, code: ErrorCode) -> Told:
    """Returns a partition without records: empty instead of null, at which librdkafka gives up the whole answer."""
    return Told(partition_id, code, high_watermark=-1, aborted_transactions=None, records=b"")


def _unknown_topic(
    topic: FetchRequest.FetchTopic, rights: Rights, version: int
) -> FetchResponse.FetchableTopicResponse:
    """Returns the answer about a topic that there is not: of a name that may not be read it is that of a topic that there is."""
    refused = None
    if version < BY_ID_FROM:
        refused = rights.refused(AclOperation.READ, ResourceKind.TOPIC, topic.topic)
    if refused is None:
        return _refused_topic(topic, _code(ErrorCode.UNKNOWN_TOPIC_ID, version))
    return _refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, fitting(str(refused)))


def _refused_topic(
    topic: FetchRequest.FetchTopic, code: ErrorCode, text: str = ""
) -> FetchResponse.FetchableTopicResponse:
    refused = [_refused(partition.partition, code) for partition in topic.partitions]
    for each in refused:
        each.error_message = text
    return FetchResponse.FetchableTopicResponse(topic.topic, topic.topic_id, refused)
