"""The identity of a log directory: `meta.properties`, the lock, and the refusals before anything is changed.

A directory that belongs to another node or cluster, that Kafka formatted, or that holds replicas without saying whose,
must not be touched: two clusters that write into one directory destroy both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID

from msgspec.structs import replace

import replog_checkpoints as checkpoints
from replog.errors import (
    ConfigError,
    CorruptCheckpointError,
    DirectoryLockedError,
    ForeignDirectoryError,
    InconsistentClusterIdError,
    StorageError,
)
from replog.log.disk_space import disk_full, is_disk_full
from replog.log.file_names import parse_file_name, parse_partition_dir_name
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog_checkpoints import FileSystem, Lock, MetaProperties

FORMAT_KEY: Final = "replog.format"
FORMAT: Final = "1"
OPENED_WITH_KEY: Final = "replog.opened.with"
"""Ids of all directories that were open together at the last start of this one: which of two copies is the newer one."""

LOCAL_CLUSTER_ID: Final = "replog-open-log"
"""Cluster id of the directories of `open_log`, which belong to no cluster."""

LOCAL_NODE_ID: Final = 0
LOCAL_FOLDER: Final = "log-0"
"""The one partition folder in such a directory."""

LOCK_FILE: Final = ".lock"
_WITHOUT: Final = {
    checkpoints.RECOVERY_POINT_FILE: "each log of the directory is then checked from its first record on, and what its own "
    "flushed-offset says was flushed still counts",
    checkpoints.LOG_START_OFFSET_FILE: "log-start-offset-witness, which was written with it, counts then; without that each "
    "log of the directory starts with its first segment, so records that were deleted inside of a segment are there again",
    checkpoints.REPLICATION_OFFSET_FILE: "high watermarks are then those of replication-offset-witness, or learnt anew",
    checkpoints.PARTITION_METADATA_FILE: "it is made again for the partition that the folder is named after, so only where you know "
    "that it is that one's",
    GIVEN_UP_FILE: "given-up-offset-witness, which was written with it, counts then; without that replicas of which a repair gave "
    "records up may lead: start the brokers of the others first",
}
"""The facts that hold after a checkpoint that cannot be read was deleted."""
_TEXT_PREFIX_REFUSED: Final = "-"  # a directory id that begins with it looks like an option on a command line


def read_identity(fs: FileSystem, path: str, cluster_id: str | None, node_id: int) -> MetaProperties | None:
    """Reads and checks the identity of a formatted directory; None for a new one.  Changes nothing.

    Args:
        fs: The disk.
        path: Path of the directory, which may not exist.
        cluster_id: The cluster that it must belong to; None: any.
        node_id: The node that it must belong to.

    Raises:
        InconsistentClusterIdError: It belongs to another cluster or node.
        ForeignDirectoryError: Kafka formatted it, or its identity is missing.
        CorruptCheckpointError: Its identity cannot be read; the error is the leaf library's.
        OSError: The disk failed.
    """
    meta = checkpoints.read_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}")
    if meta is None:
        _refuse_anonymous_data(fs, path)
        return None
    if FORMAT_KEY not in meta.extra:
        raise ForeignDirectoryError(
            f"{path} was formatted by Apache Kafka; this version needs {FORMAT_KEY}={FORMAT}. Nothing was changed: "
            f"use another directory; {_or_flipped(path)}"
        )
    _require_format(path, meta)
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise InconsistentClusterIdError(
            f"{path} belongs to cluster {meta.cluster_id}, this node to {cluster_id}. Nothing was changed: "
            f"correct cluster.id, or use another directory; {_or_flipped(path)}"
        )
    if meta.node_id != node_id:
        raise InconsistentClusterIdError(
            f"{path} belongs to node {meta.node_id}, this is node {node_id}. Nothing was changed: "
            f"correct node.id, or use another directory; {_or_flipped(path)}"
        )
    return meta


def refuse_later_format(fs: FileSystem, path: str) -> None:
    """Raises if a later version of replog formatted the directory.  A file that cannot be read says nothing.

    Raises:
        ForeignDirectoryError: A later version did, or a bit has flipped there.
        OSError: The disk failed.
    """
    try:
        meta = checkpoints.read_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}")
    except checkpoints.DamagedCheckpointError:
        return
    found = "" if meta is None else meta.extra.get(FORMAT_KEY, "")
    if meta is not None and found.isascii() and found.isdigit() and found > FORMAT:
        _require_format(path, meta)


def _or_flipped(path: str) -> str:
    return f"where that cannot be, {path}/{checkpoints.META_PROPERTIES_FILE} is damaged: restore it"


def _require_format(path: str, meta: MetaProperties) -> None:
    found = meta.extra.get(FORMAT_KEY, FORMAT)
    if found != FORMAT:
        raise ForeignDirectoryError(
            f"{path} was formatted by another version of replog ({FORMAT_KEY}={found}); this version needs "
            f"{FORMAT_KEY}={FORMAT}. Nothing was changed: use that version, or another directory; where no other version "
            f"ever had it, a bit has flipped: put {FORMAT_KEY}={FORMAT} back into {path}/{checkpoints.META_PROPERTIES_FILE}"
        )


def require_cluster_id(path: str, cluster_id: str | None) -> str:
    """Returns the cluster id that a new directory is formatted with.

    Raises:
        ConfigError: There is no cluster id.
    """
    if cluster_id is None:
        raise ConfigError("cluster.id", None, f"{path} is new: it needs a cluster id to be formatted with")
    return cluster_id


def write_identity(
    fs: FileSystem, path: str, cluster_id: str, node_id: int, new_directory_id: Callable[[], UUID]
) -> MetaProperties:
    """Formats a new directory, durably; returns its identity."""
    directory_id = new_directory_id()
    while not is_usable_id(directory_id):
        directory_id = new_directory_id()
    meta = MetaProperties(cluster_id, node_id, directory_id, {FORMAT_KEY: FORMAT})
    checkpoints.write_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}", meta)
    return meta


def is_usable_id(directory_id: UUID) -> bool:
    """Whether the text of a directory's id does not look like an option."""
    return not checkpoints.uuid_to_text(directory_id).startswith(_TEXT_PREFIX_REFUSED)


