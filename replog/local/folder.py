"""The folder of a local log: a log directory with exactly one replica in it.

    orders/                                what `replog.open_log("orders")` was given
      .lock                                held while a process writes here
      .reserve                             1 MiB of room for checkpoints on a full disk
      meta.properties                      cluster.id=replog-open-log, node.id=0, replog.format=1
      .kafka_cleanshutdown                 only while nobody has it open, after `close`
      recovery-point-offset-checkpoint     "log 0 1042": everything below offset 1042 is on the disk
      log-start-offset-checkpoint          only after `truncate_before` to an offset inside a segment
      log-0/                               a partition folder as Kafka has it
        00000000000000000000.log  .index  .timeindex  flushed-offset  leader-epoch-checkpoint  partition.metadata ...

Why this shape: it is `replog.log.LogDirectory` as it stands, so locking, checkpoints, clean-shutdown marker and recovery are
those of a broker, and `log-0` is a partition folder that Kafka's DumpLogSegments reads.  To put the log under a broker, close
it and move `log-0` there under the name `<topic>-<partition>` without its `partition.metadata` (it carries another topic id).

The cluster id belongs to no cluster: a broker refuses the folder, and `open_log` refuses a broker's.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Final

from replog.errors import (
    ConfigError,
    CorruptCheckpointError,
    DirectoryLockedError,
    DiskFullError,
    InconsistentClusterIdError,
    ReplogError,
    StorageError,
)
from replog.log import Log, LogConfig, LogDirectory
from replog.log.directories.identity import LOCAL_CLUSTER_ID, LOCAL_NODE_ID
from replog.log.disk_space import DiskLimits, DiskState
from replog.log.file_names import parse_partition_dir_name, partition_dir_name
from replog.log.repair.local_identity import damaged_identity
from replog_checkpoints import META_PROPERTIES_FILE, PARTITION_METADATA_FILE, FileSystem

TOPIC: Final = "log"
PARTITION: Final = 0
_NEVER_REGISTERED: Final = -1
_LIMITS: Final = DiskLimits(warn_free_bytes=0, read_only_free_bytes=0, reserve_bytes=1 << 20)
_HARMLESS_NAMES: Final = (".lock", "lost+found", f"{META_PROPERTIES_FILE}.tmp")  # what a crash while formatting leaves


class LogFolder:
    """A local log's folder, locked.  Made by `open`."""

    def __init__(self, directory: LogDirectory, log: Log) -> None:
        self._directory = directory
        self.path = directory.path
        self.log = log

    @classmethod
    def open(cls, fs: FileSystem, path: str, config: LogConfig, *, now_ms: int) -> LogFolder:
        """Locks the folder, creates what is missing, recovers what a crash left.

        Raises:
            DirectoryLockedError: Another process, or this one, has it open for writing.
            InconsistentClusterIdError: It is a broker's; nothing was changed.
            CorruptRecordError: Bytes that were on the disk are damaged or gone; nothing was changed.
            CorruptCheckpointError: A file is damaged that says whose folder it is, or what was promised; the error says
                what can be done.
            StorageError: It is not a folder, holds something else, or the disk failed.
        """
        try:
            _refuse_foreign(fs, path)
            directory = _open_directory(fs, path, config, now_ms)
        except (StorageError, InconsistentClusterIdError) as error:
            _refuse_damaged_identity(fs, path, error)
            raise
        try:
            log = _open_log(directory, config, now_ms)
            log.claim_complete()
            if log.flushed_offset < log.log_end_offset:  # what a crash left and nobody acknowledged counts from now on
                log.flush()
                with contextlib.suppress(DiskFullError):  # a lower recovery point costs the next start time, not data
                    directory.checkpoint_recovery_points()
        except BaseException:
            directory.release()
            raise
        return cls(directory, log)

    def write_recovery_point(self) -> None:
        """Checkpoints how far the log is on the disk, so that the next recovery has less to check."""
        self._directory.checkpoint_recovery_points()

    def write_log_start_offset(self, offset: int) -> None:
        """Checkpoints where the log is about to start, before anybody sees that start.

        Args:
            offset: The first offset that is kept; flushed up to there.

        Raises:
            DiskFullError: There is no room; the log starts where it did.
            StorageError: Which start a crash would leave is unknown; the log has failed.
        """
        try:
            self._directory.checkpoint_log_start_offsets({(TOPIC, PARTITION): offset})
        except StorageError as error:
            self._directory.fail(error)
            raise

    def has_room_again(self) -> bool:
        """Looks at a disk that was full; True: appends were refused until now, and are not any more.

        Raises:
            StorageError: The disk does not answer.
        """
        if self._directory.space.state is not DiskState.READ_ONLY:
            return False
        try:
            return self._directory.space.check() is not DiskState.READ_ONLY
        except OSError as error:
            raise StorageError(f"{self.path}: {error}. Check the disk") from error

    def close(self, *, now_ms: int) -> None:
        """Flushes and closes the log, leaves the clean-shutdown marker, drops the lock.

        Raises:
            StorageError: Not everything is on the disk; the lock is dropped all the same.
        """
        self._directory.close(now_ms=now_ms, broker_epoch=_NEVER_REGISTERED)


