"""Repair of a log start in doubt: the checkpoint of the directory and the witness beside it name different ones.

It is unknown which of the two is damaged.  The lowest start hides no record.  Records that had been deleted below the true start,
inside of a segment, are there again.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.file_names import parse_partition_dir_name
from replog.log.recovery.offset_witness import OffsetWitness, Starts, contradicted, described, witness_path
from replog_checkpoints import FileSystem, TopicPartition, parent_of


class DoubtfulStart(Struct, frozen=True):
    """A log whose start two files contradict each other about.

    Attributes:
        path: The checkpoint.
        key: Topic and partition.
        starts: The starts that the two name; None: that of the first segment.
    """

    path: str
    key: TopicPartition
    starts: Starts

    @property
    def lowest(self) -> int | None:
        """The start that hides nothing; None: that of the first segment."""
        return None if None in self.starts else min(offset for offset in self.starts if offset is not None)

    @property
    def reason(self) -> str:
        """The trouble, for people."""
        return f"with {witness_path(self.path)} it names different log starts: {described(self.starts)}"

    def mend(self, fs: FileSystem) -> None:
        """Writes the lowest start into both files, durably.

        The checkpoint first, unlike a running writer: a witness that named what the checkpoint said until then would settle
        on it, if a crash came between, although it may be the higher one.
        """
        offsets = checkpoints.read_offset_checkpoint(fs, self.path) or {}
        kept = {key: offset for key, offset in offsets.items() if key != self.key}
        settled = kept if self.lowest is None else {**kept, self.key: self.lowest}
        checkpoints.write_offset_checkpoint(fs, self.path, settled)
        witness = OffsetWitness(fs, self.path)
        witness.read(settled)
        witness.settle(self.key)
        witness.announce(settled)


def doubtful_start(fs: FileSystem, directory: str) -> DoubtfulStart | None:
    """Returns the doubt about the start of the log in `directory`; None: there is none.

    Raises:
        CorruptCheckpointError: The checkpoint cannot be read; the error is the leaf library's.
        OSError: The disk failed.
    """
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    if key is None:
        return None
    path = f"{parent_of(directory)}/{checkpoints.LOG_START_OFFSET_FILE}"
    starts = contradicted(fs, path, key)
    return None if starts is None else DoubtfulStart(path, key, starts)
