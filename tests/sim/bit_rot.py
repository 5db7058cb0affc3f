"""Bits that rot in the record files of the watched partition, of one replica at a time, and what must become of them.

What rots is committed, lies below the recovery point that a power cut leaves, and is under the checksum of its batch, but
does not say where the batch ends: looking at headers (`replica_watch`) sees no difference, its records are other ones.

Nothing that was acknowledged may be lost by it, because another member of ISR and ELR has everything on a disk that stays.
Nobody looks for damage: a reader meets it, or a start after a crash, or nobody does.  So a consumer reads everything a
while later; and after healing the broker that still has damage starts again, leads, and is read.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import replog_checkpoints as checkpoints
from replog.client import Consumer
from replog.errors import CorruptRecordError, ReplogError
from replog.testing.history import History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.sim.event_log import EventLog
from tests.sim.fault_schedule import Fault
from tests.sim.replication_checks import ReplicationChecks, Watched

ATTRIBUTES = (21, 22)
TIMESTAMPS = 27
"""Bytes of a batch that are under its checksum and do not say where it ends: these two, and all from the timestamps on."""

BITS_MAX = 3
READ_WITHIN_S = 5.0
AGAIN_S = 0.1
FETCH_BYTES = 1
"""A batch at a time: all but the first one are read where a read goes on, and not checked by who sends them."""


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """One batch on one disk.

    Attributes:
        path: of its file, when it rotted.
        directories: where its replica may have moved since.
        position: of the batch in its file.
        next_offset: where the batch ends.
        content: the bytes as they are now, damage included.
    """

    node_id: int
    path: str
    directories: tuple[str, ...]
    position: int
    next_offset: int
    content: bytes

    def __str__(self) -> str:
        return f"node {self.node_id} has damage in {self.path}, in the batch that ends before {self.next_offset}"

    def is_there(self, fs: SimulatedFileSystem) -> bool:
        """In the log of its replica: neither set aside nor deleted, nor cut and written anew."""
        folder, file_name = self.path.split("/")[-2:]
        end = self.position + len(self.content)
        return any(
            fs.exists(path := f"{directory}/{folder}/{file_name}")
            and bytes(fs._file_node(path).written[self.position : end]) == self.content
            for directory in self.directories
        )


class BitRot:
    """Damages replicas, and knows which damage is still there.

    Args:
        topic: with one partition, the one that `checks` looks at.
        history: told what consumers find.
        seen: counts who was told of damage.
        may_rot: whether a broker's replica may be damaged now without anything that was acknowledged being lost.

    Attributes:
        damaged: every batch so far.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        topic: str,
        checks: ReplicationChecks,
        history: History,
        events: EventLog,
        seen: Counter[str],
        may_rot: Callable[[int], bool],
    ) -> None:
        self.damaged: list[DamagedBatch] = []
        self._cluster = cluster
        self._topic = topic
        self._checks = checks
        self._history = history
        self._events = events
        self._seen = seen
        self._may_rot = may_rot
        self._readers: set[asyncio.Task[None]] = set()
        self._reader_count = 0

    @property
    def is_on_a_disk(self) -> bool:
        """Some damage is in a log, whether or not anybody can read it."""
        return any(batch.is_there(self._cluster.nodes[batch.node_id].fs) for batch in self.damaged)

    @property
    def remaining(self) -> tuple[DamagedBatch, ...]:
        """What is damaged and can be read, of a replica, and no reader and no start has met."""
        partition = self._checks.metadata.partition
        return tuple(
            batch
            for batch in self.damaged
            if batch.is_there(self._cluster.nodes[batch.node_id].fs)
            and partition is not None
            and batch.node_id in partition.replicas
            and (watched := self._checks.replica_on(batch.node_id)) is not None
            and batch.next_offset > watched.log.log_start_offset
        )

    def damage(self, fault: Fault) -> bool:
        """Some bits of one batch on the fault's node are other ones from now on; whether there was such a batch."""
        watched = self._checks.replica_on(fault.node)
        if watched is None or self.is_on_a_disk or not self._may_rot(fault.node):
            return False
        end_offset = min(self._checks.committed_end, self._durable_recovery_point(watched))
        fs, rng = self._cluster.nodes[fault.node].fs, random.Random(f"rots {fault.amount}")
        stored = [
            batch
            for batch in watched.mirror.stored(watched.agreed_count)
            if watched.log.log_start_offset < batch.next_offset <= end_offset and fs.exists(batch.path)
        ]
        if not stored:
            return False
        batch = rng.choice(stored)
        places = [*ATTRIBUTES, *range(TIMESTAMPS, batch.size_bytes)]
        first = rng.randrange(len(places))
        for place in places[first : first + rng.randint(1, BITS_MAX)]:
            fs.flip_bit(batch.path, batch.position + place, rng.randrange(8))
        file = fs._file_node(batch.path)
        content = bytes(file.written[batch.position : batch.position + batch.size_bytes])
        directories = tuple(map(str, self._cluster.nodes[fault.node].config.log_dirs))
        self.damaged.append(
            DamagedBatch(fault.node, batch.path, directories, batch.position, batch.next_offset, content)
        )
        self._events.note(
            "fault", f"byte {batch.position + places[first]} of {batch.path} rots, before {batch.next_offset}"
        )
        self._begin_to_read(fault.for_ms)
        return True

    def _durable_recovery_point(self, watched: Watched) -> int:
        """What a start would take for it if the power was cut now."""
        fs = self._cluster.nodes[watched.node_id].fs
        path = f"{watched.log.directory.rpartition('/')[0]}/{checkpoints.RECOVERY_POINT_FILE}"
        for line in (fs.durable_content(path) or b"").decode().splitlines():
            topic, *numbers = line.split(" ")
            if topic == self._topic:
                return int(numbers[1])
        return 0

    # ---- readers ---------------------------------------------------------------------------------------------------------

    def _begin_to_read(self, after_ms: int) -> None:
        task = asyncio.create_task(self._read_later(after_ms))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _read_later(self, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        await self.read_everything()

    async def end(self) -> None:
        """Returns when the readers have read what they could."""
        if self._readers:
            await asyncio.wait(self._readers)

    async def read_everything(self) -> None:
        """A consumer reads from the start to the end, as far as it comes in a while, and again where it met damage."""
        self._reader_count += 1
        name = f"reader {self._reader_count}"
        host, addresses = self._cluster.transport("reader"), [n.address for n in self._cluster.nodes.values()]
        try:
            async with (
                asyncio.timeout(READ_WITHIN_S),
                Consumer(addresses, transport=host, max_partition_fetch_bytes=FETCH_BYTES) as consumer,
            ):
                consumer._view.rng.seed(5)
                await consumer.assign([(self._topic, 0)])
                await self._read(consumer, name)
        except (ReplogError, TimeoutError) as error:
            self._events.note("client", f"{name} ends: {error!r}")

    async def _read(self, consumer: Consumer, name: str) -> None:
        partition = (self._topic, 0)
        end_offset = (await consumer.end_offsets([partition]))[partition]
        while (position := consumer.position(partition)) < end_offset:
            try:
                records = await consumer.poll(timeout_ms=200)
            except CorruptRecordError as error:
                self._events.note("client", f"{name} is told: {error}")
                self._seen["damage told to a consumer"] += 1
                await asyncio.sleep(AGAIN_S)
                consumer.seek(partition, position)
            else:
                self._history.poll(name, partition, [(record.offset, record.value or b"") for record in records])
