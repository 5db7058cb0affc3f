"""What a node does with calls and streams of others, whatever carries them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from replog.controller.requests import ControllerResponse
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    InternalError,
    InvariantViolationError,
    MalformedFrameError,
    ReplogError,
)
from replog.rpc import calls
from replog.rpc.call_stream import CallSession, ItemStream
from replog.rpc.node_requests import NodeResponse
from replog.rpc.transport import PeerHandlers, RequestContext

CALL_BYTES_MAX = 16 << 20
"""Of one call: the offsets of 200,000 partitions, the most that a cluster has, are asked for with 9 MB."""

AT_ONCE_BYTES = 16 << 10
"""Size up to which a call is decoded, and its answer encoded, at once: a millisecond."""

BUG = "a bug of this node; its log says more"
"""What others are told of one."""

B = TypeVar("B", bytes, bytes | memoryview)
T = TypeVar("T")

_log = logging.getLogger(__name__)


async def outcome(answer: Callable[[], Awaitable[Any]]) -> Any:
    """Returns the answer, or our error as one.  A bug is logged here; the driver loops stop the node for theirs."""
    try:
        return await answer()
    except BrokerClosedError as error:  # a part of this node has stopped: who asks again finds another node
        return BrokerNotAvailableError(str(error))
    except InternalError as error:  # the node that asked may pass it on to a client
        return ReplogError(error.told)
    except ReplogError as error:
        return error
    except InvariantViolationError:
        raise
    except Exception as error:  # noqa: BLE001 -- the caller gets an answer whatever happens
        return ReplogError(_told(error))


async def answer_node_call(handlers: PeerHandlers, body: bytes | memoryview, context: RequestContext) -> bytes:
    """Returns the encoded answer to an encoded call.

    Raises:
        InvariantViolationError: A bug of ours; its driver stops the node.
    """

    async def answer() -> NodeResponse:
        call = await _decoded(calls.decode_node_request, body)
        return await handlers.handle_node_call(call, context)

    response = await outcome(answer)
    if len(body) > AT_ONCE_BYTES:  # it tells of as many things
        return await asyncio.to_thread(calls.encode_node_response, response)
    return calls.encode_node_response(response)


async def answer_controller_call(handlers: PeerHandlers, body: bytes, context: RequestContext) -> bytes:
    """Returns the encoded answer to an encoded call to the controller.

    Raises:
        InvariantViolationError: A bug of ours; its driver stops the node.
    """

    async def answer() -> ControllerResponse:
        call = await _decoded(calls.decode_controller_request, body)
        return await handlers.handle_controller_call(call, context)

    response = await outcome(answer)
    if len(body) > AT_ONCE_BYTES:
        return await asyncio.to_thread(calls.encode_controller_response, response)
    return calls.encode_controller_response(response)


async def _decoded(decode: Callable[[B], T], body: B) -> T:
    """Returns what is in a call; of a large one, which may name thousands of things, a thread finds out.

    Raises:
        MalformedFrameError: It is none, or larger than one may be.
    """
    if len(body) > CALL_BYTES_MAX:
        raise MalformedFrameError(
            f"a call has {len(body):,} bytes, and may have {CALL_BYTES_MAX:,}: name fewer things, in several calls"
        )
    return decode(body) if len(body) <= AT_ONCE_BYTES else await asyncio.to_thread(decode, body)


async def serve_node_calls(handlers: PeerHandlers, stream: ItemStream, context: RequestContext) -> None:
    """Answers the calls of a stream until it ends."""

    async def answer(body: bytes) -> bytes:
        try:
            return await answer_node_call(handlers, body, context)
        except InvariantViolationError as bug:
            return calls.encode_node_response(BrokerNotAvailableError(_told(bug)))  # another node may answer

    await CallSession(answer).serve(stream)


async def serve_controller_calls(handlers: PeerHandlers, stream: ItemStream, context: RequestContext) -> None:
    """Answers the calls to the controller of a stream until it ends."""

    async def answer(body: bytes) -> bytes:
        try:
            return await answer_controller_call(handlers, body, context)
        except InvariantViolationError as bug:
            return calls.encode_controller_response(ReplogError(_told(bug)))

    await CallSession(answer).serve(stream)


def _told(bug: Exception) -> str:
    """Returns what a caller is told of a bug, at once where its driver stops the node.  It may reach a client: the log has the rest."""
    _log.error("a call ended with a bug of ours", exc_info=bug)
    return BUG
