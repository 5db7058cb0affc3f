"""Checkpoints and the other small files of a log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from msgspec.structs import asdict

import replog_checkpoints as checkpoints
from replog.cli.dump.rows import Row, damage
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog_checkpoints import FileSystem


def _offsets(fs: FileSystem, path: str) -> Iterator[Row]:
    for (topic, partition), offset in (checkpoints.read_offset_checkpoint(fs, path) or {}).items():
        yield {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(fs: FileSystem, path: str) -> Iterator[Row]:
    for epoch, start_offset in checkpoints.read_leader_epochs(fs, path) or []:
        yield {"kind": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _quorum_state(fs: FileSystem, path: str) -> Iterator[Row]:
    if (state := checkpoints.read_quorum_state(fs, path)) is not None:
        yield {"kind": "quorum_state"} | {name: _plain(value) for name, value in asdict(state).items()}


def _meta_properties(fs: FileSystem, path: str) -> Iterator[Row]:
    if (meta := checkpoints.read_meta_properties(fs, path)) is not None:
        identity = {"cluster.id": meta.cluster_id, "node.id": meta.node_id}
        yield {"kind": "meta_properties"} | identity | {"directory.id": _plain(meta.directory_id)} | dict(meta.extra)


def _partition_metadata(fs: FileSystem, path: str) -> Iterator[Row]:
    if (metadata := checkpoints.read_partition_metadata(fs, path)) is not None:
        named = {} if metadata.folder_name is None else {"partition": metadata.folder_name}
        yield {"kind": "partition_metadata", "topic_id": str(metadata.topic_id), **named}


def _clean_shutdown(fs: FileSystem, path: str) -> Iterator[Row]:
    if (marker := checkpoints.read_clean_shutdown(fs, path)) is not None:
        yield {"kind": "clean_shutdown", "broker_epoch": marker.broker_epoch}


READERS: Final[dict[str, Callable[[FileSystem, str], Iterator[Row]]]] = {
    checkpoints.RECOVERY_POINT_FILE: _offsets,
    checkpoints.LOG_START_OFFSET_FILE: _offsets,
    checkpoints.REPLICATION_OFFSET_FILE: _offsets,
    checkpoints.CLEANER_OFFSET_FILE: _offsets,
    GIVEN_UP_FILE: _offsets,
    checkpoints.LEADER_EPOCH_FILE: _leader_epochs,
    checkpoints.QUORUM_STATE_FILE: _quorum_state,
    checkpoints.META_PROPERTIES_FILE: _meta_properties,
    checkpoints.PARTITION_METADATA_FILE: _partition_metadata,
    checkpoints.CLEAN_SHUTDOWN_FILE: _clean_shutdown,
}
"""File name -> its reader."""


def dump_small_file(fs: FileSystem, path: str, name: str) -> Iterator[Row]:
    """Yields the content of a file named in `READERS`, or a `damage` row where it cannot be read."""
    try:
        yield from READERS[name](fs, path)
    except checkpoints.DamagedCheckpointError as error:
        where = f"line {error.line}: " if error.line else ""
        yield damage(None, f"{where}{error.reason}")


def _plain(value: object) -> object:
    match value:
        case UUID():
            return checkpoints.uuid_to_text(value)
        case tuple():
            return list(value)
        case _:
            return value
