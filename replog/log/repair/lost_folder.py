"""Repair of a replica without a segment: its folder is gone or empty, and the checkpoints say that there were records.

Nothing is left to be mended, so the repair gives up everything, and only where the caller accepts that:

| whose                | what is there afterwards                                                                   |
|----------------------|--------------------------------------------------------------------------------------------|
| `open_log`'s         | an empty log that goes on where the lost one ended: no offset means two records             |
| a broker's           | no replica, as if it were new, and a note that others decide: see `DiskTrouble`             |
| the metadata quorum's | the same, under a new directory id: a voter that forgot its votes must not keep the old one |

| step                                             | a crash after it                                               |
|--------------------------------------------------|----------------------------------------------------------------|
| 1 `.kafka_cleanshutdown` removed                 | the next start is one after a crash                            |
| 2 noted in `given-up-offset-checkpoint` (a broker's), or the directory gets a new id (metadata) | repair again     |
| 3 what is left of the folder removed             | repair again                                                   |
| 4 its checkpoint lines removed, or the empty log made, then the recovery point written | done              |
"""

from __future__ import annotations

import uuid
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import replog_checkpoints as checkpoints
from replog.errors import CorruptRecordError
from replog.log.config import LogConfig
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.directories.identity import LOCAL_CLUSTER_ID, is_usable_id
from replog.log.directories.lost_replicas import folder_is_gone
from replog.log.file_names import LOG_SUFFIX, parse_partition_dir_name
from replog.log.log import Log
from replog.log.recovery.completeness import write_complete_from
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog.log.recovery.promises import read_promises
from replog.log.repair.log_offsets import forget_line, note_given_up
from replog.log.repair.verification import Finding, FindingKind
from replog_checkpoints import FileSystem, MetaProperties, TopicPartition, parent_of

_CHECKPOINTS: Final = (
    checkpoints.LOG_START_OFFSET_FILE,
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.REPLICATION_OFFSET_FILE,
    checkpoints.CLEANER_OFFSET_FILE,
)


class LostFolder(Struct, frozen=True):
    """A replica that has no segment, although it had records: the checkpoints say so.

    Attributes:
        directory: Its partition folder, which may be gone.
        key: Topic and partition.
        log_start_offset: The first offset that is given up, as far as known.
        end_offset: The exclusive end of the flushed records.
        meta: The identity of the log directory.
    """

    directory: str
    key: TopicPartition
    log_start_offset: int
    end_offset: int
    meta: MetaProperties

    @property
    def finding(self) -> Finding:
        """The finding that says so."""
        reason = f"there is no segment, and everything below offset {self.end_offset} was flushed"
        return Finding(FindingKind.MISSING, self.directory, None, self.log_start_offset, reason)

    @property
    def is_local(self) -> bool:
        """Whether it is a log of `open_log`."""
        return self.meta.cluster_id == LOCAL_CLUSTER_ID

    def error(self) -> CorruptRecordError:
        """Returns the error for a repair that may give nothing up."""
        return folder_is_gone(parent_of(self.directory), self.key, self.end_offset)

    def give_up(self, fs: FileSystem, config: LogConfig, now_ms: int) -> int:
        """Gives everything up, durably; returns where the log ends that is there afterwards, 0 where none is.

        Raises:
            OSError: The disk failed: repair again.
        """
        parent = parent_of(self.directory)
        checkpoints.remove_clean_shutdown(fs, f"{parent}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
        if self.key[0] == METADATA_TOPIC:
            self._renew_id(fs, parent)
            forget_line(fs, f"{parent}/{GIVEN_UP_FILE}", self.key)  # without its old id it promises nothing
        elif not self.is_local:
            note_given_up(fs, parent, self.key, self.end_offset)
        if fs.exists(self.directory):
            fs.remove_tree(self.directory)  # nothing in it holds records
            fs.sync_dir(parent)
        if self.is_local:
            return self._begin_behind(fs, config, now_ms)
        for name in _CHECKPOINTS:
            forget_line(fs, f"{parent}/{name}", self.key)
        return 0

    def _renew_id(self, fs: FileSystem, parent: str) -> None:
        directory_id = uuid.uuid4()
        while not is_usable_id(directory_id):
            directory_id = uuid.uuid4()
        meta = replace(self.meta, directory_id=directory_id)
        checkpoints.write_meta_properties(fs, f"{parent}/{checkpoints.META_PROPERTIES_FILE}", meta)

    def _begin_behind(self, fs: FileSystem, config: LogConfig, now_ms: int) -> int:
        log = Log.open(
            fs,
            self.directory,
            config,
            topic_partition=PurePosixPath(self.directory).name,
            recovery_point=self.end_offset,
            log_start_offset=self.end_offset,
            clean=False,
            now_ms=now_ms,
        )
        end_offset = log.log_end_offset
        log.close(now_ms)
        write_complete_from(fs, self.directory, end_offset)
        path = f"{parent_of(self.directory)}/{checkpoints.RECOVERY_POINT_FILE}"
        checkpoints.write_offset_checkpoint(fs, path, {self.key: end_offset})
        return end_offset


def lost_folder(fs: FileSystem, directory: str) -> LostFolder | None:
    """Returns the replica that has no segment although it had records; None: it has one, or no records are known.

    A checkpoint that cannot be read says nothing here.

    Args:
        fs: The disk.
        directory: The partition folder, which may be gone.

    Raises:
        OSError: The disk failed.
    """
    key, parent = parse_partition_dir_name(PurePosixPath(directory).name), parent_of(directory)
    if key is None or _holds_segments(fs, directory):
        return None
    try:
        meta = checkpoints.read_meta_properties(fs, f"{parent}/{checkpoints.META_PROPERTIES_FILE}")
        points = checkpoints.read_offset_checkpoint(fs, f"{parent}/{checkpoints.RECOVERY_POINT_FILE}") or {}
    except checkpoints.DamagedCheckpointError:
        return None
    if meta is None:
        return None
    promises = read_promises(fs, directory)
    end_offset = max(promises.recovery_point, promises.flushed_offset)
    is_known = end_offset > 0 or (key in points and key[0] == METADATA_TOPIC)
    return LostFolder(directory, key, promises.log_start_offset, end_offset, meta) if is_known else None


def _holds_segments(fs: FileSystem, directory: str) -> bool:
    """Whether there is a segment, or any other file of records: about to take the place of others, deleted, or cut off."""
    return fs.is_dir(directory) and any(f"{LOG_SUFFIX}." in f"{name}." for name in fs.list_dir(directory))
