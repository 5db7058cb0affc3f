"""The snapshots in the directory of a metadata log: which there are, how one is made, served, fetched and dropped.

Order of the log and its snapshots (docs/KAFKA.md 5.8), and what a crash after each step leaves:

| installing a fetched snapshot                    | what the next start finds                                       |
|--------------------------------------------------|-----------------------------------------------------------------|
| 1 its bytes written to a `.part`, verified, fsynced | the old log; the `.part` is removed                          |
| 2 renamed, folder fsynced                        | a snapshot beyond the log: the log is emptied (step 3)          |
| 3 log emptied, starts at the snapshot's end      | done                                                            |

| dropping old snapshots                           | what the next start finds                                       |
|--------------------------------------------------|-----------------------------------------------------------------|
| 1 log start raised to the end of a kept one, durably | snapshots below the log start: dropped                      |
| 2 older files renamed to `.deleted`              | `.deleted` files: removed                                       |
| 3 they are removed, some time later              | done                                                            |

So whenever the log starts above 0, there is a snapshot that ends exactly there or, after a crash, one above it that the
start moves to.

Owned by one task; the jobs run in any thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from replog.errors import InvariantViolationError
from replog.log.snapshots.files import (
    DELETED_SNAPSHOT_SUFFIX,
    PART_SUFFIX,
    SnapshotContext,
    SnapshotId,
    parse_snapshot_name,
    read_context,
    snapshot_path,
    verify_snapshot,
    write_part,
)
from replog_checkpoints import Buffer, File, FileSystem, OpenMode


class SnapshotAge(Struct, frozen=True):
    """One snapshot, for retention.

    Attributes:
        end_offset: The offset below which it stands for everything.
        size_bytes: Size of its file.
        timestamp_ms: Wall time of the last record it contains.
    """

    end_offset: int
    size_bytes: int
    timestamp_ms: int


def log_start_after_cleaning(
    snapshots: Sequence[SnapshotAge], *, log_size_bytes: int, now_ms: int, retention_bytes: int, retention_ms: int
) -> int | None:
    """Returns where the log may start: at the end of the first snapshot that is kept.

    Snapshots go from the oldest, as long as log and snapshots together are too large or the oldest is too old, and never
    the newest: it and the log behind it are the state.

    Args:
        snapshots: All snapshots, the oldest first.
        log_size_bytes: Bytes of all segments.
        now_ms: Wall time.
        retention_bytes: Limit of log and snapshots together; negative: no limit.
        retention_ms: Limit of the age of the oldest one's last record; negative: no limit.

    Returns:
        None: all of them stay.
    """
    total_bytes = log_size_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    kept = 0
    while kept < len(snapshots) - 1:
        oldest = snapshots[kept]
        is_too_large = 0 <= retention_bytes < total_bytes
        is_too_old = 0 <= retention_ms < now_ms - oldest.timestamp_ms
        if not (is_too_large or is_too_old):
            break
        total_bytes -= oldest.size_bytes
        kept += 1
    return snapshots[kept].end_offset if kept else None


FETCHED_PART_SUFFIX: Final = f".fetched{PART_SUFFIX}"
"""End of the name of a snapshot that is being fetched: this node may be writing one of the same id itself."""


class _Download(Struct):
    """A snapshot that is being fetched; `source` is the leader and epoch it comes from."""

    snapshot_id: SnapshotId
    source: tuple[int, int]
    file: File
    position: int = 0


class SnapshotWriteJob(Struct, frozen=True):
    """Writes a snapshot, durably.  In any thread; then the owner calls `SnapshotStore.add`."""

    fs: FileSystem
    directory: str
    snapshot_id: SnapshotId
    context: SnapshotContext
    values: Iterable[bytes]
    timestamp_ms: int

    def run(self) -> None:
        """Writes the snapshot to a `.part`, fsynced, then gives it its name, durably.

        Raises:
            OSError: The disk failed or is full; nothing but a `.part` is there.
        """
        part = snapshot_path(self.directory, self.snapshot_id, PART_SUFFIX)
        try:
            write_part(self.fs, part, self.snapshot_id, self.context, self.values, timestamp_ms=self.timestamp_ms)
            self.fs.rename(part, snapshot_path(self.directory, self.snapshot_id))
            self.fs.sync_dir(self.directory)
        except BaseException:
            with contextlib.suppress(OSError):
                self.fs.remove(part)
            raise


class SnapshotRemoveJob(Struct, frozen=True):
    """Removes the files of dropped snapshots.  In any thread."""

    fs: FileSystem
    paths: tuple[str, ...]

    def run(self) -> None:
        """Removes the files; those that are gone already are passed over.

        Raises:
            OSError: The disk failed; the remaining files are removed at the next start.
        """
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):
                self.fs.remove(path)


class SnapshotStore:
    """The snapshots of one metadata log.

    Invariants:
        - `ids` are complete, durable files;
        - at most one snapshot is being fetched.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        """Finds the snapshots; removes the remains of a crash.

        Raises:
            OSError: The disk failed or is full.
        """
        self._fs = fs
        self._directory = directory
        self._download: _Download | None = None
        names = fs.list_dir(directory)
        for name in names:
            if name.endswith((PART_SUFFIX, DELETED_SNAPSHOT_SUFFIX)):
                fs.remove(f"{directory}/{name}")
        self._ids = sorted(found for name in names if (found := parse_snapshot_name(name)) is not None)

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """All snapshots, the oldest first."""
        return tuple(self._ids)

    @property
    def earliest(self) -> SnapshotId | None:
        """The oldest snapshot; None: there is none."""
        return self._ids[0] if self._ids else None

    @property
    def latest(self) -> SnapshotId | None:
        """The newest snapshot; None: there is none."""
        return self._ids[-1] if self._ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        """Returns the path of a snapshot."""
        return snapshot_path(self._directory, snapshot_id)

    def context(self, snapshot_id: SnapshotId) -> SnapshotContext:
        """Reads the context in the header of a snapshot.

        Raises:
            CorruptRecordError: It is damaged.
            OSError: The disk failed.
        """
        return read_context(self._fs, self.path(snapshot_id))

    def size_bytes(self, snapshot_id: SnapshotId) -> int:
        """Returns the size of a snapshot's file."""
        return self._fs.size(self.path(snapshot_id))

    # ---- making -----------------------------------------------------------------------------------------------------

    def prepare_write(
        self, snapshot_id: SnapshotId, context: SnapshotContext, values: Iterable[bytes], *, timestamp_ms: int
    ) -> SnapshotWriteJob | None:
        """Prepares a job that writes a snapshot; None when it is there.  `values` are taken in the job's thread."""
        if snapshot_id in self._ids:
            return None
        return SnapshotWriteJob(self._fs, self._directory, snapshot_id, context, values, timestamp_ms)

    def add(self, snapshot_id: SnapshotId) -> None:
        """Takes a snapshot that a job has written."""
        if snapshot_id not in self._ids:
            self._ids = sorted([*self._ids, snapshot_id])

    # ---- serving ----------------------------------------------------------------------------------------------------

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Reads (size of the whole file, its bytes from `position`); None when there is no such snapshot (any more).

        Raises:
            OSError: The disk failed.
        """
        if snapshot_id not in self._ids:
            return None
        file = self._fs.open(self.path(snapshot_id), OpenMode.READ)
        try:
            return file.size(), file.pread(max_bytes, position)
        finally:
            file.close()

    # ---- fetching ---------------------------------------------------------------------------------------------------

    def begin_download(self, snapshot_id: SnapshotId, source: tuple[int, int]) -> int:
        """Opens the `.part`; returns how many bytes of it are there.

        Args:
            snapshot_id: Id of the snapshot that is fetched.
            source: The leader id and epoch that it is fetched from.  Two nodes' files of one id need not be the same
                bytes, so an interrupted download goes on only from where it came.

        Raises:
            OSError: The disk failed or is full.
        """
        if self._download is not None:
            if (self._download.snapshot_id, self._download.source) == (snapshot_id, source):
                return self._download.position
            self.abandon_download()
        file = self._fs.open(snapshot_path(self._directory, snapshot_id, FETCHED_PART_SUFFIX), OpenMode.REPLACE)
        self._download = _Download(snapshot_id, source, file)
        return 0

    def write_chunk(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> int:
        """Appends to the `.part`; returns its size now.  A chunk that does not belong there changes nothing.

        Raises:
            OSError: The disk failed or is full.
        """
        download = self._download_or_raise(snapshot_id)
        if position == download.position:
            download.position += download.file.pwrite([data], position)
        return download.position

    def check_download(self, snapshot_id: SnapshotId) -> None:
        """Verifies the whole `.part` and makes it durable; touches nothing else.  In any thread.

        Raises:
            CorruptRecordError: The downloaded snapshot is damaged.
            OSError: The disk failed or is full.
        """
        download = self._download_or_raise(snapshot_id)
        verify_snapshot(self._fs, download.file.path)
        download.file.sync()

    def finish_download(self, snapshot_id: SnapshotId) -> None:
        """Gives a checked `.part` its name, durably.

        Raises:
            OSError: The disk failed or is full.
        """
        download = self._download_or_raise(snapshot_id)
        download.file.close()
        self._download = None
        self._fs.rename(download.file.path, self.path(snapshot_id))
        self._fs.sync_dir(self._directory)
        self.add(snapshot_id)

    def abandon_download(self) -> None:
        """Drops a half-fetched snapshot, if there is one."""
        if self._download is not None:
            path = self._download.file.path
            self._download.file.close()
            self._download = None
            with contextlib.suppress(OSError):
                self._fs.remove(path)

    # ---- dropping ---------------------------------------------------------------------------------------------------

    def drop_below(self, end_offset: int) -> SnapshotRemoveJob:
        """Forgets the snapshots that end below `end_offset`; their files are removed by the job.

        Raises:
            OSError: The disk failed or is full.
        """
        paths: list[str] = []
        for snapshot_id in [found for found in self._ids if found.end_offset < end_offset]:
            self.set_aside(snapshot_id)
            paths.append(snapshot_path(self._directory, snapshot_id, DELETED_SNAPSHOT_SUFFIX))
        return SnapshotRemoveJob(self._fs, tuple(paths))

    def set_aside(self, snapshot_id: SnapshotId) -> None:
        """Forgets a snapshot; its file goes with the next start at the latest.

        Raises:
            OSError: The disk failed or is full.
        """
        target = snapshot_path(self._directory, snapshot_id, DELETED_SNAPSHOT_SUFFIX)
        self._fs.rename(self.path(snapshot_id), target)
        self._ids.remove(snapshot_id)

    def close(self) -> None:
        """Ends a download that is under way."""
        self.abandon_download()

    def _download_or_raise(self, snapshot_id: SnapshotId) -> _Download:
        if self._download is None or self._download.snapshot_id != snapshot_id:
            raise InvariantViolationError(f"snapshot {snapshot_id.stem} is not being fetched")
        return self._download
