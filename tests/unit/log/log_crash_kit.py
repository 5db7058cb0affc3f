"""A broker's directory with one log on a simulated disk, what that log must hold, and the check of both after a crash.

Why one place: crash points, faults, the model test and the damage matrix make the same promises (invariants S1 to S10):

    what the log may be     one of the histories that were possible when the machine stopped (before or after a cut)
    S1   what is there is a prefix of one of them, without a hole, and reaches the flushed offset
    S2   log_start_offset <= recovery_point <= log_end_offset
    S3   every batch has the checksum that it says; where bits have rotted, nobody is given the batch as good
    S4   offsets rise, epochs do not fall, the epoch cache says what the batches say
    S5   without indexes and snapshots every answer is the same; opening a second time changes nothing
    S8   an (epoch, offset) is given once
    S10  the log start does not pass what was asked for, and does not fall below what was checkpointed
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from log_test_kit import T0, batch, content, epochs_of, stored, visible_epochs

from replog.errors import OffsetOutOfRangeError
from replog.log import Log, LogConfig, LogDirectory
from replog.records import BatchHeader, check_crc, decode_batch, parse_header
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
TOPIC_ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
DIRECTORY_ID = UUID(int=0x1102030405060708090A0B0C0D0E0F11)
DATA = "/data"
FOLDER = "/data/t-0"
PRODUCERS = (1, 2)


@dataclass(frozen=True)
class History:
    """A log as it may be: batches from `start` on, one after the other."""

    start: int
    batches: tuple[bytes, ...] = ()

    @property
    def end(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else self.start

    @property
    def ends(self) -> list[int]:
        """Where it may end after a crash: at its start and behind each batch."""
        return [self.start, *(parse_header(data).next_offset for data in self.batches)]

    def plus(self, *batches: bytes) -> History:
        return History(self.start, (*self.batches, *batches))

    def until(self, offset: int) -> History:
        """Without the batch that holds `offset` and what follows."""
        return History(self.start, tuple(one for one in self.batches if parse_header(one).next_offset <= offset))

    def between(self, start: int, end: int) -> list[bytes]:
        """The batches with records from `start` on that end at or below `end`."""
        headers = ((data, parse_header(data)) for data in self.batches)
        return [data for data, header in headers if header.last_offset >= start and header.next_offset <= end]


@dataclass
class Expected:
    """What must be found when the directory is opened again.

    Attributes:
        histories: the log is a prefix of one of them.
        flushed: nothing below is lost.
        start_min: the log start that is on disk.
        start_max: the highest log start that was asked for.
        assigned: (epoch, offset) -> the batch that got it.
    """

    histories: list[History] = field(default_factory=lambda: [History(0)])
    flushed: int = 0
    start_min: int = 0
    start_max: int = 0
    assigned: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def history(self) -> History:
        """The log as it is now."""
        return self.histories[-1]

    def may_become(self, *histories: History) -> None:
        """An operation begins that leads through these."""
        self.histories += histories

    def became(self, history: History) -> None:
        """The operation has ended: a crash from now on cannot lead back, unless it is undone before a flush."""
        self.histories = [history]

    def assign(self, data: bytes) -> None:
        """S8: within one leader epoch an offset is given once."""
        header = parse_header(data)
        key = (header.partition_leader_epoch, header.base_offset)
        assert self.assigned.setdefault(key, data) == data, f"offset {key[1]} is given twice in epoch {key[0]}"

    def copied(self) -> Expected:
        return Expected(list(self.histories), self.flushed, self.start_min, self.start_max, dict(self.assigned))


class Replica:
    """One broker's directory with one log: what a broker does to it, and what must come of it."""

    def __init__(self, disk: SimulatedFileSystem | None = None, config: LogConfig = CONFIG) -> None:
        self.disk = disk or SimulatedFileSystem()
        self.config = config
        self.expected = Expected()
        self.epoch = 0
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.values = 0
        self.directory: LogDirectory
        self.log: Log

    def open(self) -> Replica:
        """Starts the broker."""
        self.directory, self.log = open_replica(self.disk, self.config)
        return self

    # What a broker does

    def next_batch(self, records: int = 1, size_bytes: int = 8, producer_id: int = 1) -> bytes:
        """The next one of a producer, as the producer sends it."""
        values = [f"{self.values + number:0{size_bytes}d}".encode() for number in range(records)]
        timestamp_ms = T0 + self.values
        self.values += records
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += records
        return batch(
            *values, timestamp_ms=timestamp_ms, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )

    def append(self, count: int = 1, *, size_bytes: int = 8) -> None:
        """As the leader, one by one."""
        for number in range(count):
            data = self.next_batch(1 + number % 2, size_bytes, PRODUCERS[number % 2])
            history = self.expected.history.plus(stored(data, self.log.log_end_offset, self.epoch))
            self.expected.may_become(history)
            info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=T0)
            assert not info.duplicate
            self.expected.became(history)
            self.expected.assign(history.batches[-1])

    def replicate(self, count: int, *, epochs: Sequence[int] | None = None, size_bytes: int = 8) -> None:
        """As a follower, all in one append."""
        end_offset, batches = self.log.log_end_offset, []
        for number in range(count):
            epoch = epochs[number] if epochs else self.epoch
            batches.append(stored(self.next_batch(1, size_bytes), end_offset + number, epoch))
        self.expected.may_become(self.expected.history.plus(*batches))
        self.log.append_as_follower(b"".join(batches), now_ms=T0, leader_epoch=self.epoch)
        self.expected.became(self.expected.history)
        for data in batches:
            self.expected.assign(data)

    def flush(self) -> None:
        end_offset = self.log.log_end_offset
        self.log.flush()
        self.expected.flushed = max(self.expected.flushed, end_offset)

    def checkpoint(self) -> None:
        start = self.log.checkpointed_log_start_offset
        self.directory.checkpoint_recovery_points()
        self.expected.start_min = start

    def roll(self) -> None:
        self.log.roll(T0)

    def truncate_to(self, offset: int) -> None:
        cut = self.expected.history.until(offset)
        self.expected.may_become(cut)
        self.expected.flushed = min(self.expected.flushed, cut.end)
        self.expected.start_min = min(self.expected.start_min, cut.end)
        self.log.truncate_to(offset)
        self.expected.became(cut)
        self.follow_another_leader()

    def truncate_fully(self, offset: int) -> None:
        self.expected.may_become(History(offset))
        self.expected.flushed = self.expected.start_min = 0
        self.expected.start_max = max(self.expected.start_max, offset)
        self.log.truncate_fully_and_start_at(offset)
        self.expected.became(History(offset))
        self.expected.flushed = self.expected.start_min = self.expected.start_max = offset
        self.follow_another_leader()

    def raise_log_start(self, offset: int) -> None:
        self.expected.start_max = max(self.expected.start_max, offset)
        self.log.set_log_start_offset(offset)

    def delete_old_segments(self) -> None:
        self.expected.start_max = max(self.expected.start_max, self.log.log_start_offset)
        self.log.delete_old_segments(T0, self.log.log_end_offset)

    def follow_another_leader(self) -> None:
        """Offsets above a cut are given again, in another epoch, and producers go on where the log ends."""
        self.epoch += 1
        self.resume_producers()

    def resume_producers(self) -> None:
        known = self.log.producers.producers
        self.sequences = {pid: known[pid].last_sequence + 1 if pid in known else 0 for pid in PRODUCERS}

    def close(self) -> None:
        end_offset = self.log.log_end_offset
        start = self.log.log_start_offset
        self.directory.close(now_ms=T0, broker_epoch=7)
        self.expected.flushed, self.expected.start_min = end_offset, start

    # What a crash leaves

    def copied(self) -> Replica:
        """The same machine, stopped, with what must be on it; this one goes on."""
        other = Replica(self.disk.copied(), self.config)
        other.expected, other.epoch, other.values = self.expected.copied(), self.epoch, self.values
        return other

    def after(self, seed: int | None) -> Replica:
        """The same machine after a power cut (or kill -9: None), not yet started; this one goes on."""
        other = self.copied()
        if seed is None:
            other.disk.kill()
        else:
            other.disk.crash(random.Random(seed))
        other.epoch += 1
        return other

    def promised(self) -> tuple[Hashable, ...]:
        """All that a check of this machine depends on, besides its disk."""
        expected = self.expected
        kept = (expected.flushed, expected.start_min, expected.start_max, frozenset(expected.assigned.items()))
        return (*expected.histories, *kept, self.config, self.epoch, self.values)

    def verify(self) -> list[bytes]:
        """S1 to S10 for a directory that was opened after a crash; what was found is what must be there from now on.

        Returns:
            The batches of the log.
        """
        found = log_invariants(self.log)
        log, expected = self.log, self.expected
        assert not self.directory.offline
        assert log.log_end_offset >= expected.flushed, f"flushed to {expected.flushed}, ends at {log.log_end_offset}"
        assert expected.start_min <= log.log_start_offset <= expected.start_max
        fitting = [
            history
            for history in expected.histories
            if log.log_start_offset >= history.start
            and log.log_end_offset in history.ends
            and found == history.between(log.log_start_offset, log.log_end_offset)
        ]
        emptied = not found and log.log_start_offset == log.log_end_offset
        assert fitting or emptied, f"{log.log_start_offset} to {log.log_end_offset} is no prefix of what was written"
        history = fitting[-1].until(log.log_end_offset) if fitting else History(log.log_start_offset)
        self.expected.became(history)
        self.expected.start_max = log.log_start_offset
        self.resume_producers()
        return found


