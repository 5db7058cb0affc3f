"""Lets the faults of a schedule happen to a simulated cluster, and ends what they began."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_network import NetworkConditions
from replog.testing.simulated_node import SimulatedNode
from tests.sim.event_log import EventLog
from tests.sim.fault_schedule import OF_THE_REPLICA, REPLACED, STOPPED, Fault, FaultKind

NOBODY = -9
"""Instead of a node."""

LINKS = frozenset({FaultKind.CUT, FaultKind.CUT_PAIR, FaultKind.CUT_METADATA, FaultKind.CLIENT_CUT})
ADMINISTERED = frozenset(
    {FaultKind.ELECT, FaultKind.DRAIN, FaultKind.MIN_ISR, FaultKind.DELETE_RECORDS, FaultKind.MOVE_REPLICA}
)


class PartitionAdministrator(Protocol):
    """What the performer needs of `tests.sim.administrator`."""

    def node_of(self, role: int) -> int | None: ...

    def directory_on(self, node_id: int) -> str | None: ...

    def administer(self, fault: Fault) -> bool: ...


class FaultPerformer:
    """Performs one schedule.

    Args:
        cluster: that suffers.
        seen: counts each fault that found something to do.
        events: told about each.
        may_lose_disk: whether a broker's disk may be wiped now without anything that was acknowledged being lost.

    Attributes:
        troubled: (node, life) of the processes whose disks have failed: they may end by themselves.
        administrator: of the partition that is watched; None: there is none.
        damage: has a replica of it rot; whether there was something that may.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        seen: Counter[str],
        events: EventLog,
        may_lose_disk: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.troubled: set[tuple[int, int]] = set()
        self.administrator: PartitionAdministrator | None = None
        self.damage: Callable[[Fault], bool] = lambda _: False
        self._cluster = cluster
        self._seen = seen
        self._events = events
        self._may_lose_disk = may_lose_disk
        self._cuts: list[Fault] = []
        self._stopping: list[asyncio.Task[None]] = []
        self._failed: dict[int, str] = {}  # node -> its log directory that does not work
        self._is_over = False

    async def perform(self, schedule: Sequence[Fault]) -> None:
        """All of it, each at its time from now on."""
        loop = self._cluster.loop
        began = loop.time()
        for fault in sorted(schedule, key=lambda fault: fault.at_ms):
            await asyncio.sleep(began + fault.at_ms / 1000 - loop.time())
            fault = self._with_nodes(fault)  # noqa: PLW2901 -- the same, of a node that has a number
            if self._perform(fault):
                self._seen[fault.kind.value] += 1
                self._events.note("fault", str(fault))

    async def heal(self) -> None:
        """Everything runs, arrives, and has room; nothing more ends or begins here."""
        self._is_over = True
        if self._stopping:
            await asyncio.wait(self._stopping)
        cluster = self._cluster
        self._events.note("fault", "everything heals")
        cluster.mend_all()
        cluster.network.conditions = NetworkConditions()
        self._failed.clear()
        for node_id, node in cluster.nodes.items():
            cluster.resume(node_id)
            self._repair_disk(node)
        self.start_all("restart to heal")

    def start_all(self, name: str) -> bool:
        """Starts every node that is down, and once more those that lack what is on a disk that has failed; whether there were any."""
        for node in self._cluster.nodes.values():
            if _lacks_something(node):
                node.crash(power_cut=False)
        down = [node for node in self._cluster.nodes.values() if not node.is_running]
        for node in down:
            self._start(node, name)
        return bool(down)

    # ---- one fault -------------------------------------------------------------------------------------------------------

    def _with_nodes(self, fault: Fault) -> Fault:
        """Those that have the roles now; `NOBODY` has one that nobody has."""
        node, other = self._node_of(fault.node), fault.amount
        return replace(fault, node=node, amount=self._node_of(other) if fault.kind is FaultKind.CUT_PAIR else other)

    def _node_of(self, role: int) -> int:
        if role >= 0:
            return role
        node = None if self.administrator is None else self.administrator.node_of(role)
        return NOBODY if node is None else node

    def _perform(self, fault: Fault) -> bool:
        """Whether there was something to do."""
        if NOBODY in {fault.node, fault.amount}:
            return False
        if fault.kind in ADMINISTERED:
            return self.administrator is not None and self.administrator.administer(fault)
        node = self._cluster.nodes.get(fault.node)
        if node is None:
            return fault.kind is FaultKind.MAINS and self._cut_mains(fault)
        match fault.kind:
            case kind if kind in LINKS:
                self._cut(fault)
            case FaultKind.WALL_JUMP:
                node.clock.jump_wall(fault.amount)
            case FaultKind.STALL:
                node.clock.stall(fault.amount)
            case FaultKind.WIPE:
                return self._wipe(node, fault)
            case FaultKind.BIT_ROT:
                return self.damage(fault)
            case FaultKind.DIRECTORY_ERROR:
                return self._fail_directory(node, fault)
            case _:  # every other kind: `_disturb` knows it, or says so
                return node.is_running and self._disturb(node, fault)
        return True

    def _disturb(self, node: SimulatedNode, fault: Fault) -> bool:
        """Something happens to a process that runs, or to the disk below it."""
        match fault.kind:
            case FaultKind.KILL | FaultKind.POWER_CUT:
                node.crash(power_cut=fault.kind is FaultKind.POWER_CUT)
            case FaultKind.CUT_IN_WRITE:
                node.fs.faults.cut_power_after(fault.amount)
            case FaultKind.PAUSE:
                return self._pause(node, fault)
            case FaultKind.STOP:
                return self._stop(node, fault)
            case FaultKind.DISK_ERROR:
                node.fs.faults.fail_next(Operation(fault.detail), nth=fault.amount, error_number=errno.EIO)
                self.troubled.add((node.node_id, node.lives))
            case FaultKind.DISK_FULL:
                node.fs.capacity_bytes = node.fs.used_bytes() + fault.amount
                self.troubled.add((node.node_id, node.lives))
            case _:
                raise _unknown(fault)
        self._start_later(fault, node)
        return True

    def _start_later(self, fault: Fault, node: SimulatedNode) -> None:
        """When the fault ends; other faults of its disk may last."""

        def end() -> None:
            if self._is_over:
                return
            if fault.kind in {FaultKind.CUT_IN_WRITE, FaultKind.DISK_ERROR, FaultKind.DISK_FULL}:
                self._repair_disk(node)
            self._start(node, "restart")

        self._cluster.loop.call_later(fault.for_ms / 1000, end)

    def _repair_disk(self, node: SimulatedNode) -> None:
        """All but a directory that has failed."""
        node.fs.faults.clear()
        node.fs.capacity_bytes = None
        self._spoil_directory(node)

    def _start(self, node: SimulatedNode, name: str) -> None:
        if node.is_running:
            return
        self._seen[name] += 1
        self._spoil_directory(node)
        node.start()
        self._events.note("node", f"{node.node_id} starts, life {node.lives}")
        if node.fs.faults.is_failing or node.fs.capacity_bytes is not None:
            self.troubled.add((node.node_id, node.lives))

    def _cut_mains(self, fault: Fault) -> bool:
        for node in self._cluster.nodes.values():
            node.crash()
            self._start_later(fault, node)
        return True

    def _pause(self, node: SimulatedNode, fault: Fault) -> bool:
        process = node.process
        if process is None or process.is_paused:
            return False
        process.pause()
        self._cluster.loop.call_later(fault.for_ms / 1000, process.resume)
        return True

    def _stop(self, node: SimulatedNode, fault: Fault) -> bool:
        if node.node is None or node.process is None:
            return False
        node.process.resume()
        stopping = asyncio.create_task(node.stop())
        stopping.add_done_callback(lambda _: self._start_later(fault, node))
        self._stopping.append(stopping)
        return True

    def _wipe(self, node: SimulatedNode, fault: Fault) -> bool:
        if not self._may_lose_disk(node.node_id):
            return False
        node.crash()
        node.fs.wipe()
        self._start_later(fault, node)
        return True

    # ---- directories -----------------------------------------------------------------------------------------------------

    def _fail_directory(self, node: SimulatedNode, fault: Fault) -> bool:
        """Nothing in it can be read or written any more, until the node has ended and it is brought back."""
        paths = [str(path) for path in node.config.log_dirs]
        path = paths[fault.amount] if fault.amount != OF_THE_REPLICA else self._directory_on(node.node_id)
        if path is None or node.node_id in self._failed:
            return False
        if fault.detail == REPLACED and (path == paths[0] or not self._may_lose_disk(node.node_id)):
            return False
        self._failed[node.node_id] = path
        self._spoil_directory(node)
        self._cluster.loop.call_later(fault.for_ms / 1000, self._begin_to_bring_back, node, fault)
        return True

    def _directory_on(self, node_id: int) -> str | None:
        return None if self.administrator is None else self.administrator.directory_on(node_id)

    def _spoil_directory(self, node: SimulatedNode) -> None:
        """Crashes and repairs clear the faults of a disk."""
        path = self._failed.get(node.node_id)
        if path is not None and not node.fs.faults.is_failing:
            for operation in Operation:
                node.fs.faults.fail_always(operation, path_part=path)
        if path is not None and node.is_running:
            self.troubled.add((node.node_id, node.lives))

    def _begin_to_bring_back(self, node: SimulatedNode, fault: Fault) -> None:
        if not self._is_over:
            self._stopping.append(asyncio.create_task(self._bring_back(node, fault)))

    async def _bring_back(self, node: SimulatedNode, fault: Fault) -> None:
        if fault.detail == STOPPED and node.node is not None and node.process is not None:
            node.process.resume()
            await node.stop()
        node.crash(power_cut=False)
        path = self._failed.pop(node.node_id, None)
        self._repair_disk(node)
        if path is not None and fault.detail == REPLACED:
            node.fs.wipe(path)
        self._start(node, "restart")

    # ---- links -----------------------------------------------------------------------------------------------------------

    def _cut(self, fault: Fault) -> None:
        self._cuts.append(fault)
        self._apply(fault)
        self._cluster.loop.call_later(fault.for_ms / 1000, self._mend, fault)

    def _mend(self, fault: Fault) -> None:
        """The others stay, also where they cut the same links."""
        if self._is_over:
            return
        self._cuts.remove(fault)
        self._cluster.mend_all()
        for other in self._cuts:
            self._apply(other)

    def _apply(self, fault: Fault) -> None:
        cluster = self._cluster
        match fault.kind:
            case FaultKind.CUT:
                cluster.isolate(fault.node, incoming=fault.detail != "out", outgoing=fault.detail != "in")
            case FaultKind.CUT_PAIR:
                cluster.cut(fault.node, fault.amount)
                cluster.cut(fault.amount, fault.node)
            case FaultKind.CUT_METADATA:
                cluster.cut_metadata(fault.node)
            case FaultKind.CLIENT_CUT:
                cluster.cut_client(fault.detail, fault.node)
            case _:
                raise _unknown(fault)


def _unknown(fault: Fault) -> AssertionError:
    return AssertionError(f"nobody performs {fault.kind.value!r}: give it a branch of its own")


def _lacks_something(node: SimulatedNode) -> bool:
    """A directory, or a replica, that a disk error has taken from it; it does without until it starts again."""
    if node.node is None:
        return False
    logs, offline = node.node.logs, node.node.parts.replicas.stepper.trouble.offline.values()
    has_lost = bool(logs.unopened) or any(directory.failure for directory in logs.directories.values())
    return has_lost or any(not replica.is_damaged for replica in offline)
