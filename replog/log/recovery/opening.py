"""Opening one log, for writing or for reading only: the files beside it, the loader, and refusals of the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from replog.errors import StorageError
from replog.log.config import LogConfig
from replog.log.disk_space import disk_full, is_disk_full, is_out_of_files
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loaded_log import LoadedLog
from replog.log.recovery.loader import LogLoader
from replog.log.recovery.promises import Promises, read_promises
from replog.log.recovery.read_only_view import ReadOnlyView
from replog.log.recovery.segment_recovery import ScanProgress
from replog.log.segments.segment import OFFSET_MAX
from replog_checkpoints import FileSystem, make_durable_dirs, parent_of

READ_ONLY_LOOKS_MAX: Final = 100
"""How often a log is looked at anew because a writer has deleted files of it meanwhile, before a reader gives up."""


def load_for_writing(
    fs: FileSystem,
    directory: str,
    config: LogConfig,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    on_progress: Callable[[ScanProgress], None] | None,
    *,
    clean: bool,
    is_compacted: bool,
) -> LoadedLog:
    """Loads the log in `directory`, which is made when it is not there; recovers it after a crash.

    The arguments are those of `Log.open`.

    Raises:
        CorruptRecordError, DiskFullError, StorageError: See `Log.open`.
    """
    try:
        make_durable_dirs(fs, directory)
        if not clean:  # a killed process may have made it and never synced its name
            fs.sync_dir(parent_of(directory))
        flushed_file = FlushedOffsetFile.load(fs, directory)
        loader = LogLoader(fs, directory, config, recovery_point, flushed_file, log_start_offset, clean, now_ms)
        loader.on_progress = on_progress
        loader.is_compacted = is_compacted
        loaded = loader.load()
        if clean:  # another program may have cut the log since
            flushed_file.lower_to(loaded.log_end_offset)
        else:  # recovery has made segments durable that no checkpoint knows of yet
            flushed_file.raise_to(loaded.recovery_point, flushed_file.era)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full("the log cannot be opened", directory, error) from error
        raise StorageError(f"{directory} cannot be opened: {error}. Check the disk, then start again") from error
    return loaded


def load_for_reading(
    fs: FileSystem,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    promises: Promises | None,
    verify_all: bool,
    on_progress: Callable[[ScanProgress], None] | None,
) -> tuple[ReadOnlyView, LoadedLog]:
    """Loads a log without changing a byte on disk; returns the view of the disk, and the log in it.

    The arguments are those of `Log.open_read_only`.

    Raises:
        CorruptRecordError, TooManyOpenFilesError, StorageError: See `Log.open_read_only`.
    """
    try:
        for _ in range(READ_ONLY_LOOKS_MAX):
            known = promises or read_promises(fs, directory)
            view = ReadOnlyView(fs, directory)
            loader = _read_only_loader(view, directory, config, known, now_ms, verify_all=verify_all)
            loader.on_progress = on_progress
            try:
                return view, loader.load()
            except (OSError, StorageError):
                if view.is_outdated():  # a writer deletes files: the ones that were seen are not of one moment
                    continue
                raise
    except OSError as error:
        if is_out_of_files(error):
            raise disk_full("the log cannot be opened", directory, error) from error
        raise StorageError(f"{directory} cannot be read: {error}. Check the path and the disk") from error
    raise StorageError(
        f"{directory} cannot be read: files came and went during each of {READ_ONLY_LOOKS_MAX} attempts, because a "
        "process deletes from this log. What was seen says nothing: open it again"
    )


def _read_only_loader(
    view: ReadOnlyView, directory: str, config: LogConfig, promises: Promises, now_ms: int, *, verify_all: bool
) -> LogLoader:
    return LogLoader(
        view,
        directory,
        config,
        promises.recovery_point,
        FlushedOffsetFile(view, directory, promises.flushed_offset),
        promises.log_start_offset,
        promises.clean and not verify_all,
        now_ms,
        is_read_only=True,
        scan_from=0 if verify_all else None if promises.recovery_point else OFFSET_MAX,
        is_compacted=promises.is_compacted,
        opens_holes=True,
    )
