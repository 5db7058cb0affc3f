"""A replica begins with the records of another one below an offset: what it holds, and what a crash at any step leaves."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from log_test_kit import T0, content
from power_cuts import Once, stops

from replog.errors import DiskFullError, ForkFailedError, StorageError
from replog.log import Cleanup, CompactionSettings, Log, LogConfig, LogManager
from replog.log.directories.creation import NewReplica
from replog.log.disk_space import NO_LIMITS
from replog.records import encode_batch, parse_header
from replog.testing.simulated_filesystem import SimulatedFileSystem

SOURCE_ID, COPY_ID = UUID(int=5), UUID(int=6)
SOURCE, COPY = ("flights", 0), ("try", 0)
DATA = "/data"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


class Broker:
    """One directory with the source in it, of which 25 batches are written and 15 are on stable storage."""

    def __init__(self, disk: SimulatedFileSystem | None = None, config: LogConfig = CONFIG) -> None:
        self.disk = disk or SimulatedFileSystem()
        self.config = config
        self.logs = LogManager.open(
            self.disk, [DATA], cluster_id="c", node_id=1, now_ms=T0, config=config, limits=NO_LIMITS
        )

    @property
    def source(self) -> Log:
        return self.logs.logs[SOURCE]

    @property
    def copy(self) -> Log:
        return self.logs.logs[COPY]

    def append(self, count: int, *, epoch: int = 0, key: bytes | None = None, transactional: bool = False) -> None:
        for _ in range(count):
            offset = self.source.log_end_offset
            data = encode_batch(
                [(T0, key, b"%080d" % offset, ())],
                producer_id=9,
                producer_epoch=0,
                base_sequence=offset,
                is_transactional=transactional,
            )
            self.source.append_as_leader(data, leader_epoch=epoch, now_ms=T0)

    def fork(self, end_offset: int, *, is_whole: bool = True, goes_on: bool = True) -> None:
        """Makes the copy as a node does: the driver begins, a thread goes on, the driver takes the result."""
        job = self.logs.prepare_fork(
            SOURCE, SOURCE_ID, end_offset, NewReplica(COPY, COPY_ID, self.config), now_ms=T0, is_new=True, is_whole=is_whole
        )  # fmt: skip
        if job is None:
            raise ForkFailedError("it is not here")
        if goes_on:
            self.append(1, epoch=9)  # meanwhile
        job.run()
        self.logs.complete_create(job)


def filled(config: LogConfig = CONFIG) -> Broker:
    broker = Broker(config=config)
    broker.logs.open_log(*SOURCE, SOURCE_ID, config, now_ms=T0)
    broker.append(15)
    broker.source.flush()
    broker.logs.checkpoint_recovery_points()
    broker.append(10, epoch=3)
    return broker


@pytest.mark.parametrize("end_offset", [0, 1, 7, 15, 17, 24, 25])
def test_it_holds_what_is_below_the_end_and_both_go_on_alone(end_offset: int) -> None:
    broker = filled()
    before = content(broker.source)
    broker.fork(end_offset)
    assert content(broker.copy) == before[:end_offset]
    assert broker.copy.log_end_offset == end_offset
    assert [
        entry for entry in broker.source.leader_epochs.entries if entry[1] < end_offset
    ] == broker.copy.leader_epochs.entries
    assert broker.copy.flushed_offset <= end_offset
    assert broker.logs.topic_id(*COPY) == COPY_ID
    copy_data = encode_batch([(T0, None, b"own", ())])
    broker.copy.append_as_leader(copy_data, leader_epoch=4, now_ms=T0)
    broker.source.truncate_to(3)
    broker.append(3, epoch=10)
    assert content(broker.copy)[:-1] == before[:end_offset]
    assert content(broker.source)[:3] == before[:3]
    broker.copy.truncate_to(end_offset // 2)
    assert content(broker.copy) == before[: end_offset // 2]
    assert len(content(broker.source)) == 6


def test_segments_are_shared_and_stay_when_the_source_goes() -> None:
    broker = filled()
    before, used = content(broker.source), broker.disk.used_bytes()
    broker.fork(25)
    assert broker.disk.used_bytes() < used * 1.6
    assert broker.disk.links_count(f"{DATA}/try-0/{0:020d}.log") == 2
    broker.logs.delete_log(*SOURCE)
    assert content(broker.copy) == before[:25]


def test_the_start_of_the_log_is_kept_also_behind_the_end() -> None:
    broker = filled()
    broker.source.set_log_start_offset(9)
    broker.fork(20)
    assert (broker.copy.log_start_offset, broker.copy.log_end_offset) == (9, 20)
    other = filled()
    other.source.set_log_start_offset(21)
    other.source.flush()
    other.source.delete_old_segments(now_ms=T0, high_watermark=25)
    other.fork(12)
    assert (other.copy.log_start_offset, other.copy.log_end_offset, content(other.copy)) == (12, 12, [])


@pytest.mark.parametrize("end_offset", [17, 25])
def test_a_power_cut_at_any_step_leaves_all_that_is_linked_or_no_fork(end_offset: int) -> None:
    """What is copied is flushed later, as what is appended; until then it may be cut, as that may."""
    broker, found, once = filled(), set(), Once()
    written, linked_count = content(broker.source), 12
    for number, cut in enumerate(stops(broker.disk, lambda: broker.fork(end_offset), broker.disk.copied)):
        cut.crash(random.Random(number))
        if not once.is_first(cut):
            continue
        again = Broker(cut)
        assert content(again.source)[:15] == written[:15]
        found.add(COPY in again.logs.logs)
        if COPY not in again.logs.logs:
            again.fork(min(end_offset, again.source.log_end_offset))
        assert linked_count <= again.copy.log_end_offset <= end_offset
        assert content(again.copy) == written[: again.copy.log_end_offset]
        assert again.logs.topic_id(*COPY) == COPY_ID
        assert not [name for name in cut.list_dir(DATA) if name.endswith("-delete")]
    assert found == {False, True}


def test_a_killed_process_leaves_a_whole_fork_or_none_at_every_step() -> None:
    broker, found, once = filled(), set(), Once()
    written = content(broker.source)[:25]
    for stopped in stops(broker.disk, lambda: broker.fork(25), broker.disk.copied):
        stopped.kill()
        if once.is_first(stopped):
            again = Broker(stopped)
            found.add(COPY in again.logs.logs)
            if COPY not in again.logs.logs:
                again.fork(25)
            assert content(again.copy) == written
    assert found == {False, True}


def test_what_is_not_all_there_is_no_source_of_a_replica_that_is_counted_on() -> None:
    broker = filled()
    with pytest.raises(ForkFailedError):
        broker.fork(26)
    broker.fork(26, is_whole=False)
    assert broker.copy.log_end_offset == 25


def test_a_log_that_was_compacted_beyond_the_end_is_no_source() -> None:
    """Goal: records below the end may be gone for the sake of some behind it, which the copy does not get."""
    config = LogConfig(segment_bytes=700, index_interval_bytes=150, cleanup_policy=Cleanup.COMPACT)
    broker = Broker(config=config)
    broker.logs.open_log(*SOURCE, SOURCE_ID, config, now_ms=T0)
    broker.append(25, key=b"one")
    broker.source.roll(T0)
    broker.source.flush()
    job = broker.source.prepare_compaction(T0, 25, CompactionSettings())
    assert job is not None
    job.run()
    broker.source.complete_compaction(job, T0)
    assert broker.source.first_dirty_offset == 25
    with pytest.raises(ForkFailedError, match="compacted up to 25"):
        broker.fork(20)
    assert not [name for name in broker.disk.list_dir(DATA) if name.endswith("-delete")]
    broker.fork(25)
    assert content(broker.copy) == content(broker.source)[:-1]


def test_a_disk_that_refuses_any_step_leaves_the_source_and_a_replica_that_is_offline_or_whole() -> None:
    outcomes = set()
    for number in range(60):
        broker = filled()
        before = content(broker.source)
        broker.disk.faults.fail_change_after(number)
        try:
            broker.fork(25, goes_on=False)
        except (DiskFullError, StorageError):
            outcomes.add("refused")
        else:
            outcomes.add("whole" if COPY in broker.logs.logs else "offline")
            assert COPY in broker.logs.logs or isinstance(broker.logs.offline[COPY], ForkFailedError)
        broker.disk.faults.clear()
        assert content(broker.source) == before
        if COPY in broker.logs.logs:
            assert content(broker.copy) == before
        else:
            assert not broker.disk.exists(f"{DATA}/try-0")
            assert broker.disk.list_dir(DATA) == filled().disk.list_dir(DATA)
    assert outcomes == {"refused", "offline", "whole"}


def test_transactions_that_are_open_stay_open_and_batches_are_known_until_they_are_forgotten() -> None:
    broker = filled()
    broker.append(2, epoch=3, transactional=True)
    broker.fork(27, goes_on=False)
    producers = broker.copy.producers
    assert producers.open_transactions == {9: 25}
    assert producers.producers[9].last_sequence == 26
    producers.forget_batches_below(27)
    assert producers.producers[9].last_sequence == -1
    first = parse_header(
        encode_batch([(T0, None, b"new", ())], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    assert producers.check(first) is None
