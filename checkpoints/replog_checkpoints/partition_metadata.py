"""Partition metadata: which replica a partition folder holds.

Why: the directory is named after the topic, and a topic that was deleted and created again has the same name with other
data.  The id tells them apart (KIP-516); it is written before the first record.

A complete file `partition.metadata`, four lines and no newline at the end::

    version: 0
    topic_id: AQIDBAUGBwgREhMUFRYXGA
    partition: flights-3
    checksum: 0fa1d3bc

Kafka writes the first two and reads no others; such a file is believed.  The others are ours.  The name of the folder tells
two that were exchanged apart.  A character that flips in the id makes another id, under which the replica would count as
that of a topic that is gone, so there is a CRC-32 of all that stands before its line.

| crash                                            | what the next start finds                                  |
|--------------------------------------------------|------------------------------------------------------------|
| before the rename                                | no file, and no record in the log: the replica is made new |
| after the rename, before the fsync of the folder | no file or all of it; still no record                      |

A damaged file takes the replica offline: guessing the id could serve one topic's records as another's.
Source: docs/KAFKA.md 1.11.
"""

from __future__ import annotations

import re
import zlib
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
    """Which replica a partition folder holds.

    Attributes:
        topic_id: The id of the topic; never the zero uuid, which is Kafka's "no id".
        folder_name: The name of the folder, such as "flights-3"; None: Kafka or an older replog wrote the file.
    """

    topic_id: UUID
    folder_name: str | None = None

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
        topic_id = uuid_from_text(topic_id_text)
        return PartitionMetadata(topic_id, _folder_name(path, data, lines))
    except ValueError as error:
        raise DamagedCheckpointError(path, 2, str(error)) from error


def write_partition_metadata(fs: FileSystem, path: str, metadata: PartitionMetadata) -> None:
    """Writes the file, durably."""
    replace_file(fs, path, format_partition_metadata(metadata))


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Returns the content of the file."""
    known = f"version: {_VERSION}\ntopic_id: {uuid_to_text(metadata.topic_id)}".encode("ascii")
    return known if metadata.folder_name is None else _with_checksum(known, metadata.folder_name)


def _with_checksum(known: bytes, folder_name: str) -> bytes:
    named = known + f"\npartition: {folder_name}\n".encode("ascii")
    return named + b"checksum: %08x" % zlib.crc32(named)


def _folder_name(path: str, data: bytes, lines: list[str]) -> str | None:
    """Returns what the third line says, where it is ours."""
    if len(lines) < 3 or not lines[2].startswith("partition:"):
        return None
    name = _value(path, lines, 3, "partition")
    if data != _with_checksum(data.split(b"\npartition: ", 1)[0], name):
        raise DamagedCheckpointError(path, len(lines), "the checksum is wrong, or not there")
    return name


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
