"""No descriptor is left at any one moment of a log's life: a typed error or success, nothing lost, and the log goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from descriptor_kit import FewDescriptors
from log_compaction_kit import COMPACTED, keyed_batch
from log_test_kit import T0, batch, content
from power_cuts import Once

from replog.errors import StorageError, TooManyOpenFilesError
from replog.log import Log, LogConfig, LogDirectory
from replog.log.repair.verification import LogVerifier
from replog.records import decode_batch
from replog.testing.simulated_filesystem import SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

TOPIC_ID, DIRECTORY_ID = UUID(int=7), UUID(int=700)
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100, file_delete_delay_ms=0)
Step = Callable[[], object]


class Owner:
    """Uses a log as a broker does, and knows what must be in it."""

    def __init__(self, disk: FewDescriptors, config: LogConfig = SMALL) -> None:
        self.disk = disk
        self.config = config
        self.directory: LogDirectory | None = None
        self.log: Log | None = None
        self.values: dict[int, bytes | None] = {}
        self.flushed_offset = 0

    @property
    def opened(self) -> Log:
        assert self.log is not None
        return self.log

    def open(self) -> None:
        if self.directory is None:
            self.directory = LogDirectory.open(
                self.disk, "/data", cluster_id="c", node_id=0, now_ms=T0, new_directory_id=lambda: DIRECTORY_ID
            )
        try:
            self.log = self.directory.open_log("t", 0, TOPIC_ID, self.config, now_ms=T0)
        except BaseException:  # an offline replica is tried again by the next start
            self.directory.release()
            self.directory = None
            raise

    def close(self) -> None:
        assert self.directory is not None
        directory, self.directory, self.log = self.directory, None, None
        directory.close(now_ms=T0, broker_epoch=1)

    def append(self, epoch: int = 0) -> None:
        offset = self.opened.log_end_offset
        value = b"%d of epoch %d" % (offset, epoch)
        data = batch(value, timestamp_ms=T0 + offset, producer_id=5, producer_epoch=0, base_sequence=offset)
        self.opened.append_as_leader(data, leader_epoch=epoch, now_ms=T0)
        self.values[offset] = value

    def flush(self) -> None:
        self.opened.flush()
        self.flushed_offset = self.opened.flushed_offset

    def truncate(self, offset: int) -> None:
        self.flushed_offset = min(self.flushed_offset, offset)
        self.opened.truncate_to(offset)
        assert self.opened.log_end_offset == offset
        self.values = {at: value for at, value in self.values.items() if at < offset}

    def empty(self, offset: int) -> None:
        self.flushed_offset = 0
        self.opened.truncate_fully_and_start_at(offset)
        self.values = {}

    def delete_before(self, offset: int) -> None:
        self.opened.set_log_start_offset(offset)
        self.opened.delete_old_segments(T0, self.opened.log_end_offset)
        self.opened.remove_deleted_files(T0)
        self.values = {at: value for at, value in self.values.items() if at >= offset}

    def check(self) -> None:
        """Whether what is in the log is what must be in it."""
        found = [record for data in content(self.opened) for record in decode_batch(data)]
        start = self.opened.log_start_offset
        assert {record.offset: record.value for record in found if record.offset >= start} == self.values


def life(owner: Owner) -> Iterator[Step]:
    """A log's life, step by step; each may be done again where it was refused."""
    yield owner.open
    for _ in range(12):
        yield owner.append
    yield owner.flush
    yield owner.close
    yield owner.open
    yield owner.append
    yield lambda: owner.opened.roll(T0)
    yield lambda: owner.opened.offset_for_timestamp(T0 + 3, end_offset=5)
    yield lambda: owner.opened.read(2, max_bytes=1000, end_offset=9, min_one_batch=True)
    yield owner.flush
    yield owner.opened.release_files
    yield owner.append
    yield lambda: owner.truncate(7)  # into a closed segment
    for _ in range(4):
        yield lambda: owner.append(1)
    yield lambda: owner.truncate(10)  # inside the last one, or not
    yield lambda: owner.append(2)
    yield owner.flush
    yield lambda: owner.delete_before(5)
    yield lambda: owner.directory and owner.directory.checkpoint_recovery_points()
    yield lambda: owner.empty(40)
    yield lambda: owner.append(3)
    yield lambda: owner.append(3)
    yield owner.flush


