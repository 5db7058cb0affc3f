"""The way to the active controller, wherever it is: this process, or another node over the network.

Finds the controller from the quorum's state, follows it when it moves, and retries what may be retried until the
deadline.  Every controller request is safe to repeat: it names what it expects (epochs, incarnations, names).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from replog.broker.clock import Clock
from replog.broker.controller.driver import ControllerDriver
from replog.controller.requests import ControllerRequest, ControllerResponse, name_of
from replog.errors import NotControllerError, RequestTimedOutError, RetriableError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError, PeerConnection, PeerTransport

RETRY_DELAY_S = 0.05
ATTEMPT_TIMEOUT_MS = 2_000

R = TypeVar("R", bound=ControllerResponse)


class ControllerChannel:
    """Sends requests to the active controller.

    Args:
        hello: The hello of this node.
        leader_id: The function that returns the quorum's leader as this node knows it; None while unknown.
        address_of: The function that returns where a node of the quorum listens; None while unknown.
        local: The controller of this node; None where it has none.
    """

    def __init__(
        self,
        *,
        hello: Hello,
        address_of: Callable[[int], str | None],
        leader_id: Callable[[], int | None],
        local: ControllerDriver | None,
        transport: PeerTransport,
        clock: Clock,
    ) -> None:
        self._hello = hello
        self._address_of = address_of
        self._leader_id = leader_id
        self._local = local
        self._transport = transport
        self._clock = clock
        self._connections: dict[int, PeerConnection] = {}

    async def send(
        self,
        request: ControllerRequest,
        answer: type[R],
        *,
        timeout_ms: int,
    ) -> R:
        """Sends a request to the active controller until it is answered, and returns the answer.

        Args:
            request: The request, which may arrive more than once.
            answer: The class of its response.
            timeout_ms: The time for all attempts together, in milliseconds.

        Raises:
            RequestTimedOutError: No controller answered in time; the message names the last cause.
            ReplogError: The controller answered with this error, and it is not worth a retry.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        cause: Exception = NotControllerError("the metadata quorum has no leader")
        while (left_ms := deadline_ms - self._clock.now_ms()) > 0:
            leader_id = self._leader_id()
            if leader_id is not None:
                try:
                    attempt_ms = min(left_ms, ATTEMPT_TIMEOUT_MS)
                    response = await self._attempt(leader_id, request, attempt_ms)
                except (NotControllerError, ConnectionLostError, RequestTimedOutError) as error:
                    cause = error.with_traceback(None)  # or it would lead back here
                else:
                    if not isinstance(response, answer):
                        raise RetriableError(f"the controller answered with {type(response).__name__}")
                    return response
            await asyncio.sleep(RETRY_DELAY_S)
        raise RequestTimedOutError(f"no controller answered {name_of(request)} in {timeout_ms} ms; last cause: {cause}")

    async def close(self) -> None:
        """Closes the connections; the next request connects anew."""
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()

    async def _attempt(
        self,
        leader_id: int,
        request: ControllerRequest,
        timeout_ms: int,
    ) -> ControllerResponse:
        if leader_id == self._hello.node_id and self._local is not None:
            return await self._local.submit(request, timeout_ms=timeout_ms)
        connection = await self._connection(leader_id)
        return await connection.controller_call(
            request,
            timeout_ms=timeout_ms,
            cluster_id=self._hello.cluster_id,
        )

    async def _connection(self, leader_id: int) -> PeerConnection:
        """Returns the one connection to the controller, to where it listens now.

        Raises:
            NotControllerError: Nobody has said where it listens.
        """
        address = self._address_of(leader_id)
        if address is None:
            raise NotControllerError(
                f"node {leader_id} leads the metadata quorum, and nobody has said where it listens"
            )
        connection = self._connections.get(leader_id)
        if connection is None or connection.address != address:
            stale = connection
            connection = self._transport.connect(address, purpose="controller", hello=self._hello, node_id=leader_id)
            self._connections[leader_id] = connection
            if stale is not None:
                await stale.close()
        return connection
