"""Replicas of one partition looked at from outside, after every step of a leader or a follower.

What a log holds is read from the bytes of its files, past the log and past the faults of the disk: looking changes
nothing, neither a page cache nor a count of operations.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import ReplicaStepper
from replog.errors import CorruptRecordError
from replog.log import Log
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.metadata.delta import LocalPartition
from replog.records import BatchHeader, check_crc, parse_header, scan
from replog.replication.messages import Appended, FollowerMessage, LeaderMessage
from replog.testing.simulated_filesystem import SimulatedFileSystem


class Batch(NamedTuple):
    """One batch, and what makes it another one than any other."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.next_offset}) of epoch {self.leader_epoch}"


class StoredBatch(NamedTuple):
    """Where a batch is: `size_bytes` from byte `position` of its file on."""

    path: str
    position: int
    size_bytes: int
    next_offset: int


class _Place(NamedTuple):
    """Where a batch ends: in the segment with this base offset, at this byte."""

    base_offset: int
    end_position: int


@dataclass(slots=True, eq=False)
class LogMirror:
    """The batches of one open log, the oldest first; read on where it stopped the last time."""

    log: Log
    batches: list[Batch] = field(default_factory=list)
    _places: list[_Place] = field(default_factory=list)
    _generation: int = 0

    @property
    def start_offset(self) -> int:
        """Where the first batch begins, which may be below the start of the log: a batch goes as a whole or not at all."""
        return self.batches[0].base_offset if self.batches else self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        if self.batches:
            return self.batches[-1].next_offset
        return max(self.log.log_start_offset, self.log._state.segments[0].base_offset)

    def update(self) -> bool:
        """Reads what is new; whether the log was cut since the last time."""
        was_cut = self.log._state.generation != self._generation
        self._generation = self.log._state.generation
        while self.batches and (self.end_offset > self.log.log_end_offset):
            self.batches.pop()
            self._places.pop()
        if was_cut and self._places and self._places[-1].base_offset < self.log._state.segments[0].base_offset:
            self.batches.clear()  # it has begun anew elsewhere
            self._places.clear()
        while self.end_offset < self.log.log_end_offset:
            self._read_next()
        return was_cut

    def stored(self, count: int) -> list[StoredBatch]:
        """Where the first `count` batches are, or were before segments were deleted."""
        found: list[StoredBatch] = []
        before = _Place(-1, 0)
        for batch, place in zip(self.batches[:count], self._places, strict=False):
            position = before.end_position if place.base_offset == before.base_offset else 0
            path = file_path(self.log.directory, place.base_offset, LOG_SUFFIX)
            found.append(StoredBatch(path, position, place.end_position - position, batch.next_offset))
            before = place
        return found

    def content(self, start_offset: int) -> bytes:
        """The bytes of all batches that end above `start_offset`."""
        found = bytearray()
        for segment in self.log._state.segments:
            written, position = bytes(written_bytes(self.log, segment.path)), 0
            while position < segment.size_bytes:
                header = parse_header(
                    written, position
                )  # its records may have rotted, where nobody reads them any more
                if header.next_offset > start_offset:
                    found += written[position : position + header.size_bytes]
                position += header.size_bytes
        return bytes(found)

    def _read_next(self) -> None:
        last = self._places[-1] if self._places else _Place(self.log._state.segments[0].base_offset, 0)
        for segment in self.log._state.segments:
            position = last.end_position if segment.base_offset == last.base_offset else 0
            if segment.base_offset < last.base_offset or position >= segment.size_bytes:
                continue
            with memoryview(written_bytes(self.log, segment.path)) as whole:
                header = parse_header(whole[position : segment.size_bytes])
            self.batches.append(_batch(header))
            self._places.append(_Place(segment.base_offset, position + header.size_bytes))
            return
        raise AssertionError(f"{self.log.directory} ends at {self.log.log_end_offset}, its files at {self.end_offset}")


def written_bytes(log: Log, path: str) -> bytearray:
    """What a file of a log holds, flushed or not."""
    return cast("SimulatedFileSystem", log._state.fs)._file_node(path).written


def stored_batches(log: Log) -> list[Batch]:
    """What the disk has of a log that nobody has open: up to the first batch that is damaged or does not follow."""
    image = cast("SimulatedFileSystem", log._state.fs).image()
    batches: list[Batch] = []
    for path in sorted(path for path in image if path.startswith(log.directory + "/") and path.endswith(".log")):
        try:
            for header in scan(image[path]):
                check_crc(image[path], header)
                if header.base_offset != (batches[-1].next_offset if batches else 0):
                    return batches
                batches.append(_batch(header))
        except CorruptRecordError:
            return batches
    return batches


def common_prefix(some: list[Batch], others: list[Batch]) -> list[Batch]:
    return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))]


def _batch(header: BatchHeader) -> Batch:
    return Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)


class ReplicaWatcher(Protocol):
    """Told about every step, after it."""

    def took_role(self, stepper: ReplicaStepper, replica: Replica) -> None: ...

    def leader_stepped(
        self, stepper: ReplicaStepper, replica: Replica, message: LeaderMessage, high_watermark_before: int
    ) -> None: ...

    def follower_stepped(self, stepper: ReplicaStepper, replica: Replica, high_watermark_before: int) -> None: ...


def watched_manager(watcher: ReplicaWatcher) -> type[ReplicaManager]:
    """A replica manager that tells `watcher`; otherwise nothing is different."""

    class WatchedManager(ReplicaManager):
        def take_role(self, local: LocalPartition, *, is_new: bool) -> None:
            super().take_role(local, is_new=is_new)
            replica = self.stepper.replicas.get((local.topic_id, local.partition_id))
            if replica is not None:
                watcher.took_role(self.stepper, replica)

    return WatchedManager


def watched_stepper(watcher: ReplicaWatcher) -> type[ReplicaStepper]:
    """A stepper that tells `watcher`; otherwise nothing is different."""

    class WatchedStepper(ReplicaStepper):
        def step_leader(self, replica: Replica, message: LeaderMessage) -> None:
            before = replica.high_watermark
            super().step_leader(replica, message)
            watcher.leader_stepped(self, replica, message, before)

        def step_follower(self, replica: Replica, message: FollowerMessage, fetched: memoryview | bytes = b"") -> None:
            before = replica.high_watermark
            super().step_follower(replica, message, fetched)
            watcher.follower_stepped(self, replica, before)

    return WatchedStepper


def is_append(message: LeaderMessage) -> bool:
    return isinstance(message, Appended)
