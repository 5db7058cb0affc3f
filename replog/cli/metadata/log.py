"""The metadata log of a node as files, read without changing a byte: the image at any offset that is still there.

An image is made of the newest snapshot at or below the offset and the records behind it.  What is in the files need not be
committed: a node alone cannot tell, so the last records may be gone after the next election.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from replog.cli.errors import CommandFailedError, UsageError
from replog.errors import CorruptRecordError, InvariantViolationError, OffsetOutOfRangeError, ReplogError
from replog.log import Log
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.snapshots.files import SnapshotId, parse_snapshot_name, read_values, snapshot_path
from replog.metadata import MetadataDelta, MetadataImage
from replog.records import Record, decode_batch, scan
from replog.rpc.metadata_records import decode_metadata_record
from replog_checkpoints import OsFileSystem

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
READ_BYTES = 1 << 20


class InconsistentMetadataError(CommandFailedError):
    """A record that cannot be replayed: it is none, or of an unknown kind, or contradicts what stands before it.

    Attributes:
        offset: The offset of the record.
    """

    def __init__(self, where: str, offset: int, reason: str) -> None:
        super().__init__(f"{where} offset {offset}: {reason}")
        self.offset = offset


class MetadataBatch(Struct, frozen=True):
    """One batch of the log, its records not decoded yet."""

    base_offset: int
    end_offset: int
    epoch: int
    is_control: bool
    records: tuple[Record, ...]


class MetadataLogFiles:
    """The metadata log in one folder, as it was when this was made.

    Args:
        path: The log directory that holds the metadata log, or the folder of the metadata log itself.

    Raises:
        UsageError: There is no metadata log in `path`.
        CorruptRecordError: Records that were flushed are damaged.
        StorageError: The disk failed.
    """

    def __init__(self, path: Path) -> None:
        self.directory = metadata_directory(path)
        self._fs = OsFileSystem()
        self._path = str(self.directory)
        names = self._fs.list_dir(self._path)
        self.snapshots = tuple(sorted(found for name in names if (found := parse_snapshot_name(name)) is not None))
        """The oldest first."""
        self._log = Log.open_read_only(self._fs, self._path, now_ms=time.time_ns() // 1_000_000)
        self._cached = MetadataImage()

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Exclusive end of all there is; a snapshot may reach beyond the log."""
        return max(self._log.log_end_offset, self.snapshots[-1].end_offset if self.snapshots else 0)

    @property
    def first_offset(self) -> int:
        """The lowest offset that there is an image of."""
        if self.log_start_offset == 0:
            return 0
        return self.snapshots[0].end_offset if self.snapshots else self.log_start_offset

    def snapshot_path(self, snapshot: SnapshotId) -> str:
        """Returns the path of a snapshot's file."""
        return snapshot_path(self._path, snapshot)

    def snapshot_size_bytes(self, snapshot: SnapshotId) -> int:
        """Returns the size of a snapshot's file."""
        return self._fs.size(self.snapshot_path(snapshot))

    def image_at(self, offset: int | None = None) -> MetadataImage:
        """Makes the image of everything below `offset`; None: of all there is.

        Raises:
            OffsetOutOfRangeError: There is no such image (any more, or yet).
            CorruptRecordError: A batch cannot be read.
            InconsistentMetadataError: A record cannot be replayed.
        """
        wanted = self.end_offset if offset is None else offset
        if not self.first_offset <= wanted <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.directory} has images from offset {self.first_offset} to {self.end_offset}, not at {wanted}",
                self.first_offset,
                self.end_offset,
            )
        image = self._image_to_start_from(wanted)
        if image.end_offset < wanted:
            self._check_no_hole(image.end_offset, wanted)
            image = self._replayed(image, wanted)
        self._cached = image
        return image

    def snapshot_image(self, snapshot: SnapshotId) -> MetadataImage:
        """Makes the image that a snapshot describes.

        Raises:
            CorruptRecordError: A batch cannot be read.
            InconsistentMetadataError: A record cannot be replayed; its offset is the one within the file.
        """
        path, delta = self.snapshot_path(snapshot), MetadataDelta(MetadataImage())
        for offset, value in read_values(self._fs, path):
            replay(delta, value, where=path, offset=offset)
        return delta.apply(snapshot.end_offset, snapshot.epoch)

    def batches(self, offset: int) -> Iterator[MetadataBatch]:
        """Yields the batches of the log from the one that holds `offset`, or the first, on.

        Raises (while it is iterated):
            CorruptRecordError: A batch cannot be read.
        """
        offset, end = max(offset, self._log.log_start_offset), self._log.log_end_offset
        while offset < end:
            data = self._log.read(offset, max_bytes=READ_BYTES, end_offset=end, min_one_batch=True)
            position = 0
            for header in scan(data):
                batch = data[position : header.end_position]
                position = header.end_position
                offset = header.next_offset
                yield MetadataBatch(
                    header.base_offset,
                    offset,
                    header.partition_leader_epoch,
                    header.is_control,
                    tuple(decode_batch(batch)),
                )
            if position == 0:
                raise CorruptRecordError(self._path, 0, f"no batch at offset {offset}, the log ends at {end}")

    def _replayed(self, image: MetadataImage, wanted: int) -> MetadataImage:
        delta, epoch = MetadataDelta(image), image.epoch
        for batch in self.batches(image.end_offset):
            if batch.base_offset >= wanted:
                break
            epoch = batch.epoch
            for record in () if batch.is_control else batch.records:
                if image.end_offset <= record.offset < wanted:
                    replay(delta, record.value, where=METADATA_DIRECTORY, offset=record.offset)
        return delta.apply(wanted, epoch)

    def _check_no_hole(self, start: int, end: int) -> None:
        """Refuses offsets [start, end) that the log does not have.

        A crash while a snapshot is being installed leaves them: the snapshot ends above all that the log has.

        Raises:
            OffsetOutOfRangeError: The log does not have all of them.
        """
        if start < self._log.log_start_offset or end > self._log.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.directory} has a snapshot up to {start} and records from {self._log.log_start_offset} to "
                f"{self._log.log_end_offset}: there is no image at {end}",
                self._log.log_start_offset,
                self._log.log_end_offset,
            )

    def _image_to_start_from(self, wanted: int) -> MetadataImage:
        """Returns the newest image up to `wanted` that is cheap: the last one made, a snapshot's, or the empty one."""
        below = [snapshot for snapshot in self.snapshots if snapshot.end_offset <= wanted]
        best = below[-1] if below else SnapshotId(0, -1)
        if best.end_offset <= self._cached.end_offset <= wanted:
            return self._cached
        return self.snapshot_image(best) if below else MetadataImage()


def metadata_directory(path: Path) -> Path:
    """Returns the folder of the metadata log in `path`, or `path` itself where it is one.

    Raises:
        UsageError: There is no metadata log in `path`, and it is none.
    """
    for candidate in (path / METADATA_DIRECTORY, path):
        if candidate.name == METADATA_DIRECTORY and candidate.is_dir():
            return candidate.resolve()
    if path.is_dir() and any(child.suffix == ".log" for child in path.iterdir()):
        return path.resolve()  # a copy under another name
    raise UsageError(
        "--data-dir",
        str(path),
        f"{path} holds no metadata log: name a node's log directory, which has {METADATA_DIRECTORY}",
    )


def replay(delta: MetadataDelta, value: bytes | None, *, where: str, offset: int) -> None:
    """Decodes and replays one record.

    Raises:
        InconsistentMetadataError: The record cannot be decoded, or contradicts what stands before it.
    """
    try:
        record = decode_metadata_record(value, offset=offset)
    except ReplogError as error:
        raise InconsistentMetadataError(where, offset, str(error)) from error
    try:
        delta.replay(record)
    except InvariantViolationError as error:
        raise InconsistentMetadataError(where, offset, f"{type(record).__name__}: {error}") from error