def live(owner: Owner, on_refusal: Callable[[], None]) -> None:
    """All of it; calls `on_refusal` where a step finds no descriptor, and does the step again."""
    for step in life(owner):
        try:
            step()
        except TooManyOpenFilesError:
            on_refusal()
            step()
        except StorageError:
            if step != owner.close:
                raise
            on_refusal()  # it is closed all the same
        if owner.log is not None:
            assert not owner.log.failed


@pytest.mark.parametrize(
    "count",
    [1, pytest.param(2, marks=pytest.mark.campaign), pytest.param(5, marks=pytest.mark.campaign), None],
    ids=["once", "twice", "five times", "until there are some"],
)
def test_a_log_goes_on_where_there_was_no_descriptor_for_a_moment(count: int | None) -> None:
    closed = Once()
    for moment in range(2000):
        disk = FewDescriptors(SimulatedFileSystem())
        owner = Owner(disk)
        disk.refuse(moment, count)
        live(owner, disk.allow)
        is_over = not disk.allow() and disk.taken_count <= moment
        owner.check()
        owner.close()
        if closed.is_first(disk.disk, *owner.values.items(), owner.flushed_offset):
            owner.open()
            owner.check()
            owner.close()
            assert list(LogVerifier(disk, "/data/t-0", owner.flushed_offset, is_closed=True).run()) == [], moment
        if is_over:
            break
    assert 100 < moment < 1999


@pytest.mark.parametrize("moment_step", [1, 2, 3])
def test_a_power_cut_where_there_was_no_descriptor_takes_nothing_that_was_flushed(moment_step: int) -> None:
    rng = random.Random(moment_step)
    for moment in range(moment_step, 400, 3):
        disk = FewDescriptors(SimulatedFileSystem())
        owner = Owner(disk)
        disk.refuse(moment)
        for step in life(owner):
            try:
                step()
            except (TooManyOpenFilesError, StorageError):
                break
        disk.disk.crash(rng)
        disk.allow()
        again = Owner(disk)
        again.open()
        found = {record.offset: record.value for data in content(again.opened) for record in decode_batch(data)}
        wanted = range(again.opened.log_start_offset, owner.flushed_offset)  # a cut lowers it before it begins
        flushed = {at: value for at, value in owner.values.items() if at in wanted}
        assert {at: found.get(at) for at in flushed} == flushed
        again.close()


def test_a_compaction_ends_where_there_was_no_descriptor_for_a_moment() -> None:
    for moment in range(2000):
        disk = FewDescriptors(SimulatedFileSystem())
        owner = Owner(disk, COMPACTED)
        owner.open()
        for number in range(24):
            data = keyed_batch((b"%d" % (number % 3), b"%d" % number), timestamp_ms=T0 + number)
            owner.opened.append_as_leader(data, leader_epoch=0, now_ms=T0)
        owner.opened.roll(T0)
        owner.flush()
        disk.refuse(moment)
        _compact_until_done(owner, disk)
        is_over = disk.taken_count <= moment
        disk.allow()
        owner.opened.append_as_leader(keyed_batch((b"1", b"new")), leader_epoch=0, now_ms=T0)
        disk.disk.kill()
        again = Owner(disk, COMPACTED)
        again.open()
        found = [record for data in content(again.opened) for record in decode_batch(data)]
        assert {record.key: record.value for record in found} == {b"0": b"21", b"1": b"new", b"2": b"23"}
        assert len(found) < 24
        again.close()
        if is_over:
            break
    assert 20 < moment < 1999


def _compact_until_done(owner: Owner, disk: FewDescriptors) -> None:
    for _ in range(3):
        try:
            job = owner.opened.prepare_compaction(T0, owner.opened.log_end_offset)
            if job is None:
                return
            job.run()
            owner.opened.complete_compaction(job, T0)
        except TooManyOpenFilesError:
            disk.allow()
        assert not owner.opened.failed