def open_replica(disk: FileSystem, config: LogConfig = CONFIG) -> tuple[LogDirectory, Log]:
    """The directory and its log, as a broker opens them; its id is always the same one."""
    directory = LogDirectory.open(
        disk, DATA, cluster_id="c", node_id=1, now_ms=T0, config=config, new_directory_id=lambda: DIRECTORY_ID
    )
    return directory, directory.open_log("t", 0, TOPIC_ID, config, now_ms=T0)


def log_invariants(log: Log) -> list[bytes]:
    """Checks what is true of every log at any moment, whatever happened before (S2, S3, S4, producers, look-ups).

    Returns:
        The batches of the log.
    """
    start, end = log.log_start_offset, log.log_end_offset
    assert start <= log.flushed_offset <= end
    assert log.checkpointed_recovery_point <= end
    batches = content(log)
    headers = []
    expected_offset: int | None = None
    for data in batches:
        header = parse_header(data)
        check_crc(data, header)
        assert expected_offset is None or header.base_offset == expected_offset, "a hole between two batches"
        expected_offset = header.next_offset
        headers.append(header)
    assert not headers or headers[0].base_offset <= start <= headers[0].last_offset, "a hole behind the log start"
    assert (expected_offset or start) == end
    epochs = [header.partition_leader_epoch for header in headers]
    assert epochs == sorted(epochs)
    assert visible_epochs(log) == epochs_of(headers, start)
    _check_producers(log, headers)
    return batches


