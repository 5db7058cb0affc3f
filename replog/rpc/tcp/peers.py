"""The port at which nodes meet over TCP, where `inter.broker.transport` says so.  No client is served here."""

from __future__ import annotations

from functools import partial

from replog.errors import MalformedFrameError
from replog.rpc.node_tls import KEY, LISTENER, NodeTls
from replog.rpc.tcp.service import PeerStreams
from replog.rpc.tcp.wire import is_opening
from replog.rpc.transport import PeerHandlers
from replog.tcp.answers import Answer
from replog.tcp.connection import Caller, ConnectionLimits, RequestServer
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.port import Port
from replog.tcp.port import bind as bind_port
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore

READING_BYTES = 128 << 20
"""Of large messages of other nodes that are being read at a time."""

OPENING_BYTES_MAX = 64 << 10
"""Size of the frame that opens a stream: it holds one hello, and is read before anybody knows who sends it."""


class TcpPeerServer:
    """A port at which other nodes are served; made by `bind`, listens from `start` on.

    Args:
        port: The port; it is the server's from here on.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.
    """

    def __init__(self, port: Port, tls: NodeTls | None = None) -> None:
        self._tls = tls
        self._bound: Port | None = port
        self._listener: Listener | None = None
        self._address = f"{port.host}:{port.port}"
        self.port = port.port

    async def start(self, handlers: PeerHandlers) -> None:
        """Begins to listen; whoever connected before was refused, and comes again.

        Raises:
            ConfigError: Another process began to listen there after the port was bound.
        """
        bound, self._bound = self._bound, None
        if bound is None:
            return
        reading_room, tls = TransferRoom(READING_BYTES), self._tls
        streams = PeerStreams(handlers, self._address, reading_room, tls, self._tell_refused)

        async def serve(frame: memoryview, caller: Caller) -> Answer | None:
            if not is_opening(frame):
                raise MalformedFrameError("a request, where only nodes meet: clients come to the port of listeners")
            return Answer(becomes=partial(streams.open, frame, caller.principal))

        requests = RequestServer(serve, lambda _: False, lambda _: False)
        limits = ListenerLimits(connection=ConnectionLimits(recordless_bytes_max=OPENING_BYTES_MAX))
        self._listener = Listener(requests, lambda: limits, ByteSemaphore(READING_BYTES), reading_room, KEY)
        certificates = None if tls is None else tls.certificates
        await self._listener.start(bound, LISTENER, certificates, accepts_plain=tls is not None and tls.accepts_plain)

    @property
    def refused_count(self) -> int:
        """The connections whose other side was not believed to be a node."""
        return 0 if self._listener is None else self._listener.refused_counts[LISTENER]

    def _tell_refused(self, address: str, reason: str) -> None:
        if self._listener is not None:
            self._listener.tell_refused(LISTENER, address, reason)

    async def stop(self, grace_s: float) -> None:  # noqa: ARG002 -- streams have no end of their own to wait for
        """Ends all streams, and gives the port back."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._listener is not None:
            await self._listener.stop()


def bind(host: str, port: int, tls: NodeTls | None = None) -> TcpPeerServer:
    """Takes the port; nobody is heard before `TcpPeerServer.start`.

    Args:
        host: The address to bind.
        port: The port; 0 picks a free one, see `TcpPeerServer.port`.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.

    Raises:
        ConfigError: The port is taken, or the address is not this machine's.
    """
    return TcpPeerServer(bind_port(host, port, KEY), tls)
