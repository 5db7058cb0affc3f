"""The way from this broker to others, for what they ask one another about transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec import Struct, field

from replog.errors import RetriableError, UnsupportedVersionError
from replog.rpc.messages import Hello
from replog.rpc.node_requests import NodeRequest
from replog.rpc.transport import ConnectionLostError, PeerConnection, PeerTransport

AT_ONCE_MAX: Final = 100
"""Calls that are under way to one broker; others wait for their turn, within their time."""

R = TypeVar("R")

_log = logging.getLogger(__name__)


class _Way(Struct):
    """The connection to one broker.

    Attributes:
        room: The calls that may still begin.
    """

    connection: PeerConnection
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE_MAX))


class BrokerCalls:
    """Calls other brokers; one connection to each, opened with the first call.

    Args:
        hello: The hello of this node.
        transport: The way to other nodes.
        address_of: The function that returns where a broker is reached by other nodes; None: the metadata does not say.
    """

    def __init__(self, hello: Hello, transport: PeerTransport, address_of: Callable[[int], str | None]) -> None:
        self._hello = hello
        self._transport = transport
        self._address_of = address_of
        self._ways: dict[int, _Way] = {}
        self._older: set[int] = set()

    async def call(self, broker_id: int, request: NodeRequest, answer: type[R], timeout_ms: int) -> R:
        """Returns the answer of another broker.

        Args:
            broker_id: The broker.
            request: The request.
            answer: The class of the answer.
            timeout_ms: The time within which an answer is wanted.

        Raises:
            ConnectionLostError: The broker cannot be reached, or does not answer in time.
            RetriableError: The broker is of another version, and does not know the request, or its answer.
            ReplogError: The broker refuses.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                way = await self._way(broker_id)
                async with way.room:
                    told = await way.connection.call(request, timeout_ms=timeout_ms, cluster_id=self._hello.cluster_id)
        except TimeoutError:
            raise ConnectionLostError(f"broker {broker_id} did not answer within {timeout_ms} ms") from None
        except UnsupportedVersionError as error:
            raise self._is_older(broker_id, str(error)) from error
        if not isinstance(told, answer):
            raise self._is_older(broker_id, f"it answered with {type(told).__name__}, wanted is {answer.__name__}")
        self._older.discard(broker_id)
        return told

    def _is_older(self, broker_id: int, reason: str) -> RetriableError:
        """Returns the error of a broker that does not know a call; says so once, until it does."""
        text = f"broker {broker_id} takes no part in transactions until it has the version of this one: {reason}"
        if broker_id not in self._older:
            self._older.add(broker_id)
            _log.warning("%s", text)
        return RetriableError(text)

    async def _way(self, broker_id: int) -> _Way:
        """Returns the way to where a broker is reached now.

        Raises:
            ConnectionLostError: The metadata does not say where.
        """
        address = self._address_of(broker_id)
        if address is None:
            raise ConnectionLostError(f"the metadata does not say where broker {broker_id} is reached")
        way = self._ways.get(broker_id)
        if way is None or way.connection.address != address:
            stale, way = (
                way,
                _Way(self._transport.connect(address, purpose="transactions", hello=self._hello, node_id=broker_id)),
            )
            self._ways[broker_id] = way
            if stale is not None:
                await stale.connection.close()
        return way

    async def close(self) -> None:
        """Closes all connections; the next call opens one anew."""
        ways, self._ways = list(self._ways.values()), {}
        for way in ways:
            await way.connection.close()
