"""Partition metadata: the topic id of a replica's directory.

Why: the directory is named after the topic, and a topic that was deleted and created again has the same name with other
data.  The id tells them apart (KIP-516); it is written before the first record.

A complete file `partition.metadata`, two lines and no newline at the end (43 bytes)::

    version: 0
    topic_id: AQIDBAUGBwgREhMUFRYXGA

| crash                                            | what the next start finds                                  |
|--------------------------------------------------|------------------------------------------------------------|
| before the rename                                | no file, and no record in the log: the replica is made new |
| after the rename, before the fsync of the folder | no file or all of it; still no record                      |

A damaged file takes the replica offline: guessing the id could serve one topic's records as another's.
Source: docs/KAFKA.md 1.11.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from msgspec import Struct

from replog_checkpoints.atomic_file import read_file, replace_file
from replog_checkpoints.entry_lines import INT32_MAX, parse_number
from replog_checkpoints.errors import DamagedCheckpointError
from replog_checkpoints.filesystem import FileSystem
from replog_checkpoints.uuid_text import ZERO_UUID, uuid_from_text, uuid_to_text

PARTITION_METADATA_FILE: Final = "partition.metadata"
_SIZE_BYTES_MAX: Final = 4096
_VERSION: Final = 0
_SEPARATOR: Final = re.compile(r":\s+")


class PartitionMetadata(Struct, frozen=True):
    """Which topic a partition folder belongs to.

    Attributes:
        topic_id: The id of the topic; never the zero uuid, which is Kafka's "no id".
    """

    topic_id: UUID

    def __post_init__(self) -> None:
        if self.topic_id == ZERO_UUID:
            raise ValueError("the zero uuid is no topic id")


def read_partition_metadata(fs: FileSystem, path: str) -> PartitionMetadata | None:
    """Reads the file; returns None when there is none.

    Any version from 0 up is read, as in Kafka: later versions may only add lines.

    Raises:
        CorruptCheckpointError: The file is damaged.
    """
    data = read_file(fs, path, _SIZE_BYTES_MAX)
    if data is None:
        return None
    lines = _lines(path, data)
    parse_number(path, 1, _value(path, lines, 1, "version"), "version", INT32_MAX)
    topic_id_text = _value(path, lines, 2, "topic_id")
    try:
        return PartitionMetadata(uuid_from_text(topic_id_text))
    except ValueError as error:
        raise DamagedCheckpointError(path, 2, str(error)) from error


def write_partition_metadata(fs: FileSystem, path: str, metadata: PartitionMetadata) -> None:
    """Writes the file, durably."""
    replace_file(fs, path, format_partition_metadata(metadata))


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Returns the content of the file."""
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(metadata.topic_id)}".encode("ascii")


def _lines(path: str, data: bytes) -> list[str]:
    if not data:
        raise DamagedCheckpointError(path, 1, "the file is empty")
    try:
        return data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise DamagedCheckpointError(path, data.count(b"\n", 0, error.start) + 1, "not ASCII") from error


def _value(path: str, lines: list[str], line: int, name: str) -> str:
    """Returns what follows `name: ` on a line (1-based)."""
    parts = _SEPARATOR.split(lines[line - 1], maxsplit=1) if line <= len(lines) else []
    if len(parts) != 2 or parts[0] != name:
        raise DamagedCheckpointError(path, line, f"expected {name + ': ...'!r}")
    return parts[1]
