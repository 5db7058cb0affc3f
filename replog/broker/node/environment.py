"""What a node takes from the world outside: disks, clocks, the network, chance and threads.

One object, so that a whole node runs as it is where none of this is real: the simulated cluster of `replog.testing`
hands in another environment, and no line of the node knows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from random import Random, SystemRandom
from uuid import UUID

from msgspec import Struct, field

from replog.broker.clock import Clock, SystemClock
from replog.config.server_keys import InterBrokerTransport
from replog.rpc.node_tls import NodeTls
from replog.rpc.tcp.peers import bind as bind_peers
from replog.rpc.tcp.transport import TcpPeerTransport
from replog.rpc.transport import PeerTransport, Server
from replog.tcp.port import Port
from replog.tcp.port import bind as bind_tcp
from replog_checkpoints import FileSystem, OsFileSystem

_UUID_BYTES = 16


class PeerNetwork(Struct, frozen=True):
    """How nodes reach each other.

    Attributes:
        transport: The way to other nodes.
        bind: The function that takes a port of a host, for other nodes; see `replog.rpc.grpc.transport.bind`.
    """

    transport: PeerTransport
    bind: Callable[[str, int], Server]


def peer_network(kind: InterBrokerTransport, tls: NodeTls | None = None) -> PeerNetwork:
    """Returns the real network of a kind; gRPC takes a while to load, and is loaded where nodes meet over it.

    Args:
        kind: The kind.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.
    """
    match kind:
        case InterBrokerTransport.GRPC:
            from replog.rpc.grpc.transport import GrpcTransport
            from replog.rpc.grpc.transport import bind as bind_grpc

            return PeerNetwork(GrpcTransport(tls), partial(bind_grpc, tls=tls))
        case InterBrokerTransport.TCP:
            return PeerNetwork(TcpPeerTransport(tls=tls), partial(bind_peers, tls=tls))


class NodeEnvironment(Struct, frozen=True, kw_only=True):
    """The surroundings of one node; by default the real ones."""

    fs: FileSystem = field(default_factory=OsFileSystem)
    """Its disks."""

    clock: Clock = field(default_factory=SystemClock)
    """Its clocks; time-outs of tasks follow the event loop's."""

    peers: Callable[[InterBrokerTransport, NodeTls | None], PeerNetwork] = peer_network
    """Gives the network on which it meets other nodes."""

    bind_tcp: Callable[[str, int], Port] = bind_tcp
    """Takes a port of a host, for clients; see `replog.tcp.port.bind`."""

    rng: Random = field(default_factory=SystemRandom)
    """Where its ids and the seeds of its state machines come from."""

    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    """Makes threads for blocking work: how many, and the prefix of their names."""

    def new_rng(self) -> Random:
        """Makes a random generator for one state machine."""
        return Random(self.rng.getrandbits(128))  # noqa: S311 -- for time-outs and placement, not for secrets

    def new_uuid(self) -> UUID:
        """Makes a random id for an incarnation, or a log directory."""
        return UUID(bytes=self.rng.randbytes(_UUID_BYTES), version=4)
