"""`replog.open_log`: one function, whose keywords are the fields of `LocalLogConfig`."""

from __future__ import annotations

import os
from typing import Any, Literal, overload

from replog.errors import ConfigError, StorageError
from replog.local.config import FlushPolicy, LocalLogConfig, codec_named
from replog.local.encoding import GroupEncoder, wall_ms
from replog.local.folder import LogFolder, checked_path, partition_folder
from replog.local.local_log import LocalLog, ReadOnlyLog
from replog.log import Log
from replog.log.directories.identity import storage_errors
from replog.records import Codec, CodecName
from replog_checkpoints import FileSystem, OsFileSystem


@overload
def open_log(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[False] = False,
    flush: FlushPolicy = "always",
    flush_interval_ms: int = 1_000,
    codec: CodecName | Codec = "none",
    segment_bytes: int = 1 << 30,
    segment_ms: int | None = None,
    max_batch_bytes: int = 1_048_588,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    maintenance_interval_ms: int = 1_000,
    dirty_window_bytes: int = 0,
    file_system: FileSystem | None = None,
) -> LocalLog: ...
@overload
def open_log(
    path: str | os.PathLike[str], *, read_only: Literal[True], file_system: FileSystem | None = None
) -> ReadOnlyLog: ...
def open_log(
    path: str | os.PathLike[str], *, read_only: bool = False, file_system: FileSystem | None = None, **settings: Any
) -> LocalLog | ReadOnlyLog:
    """Opens the log in a folder, creating it when there is none; recovers what a crash left.

    ::

        with replog.open_log("orders") as log:
            offset = log.append(b"two coffees", key=b"table-7")  # on the disk when it returns
            for record in log:
                print(record.offset, record.timestamp, record.key, record.value)

    Args:
        path: The folder, new, empty, or made by `open_log`; it belongs to this log alone.  With `read_only` also a single
            partition folder (`flights-3`) of a replog broker or of Kafka, running or not.
        read_only: Whether to take no lock and change no byte, and to show what is there now.  Takes no other setting.
        flush: The moment when an append returns: "always" = after an fsync; "os" = once the operating system has it.
        flush_interval_ms: The pace of fsyncs in the background with "os", ms; 0 = sealed segments only.
        codec: The codec of new batches: "none", "gzip", "snappy", "lz4", "zstd" (all but gzip: `replog[compression]`).
        segment_bytes: The size of a segment file, bytes, 1,024 to 2^31 - 1.
        segment_ms: The age of a segment, ms.
        max_batch_bytes: The size of the largest batch, bytes; a record must fit into one.
        retention_ms: The age above which segments are deleted, ms; None = never.
        retention_bytes: The size above which the oldest segments are deleted, bytes; None = no limit.
        maintenance_interval_ms: The pace of the maintenance thread, ms; 0 = no thread.
        dirty_window_bytes: The bytes that may be dirty in memory; 0 = the kernel decides.
        file_system: Another disk than this machine's, such as `replog.testing.SimulatedFileSystem`; None = this machine's.

        Each is a field of `LocalLogConfig`, which says more.

    Returns:
        A `LocalLog`, or with `read_only` a `ReadOnlyLog`.  Close it, or use it in a `with`.

    Raises:
        ConfigError: A setting is unknown or out of range, or the path is empty.
        UnsupportedCompressionError: The codec's library is not installed.
        DirectoryLockedError: The log is open for writing already.
        InconsistentClusterIdError: The folder is a broker's.
        CorruptRecordError, CorruptCheckpointError: What was on the disk is damaged; nothing was changed.
        DiskFullError: There is no room to create or recover it.
        TooManyOpenFilesError: This process may open no more files; the same works once it may.
        StorageError: The path is a file, or a folder with other things in it, or the disk failed.
    """
    fs = OsFileSystem() if file_system is None else file_system
    folder_path = checked_path(path)
    if read_only:
        if settings:
            name = next(iter(settings))
            raise ConfigError(name, settings[name], f"{name} has no meaning with read_only=True: leave it out")
        with storage_errors(folder_path):
            return _open_read_only(fs, folder_path)
    config = _config(settings)
    GroupEncoder(config.codec, config.batch_bytes)  # a missing library is found before anything is created
    with storage_errors(folder_path):
        return LocalLog(fs, LogFolder.open(fs, folder_path, config.log_config(), now_ms=wall_ms()), config)


def _config(settings: dict[str, Any]) -> LocalLogConfig:
    known = LocalLogConfig.__struct_fields__
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(name, value, f"open_log has no setting {name!r}; it has {', '.join(known)}")
    if "codec" in settings:
        settings["codec"] = codec_named(settings["codec"])
    return LocalLogConfig(**settings)


def _open_read_only(fs: FileSystem, path: str) -> ReadOnlyLog:
    if not fs.is_dir(path):
        raise StorageError(f"{path} is no folder: there is no log to read")
    directory = partition_folder(path)
    if not fs.is_dir(directory):
        directory = path
    if not any(name.endswith(".log") for name in fs.list_dir(directory)):
        raise StorageError(f"{path} holds no log: give the folder of open_log, or a partition folder such as flights-3")
    return ReadOnlyLog(fs, path, Log.open_read_only(fs, directory, now_ms=wall_ms()))
