"""What a node takes from the world outside: disks, clocks, the network, chance and threads.

One object, so that a whole node runs as it is where none of this is real: the simulated cluster of `replog.testing`
hands in another environment, and no line of the node knows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random, SystemRandom
from uuid import UUID

from replog.broker.clock import Clock, SystemClock
from replog.rpc.grpc_transport import GrpcTransport, bind
from replog.rpc.transport import Server, Transport
from replog_checkpoints import FileSystem, OsFileSystem

_UUID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnvironment:
    """The surroundings of one node; by default the real ones."""

    fs: FileSystem = field(default_factory=OsFileSystem)
    """Its disks."""

    clock: Clock = field(default_factory=SystemClock)
    """Its clocks; time-outs of tasks follow the event loop's."""

    transport: Transport = field(default_factory=GrpcTransport)
    """How it reaches other nodes."""

    bind: Callable[[str, int], Server] = bind
    """Takes a port of a host, for it to be reached at; see `replog.rpc.grpc_transport.bind`."""

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
