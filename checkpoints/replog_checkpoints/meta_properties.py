r"""Meta properties: whose log directory this is.

Why: a directory mounted at the wrong node, or kept from another cluster, must be refused before anything is read from it
or written to it.  The directory id names this very directory, so that a disk that was replaced is not taken for the old
one with less data (KIP-858).

A complete file `meta.properties` (order and comments do not matter)::

    #
    node.id=1
    directory.id=AQIDBAUGBwgREhMUFRYXGA
    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    replog.format=1              anything else is kept as it is
    replog.checksum=1c291ca3     CRC-32 of the first five lines, as they stand here (ours)

A character that flips in an id makes another one: another voter, and a disk that has lost all it had, where a broker tells its
directories.  A file without the checksum is believed.

Kafka puts the date in a second comment line; we write none, so equal content is equal bytes.

| crash                                            | what the next start finds                              |
|--------------------------------------------------|--------------------------------------------------------|
| before the rename                                | no file: the directory is not formatted and not used   |
| after the rename, before the fsync of the folder | no file or all of it; nothing else was written yet     |

Source: docs/KAFKA.md 1.11.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct, field

from replog_checkpoints.atomic_file import read_file, replace_file
from replog_checkpoints.entry_lines import INT32_MAX, parse_number
from replog_checkpoints.errors import DamagedCheckpointError
from replog_checkpoints.filesystem import FileSystem
from replog_checkpoints.java_properties import format_properties, parse_properties
from replog_checkpoints.uuid_text import is_reserved_directory_id, uuid_from_text, uuid_to_text

META_PROPERTIES_FILE: Final = "meta.properties"
_SIZE_BYTES_MAX: Final = 1024 * 1024
_VERSION: Final = 1
_KNOWN_KEYS: Final = ("node.id", "directory.id", "version", "cluster.id")
_CHECKSUM_KEY: Final = "replog.checksum"


class MetaProperties(Struct, frozen=True):
    """Identity of one log directory.

    Attributes:
        cluster_id: The id of the cluster this directory belongs to, not empty.
        node_id: The id of the node it belongs to, from 0.
        directory_id: The id of this directory alone; the values 0 to 99 are reserved.
        extra: Every other key of the file (such as `replog.format`), kept when the file is rewritten.

    Raises:
        ValueError: A field is out of range.
    """

    cluster_id: str
    node_id: int
    directory_id: UUID
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not self.cluster_id:
            raise ValueError("cluster_id is empty")
        if not 0 <= self.node_id <= INT32_MAX:
            raise ValueError(f"node_id {self.node_id} is not from 0 to {INT32_MAX}")
        if is_reserved_directory_id(self.directory_id):
            raise ValueError(f"directory_id {self.directory_id} is reserved")
        clashes = sorted(set(self.extra).intersection((*_KNOWN_KEYS, _CHECKSUM_KEY)))
        if clashes:
            raise ValueError(f"extra repeats {', '.join(clashes)}")


def read_meta_properties(fs: FileSystem, path: str) -> MetaProperties | None:
    """Reads the file; returns None when there is none: the directory was never formatted.

    Raises:
        CorruptCheckpointError: The file is damaged, a key is missing, or the version is not 1.
    """
    data = read_file(fs, path, _SIZE_BYTES_MAX)
    if data is None:
        return None
    properties = parse_properties(path, data)
    missing = [key for key in _KNOWN_KEYS if key not in properties]
    if missing:
        raise DamagedCheckpointError(path, 0, f"{', '.join(missing)} missing")
    _check(path, properties)
    version = _number(path, properties, "version")
    if version != _VERSION:
        line = properties["version"][1]
        raise DamagedCheckpointError(path, line, f"version {version} is not supported, only {_VERSION}")
    node_id = _number(path, properties, "node.id")
    cluster_id, cluster_id_line = properties["cluster.id"]
    if not cluster_id:
        raise DamagedCheckpointError(path, cluster_id_line, "cluster.id is empty")
    extra = {key: value for key, (value, _) in properties.items() if key not in {*_KNOWN_KEYS, _CHECKSUM_KEY}}
    directory_id_text, directory_id_line = properties["directory.id"]
    try:
        return MetaProperties(cluster_id, node_id, uuid_from_text(directory_id_text), extra)
    except ValueError as error:  # only the directory id is still unchecked here
        raise DamagedCheckpointError(path, directory_id_line, str(error)) from error


def write_meta_properties(fs: FileSystem, path: str, properties: MetaProperties) -> None:
    """Replaces the file, durably: the known keys first, then `extra` in its own order."""
    known = {
        "node.id": str(properties.node_id),
        "directory.id": uuid_to_text(properties.directory_id),
        "version": str(_VERSION),
        "cluster.id": properties.cluster_id,
    }
    replace_file(fs, path, format_properties({**known, **properties.extra, _CHECKSUM_KEY: _checksum(known)}))


def seal_meta_properties(fs: FileSystem, path: str, properties: MetaProperties) -> None:
    """Writes the file with a checksum, durably, where it has none: an older version wrote it.

    Raises:
        OSError: The disk failed or is full; the file says the same as before.
    """
    data = read_file(fs, path, _SIZE_BYTES_MAX)
    if data is not None and _CHECKSUM_KEY not in parse_properties(path, data):
        write_meta_properties(fs, path, properties)


def _checksum(values: Mapping[str, str]) -> str:
    return f"{zlib.crc32(format_properties({key: values[key] for key in _KNOWN_KEYS})):08x}"


def _check(path: str, properties: Mapping[str, tuple[str, int]]) -> None:
    found, line = properties.get(_CHECKSUM_KEY, (None, 0))
    if found is not None and found != _checksum({key: value for key, (value, _) in properties.items()}):
        raise DamagedCheckpointError(
            path,
            line,
            f"{_CHECKSUM_KEY} does not fit {', '.join(_KNOWN_KEYS)}: a character has changed since it was written; where you have "
            f"changed one of them on purpose, remove the line {_CHECKSUM_KEY}",
        )


def _number(path: str, properties: Mapping[str, tuple[str, int]], key: str) -> int:
    text, line = properties[key]
    return parse_number(path, line, text, key, INT32_MAX)
