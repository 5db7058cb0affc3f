"""FindCoordinator: says which broker coordinates a group, or a transactional id.

A consumer of librdkafka's looks for its coordinator even if its partitions are assigned by hand, and hands out an error that
is not retriable in place of a record.  So any reason why a group has no coordinator is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.access.entries import AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.protocol.handlers.node import Call, Failure, KafkaNode, require_few
from replog.protocol.written_steps import Steps
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_FROM = 4
"""The first version in which several keys are asked for at once."""

GROUP, TRANSACTION = 0, 1
"""The type of a key that is a group, and of one that is a transactional id."""

Coordinator = FindCoordinatorResponse.Coordinator


async def find_coordinator(node: KafkaNode, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """Returns the coordinators of groups, or of transactional ids."""
    keys = request.coordinator_keys if call.version >= SEVERAL_FROM else [request.key]
    require_few(len(keys), "groups or transactional ids")
    brokers: Sequence[int | ReplogError]
    if request.key_type == GROUP:
        allowed, denied = await _divided(keys, ResourceKind.GROUP, call.rights)
        brokers = await node.find_coordinators(allowed)
    elif request.key_type == TRANSACTION:
        allowed, denied = await _divided(keys, ResourceKind.TRANSACTIONAL_ID, call.rights)
        brokers = await node.find_transaction_coordinators(allowed)
    else:
        raise InvalidRequestError(
            f"there are no coordinators of type {request.key_type} here, but those of groups (0) and of transactions (1)"
        )
    found = [_told(node, call, key, broker) for key, broker in zip(allowed, brokers, strict=True)]
    return _shaped(found + denied, of_several=call.version >= SEVERAL_FROM)


async def _divided(keys: Sequence[str], kind: ResourceKind, rights: Rights) -> tuple[Sequence[str], list[Coordinator]]:
    """Returns the keys that a client may ask for, and the answers for the others."""
    if rights.is_open:
        return keys, []
    allowed, denied, steps = list[str](), list[Coordinator](), Steps()
    for key in keys:
        if (refused := rights.refused(AclOperation.DESCRIBE, kind, key)) is None:
            allowed.append(key)
        else:
            denied.append(_without(key, Failure(refused.code, str(refused))))
        await steps.next()
    return allowed, denied


def refuse_find_coordinator(request: FindCoordinatorRequest, failure: Failure) -> FindCoordinatorResponse:
    """Returns the answer to a request that failed as a whole."""
    keys = request.coordinator_keys
    return _shaped([_without(key, failure) for key in keys or [request.key]], of_several=bool(keys))


def _told(node: KafkaNode, call: Call, key: str, broker: int | ReplogError) -> Coordinator:
    if isinstance(broker, ReplogError):
        return _without(key, Failure(broker.code, str(broker)))
    at = node.endpoint(broker, call.listener)
    if at is None:
        return _without(key, Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker} is not reached just now"))
    return Coordinator(key, broker, at.host, at.port)


def _without(key: str, failure: Failure) -> Coordinator:
    return Coordinator(key, -1, "", -1, failure.code, failure.message)


def _shaped(found: list[Coordinator], *, of_several: bool) -> FindCoordinatorResponse:
    if of_several:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )
