"""The seam between nodes: how another node is reached, over gRPC (`grpc`) or TCP (`tcp`), and what it serves.

A simulated cluster runs the TCP side as it is, over a simulated network below it.

Streams carry messages in order, both ways, and end with `ConnectionLostError`; replies name the request they answer
and may overtake one another.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from replog.controller.requests import ControllerRequest, ControllerResponse
from replog.errors import ReplogError, RetriableError
from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    Hello,
)
from replog.rpc.node_requests import NodeRequest, NodeResponse

if TYPE_CHECKING:
    from replog.rpc.calls import IncomingCall  # brings protobuf, which a client has no use for
    from replog.rpc.quorum_codec import QuorumFrame  # brings the whole quorum, which a client has no use for

Out_contra = TypeVar("Out_contra", contravariant=True)
In_co = TypeVar("In_co", covariant=True)


class ConnectionLostError(RetriableError):
    """The other side cannot be reached, closed the connection, or did not answer in time.

    Attributes:
        refused: Whether nobody listens at the address (a dead process), as opposed to silence.
        was_idle: Whether a connection that had been idle ended before anything of the answer came, as where a broker ends idle ones.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.was_idle = False


class Stream(Protocol[Out_contra, In_co]):
    """One end of a bidirectional stream.  One task sends, one task receives."""

    async def send(self, message: Out_contra) -> None:
        """Raises `ConnectionLostError`; returns when the transport took the message (backpressure)."""
        ...

    async def receive(self) -> In_co:
        """Returns the next message; raises `ConnectionLostError` at the end of the stream."""
        ...

    async def close(self) -> None: ...


class Presence(Protocol):
    """A stream on which nothing is said: it ends with the process on the other side, or with the way there."""

    @property
    def peer(self) -> Hello:
        """Who is there."""
        ...

    async def wait_lost(self) -> None:
        """Returns when the stream has ended."""
        ...

    async def close(self) -> None: ...


class PeerConnection(Protocol):
    """A way from one node to another.  Opening is lazy: nothing happens before the first call."""

    @property
    def address(self) -> str: ...

    async def call(
        self, request: NodeRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> NodeResponse: ...

    async def controller_call(
        self, request: ControllerRequest, *, timeout_ms: int, cluster_id: str = ""
    ) -> ControllerResponse: ...

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        """Sends `hello`, waits for the other side's; raises InconsistentClusterIdError, UnsupportedVersionError."""
        ...

    async def open_quorum(self, hello: Hello) -> Stream[QuorumFrame, QuorumFrame]: ...

    async def open_presence(self, hello: Hello) -> Presence: ...

    async def close(self) -> None: ...


class StreamPresence:
    """A `Presence` made of a stream that has been greeted.

    Args:
        stream: The stream, with which nothing else is done.
        peer: The hello of the other side.
    """

    def __init__(self, stream: Stream[Any, Any], peer: Hello) -> None:
        self._stream = stream
        self._peer = peer

    @property
    def peer(self) -> Hello:
        return self._peer

    async def wait_lost(self) -> None:
        with contextlib.suppress(ReplogError):
            while True:
                await self._stream.receive()

    async def close(self) -> None:
        await self._stream.close()


class PeerTransport(Protocol):
    """Makes ways to other nodes."""

    def connect(
        self, address: str, *, purpose: str, hello: Hello | None = None, node_id: int | None = None
    ) -> PeerConnection:
        """Returns a way to a node.

        Args:
            address: The host:port where it meets nodes.
            purpose: The word for what goes this way.
            hello: The hello of who calls, in the streams of calls; None: somebody who is no node.
            node_id: The id of the node that is to be there, where another one would be refused; None: any.
        """
        ...


class RequestContext(Struct, frozen=True):
    """Who asks: comes with every request, so that authentication and quotas need no new arguments.

    `node`: the checked hello of the node that asks; None: a client, or a call without a stream.
    """

    principal: str
    client_id: str
    listener: str
    peer: str
    node: Hello | None = None


class PeerHandlers(Protocol):
    """What a node does for other nodes.  An exception of ours becomes the answer."""

    async def handle_node_call(self, call: IncomingCall[NodeRequest], context: RequestContext) -> NodeResponse: ...

    async def handle_controller_call(
        self, call: IncomingCall[ControllerRequest], context: RequestContext
    ) -> ControllerResponse: ...

    def check_hello(self, hello: Hello) -> Hello:
        """Returns the node's own hello.

        Raises:
            InconsistentClusterIdError, UnsupportedVersionError: The two cannot talk.
            InvalidRequestError: Only nodes are served here, and it does not say which one it is.
        """
        ...

    async def handle_fetch_stream(
        self, hello: Hello, stream: Stream[FetchResponse, FetchRequest], context: RequestContext
    ) -> None: ...

    def check_caller(self, hello: Hello) -> Hello:
        """Returns the node's own hello to who opens a stream of calls, and may be no node; errors as of `check_hello`."""
        ...

    async def handle_quorum_stream(
        self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame], context: RequestContext
    ) -> None: ...


class Server(Protocol):
    """A node that listens for other nodes."""

    @property
    def port(self) -> int: ...

    @property
    def refused_count(self) -> int:
        """The connections whose other side was not believed to be a node."""
        ...

    async def start(self, handlers: PeerHandlers) -> None:
        """Begins to answer; connections that came before have waited."""
        ...

    async def stop(self, grace_s: float) -> None: ...