def check_answers(log: Log, batches: list[bytes] | None = None) -> None:
    """Look-ups by offset and time against the list of all batches (S5 without a second log)."""
    start, end = log.log_start_offset, log.log_end_offset
    batches = content(log) if batches is None else batches
    lasts = [parse_header(data).last_offset for data in batches]
    for offset in range(start, end):
        assert (
            log.read(offset, max_bytes=1, end_offset=end, min_one_batch=True)
            == batches[bisect_right(lasts, offset - 1)]
        )
    records = [record for data in batches for record in decode_batch(data) if record.offset >= start]
    for stamp in {record.timestamp for record in records}:
        first = next((one.offset, one.timestamp) for one in records if one.timestamp >= stamp)
        assert log.offset_for_timestamp(stamp, end_offset=end) == first
    for offset in (start - 1, end + 1):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, max_bytes=1, end_offset=end, min_one_batch=True)


ANSWERED: set[int] = set()
"""What answers depend on, of logs that have answered right: most that a start finds is alike."""


def check_answers_once(disk: SimulatedFileSystem, log: Log, batches: list[bytes]) -> None:
    """`check_answers` of a log that was just opened, unless one like it has answered right."""
    looked_up = hash(_looked_up(disk, log))
    if disk.faults.is_failing or looked_up not in ANSWERED:
        check_answers(log, batches)
        ANSWERED.add(looked_up)


def _looked_up(disk: SimulatedFileSystem, log: Log) -> tuple[Hashable, ...]:
    """All that answers depend on: bounds, the files that look-ups read, what is in memory of segments and their indexes."""
    files = (each for each in disk.image().items() if each[0].endswith((".log", ".index", ".timeindex")))
    segments = log._state.segments
    known = ((each._max_timestamp, each._max_timestamp_offset, each._largest_timestamp) for each in segments)
    indexes = (segments.active._offset_index, segments.active._time_index)
    entries = (None if index is None else index.to_bytes() for index in indexes)
    return (log.log_start_offset, log.log_end_offset, *files, *known, *entries)


def _check_producers(log: Log, headers: Sequence[BatchHeader]) -> None:
    """The last five batches of each producer, as far as the log has them; nothing from above its end."""
    last_five: dict[int, deque[tuple[int, int]]] = {}
    for header in headers:
        if header.producer_id >= 0 and not header.is_control:
            batches = last_five.setdefault(header.producer_id, deque(maxlen=5))
            batches.append((header.base_offset, header.base_sequence))
    known = log.producers.producers
    for producer_id, batches in last_five.items():
        found = [(one.base_offset, one.first_sequence) for one in known[producer_id].batches]
        assert found[-len(batches) :] == list(batches), f"producer {producer_id}"
    for entry in known.values():
        assert not entry.batches or entry.batches[-1].last_offset < log.log_end_offset
