"""How a node is called, whatever carries the calls; the counterpart of `replog.rpc.serving`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from replog.controller.messages import ControllerRequest, ControllerResponse
from replog.rpc import calls, frames, quorum_codec
from replog.rpc.client_messages import ClientRequest, ClientResponse
from replog.rpc.messages import FetchRequest, FetchResponse, Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream, StreamPresence


class CallingConnection(ABC):
    """The calls of a connection; the class that inherits carries their bytes.  See `replog.rpc.transport.NodeConnection`."""

    async def call(
        self, request: ClientRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> ClientResponse:
        data = calls.encode_client_request(request, cluster_id=cluster_id, timeout_ms=timeout_ms, forwarded=forwarded)
        return calls.decode_client_response(await self._carry_call(data, timeout_ms))

    async def controller_call(
        self, request: ControllerRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> ControllerResponse:
        data = calls.encode_controller_request(
            request, cluster_id=cluster_id, timeout_ms=timeout_ms, forwarded=forwarded
        )
        return calls.decode_controller_response(await self._carry_controller_call(data, timeout_ms))

    @abstractmethod
    async def _carry_call(self, data: bytes, timeout_ms: int) -> bytes:
        """Returns the answer of the node to a call.

        Raises:
            ConnectionLostError: The node did not answer in time, or cannot be reached.
            MalformedFrameError: The call is too large to be sent.
        """

    @abstractmethod
    async def _carry_controller_call(self, data: bytes, timeout_ms: int) -> bytes:
        """Returns the answer to a call to the controller; raises as `_carry_call`."""


class MethodConnection(CallingConnection):
    """A connection between nodes whose streams are methods with a name: over gRPC, or a simulated network.

    See `replog.rpc.transport.PeerConnection`.
    """

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return (await self._greet("Fetch", frames.encode_fetch_request, frames.decode_fetch_response, hello))[0]

    async def open_quorum(self, hello: Hello) -> Stream[QuorumFrame, QuorumFrame]:
        encode, decode = quorum_codec.encode_quorum_message, quorum_codec.decode_quorum_message
        return (await self._greet("Quorum", encode, decode, hello))[0]

    async def open_presence(self, hello: Hello) -> StreamPresence:
        encode, decode = frames.encode_fetch_request, frames.decode_fetch_response
        return StreamPresence(*await self._greet("Fetch", encode, decode, hello))

    @abstractmethod
    async def _greet(
        self, method: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], hello: Hello
    ) -> tuple[Stream[Any, Any], Hello]:
        """Opens a stream and says hello; returns the stream and the hello of the other side.

        Raises:
            ConnectionLostError: Nobody has answered in time.
            ReplogError: The other side refuses, or answers something else.
        """
