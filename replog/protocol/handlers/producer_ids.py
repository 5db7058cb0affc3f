"""InitProducerId: an id of its own for each idempotent producer, so that a batch that is sent twice is stored once (KIP-98).

A producer with a transactional id has the id that this had before, with another epoch: the coordinator of transactions says
which (KIP-360).

A producer without transactions may name the id and the epoch that it had (KIP-360).  It gets a new id all the same, as it does
from Kafka.  No other producer ever has that id, so a batch that is still on its way under the old id cannot be taken for one
of the new id.
"""

from __future__ import annotations

from typing import Final

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.coordinator.transactions.requests import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Incarnation,
    InitProducer,
    InitProducerResponse,
)
from replog.errors import CoordinatorLoadInProgressError, ErrorCode, ReplogError, RetriableError
from replog.protocol.handlers.groups.group_codes import group_code
from replog.protocol.handlers.node import Call, Failure, KafkaNode, fitting
from replog.rpc.messages import InitProducerIdRequest as NodeRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TIMEOUT_MS = 5_000
"""How long the node waits for the controller: the client asks again, and must not take its connection for dead before."""


FENCED_FROM: Final = 4
"""The first version whose clients know PRODUCER_FENCED (KIP-588)."""


async def init_producer_id(node: KafkaNode, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """Returns an id that no other producer has, or that of a transactional id."""
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    _check(request.transactional_id, call.rights)
    try:
        spare = await spare_producer_id(node)
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=spare, producer_epoch=0)
        producer = await _taken_over(node, request, request.transactional_id, spare)
    except ReplogError as error:
        is_fenced = error.code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_FROM
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else group_code(error.code), error.told)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _check(transactional_id: str | None, rights: Rights) -> None:
    """Returns if a client may have an id: who writes to any topic may, as in Kafka, for then it writes once what it writes (KIP-679)."""
    if transactional_id is not None:
        rights.require(AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
    elif not rights.allows_any(AclOperation.WRITE, ResourceKind.TOPIC):
        rights.require(AclOperation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)


async def spare_producer_id(node: KafkaNode) -> int:
    """Returns an id that no producer has.

    Raises:
        CoordinatorLoadInProgressError: There is none just now; clients give up for good at other codes that mean "later".
    """
    try:
        return (await node.call(NodeRequest(), min(TIMEOUT_MS, node.request_timeout_ms))).producer_id
    except RetriableError as error:
        raise CoordinatorLoadInProgressError(error.told) from error


async def _taken_over(
    node: KafkaNode, request: InitProducerIdRequest, transactional_id: str, spare: int
) -> Incarnation:
    is_known = request.producer_id != NO_PRODUCER_ID
    asked = InitProducer(
        transactional_id,
        request.transaction_timeout_ms,
        Incarnation(request.producer_id, request.producer_epoch) if is_known else None,
        spare,
    )
    answer: InitProducerResponse = await node.coordinate_transaction(transactional_id, asked, TIMEOUT_MS)
    return answer.producer


def refuse_init_producer_id(_request: InitProducerIdRequest, failure: Failure) -> InitProducerIdResponse:
    """Returns the answer to a request that failed."""
    return _refused(failure.code, failure.message)


def _refused(code: ErrorCode, message: str = "") -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1, error_message=fitting(message))