def opened_with(meta: MetaProperties) -> frozenset[UUID] | None:
    """Returns the directories that worked at the last start of this one, itself among them; None: it does not say."""
    try:
        return frozenset(map(checkpoints.uuid_from_text, meta.extra[OPENED_WITH_KEY].split(",")))
    except (KeyError, ValueError):
        return None


def write_opened_with(fs: FileSystem, path: str, meta: MetaProperties, ids: Collection[UUID]) -> MetaProperties:
    """Notes which directories work, durably, if it is not known yet; returns the content of the file."""
    if opened_with(meta) == frozenset(ids):
        return meta
    texts = ",".join(sorted(map(checkpoints.uuid_to_text, ids)))
    meta = replace(meta, extra={**meta.extra, OPENED_WITH_KEY: texts})
    checkpoints.write_meta_properties(fs, f"{path}/{checkpoints.META_PROPERTIES_FILE}", meta)
    return meta


def take_lock(fs: FileSystem, path: str) -> Lock:
    """Takes the lock of a directory, until it is released or the process ends.

    Raises:
        DirectoryLockedError: Another process has it.
    """
    try:
        return fs.lock(f"{path}/{LOCK_FILE}")
    except BlockingIOError as error:
        raise DirectoryLockedError(
            f"{path} is in use by another process: stop it (see `fuser {path}/{LOCK_FILE}`), or use another directory"
        ) from error


def damaged_checkpoint(error: checkpoints.DamagedCheckpointError) -> CorruptCheckpointError:
    """Returns our error for a file that cannot be read, with the ways out."""
    deletion = _WITHOUT.get(PurePosixPath(error.path).name)
    other = "remove the directory and copy it anew" if deletion is None else f"delete it: {deletion}"
    reason = f"{error.reason}. Nothing was changed: restore the file, or {other}"
    return CorruptCheckpointError(error.path, error.line, reason)


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turns the errors of the leaf library and of the disk within it into ours."""
    try:
        yield
    except checkpoints.DamagedCheckpointError as error:
        raise damaged_checkpoint(error) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_full("a file cannot be opened or written", path, error) from error
        raise StorageError(f"{path}: {error}. Check the disk, then start again") from error


def _refuse_anonymous_data(fs: FileSystem, path: str) -> None:
    """Raises where replicas stand without an identity beside them: to format over them could mix two clusters."""
    if not fs.is_dir(path):
        return
    for name in fs.list_dir(path):
        child = f"{path}/{name}"
        if parse_partition_dir_name(name) is None or not fs.is_dir(child):
            continue
        if any(parse_file_name(file) is not None for file in fs.list_dir(child)):
            raise ForeignDirectoryError(
                f"{path} holds replicas ({name}) but no {checkpoints.META_PROPERTIES_FILE}. Nothing was changed: "
                "restore that file, or use another directory"
            )
