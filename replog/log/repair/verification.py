"""Verification: reads everything a log has on disk, changes nothing, and names all that does not fit.

Why apart from recovery: recovery decides and acts, and reads only what a start needs.  A verification reads the whole log, for
a person who wants to know whether a copy can be trusted, and where the first bad byte is.

Findings come in the order of the files; the first one of kind `DAMAGED` or `TORN` names the first bad offset.

| kind         | what it means                                               | what mends it                             |
|--------------|-------------------------------------------------------------|-------------------------------------------|
| `DAMAGED`    | record bytes that were flushed are wrong or gone            | another copy; else records are lost       |
| `MISSING`    | offsets that were never left out are gone; the rest is whole | another copy; else records are lost       |
| `TORN`       | the same at the end of the log, above what was flushed      | the next start cuts it: never acknowledged |
| `UNREADABLE` | the bytes are whole, and this installation cannot decode them | the library that its error names        |
| `DERIVED`    | an index, snapshot or epoch file does not fit the records   | it is made again from the records         |
| `CHECKPOINT` | a file that cannot be made again is unreadable or wrong     | a copy of it, or a decision               |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.errors import CorruptCheckpointError, CorruptRecordError, ReplogError, UnsupportedCompressionError
from replog.log.disk_space import reading_errors
from replog.log.epoch_cache import LeaderEpochCache, epoch_path
from replog.log.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_path, parse_file_name
from replog.log.producers.snapshot import decode_snapshot
from replog.log.recovery.completeness import Completeness, is_first_lost, read_complete_from
from replog.log.recovery.epoch_witness import UNKNOWN_EPOCH, contradicts
from replog.log.recovery.misplaced import misplaced_replica
from replog.log.recovery.plausibility import lost_segments
from replog.log.recovery.promises import read_promises
from replog.log.repair.index_verification import IndexVerifier
from replog.log.repair.transaction_verification import TransactionVerifier
from replog.log.segments.promised_end import promised_end_offset
from replog.log.segments.scan import PlacedBatch, scan_batches
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, check_records, describe_epoch
from replog_checkpoints import File, FileSystem, OpenMode


class FindingKind(Enum):
    """See the table of the module."""

    DAMAGED = "damaged"
    MISSING = "missing"
    TORN = "torn"
    UNREADABLE = "unreadable"
    DERIVED = "derived"
    CHECKPOINT = "checkpoint"


class Finding(Struct, frozen=True):
    """One thing that does not fit.

    Attributes:
        kind: How bad it is.
        path: The file.
        position: The byte in it; None where the file as a whole is meant.
        offset: The first offset that cannot be read because of it; None where no record is concerned.
        reason: The trouble, for people.
    """

    kind: FindingKind
    path: str
    position: int | None
    offset: int | None
    reason: str


class VerifiedTotals(Struct):
    """The extent of a verification.  Offsets are -1 while no segment was seen; the end is exclusive."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class LogVerifier:
    """Verifies the partition folder of one log; used once.

    Args:
        fs: The disk.
        directory: The partition folder.
        flushed_offset: The exclusive end of the flushed records, where a batch ends; None: unknown, then a bad end of the
            last segment counts as torn.
        deep: Whether records are decoded too, not only checksums: a record that cannot be read is not intact.
        is_compacted: Whether a cleaner has been there: gaps say nothing then.
        log_start_offset: The log start as checkpointed, below which nothing is missed; 0: unknown.
        is_closed: Whether the log was closed in order and is not open: then the last segment's transaction index is
            complete.
    """

    fs: FileSystem
    directory: str
    flushed_offset: int | None
    deep: bool = True
    is_closed: bool = False
    is_compacted: bool = False
    log_start_offset: int = 0
    totals: VerifiedTotals = field(init=False, default_factory=VerifiedTotals)
    holes: list[tuple[int, int]] = field(init=False, default_factory=list)  # [first missing offset, the next one there)
    _expected_offset: int = field(init=False, default=0)
    _certain_offset: int = field(init=False, default=0)  # the same before the last batch, or segment name, was believed
    _doubtful_hole: tuple[Finding, tuple[int, int]] | None = field(init=False, default=None)  # before the same
    _is_damaged: bool = field(init=False, default=False)
    _is_behind_damage: bool = field(init=False, default=False)
    _epoch: int = field(init=False, default=UNKNOWN_EPOCH)
    _checkpointed_epochs: list[tuple[int, int]] | None = field(init=False, default=None)
    _epoch_starts: list[tuple[int, int]] = field(init=False, default_factory=list)
    _transactions: TransactionVerifier = field(init=False)
    _complete: Completeness = field(init=False)

    def __post_init__(self) -> None:
        self._transactions = TransactionVerifier(self.fs, self.directory, is_closed=self.is_closed)

    def run(self) -> Iterator[Finding]:
        """Yields everything that does not fit.

        Raises:
            TooManyOpenFilesError: This process may open no more files; verify again, once it may.
            StorageError: The directory or a file cannot be read.
        """
        with reading_errors("verified", self.directory):
            yield from self._run()

    def _run(self) -> Iterator[Finding]:
        names = self.fs.list_dir(self.directory)
        claim = None if self.is_compacted else read_complete_from(self.fs, self.directory)
        self._complete = Completeness(self.fs, self.directory, claim)
        with contextlib.suppress(checkpoints.DamagedCheckpointError):  # `_verify_epochs` says so
            self._checkpointed_epochs = checkpoints.read_leader_epochs(self.fs, epoch_path(self.directory))
        bases = _offsets_with(names, LOG_SUFFIX)
        yield from self._verify_orphans(names, bases)
        for number, base_offset in enumerate(bases):
            yield from self._verify_segment(base_offset, bases[number + 1] if number + 1 < len(bases) else None)
        yield from self._believed_hole()
        if self.flushed_offset is not None and self.flushed_offset > self._expected_offset and not self._is_damaged:
            yield from self._records_missing(bases)
        yield from self._verify_snapshots(_offsets_with(names, SNAPSHOT_SUFFIX))
        yield from self._verify_epochs()
        yield from self._verify_topic_id()

    # Segments

    def _verify_orphans(self, names: list[str], bases: list[int]) -> Iterator[Finding]:
        """Yields flushed segments of which only indexes are left; the next start sweeps those above the flushed offset."""
        flushed_offset = self.flushed_offset or 0
        was_clean = read_promises(self.fs, self.directory).clean
        for offset in lost_segments(names, self.log_start_offset, was_clean=was_clean):
            if offset < flushed_offset:
                path = file_path(self.directory, offset, LOG_SUFFIX)
                yield Finding(FindingKind.MISSING, path, None, offset, "the file is gone, its indexes are here")
                self.holes.append((offset, next((base for base in bases if base > offset), offset)))

    def _verify_segment(self, base_offset: int, next_base_offset: int | None) -> Iterator[Finding]:
        path = file_path(self.directory, base_offset, LOG_SUFFIX)
        if self.totals.segments == 0:
            self.totals.start_offset = self.totals.end_offset = self._expected_offset = base_offset
            yield from self._verify_start(base_offset)
        elif base_offset < self._expected_offset:
            reason = f"the segment begins at offset {base_offset}, the one before it ends at {self._expected_offset}"
            yield Finding(FindingKind.DAMAGED, path, None, base_offset, reason)
        yield from self._verify_no_hole(path, 0, base_offset)
        self._expected_offset = max(self._expected_offset, base_offset)
        self.totals.segments += 1
        indexes = IndexVerifier(self.fs, self.directory, base_offset, is_sealed=next_base_offset is not None)
        self._transactions.begin_segment(base_offset)
        file = self.fs.open(path, OpenMode.READ)
        try:
            yield from self._verify_batches(file, indexes, next_base_offset)
        finally:
            file.close()
        for index_path, position, reason in indexes.finish():
            yield Finding(FindingKind.DERIVED, index_path, position, None, reason)
        for index_path, reason in self._transactions.finish_segment(is_last=next_base_offset is None):
            yield Finding(FindingKind.DERIVED, index_path, None, None, reason)
        if next_base_offset is not None:
            yield from self._verify_promised_end(path, base_offset, next_base_offset)

    def _verify_promised_end(self, path: str, base_offset: int, next_base_offset: int) -> Iterator[Finding]:
        """Yields a finding where a sealed segment ends before its indexes do, and no claim of completeness says more."""
        end_offset = self._expected_offset
        is_flushed = self.flushed_offset is None or end_offset < self.flushed_offset
        if self._is_behind_damage or self._complete.covers(end_offset) or not is_flushed:
            return
        promised = promised_end_offset(self.fs, self.directory, base_offset, next_base_offset)
        if promised > max(end_offset, self.log_start_offset):
            reason = f"its indexes know of offset {promised - 1}, the segment ends at {end_offset}"
            yield Finding(FindingKind.MISSING, path, None, end_offset, reason)
            self.holes.append((end_offset, next_base_offset))

    def _verify_batches(self, file: File, indexes: IndexVerifier, next_base_offset: int | None) -> Iterator[Finding]:
        try:
            for batch in scan_batches(file, 0, file.size()):
                self._verify_place(file.path, batch, next_base_offset)
                yield from self._verify_no_hole(file.path, batch.position, batch.header.base_offset)
                unreadable = self._verify_batch(file.path, batch)
                if unreadable is not None:
                    yield Finding(
                        FindingKind.UNREADABLE, file.path, batch.position, batch.header.base_offset, unreadable
                    )
                indexes.note_batch(batch.position, batch.header.last_offset, batch.header.max_timestamp)
        except CorruptRecordError as error:
            indexes.stop()
            self._transactions.stop()
            self._is_damaged = self._is_behind_damage = True
            yield from self._believed_hole()
            is_torn = next_base_offset is None and (
                self.flushed_offset is None or self._expected_offset >= self.flushed_offset
            )
            kind = FindingKind.TORN if is_torn else FindingKind.DAMAGED
            yield Finding(kind, file.path, error.position, self._expected_offset, error.reason)

    def _verify_place(self, path: str, batch: PlacedBatch, next_base_offset: int | None) -> None:
        """Refuses a batch that cannot stand where it does, for no checksum covers its offset.

        Raises:
            CorruptRecordError: It cannot, or the batch before it cannot.
        """
        header = batch.header
        if header.base_offset < self._expected_offset:
            reason = f"offset {header.base_offset} where {self._expected_offset} or more was expected"
            if self._certain_offset <= header.base_offset:  # one of the two is wrong, as `certain_end` says
                self._expected_offset = self.totals.end_offset = self._certain_offset
                self._doubtful_hole = None
            raise CorruptRecordError(path, batch.position, reason)
        if next_base_offset is not None and header.next_offset > next_base_offset:
            reason = f"offset {header.last_offset}, but the next segment begins at {next_base_offset}"
            raise CorruptRecordError(path, batch.position, reason)
        flush_end = (
            self.flushed_offset if next_base_offset is None else None
        )  # compaction may take the border elsewhere
        has_no_gaps = self._complete.offset is not None and self._complete.offset < (flush_end or 0)
        begins_below = has_no_gaps or header.base_offset < (flush_end or 0)
        if flush_end is not None and self._expected_offset < flush_end < header.next_offset and begins_below:
            reason = f"offsets up to {header.last_offset}, but a flush ended at {flush_end}, where no batch does"
            raise CorruptRecordError(path, batch.position, reason)

    def _verify_batch(self, path: str, batch: PlacedBatch) -> str | None:
        """Returns why its records cannot be read here although they are whole; None: they can."""
        header = batch.header
        self._verify_epoch(path, batch)
        unreadable = None
        try:
            if self.deep:
                unreadable = _check_records(batch)
            self._transactions.note_batch(header, batch.buffer)
        except ReplogError as error:
            raise CorruptRecordError(path, batch.position, str(error)) from error
        if header.partition_leader_epoch > self._epoch:
            self._epoch = header.partition_leader_epoch
            self._epoch_starts.append((self._epoch, header.base_offset))
        self._expected_offset = self.totals.end_offset = header.next_offset
        self.totals.batches += 1
        self.totals.records += header.records_count
        self.totals.bytes += header.size_bytes
        return unreadable

    def _verify_epoch(self, path: str, batch: PlacedBatch) -> None:
        """Refuses a batch whose epoch cannot be, for no checksum covers it.

        Raises:
            CorruptRecordError: It cannot be.
        """
        epoch, offset = batch.header.partition_leader_epoch, batch.header.base_offset
        wrong_epoch = describe_epoch(epoch, self._epoch)
        if wrong_epoch is not None:
            raise CorruptRecordError(path, batch.position, wrong_epoch)
        if contradicts(self._checkpointed_epochs, self._epoch, epoch, offset):
            reason = f"leader epoch {epoch}, but offset {offset} is of epoch {self._epoch}, as the leader-epoch checkpoint says"
            raise CorruptRecordError(path, batch.position, reason)

    def _verify_start(self, base_offset: int) -> Iterator[Finding]:
        epochs = self._checkpointed_epochs
        claim = self._complete.offset
        if claim is not None and is_first_lost(claim, base_offset, epochs, self.fs.list_dir(self.directory)):
            self._expected_offset = min(base_offset, max(claim, self.log_start_offset))
            path = file_path(self.directory, self._expected_offset, LOG_SUFFIX)
            yield from self._verify_no_hole(path, 0, base_offset)

    def _verify_no_hole(self, path: str, position: int, offset: int) -> Iterator[Finding]:
        """Notes a hole where what begins at `offset` does not follow what was seen before; yields the hole noted last.

        Only where nothing was ever left out.
        """
        yield from self._believed_hole()
        self._certain_offset = self._expected_offset
        first = max(self._expected_offset, self._complete.offset or 0, self.log_start_offset)
        if self._complete.offset is None or first >= offset:
            return
        if not self._is_behind_damage:  # behind damage, what was there is unknown
            reason = f"offsets {first} to {offset - 1} are missing, and no compaction took them"
            self._doubtful_hole = (Finding(FindingKind.MISSING, path, position, first, reason), (first, offset))
        self._expected_offset = offset
        self._is_behind_damage = False

    def _believed_hole(self) -> Iterator[Finding]:
        """Yields the last hole, unless a later batch has contradicted the batch behind it."""
        if self._doubtful_hole is not None:
            finding, hole = self._doubtful_hole
            self._doubtful_hole = None
            self.holes.append(hole)
            yield finding

    def _records_missing(self, bases: list[int]) -> Iterator[Finding]:
        path = file_path(self.directory, bases[-1], LOG_SUFFIX) if bases else self.directory
        reason = (
            f"the records end at offset {self._expected_offset}, everything below {self.flushed_offset} was flushed"
        )
        yield Finding(FindingKind.DAMAGED, path, None, self._expected_offset, reason)

    # What is made from the segments

    def _verify_snapshots(self, offsets: list[int]) -> Iterator[Finding]:
        for offset in offsets:
            path = file_path(self.directory, offset, SNAPSHOT_SUFFIX)
            try:
                decode_snapshot(path, _read(self.fs, path))
            except CorruptCheckpointError as error:
                yield Finding(FindingKind.DERIVED, path, None, None, error.reason)
                continue
            if offset > self._expected_offset and not self._is_damaged:
                reason = f"the producers as of offset {offset}, but the records end at {self._expected_offset}"
                yield Finding(FindingKind.DERIVED, path, None, None, reason)

    def _verify_epochs(self) -> Iterator[Finding]:
        """Yields where an epoch begins in the records and the checkpoint gives another one for that offset.

        Below its first entry it knows nothing: the log start has moved past those records.
        """
        path = epoch_path(self.directory)
        try:
            entries = checkpoints.read_leader_epochs(self.fs, path)
        except checkpoints.DamagedCheckpointError as error:
            yield Finding(FindingKind.DERIVED, path, None, None, f"line {error.line}: {error.reason}")
            return
        if entries is None:
            if self._epoch_starts:
                yield Finding(
                    FindingKind.DERIVED, path, None, None, "the file is missing, the records have leader epochs"
                )
            return
        cache = LeaderEpochCache(entries, lambda _: None)
        first_epoch = entries[0][0] if entries else UNKNOWN_EPOCH
        for epoch, offset in self._epoch_starts:
            found = cache.epoch_for_offset(offset)
            if found != epoch and not (found is None and epoch <= first_epoch):
                reason = f"offset {offset} has leader epoch {epoch}, the file says {found}"
                yield Finding(FindingKind.DERIVED, path, None, None, reason)

    def _verify_topic_id(self) -> Iterator[Finding]:
        path = f"{self.directory}/{checkpoints.PARTITION_METADATA_FILE}"
        try:
            checkpoints.read_partition_metadata(self.fs, path)
        except checkpoints.DamagedCheckpointError as error:
            yield Finding(FindingKind.CHECKPOINT, path, None, None, f"line {error.line}: {error.reason}")
        if (found := misplaced_replica(self.fs, self.directory)) is not None:
            yield Finding(FindingKind.CHECKPOINT, found.path, None, None, found.reason)


def _check_records(batch: PlacedBatch) -> str | None:
    """Decodes every record of a batch; returns the library that is missing here to do so."""
    try:
        check_records(batch.buffer, batch.header.position, max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX)
    except UnsupportedCompressionError as error:
        return str(error)
    return None


def _offsets_with(names: list[str], suffix: str) -> list[int]:
    parsed = (parse_file_name(name) for name in names)
    return sorted(found[0] for found in parsed if found is not None and found[1] == suffix)


def _read(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, OpenMode.READ)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
