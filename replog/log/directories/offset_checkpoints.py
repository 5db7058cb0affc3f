"""Writing the offset checkpoints of a directory beside its owner: prepared by the owner, written in any thread.

Why: a file with a line for each of a thousand partitions takes an fsync and milliseconds, and the owner, the event loop,
must not wait for them.  Then an older content must not land on a newer one: a recovery point that a
truncation has lowered would be promised again.  So writes of one file exclude each other, and one that comes too late is
left out.

| crash or full disk               | what the next start finds                                                   |
|----------------------------------|-----------------------------------------------------------------------------|
| before or inside a write         | the older file: offsets that lag, which costs time, not data                |
| the disk is full                 | the reserve is given back and the write repeated; else as above             |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.directories.identity import storage_errors
from replog.log.disk_space import DiskSpace, is_disk_full, is_out_of_files
from replog.log.recovery.offset_witness import OffsetWitness
from replog_checkpoints import FileSystem, TopicPartition

_log = logging.getLogger(__name__)


class OffsetCheckpoint:
    """One offset checkpoint of a directory.

    Args:
        fs: The disk.
        path: Path of the file.
        space: The room on the disk.
        witness: The file beside it that says the same; None: nothing does.
    """

    def __init__(self, fs: FileSystem, path: str, space: DiskSpace, witness: OffsetWitness | None = None) -> None:
        self._fs = fs
        self._path = path
        self._space = space
        self._witness = witness
        self._offsets: Mapping[TopicPartition, int] = {}  # as prepared last
        self._exists = False
        self._is_behind = False  # the file may differ from `_offsets`: a write failed
        self._prepared_count = 0
        self._written_number = 0
        self._lock = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether there is such a file."""
        return self._exists

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The offsets in the file, or those that it will have when the prepared jobs have run."""
        return self._offsets

    def read(self) -> None:
        """Takes the content of the file; where there is none that of its witness, or nothing.

        Raises:
            CorruptCheckpointError: The file is damaged; the error is the leaf library's.
            OSError: The disk failed.
        """
        found = checkpoints.read_offset_checkpoint(self._fs, self._path)
        self._exists = found is not None
        self._offsets = (found or {}) if self._witness is None else self._witness.read(found)
        if found is None and self._offsets:
            _log.warning("%s is gone: what the witness beside it says counts, and the file is made again", self._path)

    def require_undoubted(self, key: TopicPartition) -> None:
        """Raises if its witness contradicts its offset of a replica.

        Raises:
            CorruptCheckpointError: One of the two is damaged; the text names the ways out.
        """
        if self._witness is not None:
            self._witness.require_same(key)

    def doubts(self, key: TopicPartition) -> bool:
        """Whether its witness contradicts its offset of a replica."""
        return self._witness is not None and self._witness.doubts(key)

    def may_name(self, key: TopicPartition) -> bool:
        """Whether a line of this replica may be in the file, or in its witness."""
        return self._is_behind or key in self._offsets or self.doubts(key)

    def prepare(
        self, offsets: Mapping[TopicPartition, int], *, gone: Collection[TopicPartition] = ()
    ) -> CheckpointJob | None:
        """Prepares a job that makes the file hold exactly `offsets`; None: it does already.

        Args:
            offsets: The content; not changed later.
            gone: The replicas that are gone or about to be created: a doubt about them would meet the next of that name.
        """
        is_current = self._exists and not self._is_behind and self._written_number == self._prepared_count
        doubted = tuple(key for key in gone if self.doubts(key))
        if is_current and offsets == self._offsets and not doubted and not self._lacks_witness:
            return None
        self._prepared_count += 1
        self._offsets = offsets
        return CheckpointJob(self, offsets, self._prepared_count, doubted)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes `offsets`: durable when it returns, and no job prepared before can undo it.

        Raises:
            DiskFullError, StorageError: See `CheckpointJob.run`.
        """
        job = self.prepare(offsets)
        if job is not None:
            job.run()

    def run(self, job: CheckpointJob) -> None:
        """Writes the content of a job, unless a later one was written already; for `CheckpointJob.run`."""
        with self._lock, storage_errors(self._path):
            self._settle(job.settled)
            if job.number < self._written_number:
                return
            try:
                self._replace(job.offsets)
            except BaseException:
                self._is_behind = True
                raise
            self._written_number = job.number
            self._exists = True
            self._is_behind = False

    @property
    def _lacks_witness(self) -> bool:
        """Whether writing the same again would make its witness say more."""
        witness = self._witness
        return witness is not None and (witness.is_written or len(self._offsets) > 0) and not witness.is_exact

    def _settle(self, keys: Iterable[TopicPartition]) -> None:
        if self._witness is not None:
            for key in keys:
                self._witness.settle(key)

    def _replace(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._write(offsets)
        except OSError as error:
            if is_out_of_files(error) or not (is_disk_full(error) and self._space.make_room()):
                raise
            self._write(offsets)

    def _write(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._witness is not None:
            self._witness.announce(offsets)
        checkpoints.write_offset_checkpoint(self._fs, self._path, offsets)
        if self._witness is not None:
            self._witness.confirm(offsets)


class CheckpointJob(Struct, frozen=True):
    """One write of an offset checkpoint.  `run` once, in any thread; nothing has to be completed.

    Attributes:
        checkpoint: The checkpoint.
        offsets: The offsets that it is going to have.
        number: The number of the job among those of the checkpoint, rising.
        settled: The replicas about which a doubt of its witness ends.
    """

    checkpoint: OffsetCheckpoint
    offsets: Mapping[TopicPartition, int]
    number: int
    settled: tuple[TopicPartition, ...] = ()

    def run(self) -> None:
        """Writes the file, unless a later one was written already.

        Raises:
            DiskFullError: There is no room, even without the reserve; the older file is still there.
            StorageError: The disk failed.
        """
        self.checkpoint.run(self)


def run_all(jobs: Sequence[CheckpointJob]) -> None:
    """Runs jobs in order."""
    for job in jobs:
        job.run()
