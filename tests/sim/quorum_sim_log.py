"""The disk of a simulated quorum node: a log with a durable prefix, snapshots, partial downloads, quorum-state.

Offset = position + log start.  An entry is (epoch, value, closes): a value is a number, or a voter set; `closes` ends a
batch, which a crash takes or leaves as a whole.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from replog_quorum import ElectionState, EpochEnd, Voter, VoterSet

Value: TypeAlias = int | VoterSet
Entry: TypeAlias = tuple[int, Value, bool]


def digest_of(digest: int, epoch: int, value: Value) -> int:
    """Digest of a log prefix that is one entry longer."""
    text = value if isinstance(value, int) else voters_text(value)
    return zlib.crc32(f"{epoch} {text}".encode(), digest)


def voters_text(voters: VoterSet | None) -> str:
    if voters is None:
        return "-"
    return ";".join(f"{v.voter_id},{0 if v.directory_id is None else v.directory_id.int},{v.endpoint}" for v in voters)


def parse_voters(text: str) -> VoterSet | None:
    if text == "-":
        return None
    fields = [voter.split(",") for voter in text.split(";")]
    return VoterSet(tuple(Voter(int(i), UUID(int=int(d)) if d != "0" else None, e) for i, d, e in fields))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything below its id's end offset, as a digest, and the voter set there."""

    snapshot_id: EpochEnd
    digest: int
    voters: VoterSet | None
    data: bytes

    @classmethod
    def of(cls, snapshot_id: EpochEnd, digest: int, voters: VoterSet | None) -> Snapshot:
        text = f"{snapshot_id.epoch} {snapshot_id.end_offset} {digest} {voters_text(voters)} "
        body = text.encode() + b"#" * (snapshot_id.end_offset * 7 % 60)
        return cls(snapshot_id, digest, voters, body + b"%08x" % zlib.crc32(body))

    @classmethod
    def parse(cls, data: bytes) -> Snapshot | None:
        """None for a file that is damaged."""
        body, crc = data[:-8], data[-8:]
        if b"%08x" % zlib.crc32(body) != crc:
            return None
        epoch, end_offset, digest, voters, _ = body.decode().split(" ")
        return cls(EpochEnd(int(epoch), int(end_offset)), int(digest), parse_voters(voters), data)


@dataclass(slots=True, eq=False)
class FlushJob:
    """A running fsync; a truncation lowers what it will have covered."""

    end_offset: int


