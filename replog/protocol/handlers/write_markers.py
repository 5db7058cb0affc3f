"""WriteTxnMarkers: the ends of transactions in partitions that this broker leads.

Coordinators use a call of our own between nodes; this one is for operators who end a transaction that hangs (KIP-664,
`replog transactions abort`).
"""

from __future__ import annotations

from replog.errors import ErrorCode
from replog.protocol.handlers.node import Call, Failure, KafkaNode, require_few
from replog.rpc.transaction_messages import Marker, NamedPartitions, PartitionRefusal, WriteMarkersRequest
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
Asked = WriteTxnMarkersRequest.WritableTxnMarker


async def write_txn_markers(node: KafkaNode, request: WriteTxnMarkersRequest, _call: Call) -> WriteTxnMarkersResponse:
    """Writes the markers, and answers when they have committed."""
    require_few(sum(1 + len(topic.partition_indexes) for one in request.markers for topic in one.topics), "partitions")
    asked = WriteMarkersRequest(tuple(map(_marker, request.markers)))
    written = await node.write_markers(asked, node.request_timeout_ms)
    return WriteTxnMarkersResponse(list(map(_result, request.markers, written.refusals)))


def refuse_write_txn_markers(request: WriteTxnMarkersRequest, failure: Failure) -> WriteTxnMarkersResponse:
    """Returns the answer to a request that failed as a whole."""
    return WriteTxnMarkersResponse([_result(one, (), failure.code) for one in request.markers])


def _marker(asked: Asked) -> Marker:
    """Returns a marker as our own messages have it; whether its epoch was bumped, Kafka's message does not say."""
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        bumps_epochs=False,
        topics=tuple(NamedPartitions(topic.name, tuple(topic.partition_indexes)) for topic in asked.topics),
    )


def _result(asked: Asked, refusals: tuple[PartitionRefusal, ...], otherwise: ErrorCode = ErrorCode.NONE) -> Result:
    errors = {(refusal.topic, refusal.partition_id): refusal.error for refusal in refusals}
    return Result(
        asked.producer_id,
        [
            TopicResult(
                topic.name,
                [
                    PartitionResult(number, errors.get((topic.name, number), otherwise))
                    for number in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
