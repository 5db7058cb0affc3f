"""What `replog metadata check` does: every byte, every record, every step of a metadata log, as rows.

1. the files: checksums, offsets, indexes (as `replog log verify`);
2. the records: each decodes and can be replayed on what stands before it;
3. the images: what must hold of partitions does, after every batch;
4. the snapshots: each is whole, ends where a batch ends, and is what the log says at its offset.

The replay begins with the empty image or, where the log begins later, with its first snapshot, and ends at the first
record that it cannot take: what follows it means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from replog.cli.checks.logs import verify_rows
from replog.cli.dump.rows import Row
from replog.cli.metadata.log import (
    METADATA_DIRECTORY,
    InconsistentMetadataError,
    MetadataBatch,
    MetadataLogFiles,
    metadata_directory,
    replay,
)
from replog.errors import CorruptRecordError, ReplogError
from replog.log.snapshots.files import SnapshotId
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.image_checks import image_differences, image_problems, step_problems


def check_rows(path: Path) -> Iterator[Row]:
    """Checks a metadata log; yields a `finding` row for each thing that is wrong, then one `checked` row.

    Raises:
        UsageError: There is no metadata log in `path`.
        OSError: A file cannot be read.
    """
    check = MetadataCheck(metadata_directory(path))
    for finding in check.run():
        check.note(finding)
        yield finding
    yield check.summary()


class MetadataCheck:
    """One check of one metadata log.

    Args:
        directory: The folder of the metadata log.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: MetadataLogFiles | None = None
        self._snapshot_images: dict[SnapshotId, MetadataImage] = {}
        self._image = MetadataImage()
        self._batches = 0
        self._records = 0
        self._findings = 0
        self._first_bad_offset: int | None = None

    def run(self) -> Iterator[Row]:
        """Yields the findings: of the files first, then of snapshots, then of records and images."""
        yield from (row for row in verify_rows(self._directory) if row["kind"] == "finding")
        try:
            self._files = files = MetadataLogFiles(self._directory)
        except ReplogError as error:
            yield _finding("log", None, str(error))
            return
        for snapshot in files.snapshots:
            yield from self._check_snapshot(files, snapshot)
        yield from self._check_start(files)
        yield from self._check_log(files)
        for snapshot in sorted(self._snapshot_images):
            if files.log_start_offset < snapshot.end_offset < self._image.end_offset:
                yield _finding("snapshot", snapshot.end_offset, f"{snapshot.stem} does not end where a batch ends")

    def note(self, finding: Row) -> None:
        """Counts a finding."""
        self._findings += 1
        offset = finding.get("offset")
        if offset is not None and (self._first_bad_offset is None or offset < self._first_bad_offset):
            self._first_bad_offset = offset

    def summary(self) -> Row:
        """Returns the `checked` row: what was looked at, and the lowest offset of a finding."""
        row: Row = {
            "kind": "checked",
            "path": str(self._directory),
            "snapshots": 0 if self._files is None else len(self._files.snapshots),
            "batches": self._batches,
            "records": self._records,
            "end_offset": self._image.end_offset,
            "findings": self._findings,
        }
        return row if self._first_bad_offset is None else row | {"first_bad_offset": self._first_bad_offset}

    def _check_snapshot(self, files: MetadataLogFiles, snapshot: SnapshotId) -> Iterator[Row]:
        try:
            image = files.snapshot_image(snapshot)
        except ReplogError as error:
            yield _finding("snapshot", snapshot.end_offset, str(error))
            return
        self._snapshot_images[snapshot] = image
        for problem in image_problems(image):
            yield _finding("snapshot", snapshot.end_offset, f"{snapshot.stem}: {problem}")

    def _check_start(self, files: MetadataLogFiles) -> Iterator[Row]:
        """Sets the image that the replay begins with."""
        start = files.log_start_offset
        if start == 0:
            return
        usable = [snapshot for snapshot in sorted(self._snapshot_images) if snapshot.end_offset >= start]
        if usable:
            self._image = self._snapshot_images.pop(usable[0])
        if not usable or usable[0].end_offset != start:
            reason = f"the log starts at {start}, and no snapshot that can be read ends there"
            yield _finding("snapshot", start, reason)

    def _check_log(self, files: MetadataLogFiles) -> Iterator[Row]:
        start, next_offset, epoch = self._image.end_offset, files.log_start_offset, -1
        if files.log_start_offset > start:
            return  # nothing to begin with: told above
        try:
            for batch in files.batches(files.log_start_offset):
                if batch.base_offset != next_offset:
                    yield _finding("gap", next_offset, f"offset {next_offset} is followed by {batch.base_offset}")
                if batch.epoch < epoch:
                    yield _finding("epoch", batch.base_offset, f"epoch {batch.epoch} comes after epoch {epoch}")
                next_offset, epoch = batch.end_offset, batch.epoch
                self._batches += 1
                if batch.end_offset > start:
                    yield from self._check_batch(batch)
        except InconsistentMetadataError as error:
            yield _finding("record", error.offset, str(error))
        except CorruptRecordError as error:
            yield _finding("log", next_offset, str(error))

    def _check_batch(self, batch: MetadataBatch) -> Iterator[Row]:
        delta = MetadataDelta(self._image)
        for record in () if batch.is_control else batch.records:
            replay(delta, record.value, where=METADATA_DIRECTORY, offset=record.offset)
            self._records += 1
        self._image = delta.apply(batch.end_offset, batch.epoch)
        for problem in step_problems(delta, self._image):
            yield _finding(
                "image", batch.base_offset, f"batch {batch.base_offset} to {batch.end_offset - 1}: {problem}"
            )
        snapshot = SnapshotId(batch.end_offset, batch.epoch)
        if (image := self._snapshot_images.pop(snapshot, None)) is not None:
            for difference in image_differences(image, self._image):
                yield _finding("snapshot", batch.end_offset, f"{snapshot.stem} is not what the log says: {difference}")


def _finding(problem: str, offset: int | None, reason: str) -> Row:
    row: Row = {"kind": "finding", "problem": problem}
    if offset is not None:
        row["offset"] = offset
    return row | {"reason": reason}
