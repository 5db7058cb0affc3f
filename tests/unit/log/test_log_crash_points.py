"""Crash points, enumerated: every multi-step operation is stopped before each change it makes to the disk.

For each of those moments the machine loses power in several ways (and, once, only the process dies).  Then the directory is
opened, everything that was promised is checked, the log goes on, and the power is cut again.  `REPLOG_SEED=7` cuts it otherwise.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from log_crash_kit import DATA, FOLDER, TOPIC_ID, History, Replica, check_answers, check_answers_once, open_replica
from log_test_kit import T0, append, content
from power_cuts import Once, stops

from replog.log import Log, LogConfig
from replog.log.directories.creation import NewReplica
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

OTHER_ID = UUID(int=77)

FIRST = int(os.environ.get("REPLOG_SEED", "0"))
SEEDS = (None, FIRST, FIRST + 1)
"""None: kill -9; a number: a power cut, of which campaigns draw others."""


@dataclass(frozen=True)
class Procedure:
    """Something that takes several steps on the disk.

    Attributes:
        prepare: brings a new replica to the state before it.
        run: the operation.
        check: what must hold besides the invariants, with the replica as it was before the operation's end.
    """

    prepare: Callable[[Replica], None]
    run: Callable[[Replica], None]
    check: Callable[[Replica], None] = lambda _: None


def three_epochs(replica: Replica) -> None:
    """Three epochs in three segments: offsets 0 to 8 checkpointed, to 14 flushed, to 20 neither."""
    replica.open()
    replica.append(6)
    replica.flush()
    replica.checkpoint()
    replica.epoch = 1
    replica.append(4)
    replica.flush()
    replica.epoch = 2
    replica.append(4)


def flushed(replica: Replica) -> None:
    """The same, and all of it is flushed."""
    three_epochs(replica)
    replica.flush()


def checkpointed(replica: Replica) -> None:
    """The same, and the checkpoint says so."""
    flushed(replica)
    replica.checkpoint()


def cut_and_go_on(replica: Replica) -> None:
    """Truncates, and appends something else at the same offsets."""
    replica.truncate_to(7)
    replica.append(3)
    replica.flush()


def cut_below_the_start(replica: Replica) -> None:
    replica.raise_log_start(10)
    replica.checkpoint()
    replica.delete_old_segments()
    replica.expected.may_become(History(2))
    replica.truncate_fully(2)
    replica.append(2)


def start_anew_above(replica: Replica) -> None:
    replica.truncate_fully(100)
    replica.append(2)
    replica.flush()


def raise_start(replica: Replica) -> None:
    replica.raise_log_start(13)
    replica.checkpoint()
    replica.delete_old_segments()
    replica.append(1)


def delete_unflushed_segments(replica: Replica) -> None:
    replica.raise_log_start(replica.log.log_end_offset)
    replica.delete_old_segments()
    replica.checkpoint()


def retain_by_size(replica: Replica) -> None:
    replica.log.set_config(LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1, retention_bytes=300))
    replica.expected.start_max = replica.log.log_end_offset
    replica.delete_old_segments()
    replica.flush()
    replica.checkpoint()


def roll_twice(replica: Replica) -> None:
    replica.roll()
    replica.append(1)
    replica.roll()
    replica.flush()
    replica.checkpoint()


def delete_log(replica: Replica) -> None:
    """After it the replica may be as before, or gone: then it is created anew when it is opened."""
    replica.expected.may_become(History(0))
    replica.expected.flushed = replica.expected.start_min = 0
    replica.directory.delete_log("t", 0)
    replica.expected.became(History(0))
    replica.log = replica.directory.open_log("t", 0, TOPIC_ID, replica.config, now_ms=T0)
    replica.follow_another_leader()
    replica.append(2)


def set_aside(replica: Replica) -> None:
    replica.expected.may_become(History(0))
    replica.expected.flushed = replica.expected.start_min = 0
    path = replica.directory.set_aside_log("t", 0)
    assert replica.disk.exists(path)
    replica.expected.became(History(0))


def all_or_nothing(replica: Replica) -> None:
    assert replica.log.log_end_offset <= 3 or replica.log.log_end_offset >= 14


def create_another(replica: Replica) -> None:
    other = replica.directory.open_log("u", 7, TOPIC_ID, replica.config, now_ms=T0)
    other.flush()
    replica.directory.checkpoint_recovery_points()


def create_together(replica: Replica) -> None:
    """Three at once; then one of them is written to, flushed and checkpointed."""
    wanted = [NewReplica(("u", partition), OTHER_ID, replica.config, leader_epoch=3) for partition in range(3)]
    for made in replica.directory.create(wanted, T0):
        assert made.error is None
        replica.directory.add(made)
    log = replica.directory.logs["u", 1]
    append(log, 2, leader_epoch=3)
    log.flush()
    replica.directory.checkpoint_recovery_points()


def created_together(replica: Replica) -> None:
    """Each can be used, whatever of it is there; what was checkpointed is."""
    flushed_offset = replica.directory.recovery_points.get(("u", 1), 0)
    logs = [replica.directory.open_log("u", partition, OTHER_ID, replica.config, now_ms=T0) for partition in range(3)]
    assert logs[1].log_end_offset >= flushed_offset
    for log in logs:
        assert log.leader_epochs.entries in ([], [(3, 0)])
        append(log, 1, leader_epoch=3)
        log.flush()
    replica.directory.checkpoint_recovery_points()


def checkpoint_everything(replica: Replica) -> None:
    replica.raise_log_start(5)
    replica.directory.checkpoint_high_watermarks({("t", 0): 9})
    replica.checkpoint()
    replica.directory.checkpoint_high_watermarks({("t", 0): 10})


def high_watermark_is_old_or_new(replica: Replica) -> None:
    assert replica.directory.high_watermarks.get(("t", 0), 9) in (9, 10)


def flush_while_appending(replica: Replica) -> None:
    """The flush runs in a thread of its own meanwhile; what it covers was there when it was prepared."""
    job = replica.log.prepare_flush()
    assert job is not None
    replica.append(5, size_bytes=60)
    job.run()
    replica.append(1)
    replica.log.complete_flush(job)
    replica.expected.flushed = job.end_offset


def flush_across_a_truncation(replica: Replica) -> None:
    """What the flush covered is cut before its result is taken: it must not count."""
    job = replica.log.prepare_flush()
    assert job is not None
    replica.truncate_to(9)
    job.run()
    replica.append(4, size_bytes=60)
    replica.log.complete_flush(job)
    replica.directory.checkpoint_recovery_points()


def replicate_across_rolls(replica: Replica) -> None:
    replica.epoch = 5
    replica.replicate(9, epochs=(2, 2, 3, 3, 3, 4, 4, 5, 5), size_bytes=90)
    replica.flush()


def lead_without_records(replica: Replica) -> None:
    replica.epoch = 7
    replica.log.assign_epoch_start(7)
    replica.flush()


def close(replica: Replica) -> None:
    replica.close()


def closed(replica: Replica) -> None:
    checkpointed(replica)
    replica.close()


def killed(replica: Replica) -> None:
    three_epochs(replica)
    replica.disk.kill()


def torn(replica: Replica) -> None:
    """A torn batch in the middle of what was not flushed, segments behind it, no indexes."""
    three_epochs(replica)
    replica.append(12, size_bytes=60)
    replica.disk.kill()
    logs = [path for path in replica.disk.image() if path.startswith(FOLDER) and path.endswith(".log")]
    replica.disk.flip_bit(sorted(logs)[-2], 200)
    replica.expected.may_become(*(History(0, replica.expected.history.batches[:count]) for count in range(10, 26)))


def without_small_files(replica: Replica) -> None:
    """Every index, snapshot and checkpoint of the replica is gone."""
    checkpointed(replica)
    replica.disk.kill()
    for path in replica.disk.image():
        if path.startswith(FOLDER) and not path.endswith((".log", "/", "partition.metadata")):
            replica.disk.remove(path)


def reopen(replica: Replica) -> None:
    replica.open()
    replica.flush()


PROCEDURES = {
    "append": Procedure(three_epochs, lambda replica: replica.append(1)),
    "append and flush": Procedure(three_epochs, lambda replica: (replica.append(2), replica.flush())[0]),
    "append across rolls": Procedure(three_epochs, lambda replica: replica.append(12, size_bytes=90)),
    "replicate across rolls": Procedure(three_epochs, replicate_across_rolls),
    "lead without records": Procedure(three_epochs, lead_without_records),
    "roll": Procedure(three_epochs, roll_twice),
    "flush while appending": Procedure(three_epochs, flush_while_appending),
    "flush across a truncation": Procedure(three_epochs, flush_across_a_truncation),
    "checkpoints": Procedure(flushed, checkpoint_everything, high_watermark_is_old_or_new),
    "truncate the active segment": Procedure(checkpointed, lambda replica: replica.truncate_to(18)),
    "truncate, then append": Procedure(checkpointed, cut_and_go_on),
    "truncate to the start": Procedure(checkpointed, lambda replica: replica.truncate_to(0)),
    "truncate below the start": Procedure(checkpointed, cut_below_the_start),
    "start anew above the end": Procedure(checkpointed, start_anew_above),
    "raise the log start": Procedure(checkpointed, raise_start),
    "delete unflushed segments": Procedure(three_epochs, delete_unflushed_segments),
    "retention by size": Procedure(flushed, retain_by_size),
    "delete the log": Procedure(checkpointed, delete_log, all_or_nothing),
    "set the log aside": Procedure(checkpointed, set_aside, all_or_nothing),
    "create another log": Procedure(three_epochs, create_another),
    "create logs together": Procedure(three_epochs, create_together, created_together),
    "close": Procedure(three_epochs, close),
    "open after a clean stop": Procedure(closed, reopen),
    "open after kill -9": Procedure(killed, reopen),
    "recover a torn tail": Procedure(torn, reopen),
    "recover without small files": Procedure(without_small_files, reopen),
}


def stopped_before_each_change(procedure: Procedure) -> list[Replica]:
    """The replica as it is when the power goes before change 0, 1, 2, ... and after the last."""
    replica = Replica()
    procedure.prepare(replica)
    return stops(replica.disk, lambda: procedure.run(replica), replica.copied)


STOPPED, STOPPED_AGAIN = Once(), Once()

MENDED, WITHOUT_INDEXES = Once(), Once()
"""What a start leaves, and what it finds without indexes: most stops come to the same."""


@pytest.mark.parametrize("name", PROCEDURES)
def test_stopped_at_any_step(name: str) -> None:
    procedure = PROCEDURES[name]
    stopped = stopped_before_each_change(procedure)
    for step, replica in enumerate(stopped):
        seen: set[int] = set()
        for seed in SEEDS:
            restarted = replica.after(seed)
            image = hash(frozenset(restarted.disk.image().items()))
            is_deep = seed is None
            if image in seen or not STOPPED.is_first(restarted.disk, restarted.promised(), procedure.check, is_deep):
                continue
            seen.add(image)
            try:
                check_restart(procedure, restarted, is_deep=is_deep)
            except BaseException as error:
                error.add_note(f"{name}: stopped before change {step}, crash {seed}")
                raise
    assert len(stopped) > 1


def check_restart(procedure: Procedure, replica: Replica, *, is_deep: bool) -> None:
    before = replica.disk.copied()
    replica.open()
    procedure.check(replica)
    found = replica.verify()
    check_answers_once(replica.disk, replica.log, found)
    check_fixpoint(replica)
    if is_deep:
        check_without_indexes(before, replica)
    replica.append(2)
    replica.flush()
    replica.append(1)
    again = replica.after(seed=1)
    if STOPPED_AGAIN.is_first(again.disk, again.promised()):
        again.open().verify()


def found_in(log: Log) -> tuple[int, tuple[bytes, ...], tuple[tuple[int, int], ...]]:
    """Where a log begins, its batches, its leader epochs."""
    return log.log_start_offset, tuple(content(log)), tuple(log.leader_epochs.entries)


def check_fixpoint(replica: Replica) -> None:
    """Opening what recovery left finds the same log and nothing to cut."""
    found = found_in(replica.log)
    if not MENDED.is_first_image(replica.disk, replica.config, found):
        return
    _, log = open_replica(replica.disk.copied(), replica.config)
    assert found_in(log) == found
    assert log.recovery.bytes_cut == log.recovery.segments_removed == 0


def check_without_indexes(disk: SimulatedFileSystem, replica: Replica) -> None:
    """S5: what the indexes and snapshots said can be found out without them."""
    for path in disk.image():
        if path.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
            disk.remove(path)
    found, batches = found_in(replica.log), last_batches(replica.log)
    if not WITHOUT_INDEXES.is_first_image(disk, replica.config, found, frozenset(batches.items())):
        return
    _, log = open_replica(disk, replica.config)
    check_answers_once(disk, log, content(log))
    assert found_in(log) == found
    assert last_batches(log) == batches


def last_batches(log: Log) -> dict[int, tuple[int, int]]:
    known = log.producers.producers
    return {pid: (entry.producer_epoch, entry.batches[-1].last_offset) for pid, entry in known.items() if entry.batches}


@pytest.mark.parametrize("prepare", [killed, torn, without_small_files, closed])
def test_crashes_during_recovery_again_and_again(prepare: Callable[[Replica], None]) -> None:
    """Every start gets one change further than the one before it, until one is through."""
    for seed in range(12):
        rng = random.Random(seed)
        replica = Replica()
        prepare(replica)
        for attempt in range(200):
            replica.disk.crash(rng)
            replica.disk.faults.cut_power_after(attempt // 2 + rng.randrange(2))
            try:
                replica.open()
            except PowerCutError:
                continue
            replica.disk.faults.clear()
            break
        replica.verify()
        check_answers(replica.log)


def test_the_directory_is_formatted_whole_or_not_at_all() -> None:
    for step in range(40):
        for seed in SEEDS:
            disk = SimulatedFileSystem()
            disk.faults.cut_power_after(step)
            with contextlib.suppress(PowerCutError):
                open_replica(disk)
            if seed is None:
                disk.kill()
                disk.faults.clear()
            else:
                disk.crash(random.Random(seed))
            directory, log = open_replica(disk)
            assert not directory.offline
            assert (log.log_end_offset, disk.list_dir(DATA).count("t-0")) == (0, 1)
