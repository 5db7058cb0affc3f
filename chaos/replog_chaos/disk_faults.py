"""Disks that are full, that fail, or that lose what was not flushed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from replog.client.admin.operations import CLUSTER
from replog.errors import BrokerNotAvailableError, InvariantViolationError
from replog.testing.machines.disks import SmallDisk, small_disk_is_missing
from replog_chaos.cuttable_disk import CuttableDisk, cuttable_disk_is_missing
from replog_chaos.fault import Fault, Scene, Target, until

DISK_NODE = 1
"""Has the disk of its own, where the scene has one."""

FLUSHED_KEY = "log.retention.ms"
"""A configuration of the cluster that is changed so that every node flushes its metadata log."""

_STRACE = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync")
_FAILING = ("-e", "inject=fsync,fdatasync:error=EIO")


@asynccontextmanager
async def _full_disk(target: Target) -> AsyncIterator[list[int]]:
    """Fills the disk of a node: the others go on without it; what it leads waits, until there is room again."""
    disk = target.disk
    if not isinstance(disk, SmallDisk):
        raise InvariantViolationError("a disk is filled in a cluster without a small one")
    await asyncio.to_thread(disk.fill)
    await until(lambda: _is_left_behind(target))
    yield [DISK_NODE]
    disk.make_room()
    if not target.cluster.nodes[DISK_NODE].is_alive:
        target.cluster.start_node(DISK_NODE)


async def _is_left_behind(target: Target) -> bool:
    """Whether the node is out of the ISR of everything that others lead."""
    return all(DISK_NODE not in part.isr for part in await target.partitions() if part.leader != DISK_NODE)


@asynccontextmanager
async def _power_cut(target: Target) -> AsyncIterator[list[int]]:
    disk = target.disk
    if not isinstance(disk, CuttableDisk):
        raise InvariantViolationError("the power is cut in a cluster without such a disk")
    await target.cluster.kill(DISK_NODE)
    await asyncio.to_thread(disk.cut_power)
    yield [DISK_NODE]
    target.cluster.start_node(DISK_NODE)


@asynccontextmanager
async def _fsync_error(target: Target) -> AsyncIterator[list[int]]:
    """Lets every fsync of a leader fail; it must end by itself: its only log directory holds the metadata log."""
    node_id = await target.leader()
    spec = target.cluster.nodes[node_id]
    if spec.process is None:
        raise BrokerNotAvailableError(f"node {node_id} is not running")
    strace = await asyncio.create_subprocess_exec(
        *_STRACE, *_FAILING, "-p", str(spec.process.pid), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await target.admin.alter_configs(CLUSTER, {FLUSHED_KEY: 10**9})
        await until(lambda: _has_ended(target, node_id))
        yield [node_id]
    finally:
        if strace.returncode is None:
            strace.send_signal(signal.SIGTERM)
        await strace.wait()
    await target.admin.alter_configs(CLUSTER, {FLUSHED_KEY: None})
    target.cluster.start_node(node_id)


async def _has_ended(target: Target, node_id: int) -> bool:
    return not target.cluster.nodes[node_id].is_alive


def strace_is_missing() -> str:
    """Says why no system call can be made to fail; "" where it can."""
    if not shutil.which("strace"):
        return "no strace here"
    command = [*_STRACE, *_FAILING, "true"]
    probe = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 -- our own arguments
    return f"strace may not trace here: {probe.stderr.decode().strip()}" if probe.returncode else ""


DISK_FAULTS: Mapping[str, Fault] = {
    "fsync-error": Fault(
        "every fsync of a leader fails with EIO (strace); it must end by itself",
        _fsync_error,
        missing=strace_is_missing,
    ),
    "full-disk": Fault(
        "the disk of a broker has no free byte left",
        _full_disk,
        blocks=True,
        scene=Scene.SMALL_DISK,
        missing=small_disk_is_missing,
    ),
    "power-cut": Fault(
        "kill -9 of a broker whose disk loses all that was not flushed (ext4)",
        _power_cut,
        scene=Scene.CUTTABLE_DISK,
        missing=cuttable_disk_is_missing,
    ),
}
