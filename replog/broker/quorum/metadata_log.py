"""The metadata log of one node with its snapshots: what the quorum decides by, appends to, and starts from.

The log is an ordinary `replog.log.Log`; here it is put together with the snapshot files beside it and with the voter sets
that stand in both.  Owned by the quorum's driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from replog.broker.clock import Clock
from replog.broker.quorum.voter_records import from_records, to_records, voter_sets_in
from replog.errors import CorruptRecordError, DiskFullError, InvariantViolationError, StorageError
from replog.log import Log
from replog.log.snapshots.files import SnapshotId, read_values, verify_snapshot
from replog.log.snapshots.store import SnapshotStore
from replog.records import (
    BatchHeader,
    ControlRecordType,
    check_crc,
    control_record_type,
    decode_batch,
    encode_batch,
    encode_leader_change,
    encode_voters_batch,
    scan,
)
from replog_checkpoints import FileSystem
from replog_quorum import EpochEnd, VoterSet

READ_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class MetadataLog:
    """Log and snapshots as one; `replog_quorum.LogView` for the core.

    Invariants:
        - where the log starts above 0, a snapshot ends at its start;
        - `voter_sets` are those of the newest snapshot and of the log behind it, ascending.

    Attributes:
        log: The log itself.
        snapshots: The files beside it.
        voter_sets: The pairs (offset of the record, voter set); a snapshot's set stands just below its end.
    """

    def __init__(self, fs: FileSystem, log: Log, clock: Clock, make_room: Callable[[], bool]) -> None:
        """Brings log and snapshots together after a start: blocks for as long as the disk needs.

        Args:
            fs: The disk.
            log: The metadata log, opened and recovered.
            clock: The clock of the node.
            make_room: The function that gives the reserve of a full disk back, for one more try, and says whether there
                was one.

        Raises:
            CorruptRecordError: The log starts above 0 and no whole snapshot holds what came before; or a batch behind the
                newest snapshot is damaged.
            StorageError: The disk failed.
        """
        self.log = log
        self._fs = fs
        self._clock = clock
        self._make_room = make_room
        self.snapshots = SnapshotStore(fs, log.directory)
        self._drop_damaged()
        self._meet_snapshots()
        log.flush()  # what a crash left only in the page cache must be on disk before this node vouches for it
        self.voter_sets = self._find_voter_sets()

    # ---- what the core sees -------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.flushed_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, which may be in the snapshot that the log follows; 0 for nothing at all."""
        if self.log.last_epoch is not None:
            return self.log.last_epoch
        latest = self.snapshots.latest
        return 0 if latest is None else latest.epoch

    @property
    def latest_snapshot_id(self) -> EpochEnd | None:
        return _epoch_end(self.snapshots.latest)

    @property
    def earliest_snapshot_id(self) -> EpochEnd | None:
        return _epoch_end(self._earliest_snapshot)

    @property
    def _earliest_snapshot(self) -> SnapshotId | None:
        """The oldest one that counts: one that ends below the log start is about to be dropped."""
        return next((found for found in self.snapshots.ids if found.end_offset >= self.log.log_start_offset), None)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Returns where `epoch` ends (docs/KAFKA.md 5.4).

        An epoch below the log ends with the earliest snapshot, an unknown one with the log.
        """
        end = self.log.end_offset_for_epoch(epoch)
        if end is None:
            return EpochEnd(self.last_epoch, self.log.log_end_offset)
        earliest = self._earliest_snapshot
        start_offset = self.log.log_start_offset
        if earliest is not None and earliest.end_offset == start_offset and end.end_offset <= start_offset:
            return EpochEnd(earliest.epoch, earliest.end_offset)
        return EpochEnd(end.epoch, end.end_offset)

    # ---- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> bytes:
        """Reads whole batches from the one that holds `offset`, at least one if there is one below `end_offset`."""
        return self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)

    def snapshot_values(self, snapshot_id: SnapshotId) -> Iterator[tuple[int, bytes]]:
        """Yields (offset within the file, value) of each record of a snapshot."""
        return read_values(self._fs, self.snapshots.path(snapshot_id))

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """Returns the voter set in force for records below `end_offset`; None where it is the configured one."""
        return next((voters for offset, voters in reversed(self.voter_sets) if offset < end_offset), None)

    def check_snapshot(self, snapshot_id: SnapshotId, committed_end_offset: int) -> None:
        """Refuses to write a snapshot that others would take for what it is not: all of it counts as committed, wherever it goes.

        Args:
            snapshot_id: The end, which is above the log start, and the epoch of the last record below it.
            committed_end_offset: The end of what is known to be committed.

        Raises:
            InvariantViolationError: It ends above that, or its last record has another epoch in the log.
        """
        if snapshot_id.end_offset > committed_end_offset:
            raise InvariantViolationError(
                f"snapshot {snapshot_id.stem} ends above offset {committed_end_offset}, up to which is committed"
            )
        epoch = self.log.leader_epochs.epoch_for_offset(snapshot_id.end_offset - 1)
        if epoch != snapshot_id.epoch:
            raise InvariantViolationError(
                f"the last record of snapshot {snapshot_id.stem} has epoch {epoch} in the log"
            )

    # ---- appending ----------------------------------------------------------------------------------------------------

    def append_leader_change(
        self, epoch: int, leader_id: int, voters: Sequence[int], granting_voters: Sequence[int]
    ) -> None:
        """Appends the first batch of a new epoch."""
        self._with_room(lambda: self.log.assign_epoch_start(epoch))
        batch = encode_leader_change(
            base_offset=self.log.log_end_offset,
            leader_epoch=epoch,
            timestamp_ms=self._clock.wall_ms(),
            leader_id=leader_id,
            voters=voters,
            granting_voters=granting_voters,
        )
        self._append_as_leader(batch, epoch)

    def append_voters(self, epoch: int, voters: VoterSet, *, writes_version: bool) -> list[tuple[int, VoterSet]]:
        """Appends a new voter set, in force at once; returns what `voter_sets` has gained."""
        batch = encode_voters_batch(
            to_records(voters),
            writes_version=writes_version,
            base_offset=self.log.log_end_offset,
            leader_epoch=epoch,
            timestamp_ms=self._clock.wall_ms(),
        )
        self._append_as_leader(batch, epoch)
        found = [(self.log.log_end_offset - 1, voters)]
        self.voter_sets += found
        return found

    def append_values(self, epoch: int, values: Sequence[bytes]) -> None:
        """Appends one batch of metadata records."""
        now_ms = self._clock.wall_ms()
        self._append_as_leader(encode_batch([(now_ms, None, value, ()) for value in values]), epoch)

    def append_fetched(self, batches: bytes | memoryview, leader_epoch: int) -> list[tuple[int, VoterSet]]:
        """Appends what a leader sent; returns the voter sets in what was appended of it.

        Damaged bytes, and batches of an epoch above `leader_epoch`, are left out with everything behind them.

        Raises:
            StorageError: The disk failed.
        """
        start_offset = self.log.log_end_offset
        try:
            self._with_room(
                lambda: self.log.append_as_follower(batches, now_ms=self._clock.wall_ms(), leader_epoch=leader_epoch)
            )
        except CorruptRecordError as error:
            if error.path:  # a file of ours, not what came over the network
                raise
            _log.warning("what the quorum's leader sent is damaged and is fetched again: %s", error)
        end_offset = self.log.log_end_offset
        if end_offset == start_offset:
            return []
        found = [entry for entry in voter_sets_in(batches) if start_offset <= entry[0] < end_offset]
        self.voter_sets += found
        return found

    def _append_as_leader(self, batch: bytes, epoch: int) -> None:
        self._with_room(lambda: self.log.append_as_leader(batch, leader_epoch=epoch, now_ms=self._clock.wall_ms()))

    def _with_room(self, write: Callable[[], object]) -> None:
        """Runs `write`; where the disk is full, gives the reserve back and tries once more.

        A quorum cannot leave a write out: without room the node stops.

        Raises:
            StorageError: The disk is full, and there was no reserve or it was not enough.
        """
        try:
            write()
        except DiskFullError as error:
            if not self._make_room():
                raise StorageError(str(error)) from error
            try:
                write()
            except DiskFullError as again:
                raise StorageError(str(again)) from again

    # ---- cutting ------------------------------------------------------------------------------------------------------

    def truncate_to(self, end_offset: int) -> None:
        """Cuts the tail, and forgets the voter sets in it."""
        before = self.log.log_end_offset
        _log.info(
            "metadata log: truncated from %d to %d: the leader of the quorum has other records from there on",
            before, end_offset,
            extra={"event": "metadata_truncated", "offset": end_offset, "log_end_offset": before},
        )  # fmt: skip
        self._with_room(lambda: self.log.truncate_to(end_offset))
        self.voter_sets = [entry for entry in self.voter_sets if entry[0] < end_offset]

    def install(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """Starts anew from a snapshot that has been fetched and checked; returns its voters, None where they are configured.

        Raises:
            StorageError: The disk failed.
        """
        try:
            self.snapshots.finish_download(snapshot_id)
            self._start_at(snapshot_id)
            self.snapshots.drop_below(snapshot_id.end_offset).run()
        except OSError as error:
            raise StorageError(f"snapshot {snapshot_id.stem} cannot be installed: {error}. Check the disk") from error
        self.voter_sets = self._voter_set_of(snapshot_id)
        return self.voter_sets[0][1] if self.voter_sets else None

    # ---- after a start ------------------------------------------------------------------------------------------------

    def _drop_damaged(self) -> None:
        """Sets damaged snapshots aside, which are useless; an older one and the log may still hold everything."""
        for snapshot_id in self.snapshots.ids:
            try:
                verify_snapshot(self._fs, self.snapshots.path(snapshot_id))
            except CorruptRecordError as error:
                _log.error("the metadata snapshot is damaged and set aside: %s", error)
                self.snapshots.set_aside(snapshot_id)

    def _meet_snapshots(self) -> None:
        latest = self.snapshots.latest
        if latest is not None and self._is_beyond_log(latest):
            _log.info("the metadata log starts anew at %d, where snapshot %s ends", latest.end_offset, latest.stem)
            self._start_at(latest)
        start_offset = self.log.log_start_offset
        later = [found for found in self.snapshots.ids if found.end_offset >= start_offset]
        if start_offset > 0 and not later:
            raise CorruptRecordError(
                self.log.directory,
                0,
                f"the metadata log starts at {start_offset} and no whole snapshot holds what came before. Restore the "
                "snapshot; or move this folder away, and `replog log repair` with its old path and --accept-loss makes the node follow "
                "under a new directory id",
            )
        if start_offset > 0:
            self.log.set_log_start_offset(later[0].end_offset)
        self.snapshots.drop_below(self.log.log_start_offset).run()

    def _is_beyond_log(self, snapshot_id: SnapshotId) -> bool:
        ends = (self.log.last_epoch or 0, self.log.log_end_offset)
        is_later_epoch = snapshot_id.epoch > ends[0] and self.log.last_epoch is not None
        return is_later_epoch or snapshot_id.end_offset > ends[1]

    def _start_at(self, snapshot_id: SnapshotId) -> None:
        self._with_room(lambda: self.log.truncate_fully_and_start_at(snapshot_id.end_offset))

    def _find_voter_sets(self) -> list[tuple[int, VoterSet]]:
        latest = self.snapshots.latest
        found = [] if latest is None else self._voter_set_of(latest)
        position = self.log.log_start_offset if latest is None else latest.end_offset
        epoch = None if latest is None else latest.epoch
        while position < self.log.log_end_offset:
            data = self.read(position, max_bytes=READ_BYTES, end_offset=self.log.log_end_offset)
            try:
                for header in scan(data):
                    check_crc(data, header)  # a wrong attribute would hide a voter set
                    if header.base_offset >= position:
                        require_epoch_after(epoch, data, header)
                    epoch = header.partition_leader_epoch
                found += [entry for entry in voter_sets_in(data) if entry[0] >= position]
            except CorruptRecordError as error:
                raise self.log.located(data, error) from error
            position = _end_of(data)
        return found

    def _voter_set_of(self, snapshot_id: SnapshotId) -> list[tuple[int, VoterSet]]:
        voters = self.snapshots.context(snapshot_id).voters
        return [(snapshot_id.end_offset - 1, from_records(voters))] if voters else []


def require_epoch_after(epoch: int | None, data: bytes, header: BatchHeader) -> None:
    """Refuses a batch whose leader epoch, which no checksum covers, cannot follow that of the batch before.

    A log that ends in a later epoch than it has would win elections against those that hold more.

    Args:
        epoch: The epoch of the batch before, or of the snapshot that ends there; None: there is neither.
        data: The bytes that hold the batch.
        header: Its header.

    Raises:
        CorruptRecordError: It goes back, or rises without the leader change that a new leader writes first.
    """
    own = header.partition_leader_epoch
    if epoch is None or own == epoch or (own > epoch and _is_leader_change(data, header)):
        return
    raise CorruptRecordError(
        "",
        header.position,
        f"the leader epoch is {own}, that of what stands before is {epoch}, and a later epoch begins with a leader change: the "
        "epoch is damaged, which no checksum covers. Nothing was changed: restore the file; or move the folder away, and "
        "`replog log repair` with its old path and --accept-loss makes the node follow under a new directory id",
    )


def _is_leader_change(data: bytes, header: BatchHeader) -> bool:
    if not header.is_control:
        return False
    return control_record_type(next(iter(decode_batch(data, header.position)))) is ControlRecordType.LEADER_CHANGE


def _epoch_end(snapshot_id: SnapshotId | None) -> EpochEnd | None:
    return None if snapshot_id is None else EpochEnd(snapshot_id.epoch, snapshot_id.end_offset)


def _end_of(data: bytes) -> int:
    return max(header.next_offset for header in scan(data))
