"""InitProducerId: an id of its own for each idempotent producer, so that a batch that is sent twice is stored once (KIP-98).

A producer without transactions may name the id and the epoch that it had (KIP-360).  It gets a new id all the same, as it does
from Kafka.  No other producer ever has that id, so a batch that is still on its way under the old id cannot be taken for one
of the new id.
"""

from __future__ import annotations

from replog.errors import ErrorCode, RetriableError
from replog.protocol.handlers.node import Call, Failure, KafkaNode, fitting
from replog.rpc.messages import InitProducerIdRequest as NodeRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TIMEOUT_MS = 5_000
"""How long the node waits for the controller: the client asks again, and must not take its connection for dead before."""


async def init_producer_id(node: KafkaNode, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:  # noqa: ARG001 -- the shape of handlers
    """Returns an id that no other producer has."""
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )  # as Produce does; there is no field for a text
    try:
        given = await node.call(NodeRequest(), min(TIMEOUT_MS, node.request_timeout_ms))
    except RetriableError as error:
        # clients give up for good at other codes that mean "later"
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error))
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)


def refuse_init_producer_id(_request: InitProducerIdRequest, failure: Failure) -> InitProducerIdResponse:
    """Returns the answer to a request that failed."""
    return _refused(failure.code, failure.message)


def _refused(code: ErrorCode, message: str = "") -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1, error_message=fitting(message))
