"""One machine of a simulated cluster: the disk that stays, and the process that comes and goes."""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from random import Random
from uuid import UUID

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.links import PartLinks
from replog.broker.node.node import Node
from replog.broker.node.resources import NodeResources
from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.config.server import ServerConfig
from replog.controller.messages import CommittedRecords
from replog.metadata.image import MetadataImage
from replog.testing.simulated_clock import SimulatedClock
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.simulated_process import SimulatedProcess
from replog.testing.simulated_transport import SimulatedHost
from replog.testing.virtual_loop import VirtualLoop
from replog.testing.virtual_threads import VirtualThreads
from replog_quorum import QuorumStatus

MONOTONIC_START_MAX_MS = 1 << 40


class ClusterObserver:
    """Told what nodes learn, when they learn it.  Override what a test wants to know."""

    def committed(self, node: ObservedNode, batch: CommittedRecords) -> None:
        """Hears that a node has taken a committed batch."""

    def snapshot_loaded(self, node: ObservedNode, end_offset: int) -> None:
        """Hears that a node goes on from a snapshot of all below `end_offset`: it starts, or was far behind."""

    def leader_changed(self, node: ObservedNode, leader_id: int | None, epoch: int) -> None:
        """Hears that a node has learned of a leader, or of none."""

    def became_leader(self, node: ObservedNode, epoch: int) -> None:
        """Hears that a node's controller is active."""

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        """Hears that a node did not start, or stopped by itself."""


class ObservedNode(Node):
    """A node that can be looked into; otherwise nothing is different."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as this node knows it."""
        return self.parts.replicas.publisher.image

    @property
    def directory_id(self) -> UUID:
        """Of its log directory: part of its identity as a voter."""
        return self.logs.directory_ids[0]

    @property
    def metadata_log_start_offset(self) -> int:
        return self.parts.metadata.log.log_start_offset

    @property
    def snapshot_ends(self) -> tuple[int, ...]:
        """Exclusive ends of the snapshots of its metadata, the oldest first."""
        return tuple(snapshot.end_offset for snapshot in self.parts.metadata.log.snapshots.ids)

    @property
    def quorum_status(self) -> QuorumStatus:
        return self.parts.metadata.quorum.status()

    @property
    def controller_state_hash(self) -> str | None:
        """Of the committed state; None: the node is no controller."""
        controller = self.parts.metadata.controller
        return None if controller is None else controller.committed_state_hash()


class ObservedLinks(PartLinks):
    """The links of a node's parts, with an observer that is told what the quorum tells."""

    def __init__(self, observer: ClusterObserver, node: ObservedNode, resources: NodeResources) -> None:
        super().__init__(resources)
        self._observer = observer
        self._node = node

    def on_committed(self, batch: CommittedRecords) -> None:
        super().on_committed(batch)
        self._observer.committed(self._node, batch)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        super().on_snapshot(snapshot)
        self._observer.snapshot_loaded(self._node, snapshot.snapshot_id.end_offset)

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None:
        super().on_leader_changed(leader_id, epoch)
        self._observer.leader_changed(self._node, leader_id, epoch)

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        super().on_became_leader(epoch, next_offset)
        self._observer.became_leader(self._node, epoch)


class SimulatedNode:
    """One machine of a cluster: what stays over restarts, and the process that runs on it now.

    Args:
        host: The machine in the network.
        config: The configuration of every process on it.
        loop: The loop of the simulation.
        rng: The generator of the cluster: faults of the disk and beginnings of clocks come from it.
        observer: The observer that is told what the node learns.

    Attributes:
        fs: The disk; faults may be set at any time.
        clock: The clock of the process that runs, or ran last.
        process: The process that runs, or ran last.
        node: The node in that process; None while none runs, or it has not begun to listen.
        lives: The number of processes so far.
    """

    def __init__(
        self, host: SimulatedHost, config: ServerConfig, loop: VirtualLoop, rng: Random, observer: ClusterObserver
    ) -> None:
        self.node_id = config.node_id
        self.config = config
        self.host = host
        self.clock = SimulatedClock(loop)
        self.fs = SimulatedFileSystem(now_ms=self._wall_ms)
        self.process: SimulatedProcess | None = None
        self.node: ObservedNode | None = None
        self.lives = 0
        self._loop = loop
        self._rng = rng
        self._observer = observer

    @property
    def is_running(self) -> bool:
        """A process is there, ready or not, paused or not."""
        return self.process is not None and not self.process.is_dead

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return str(self.config.client_listener)

    def start(self) -> None:
        """Starts a new process on what the disk holds."""
        if self.is_running:
            raise RuntimeError(f"node {self.node_id} runs already")
        self.lives += 1
        loop, rng = self._loop, self._rng
        self.clock = self.clock.of_new_process(rng.randrange(MONOTONIC_START_MAX_MS))
        self.host.is_off = False
        process = self.process = loop.new_process(f"node-{self.node_id}.{self.lives}")
        process.on_kill.append(self.host.tcp.lose_process)
        self.fs.faults.on_power_cut = self._power_was_cut
        environment = NodeEnvironment(
            fs=self.fs,
            clock=self.clock,
            peers=lambda _kind, _tls: self.host.peer_network(),
            bind_tcp=self.host.tcp.bind,
            rng=Random(rng.getrandbits(64)),  # noqa: S311 -- a simulation must be repeatable
            threads=lambda count, _prefix: VirtualThreads(loop, count),
        )
        process.create_task(self._run(process, environment), name=f"node-{self.node_id}")

    def crash(self, *, power_cut: bool = True) -> None:
        """Ends the process between two steps.

        Args:
            power_cut: Whether the machine ends too: what was not flushed may be lost, nobody answers at its address.
        """
        if self.process is None or self.process.is_dead:
            return
        self.host.is_off = power_cut
        self.fs.faults.on_power_cut = None
        self.fs.faults.cut_power_after(0)  # no `finally` writes any more
        self.process.kill()
        self.node = None
        if power_cut:
            self.fs.crash(self._rng)
        else:
            self.fs.kill()
            self.fs.faults.clear()

    async def stop(self) -> None:
        """Stops the node in order, as SIGTERM does.  If that fails, as on a full disk, observers hear of a failure."""
        node, process = self.node, self.process
        if node is not None and process is not None and not process.is_dead:
            stopping = process.create_task(node.stop())
            died = asyncio.Event()
            process.on_kill.append(died.set)
            waiting = asyncio.ensure_future(died.wait())
            await asyncio.wait({stopping, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if stopping.done() and not stopping.cancelled():
                stopping.exception()
        self._let_go(process)

    def _let_go(self, process: SimulatedProcess | None) -> None:
        """Lets go of a process that has ended by itself, or is about to."""
        if process is not None and process is self.process and not process.is_dead:
            process.kill()
            self.node = None
            self.fs.kill()

    def _wall_ms(self) -> int:
        return self.clock.wall_ms()

    def _power_was_cut(self) -> None:
        """Ends the process, of which an operation met the cut: it does not take another step."""
        self.crash()
        self.fs.faults.cut_power_after(0)  # the step that met it is still under way
        self._loop.call_soon(self.fs.faults.clear, context=Context())

    async def _run(self, process: SimulatedProcess, environment: NodeEnvironment) -> None:
        try:
            self.node = await ObservedNode.start(
                self.config, environment=environment, make_links=partial(ObservedLinks, self._observer)
            )
            await self.node.wait_closed()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the observer decides what it means
            self._observer.failed(self, error)
        self._loop.call_soon(self._let_go, process, context=Context())
