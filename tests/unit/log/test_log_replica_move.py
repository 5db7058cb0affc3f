"""A replica moves to another log directory: what the copy holds, and that a crash at any step loses nothing."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from functools import cache
from uuid import UUID

import pytest
from log_test_kit import T0, batch, content
from power_cuts import Once, stops

from replog.errors import (
    DiskFullError,
    InvalidRequestError,
    LogDirNotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log import METADATA_TOPIC, Cleanup, CompactionSettings, Log, LogConfig, LogManager
from replog.log.directories.swap import ReplicaMove, SwapJob
from replog.log.disk_space import NO_LIMITS
from replog.records import encode_batch
from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.random_examples import seeds

TOPIC_ID, OTHER_ID, UNIQUE_ID = UUID(int=5), UUID(int=6), UUID(int=7)
OLD, NEW = "/old", "/new"
KEY = ("t", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
SEEDS = (None, *seeds(2))
"""None: kill -9; a number: a power cut, of which campaigns draw others."""


class Broker:
    """Two directories, a replica in the first."""

    def __init__(self, disk: SimulatedFileSystem | None = None) -> None:
        self.disk = disk or SimulatedFileSystem()
        self.sequence = 0
        self.epoch = 0
        self.flushed = 0
        self.written: list[bytes] = []

    def copied(self) -> Broker:
        """The same machine, stopped, with what must be on it; this one goes on."""
        other = Broker(self.disk.copied())
        other.sequence, other.epoch, other.flushed = self.sequence, self.epoch, self.flushed
        other.written = list(self.written)
        return other

    def open(self) -> Broker:
        self.logs = LogManager.open(
            self.disk, [OLD, NEW], cluster_id="c", node_id=1, now_ms=T0, config=CONFIG, limits=NO_LIMITS
        )
        return self

    def create(self) -> Broker:
        self.open().logs.open_log(*KEY, TOPIC_ID, CONFIG, now_ms=T0, directory=OLD)
        return self

    @property
    def log(self) -> Log:
        return self.logs.logs[KEY]

    @property
    def homes(self) -> list[str]:
        return [path for path in (OLD, NEW) if self.disk.is_dir(f"{path}/t-0")]

    def append(self, count: int) -> None:
        for _ in range(count):
            record = (T0, b"key-%d" % (self.sequence % 4), b"%060d" % self.sequence, ())
            data = encode_batch([record], producer_id=9, producer_epoch=0, base_sequence=self.sequence)
            self.sequence += 1
            self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=T0)
            self.written.append(content(self.log)[-1])

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset

    def copy_all(self, move: ReplicaMove, *, bytes_max: int = 300) -> None:
        while move.copy.step(self.log.files(), bytes_max):
            pass

    def swap(self, move: ReplicaMove) -> SwapJob:
        end_offset = self.log.log_end_offset
        job = self.logs.begin_swap(move, high_watermark=3)
        job.run(T0, UNIQUE_ID)
        self.logs.complete_swap(job)
        if job.error is None:
            self.flushed = end_offset
        return job


def filled() -> Broker:
    """Five segments of two epochs, one of them without a record after it, the last ones not flushed."""
    broker = Broker().create()
    broker.append(12)
    broker.flush()
    broker.logs.checkpoint_recovery_points()
    broker.epoch = 1
    broker.append(9)
    broker.epoch = 2
    broker.log.assign_epoch_start(2)
    return broker


def moved_under_load(broker: Broker) -> SwapJob:
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    broker.append(7)
    broker.log.roll(T0)
    broker.copy_all(move)
    broker.append(2)
    job = broker.swap(move)
    broker.logs.checkpoint_recovery_points()
    return job


# ---- the copy ----------------------------------------------------------------------------------------------------------


def test_everything_moves_with_it_and_it_stays_there() -> None:
    broker = filled()
    broker.log.set_log_start_offset(2)
    before = broker.log
    epochs = before.leader_epochs.entries
    job = moved_under_load(broker)
    assert (job.error, broker.homes, broker.log is before) == (None, [NEW], False)
    assert content(broker.log) == broker.written[2:]
    assert broker.log.leader_epochs.entries[:2] == epochs[:2]
    assert broker.log.producers.producers[9].batches == before.producers.producers[9].batches
    assert (broker.log.log_start_offset, broker.log.flushed_offset) == (2, broker.log.log_end_offset)
    assert broker.logs.high_watermark(*KEY) == 3
    assert broker.logs.home_of(*KEY) is broker.logs.directories[NEW]
    assert broker.logs.directories[OLD].recovery_points == {}
    assert job.retired is not None
    job.retired.run()
    assert [name for path in (OLD, NEW) for name in broker.disk.list_dir(path) if name.startswith("t-")] == ["t-0"]
    broker.append(3)
    broker.logs.close(now_ms=T0, broker_epoch=1)
    assert broker.open().homes == [NEW]
    assert content(broker.log) == broker.written[2:]
    assert broker.log.log_start_offset == 2


def truncated(broker: Broker) -> None:
    broker.log.truncate_to(10)
    del broker.written[10:]
    broker.sequence = 10
    broker.epoch = 3
    broker.append(8)


def shortened(broker: Broker) -> None:
    broker.log.set_log_start_offset(13)
    assert broker.log.delete_old_segments(T0, 21)


def compacted(broker: Broker) -> None:
    broker.log.flush()
    job = broker.log.prepare_compaction(T0, broker.log.log_end_offset, CompactionSettings(dedupe_buffer_bytes=1 << 16))
    assert job is not None
    job.run(None)
    assert broker.log.complete_compaction(job, T0) is not None


@pytest.mark.parametrize("change", [truncated, shortened, compacted])
def test_what_happens_to_the_log_meanwhile_happens_to_the_copy(change: Callable[[Broker], None]) -> None:
    broker = filled()
    if change is compacted:
        broker.log.set_config(LogConfig(segment_bytes=700, index_interval_bytes=150, cleanup_policy=Cleanup.COMPACT))
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    change(broker)
    expected, start = content(broker.log), broker.log.log_start_offset
    assert broker.swap(move).error is None
    assert (content(broker.log), broker.log.log_start_offset) == (expected, start)
    assert broker.homes == [NEW]


def test_a_step_copies_no_more_than_it_may_and_says_what_is_missing() -> None:
    broker = filled()
    move = broker.logs.prepare_move(*KEY, NEW)
    size_bytes = broker.log.size_bytes
    assert move.copy.missing_bytes(broker.log.files()) == size_bytes
    assert move.copy.step(broker.log.files(), 1_000) == 1_000
    assert (move.copy.copied_bytes, move.copy.missing_bytes(broker.log.files())) == (1_000, size_bytes - 1_000)
    broker.copy_all(move)
    assert move.copy.missing_bytes(broker.log.files()) == 0
    move.copy.abandon()
    assert not broker.disk.exists(move.copy.target)


# ---- refused, and failed -----------------------------------------------------------------------------------------------


def test_moves_that_cannot_be() -> None:
    broker = filled()
    broker.logs.open_log(METADATA_TOPIC, 0, OTHER_ID, CONFIG, now_ms=T0, directory=OLD)
    long = "x" * 230
    broker.logs.open_log(long, 0, OTHER_ID, CONFIG, now_ms=T0, directory=OLD)
    for error, topic, path in (
        (UnknownTopicOrPartitionError, "nowhere", NEW),
        (LogDirNotFoundError, "t", "/elsewhere"),
        (InvalidRequestError, "t", OLD),
        (InvalidRequestError, METADATA_TOPIC, NEW),
        (InvalidRequestError, long, NEW),
    ):
        with pytest.raises(error):
            broker.logs.prepare_move(topic, 0, path)
    broker.logs.directories[NEW].space.refuse()
    with pytest.raises(DiskFullError):
        broker.logs.prepare_move(*KEY, NEW)
    broker.logs.fail_directory(NEW, StorageError("burnt"))
    with pytest.raises(StorageError, match="burnt"):
        broker.logs.prepare_move(*KEY, NEW)


def test_a_disk_that_fails_under_the_copy_leaves_the_replica_where_it_was() -> None:
    broker = filled()
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    broker.append(3)
    broker.disk.remove_tree(move.copy.target)
    job = broker.swap(move)
    assert isinstance(job.error, StorageError)
    assert (job.retired, broker.homes) == (None, [OLD])
    assert content(broker.log) == broker.written
    broker.append(2)
    broker.logs.close(now_ms=T0, broker_epoch=1)
    assert content(broker.open().log) == broker.written


def test_a_replica_leaves_a_disk_that_takes_no_checkpoint_any_more() -> None:
    """The error met the event loop, and the node ended: what is to be saved is moved off such a disk."""
    broker = filled()
    broker.logs.checkpoint_recovery_points()
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    job = broker.logs.begin_swap(move, high_watermark=3)
    job.run(T0, UNIQUE_ID)
    broker.disk.faults.fail_always(Operation.WRITE, path_part=f"{OLD}/recovery-point")
    broker.logs.complete_swap(job)
    assert broker.homes == [NEW]
    assert content(broker.log) == broker.written


def test_a_disk_without_room_for_the_name_of_the_copy_leaves_the_replica_where_it_was() -> None:
    """It was offline until the next start."""
    broker = filled()
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    broker.disk.faults.fail_next(Operation.RENAME, error_number=errno.ENOSPC)
    job = broker.swap(move)
    assert isinstance(job.error, StorageError)
    assert (job.retired, broker.homes) == (None, [OLD])
    assert not broker.logs.offline
    assert content(broker.log) == broker.written
    assert not [name for name in broker.disk.list_dir(NEW) if name.startswith("t-")]


@pytest.mark.parametrize(("rename", "home"), [(1, OLD), (2, OLD), (3, NEW)])
def test_a_rename_that_fails_leaves_the_replica_offline_until_the_next_start(rename: int, home: str) -> None:
    """What is written to one of the two folders now would be lost if the start took the other one."""
    broker = filled()
    move = broker.logs.prepare_move(*KEY, NEW)
    broker.copy_all(move)
    job = broker.logs.begin_swap(move, high_watermark=3)
    broker.disk.faults.fail_next(Operation.RENAME, nth=rename)
    job.run(T0, UNIQUE_ID)
    broker.logs.complete_swap(job)
    assert isinstance(job.error, StorageError)
    assert broker.logs.offline[KEY] is job.error
    with pytest.raises(StorageError):
        broker.logs.open_log(*KEY, TOPIC_ID, CONFIG, now_ms=T0)
    broker.logs.close(now_ms=T0, broker_epoch=1)
    broker.disk.faults.clear()
    assert broker.open().homes == [home]
    assert content(broker.log) == broker.written


# ---- crashes -----------------------------------------------------------------------------------------------------------


@cache
def stopped_before_each_change() -> list[Broker]:
    """The broker as it is when the power goes before change 0, 1, 2, ... of a move, and after the last."""
    broker = filled()

    def move() -> None:
        moved_under_load(broker)
        broker.append(2)

    return stops(broker.disk, move, broker.copied)


@pytest.mark.exhaustive
def test_a_crash_at_any_step_loses_nothing() -> None:
    homes, told, stopped = set[str](), set[str](), Once()
    for step, broker in enumerate(stopped_before_each_change()):
        for seed in SEEDS:
            disk = broker.disk.copied()
            disk.kill() if seed is None else disk.crash(random.Random(seed))
            if not stopped.is_first(disk, broker.flushed, *broker.written, seed is None):
                continue
            try:
                restarted = Broker(disk).open()
                check_restart(broker, restarted, is_killed=seed is None)
            except BaseException as error:
                error.add_note(f"stopped before change {step}, crash {seed}")
                raise
            homes.update(restarted.homes)
            told.update(restarted.logs.finished_moves.told)
    assert homes == {OLD, NEW}
    assert len(told) == 2, "an interrupted copy, and an interrupted swap"


def check_restart(before: Broker, after: Broker, *, is_killed: bool) -> None:
    assert not after.logs.offline
    assert len(after.homes) == 1
    assert [name for path in (OLD, NEW) for name in after.disk.list_dir(path) if name.startswith("t-")] == ["t-0"]
    found = content(after.log)
    assert found[: len(before.written)] == before.written[: len(found)]
    assert before.flushed <= len(found) <= len(before.written) + 1, "one may be written and not acknowledged"
    if is_killed:
        assert len(found) >= len(before.written)
    assert after.log.producers.producers[9].batches[-1].last_offset == len(found) - 1
    after.log.append_as_leader(batch(), leader_epoch=9, now_ms=T0)
    after.log.flush()
    again = content(after.log)
    after.disk.crash(random.Random(1))
    assert content(Broker(after.disk).open().log) == again


def stopped_between_renames(*, replica_is_there: bool) -> Broker:
    """Killed when the copy was complete, and not the replica yet; there may be no other one."""
    for broker in stopped_before_each_change():
        broker.disk.kill()
        is_complete = any(name.endswith("-moved") for name in broker.disk.list_dir(NEW))
        if is_complete and broker.disk.is_dir(f"{OLD}/t-0") == replica_is_there:
            return broker.copied()
    raise AssertionError("no crash came between the renames")


def test_a_replica_that_was_used_without_the_directory_of_its_copy_stays() -> None:
    """What was written to it meanwhile is not in the copy."""
    broker = stopped_between_renames(replica_is_there=True)
    broker.disk.faults.fail_always(Operation.OPEN, path_part=f"{NEW}/meta.properties")
    broker.open().append(3)
    broker.logs.close(now_ms=T0, broker_epoch=1)
    broker.disk.faults.clear()
    assert broker.open().homes == [OLD]
    assert content(broker.log) == broker.written
    assert broker.logs.finished_moves.told == ("t-0: its move to /new was interrupted; it stays where it is",)
    assert [name for name in broker.disk.list_dir(NEW) if name.startswith("t-")] == []


def test_of_a_copy_that_is_removed_no_half_is_taken_for_a_whole() -> None:
    """The start that removes it may be killed, and the disk of the replica never come back."""
    halves = 0
    stopped = stopped_between_renames(replica_is_there=True).disk
    whole = {path.rpartition("/")[2] for path in stopped.image() if "-moved/0" in path}
    for count in range(30):
        disk = stopped.copied()
        disk.faults.cut_power_after(count)
        with contextlib.suppress(PowerCutError):
            Broker(disk).open()
        disk.faults.clear()
        disk.kill()
        left = {path.rpartition("/")[2] for path in disk.image() if "-moved/0" in path}
        halves += any("-future/0" in path for path in disk.image())
        assert left in (set(), whole)
    assert halves


def test_a_finished_copy_waits_for_a_directory_that_cannot_be_opened() -> None:
    """The replica may be in it: with both, the next start would not know which one is newer."""
    broker = stopped_between_renames(replica_is_there=False)
    broker.disk.faults.fail_always(Operation.OPEN, path_part=f"{OLD}/meta.properties")
    alone = broker.open().logs
    assert (list(alone.unopened), alone.logs) == ([OLD], {})
    assert "when all log directories are back" in alone.finished_moves.told[0]
    for topic_id in (TOPIC_ID, OTHER_ID):  # also one that was deleted and made anew meanwhile
        with pytest.raises(StorageError, match=r"t-0 is whole in /new/t-0.*-moved, and is used there when"):
            alone.open_log(*KEY, topic_id, CONFIG, now_ms=T0)
        with pytest.raises(StorageError, match="t-0 is whole in"):
            alone.prepare_create(*KEY, topic_id, CONFIG, now_ms=T0)
    broker.disk.kill()
    broker.disk.faults.clear()
    assert broker.open().homes == [NEW]
    assert content(broker.log) == broker.written
