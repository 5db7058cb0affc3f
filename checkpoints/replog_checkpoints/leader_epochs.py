"""Leader-epoch checkpoint: which leader epoch began at which offset, one file per replica.

Why: after a crash a follower asks its leader where an epoch ended and cuts there, instead of trusting a high watermark
that may lag (KIP-101; docs/KAFKA.md 1.10, 3.5).

A complete file `leader-epoch-checkpoint`::

    0            version
    2            number of entries
    0 0          leader epoch, first offset of that epoch
    3 120

| crash                                            | what the next start finds                                  |
|--------------------------------------------------|------------------------------------------------------------|
| before the rename                                | the old file: its last entries may be missing, and are     |
|                                                  | found again when the log is scanned past the recovery point |
| after the rename, before the fsync of the folder | old or new, both complete                                  |

A damaged file is never read as empty: an empty answer would make the follower cut at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from replog_checkpoints.atomic_file import read_file, replace_file
from replog_checkpoints.entry_lines import (
    CHECKPOINT_SIZE_BYTES_MAX,
    INT32_MAX,
    INT64_MAX,
    format_entries,
    parse_entries,
    parse_number,
)
from replog_checkpoints.errors import DamagedCheckpointError
from replog_checkpoints.filesystem import FileSystem

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"

EpochStart: TypeAlias = tuple[int, int]
"""(leader epoch, first offset of that epoch)."""


def read_leader_epochs(fs: FileSystem, path: str) -> list[EpochStart] | None:
    """Reads (leader epoch, start offset) pairs, both strictly rising; returns None when there is no file.

    Raises:
        CorruptCheckpointError: The file is damaged, or an epoch or a start offset does not rise.
    """
    data = read_file(fs, path, CHECKPOINT_SIZE_BYTES_MAX)
    if data is None:
        return None
    entries: list[EpochStart] = []
    for line, (epoch_text, offset_text) in parse_entries(path, data, field_count=2):
        epoch = parse_number(path, line, epoch_text, "leader epoch", INT32_MAX)
        start_offset = parse_number(path, line, offset_text, "start offset", INT64_MAX)
        if entries and not _rises(entries[-1], (epoch, start_offset)):
            raise DamagedCheckpointError(path, line, f"{epoch} {start_offset} does not rise above the entry before it")
        entries.append((epoch, start_offset))
    return entries


def write_leader_epochs(fs: FileSystem, path: str, entries: Sequence[EpochStart]) -> None:
    """Replaces the whole file, durably.  Raises as `format_leader_epochs` does; nothing is written then."""
    replace_file(fs, path, format_leader_epochs(entries))


def format_leader_epochs(entries: Sequence[EpochStart]) -> bytes:
    """Returns the content of the file.

    Raises:
        ValueError: Entries do not rise in both epoch and offset, or a number is out of range.
    """
    for epoch, start_offset in entries:
        if not (0 <= epoch <= INT32_MAX and 0 <= start_offset <= INT64_MAX):
            raise ValueError(f"leader epoch {epoch} or start offset {start_offset} is out of range")
    for before, after in pairwise(entries):
        if not _rises(before, after):
            raise ValueError(f"leader epoch entries do not rise: {before} then {after}")
    return format_entries([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def _rises(before: EpochStart, after: EpochStart) -> bool:
    return before[0] < after[0] and before[1] < after[1]