def checked_path(path: str | os.PathLike[str]) -> str:
    """Returns the path as an absolute one: files are opened again later, and the working directory may change.

    Raises:
        TypeError: It is neither a string nor a path.
        ConfigError: It is empty, or holds a null character.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"the path of a log is a str or an os.PathLike of str, not {type(text).__name__}")
    if not text or "\0" in text:
        raise ConfigError("path", text, f"the path of a log is {text!r}; it must name a folder")
    return str(Path(text).absolute())


def partition_folder(path: str) -> str:
    """Returns the partition folder in `path`, where the segments of the local log are."""
    return f"{path}/{partition_dir_name(TOPIC, PARTITION)}"


def _open_directory(fs: FileSystem, path: str, config: LogConfig, now_ms: int) -> LogDirectory:
    try:
        return LogDirectory.open(
            fs, path, cluster_id=LOCAL_CLUSTER_ID, node_id=LOCAL_NODE_ID, now_ms=now_ms, config=config, limits=_LIMITS
        )
    except DirectoryLockedError as error:
        raise DirectoryLockedError(
            f"{path} is open for writing already, in this process or another (see `fuser {path}/.lock`): close it there, "
            "share that one object between threads and tasks, or open it with read_only=True"
        ) from error
    except InconsistentClusterIdError as error:
        raise InconsistentClusterIdError(
            f"{path} is the log directory of a broker. Nothing was changed: give open_log a folder of its own; "
            "a single partition folder of a broker can be read with read_only=True"
        ) from error


def _open_log(directory: LogDirectory, config: LogConfig, now_ms: int) -> Log:
    topic_id = directory.topic_id(TOPIC, PARTITION) or uuid.uuid4()
    try:
        return directory.open_log(TOPIC, PARTITION, topic_id, config, now_ms=now_ms)
    except CorruptCheckpointError as error:
        if not error.path.endswith(PARTITION_METADATA_FILE):
            raise
        how = f"`replog log repair {partition_folder(directory.path)}` makes it anew: it holds nothing but an id"
        raise CorruptCheckpointError(error.path, error.line, f"{error.reason}; or {how}") from error


def _refuse_damaged_identity(fs: FileSystem, path: str, error: ReplogError) -> None:
    """Says that it is our own `meta.properties` which is damaged, where another error came of that."""
    damaged = None
    with contextlib.suppress(OSError):  # then the first error says more
        damaged = damaged_identity(fs, partition_folder(path))
    if damaged is not None:
        reason = (
            f"{damaged.reason}. Nothing was changed: `replog log repair {partition_folder(path)}` makes it anew, for what it "
            "holds is the same for every log of open_log; or restore the file"
        )
        raise CorruptCheckpointError(damaged.path, 0, reason) from error


def _refuse_foreign(fs: FileSystem, path: str) -> None:
    """Refuses what is no folder of ours before anything in it is changed.

    Raises:
        StorageError: It is a file, a folder with other things in it, or a folder with more replicas than the one.
    """
    if not fs.exists(path):
        return
    if not fs.is_dir(path):
        raise StorageError(f"{path} is a file; a log is a folder. Give open_log a new or empty folder")
    ours = partition_dir_name(TOPIC, PARTITION)
    names = fs.list_dir(path)
    if META_PROPERTIES_FILE in names:
        others = [
            name for name in names if name != ours and parse_partition_dir_name(name) and _holds_log(fs, path, name)
        ]
    else:
        others = [name for name in names if name not in _HARMLESS_NAMES]
    if others:
        raise StorageError(
            f"{path} is no log that open_log made: it holds {others[0]}. Nothing was changed: "
            "give open_log a new or empty folder"
        )


def _holds_log(fs: FileSystem, path: str, name: str) -> bool:
    return fs.is_dir(f"{path}/{name}") and any(file.endswith(".log") for file in fs.list_dir(f"{path}/{name}"))
