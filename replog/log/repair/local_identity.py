r"""Repair of the `meta.properties` of a log of `open_log`: what is in it, and how it is known whose it was.

| key                                     | where a new file has it from                                          |
|-----------------------------------------|-----------------------------------------------------------------------|
| `cluster.id`, `node.id`, `replog.format` | the same for every log of `open_log`                                  |
| `directory.id`                          | the legible one of the old file, else a new one: it is used nowhere else |

So nothing is lost with it.  But the directory of a broker must not be made one of `open_log`: its ids are
known to a cluster, and only its owner can restore them.  Every byte but those of `directory.id` is known::

    #                                    a file is one of `open_log` where no byte, or a single one that a bit may have
    node.id=0                            flipped in, is another than here; those that are zero or cut off say nothing, and
    directory.id=......................  where the cluster id is not there, no byte may be wrong, and the folder must hold
    version=1                            what a log directory holds and not what a broker leaves
    cluster.id=replog-open-log
    replog.format=1                      a higher digit may be that of a later version: left alone
"""

from __future__ import annotations

import uuid
from typing import Final
from uuid import UUID

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.directories.identity import (
    FORMAT,
    FORMAT_KEY,
    LOCAL_CLUSTER_ID,
    LOCAL_FOLDER,
    LOCAL_NODE_ID,
    is_usable_id,
    write_identity,
)
from replog.log.disk_space import RESERVE_FILE
from replog.log.file_names import parse_partition_dir_name
from replog_checkpoints import FileSystem, OpenMode, parent_of

_OF_BROKERS: Final = frozenset({checkpoints.REPLICATION_OFFSET_FILE, checkpoints.CLEANER_OFFSET_FILE})
_OF_DIRECTORIES: Final = frozenset({RESERVE_FILE, checkpoints.RECOVERY_POINT_FILE, checkpoints.CLEAN_SHUTDOWN_FILE})
_SIZE_BYTES_MAX: Final = 4096

_ID_BYTES: Final = 22
_ANY: Final = ord("?")
_HEAD: Final = f"#\nnode.id={LOCAL_NODE_ID}\ndirectory.id=".encode()
_CLUSTER: Final = b"\nversion=1\ncluster.id="
_WANTED: Final = _HEAD + bytes([_ANY]) * _ID_BYTES + _CLUSTER + f"{LOCAL_CLUSTER_ID}\n{FORMAT_KEY}={FORMAT}\n".encode()
_CLUSTER_AT: Final = len(_HEAD) + _ID_BYTES + len(_CLUSTER)
_FORMAT_AT: Final = len(_WANTED) - 2
_LATER_FORMATS: Final = frozenset(bytes([digit]) for digit in b"0123456789" if digit > ord(FORMAT))


class DamagedIdentity(Struct, frozen=True):
    """A `meta.properties` that can be made anew.

    Attributes:
        path: The file.
        reason: The trouble with it.
        directory_id: The id, if it is legible; None: it is not.
    """

    path: str
    reason: str
    directory_id: UUID | None

    def mend(self, fs: FileSystem) -> None:
        """Replaces the file, durably."""
        kept = self.directory_id
        write_identity(
            fs, parent_of(self.path), LOCAL_CLUSTER_ID, LOCAL_NODE_ID, uuid.uuid4 if kept is None else lambda: kept
        )


def damaged_identity(fs: FileSystem, directory: str) -> DamagedIdentity | None:
    """Returns the trouble with the `meta.properties` above a log of `open_log`; None: there is none, or it is another kind of log.

    Args:
        fs: The disk.
        directory: The partition folder.

    Raises:
        OSError: The disk failed.
    """
    parent, _, name = directory.rpartition("/")
    if name != LOCAL_FOLDER:
        return None
    path = f"{parent}/{checkpoints.META_PROPERTIES_FILE}"
    reason = _damage(fs, path)
    if reason is None:
        return None
    data = _read(fs, path)
    return DamagedIdentity(path, reason, _directory_id(data)) if _was_local(fs, parent, data) else None


def _damage(fs: FileSystem, path: str) -> str | None:
    try:
        meta = checkpoints.read_meta_properties(fs, path)
    except checkpoints.DamagedCheckpointError as error:
        return error.reason
    if meta is None:
        return "the file is missing"
    found = meta.cluster_id, meta.node_id, meta.extra.get(FORMAT_KEY)
    return None if found == (LOCAL_CLUSTER_ID, LOCAL_NODE_ID, FORMAT) else "it is not what open_log writes"


def _was_local(fs: FileSystem, path: str, data: bytes) -> bool:
    """Whether a folder whose `meta.properties` holds `data` was made by `open_log`."""
    names = set(fs.list_dir(path))
    replicas = {name for name in names if parse_partition_dir_name(name) is not None}
    if replicas != {LOCAL_FOLDER} or names & _OF_BROKERS or data[_FORMAT_AT : _FORMAT_AT + 1] in _LATER_FORMATS:
        return False
    wrong = sum(found not in {wanted, 0} for found, wanted in zip(data, _WANTED, strict=False) if wanted != _ANY)
    cluster_id = data[_CLUSTER_AT : _CLUSTER_AT + len(LOCAL_CLUSTER_ID)]
    if len(cluster_id) == len(LOCAL_CLUSTER_ID) and 0 not in cluster_id:
        return wrong <= 1
    return not wrong and bool(names & _OF_DIRECTORIES) and not _was_registered(fs, path)


def _was_registered(fs: FileSystem, path: str) -> bool:
    """Whether a clean stop has left the epoch of a broker."""
    try:
        marker = checkpoints.read_clean_shutdown(fs, f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
    except checkpoints.DamagedCheckpointError:
        return False
    return marker is not None and marker.broker_epoch >= 0


def _read(fs: FileSystem, path: str) -> bytes:
    try:
        file = fs.open(path, OpenMode.READ)
    except (FileNotFoundError, IsADirectoryError):
        return b""
    try:
        return file.pread(_SIZE_BYTES_MAX, 0)
    finally:
        file.close()


def _directory_id(data: bytes) -> UUID | None:
    try:
        found = checkpoints.uuid_from_text(data[len(_HEAD) : len(_HEAD) + _ID_BYTES].decode("ascii"))
        checkpoints.MetaProperties(LOCAL_CLUSTER_ID, LOCAL_NODE_ID, found)  # refuses reserved ones
    except ValueError:
        return None
    return found if is_usable_id(found) else None
