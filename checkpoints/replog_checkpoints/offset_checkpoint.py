"""Offset checkpoints: one offset per partition of a log directory.

Four files of a log directory have this shape, and differ only in what the offset means:

| file                               | offset                                   | absent means                          |
|------------------------------------|------------------------------------------|---------------------------------------|
| `recovery-point-offset-checkpoint` | everything below it is on stable storage | check the whole log                   |
| `replication-offset-checkpoint`    | high watermark, exclusive                | start at the log start, ask the leader |
| `log-start-offset-checkpoint`      | log start, where it lies inside a segment | base offset of the first segment      |
| `cleaner-offset-checkpoint`        | everything below it was compacted        | compact from the log start            |

A complete file::

    0                 version
    2                 number of entries
    flights 0 42      topic, partition, offset
    flights 1 40

| crash                                            | what the next start finds |
|--------------------------------------------------|---------------------------|
| before the rename                                | the old file              |
| after the rename, before the fsync of the folder | old or new, both complete |

All four offsets may lag behind the truth (an older file costs time, not data), but none may run ahead of it: the caller
lowers a recovery point durably before the first append after a truncation.  Source: docs/KAFKA.md 1.10.
"""

from __future__ import annotations

from collections.abc import Mapping
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

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_FILE: Final = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"

TopicPartition: TypeAlias = tuple[str, int]


def read_offset_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, int] | None:
    """Reads (topic, partition) -> offset in file order; returns None when there is no file.

    Raises:
        CorruptCheckpointError: The file is damaged, or names a partition twice.
    """
    data = read_file(fs, path, CHECKPOINT_SIZE_BYTES_MAX)
    if data is None:
        return None
    offsets: dict[TopicPartition, int] = {}
    for line, (topic, partition_text, offset_text) in parse_entries(path, data, field_count=3):
        partition = parse_number(path, line, partition_text, "partition", INT32_MAX)
        if (topic, partition) in offsets:
            raise DamagedCheckpointError(path, line, f"{topic}-{partition} appears twice")
        offsets[topic, partition] = parse_number(path, line, offset_text, "offset", INT64_MAX)
    return offsets


def write_offset_checkpoint(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the whole file, durably.  An empty mapping gives a valid file with no entries.

    Raises:
        ValueError: A topic name is empty or has white space in it, or a number is negative; nothing is written.
    """
    replace_file(fs, path, format_entries([_entry(*item) for item in offsets.items()]))


def _entry(topic_partition: TopicPartition, offset: int) -> str:
    topic, partition = topic_partition
    if topic.split() != [topic]:
        raise ValueError(f"topic name {topic!r} cannot be written to a checkpoint")
    if not (0 <= partition <= INT32_MAX and 0 <= offset <= INT64_MAX):
        raise ValueError(f"partition {partition} or offset {offset} of {topic} is out of range")
    return f"{topic} {partition} {offset}"
