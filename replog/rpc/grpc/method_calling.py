"""How a node opens streams to another where each is a method with a name, as in gRPC, which is not loaded here: simulated networks do so, too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from replog.rpc import frames, quorum_codec
from replog.rpc.calling import CallingConnection
from replog.rpc.messages import FetchRequest, FetchResponse, Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream, StreamPresence


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