class SimLog:
    """The metadata log with its snapshots: what the core's `LogView` shows."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.epochs: list[int] = []
        self.entries: list[Entry] = []
        self.voter_offsets: list[int] = []
        self.flushed_offset = 0
        self.snapshots: list[Snapshot] = []
        self._flushes: list[FlushJob] = []

    # ---- the core's view ------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs[-1]
        return self.snapshots[0].snapshot_id.epoch if self.log_start_offset else 0

    @property
    def latest_snapshot_id(self) -> EpochEnd | None:
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    @property
    def earliest_snapshot_id(self) -> EpochEnd | None:
        return self.snapshots[0].snapshot_id if self.snapshots else None

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        end = bisect_right(self.epochs, epoch)
        if end:
            return EpochEnd(self.epochs[end - 1], self.log_start_offset + end)
        return self.snapshots[0].snapshot_id if self.log_start_offset else EpochEnd(0, 0)

    # ---- writing --------------------------------------------------------------------------------------------

    def append(self, epoch: int, value: Value, *, closes: bool = True) -> None:
        if isinstance(value, VoterSet):
            self.voter_offsets.append(self.log_end_offset)
        self.epochs.append(epoch)
        self.entries.append((epoch, value, closes))

    def truncate(self, end_offset: int) -> None:
        kept = end_offset - self.log_start_offset
        del self.epochs[kept:]
        del self.entries[kept:]
        while self.voter_offsets and self.voter_offsets[-1] >= end_offset:
            self.voter_offsets.pop()
        self.flushed_offset = min(self.flushed_offset, end_offset)
        for job in self._flushes:
            job.end_offset = min(job.end_offset, end_offset)

    def begin_flush(self) -> FlushJob:
        job = FlushJob(self.log_end_offset)
        self._flushes.append(job)
        return job

    def complete_flush(self, job: FlushJob) -> None:
        if job in self._flushes:  # a snapshot may have taken the place of what it flushed
            self._flushes.remove(job)
            self.flushed_offset = max(self.flushed_offset, job.end_offset)

    def crash(self, kept_tail: int) -> None:
        """Power cut: what was flushed stays, perhaps some whole batches of the rest, and snapshots.

        A snapshot may end behind what the crash left: then the log begins anew behind it (docs/KAFKA.md 5.8).
        """
        self._flushes.clear()
        end_offset = self.flushed_offset + kept_tail
        while end_offset > self.flushed_offset and not self.entry(end_offset - 1)[2]:
            end_offset -= 1
        self.truncate(end_offset)
        latest = self.latest_snapshot_id
        if latest is not None and (latest.epoch, latest.end_offset) > (self.last_epoch, self.log_end_offset):
            self.replace_by(self.snapshots[-1])
        self.flushed_offset = self.log_end_offset  # recovery flushes what it found

    # ---- reading --------------------------------------------------------------------------------------------

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.log_start_offset]

    def read(self, offset: int, count: int) -> tuple[int, list[Entry]]:
        """At least `count` entries, in whole batches."""
        first = offset - self.log_start_offset
        end = min(len(self.entries), first + count)
        while end < len(self.entries) and not self.entries[end - 1][2]:
            end += 1
        return offset, self.entries[first:end]

    def voter_history(self) -> list[tuple[int, VoterSet]]:
        """What a start finds: the set of the snapshot that the log starts at, then those in the log."""
        found = [(offset, self.entry(offset)[1]) for offset in self.voter_offsets]
        if self.log_start_offset and self.snapshots[0].voters is not None:
            found.insert(0, (self.log_start_offset - 1, self.snapshots[0].voters))
        return found

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """The last set below an offset; None while it is the configured one."""
        return next((voters for offset, voters in reversed(self.voter_history()) if offset < end_offset), None)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def take_snapshot(self, end_offset: int) -> Snapshot | None:
        """Write one of everything below; None when there is one that ends there or later."""
        latest = self.snapshots[-1] if self.snapshots else None
        begin = 0 if latest is None else latest.snapshot_id.end_offset
        if end_offset <= begin:
            return None
        digest = 0 if latest is None else latest.digest
        for offset in range(begin, end_offset):
            digest = digest_of(digest, *self.entry(offset)[:2])
        snapshot_id = EpochEnd(self.entry(end_offset - 1)[0], end_offset)
        self.snapshots.append(Snapshot.of(snapshot_id, digest, self.voters_at(end_offset)))
        return self.snapshots[-1]

    def clean(self, kept_snapshots: int) -> bool:
        """Delete the oldest snapshots and the log before the earliest that stays."""
        if len(self.snapshots) < kept_snapshots:
            return False
        earliest = self.snapshots[-kept_snapshots].snapshot_id.end_offset
        if not self.log_start_offset < earliest <= self.flushed_offset:
            return False  # nothing to delete, or the log would begin behind its end
        cut = earliest - self.log_start_offset
        del self.epochs[:cut]
        del self.entries[:cut]
        self.voter_offsets = [offset for offset in self.voter_offsets if offset >= earliest]
        self.log_start_offset = earliest
        del self.snapshots[:-kept_snapshots]
        return True

    def replace_by(self, snapshot: Snapshot) -> None:
        """The log is empty from the snapshot's end on; older snapshots are gone."""
        self._flushes.clear()
        self.epochs.clear()
        self.entries.clear()
        self.voter_offsets.clear()
        self.log_start_offset = self.flushed_offset = snapshot.snapshot_id.end_offset
        self.snapshots = [snapshot]


@dataclass(slots=True, eq=False)
class SimDisk:
    """One directory of one node."""

    directory_id: UUID
    log: SimLog = field(default_factory=SimLog)
    election: ElectionState | None = None
    parts: dict[EpochEnd, bytes] = field(default_factory=dict)

    def crash(self, rng: random.Random) -> bool:
        """Power cut; whether anything was lost.  Of a partial download some prefix stays, or rubbish."""
        unflushed = self.log.log_end_offset - self.log.flushed_offset
        kept = rng.randrange(unflushed + 1)
        self.log.crash(kept)
        for snapshot_id, data in self.parts.items():
            position = rng.randrange(len(data) + 1)
            torn = rng.random() < 0.5
            self.parts[snapshot_id] = data[:position] + (b"?" * rng.randrange(1, 90) if torn else b"")
        return kept < unflushed
