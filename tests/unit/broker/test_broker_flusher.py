"""Group commit: one fsync serves all who asked before it; one that fails is told once and never tried again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, batch, wait_until

from replog.broker.disk.flusher import FlushLine, LogFlusher
from replog.errors import StorageError
from replog.log import Log, LogDirectory
from replog.testing import Operation, SimulatedFileSystem
from tests.quiet import quiet_for


class SlowDisk(SimulatedFileSystem):
    """Syncs of record files wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.syncs: list[str] = []

    def sync_file(self, file: object) -> None:
        if ".log" in file.path:  # type: ignore[attr-defined]
            self.syncs.append(file.path)  # type: ignore[attr-defined]
            self.gate.wait(5)
        super().sync_file(file)  # type: ignore[arg-type]


class Flushing:
    def __init__(self) -> None:
        self.fs = SlowDisk()
        self.directory = LogDirectory.open(self.fs, DIRECTORY, cluster_id="c", node_id=1, now_ms=0)
        self.executor = ThreadPoolExecutor(2)
        self.failures: list[BaseException] = []
        self.failed_logs: list[tuple[Log, StorageError]] = []
        self.flush_seconds: list[float] = []
        self.flusher = LogFlusher(
            self.executor,
            2,
            self.failures.append,
            lambda log, error: self.failed_logs.append((log, error)),
            self.flush_seconds.append,
        )
        self.log = self.open("t")

    def open(self, topic: str) -> Log:
        log = self.directory.open_log(topic, 0, UUID(int=5), now_ms=0)
        log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        return log


@contextlib.asynccontextmanager
async def flushing() -> AsyncIterator[Flushing]:
    it = Flushing()
    try:
        yield it
    finally:
        it.fs.gate.set()
        await it.flusher.stop()
        it.executor.shutdown()
        with contextlib.suppress(StorageError):
            it.directory.close(now_ms=0, broker_epoch=None)


async def test_who_asks_while_an_fsync_runs_is_served_by_the_next_one() -> None:
    async with flushing() as it:
        it.fs.gate.clear()
        done: list[tuple[str, int]] = []
        it.flusher.request(it.log, lambda offset: done.append(("first", offset)))
        await wait_until(lambda: it.fs.syncs)
        for name in ("second", "third"):
            it.log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
            it.flusher.request(it.log, lambda offset, name=name: done.append((name, offset)))
        assert it.flusher.is_flushing(it.log)
        it.fs.gate.set()
        await wait_until(lambda: len(done) == 3)
        assert done == [("first", 1), ("second", 3), ("third", 3)]
        assert len(it.fs.syncs) == 2
        await wait_until(lambda: not it.flusher.is_flushing(it.log))


async def test_nothing_dirty_is_answered_without_a_sync() -> None:
    async with flushing() as it:
        assert await it.flusher.flush(it.log) == 1
        it.fs.syncs.clear()
        assert await it.flusher.flush(it.log) == 1
        assert it.fs.syncs == []


async def test_two_logs_do_not_wait_for_each_other() -> None:
    async with flushing() as it:
        other = it.open("u")
        it.fs.gate.clear()
        flushes = [asyncio.create_task(it.flusher.flush(log)) for log in (it.log, other)]
        await wait_until(lambda: len(it.fs.syncs) == 2)
        it.fs.gate.set()
        assert await asyncio.gather(*flushes) == [1, 1]


async def test_thousands_of_logs_do_not_keep_the_metadata_log_waiting() -> None:
    async with flushing() as it:
        done: list[str] = []
        it.fs.gate.clear()
        for name in ("running", "running-too", "b0", "b1", "b2", "metadata"):
            log = it.open(name)
            it.flusher.request(log, lambda _, name=name: done.append(name), is_first=name == "metadata")
        await wait_until(lambda: len(it.fs.syncs) == 2)
        it.fs.gate.set()
        await wait_until(lambda: len(done) == 6)
    syncs = [path.split("/")[2].removesuffix("-0") for path in it.fs.syncs]
    assert syncs[2] == "metadata"
    assert sorted(syncs[3:6]) == ["b0", "b1", "b2"]  # by two threads


async def test_who_asks_while_a_log_waits_for_its_turn_is_served_with_it() -> None:
    async with flushing() as it:
        it.fs.gate.clear()
        others = [it.open(name) for name in ("u", "v")]
        for log in others:
            it.flusher.request(log, lambda _: None)
        await wait_until(lambda: len(it.fs.syncs) == 2)
        done: list[int] = []
        for _ in range(2):
            it.flusher.request(it.log, done.append)
            await asyncio.sleep(0)
            it.log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        it.fs.gate.set()
        await wait_until(lambda: len(done) == 2)
        assert done == [3, 3]
        assert len(it.fs.syncs) == 3


@pytest.mark.parametrize("is_given", [True, False], ids=["as its turn comes", "before"])
async def test_who_is_cancelled_in_the_line_passes_its_turn_on(is_given: bool) -> None:
    line = FlushLine(1)
    assert not await line.enter(is_first=False)
    cancelled, patient = [asyncio.create_task(line.enter(is_first=False)) for _ in range(2)]
    await asyncio.sleep(0)
    if is_given:
        line.leave()  # to who came first
    cancelled.cancel()
    await asyncio.wait([cancelled])
    if not is_given:
        line.leave()
    assert await asyncio.wait_for(patient, 60)


async def test_a_failed_fsync_is_told_once_and_never_tried_again() -> None:
    async with flushing() as it:
        it.fs.faults.fail_next(Operation.SYNC, path_part=".log")
        done: list[int] = []
        it.flusher.request(it.log, done.append)
        it.flusher.request(it.log, done.append)
        waiting = asyncio.create_task(it.flusher.flush(it.log))
        with pytest.raises(StorageError, match="was not flushed"):
            await waiting
        syncs = len(it.fs.syncs)
        it.flusher.request(it.log, done.append)
        with pytest.raises(StorageError, match="an fsync failed before"):
            await it.flusher.flush(it.log)
        ((log, _),) = it.failed_logs
        assert log is it.log
        assert it.failures == []
        assert done == []
        assert len(it.fs.syncs) == syncs
        assert it.log.flushed_offset == 0


async def test_a_failure_of_one_log_leaves_others_alone() -> None:
    """Which other logs are on the same disk is for the log manager to know; it fails them."""
    async with flushing() as it:
        other = it.open("u")
        it.fs.faults.fail_next(Operation.SYNC, path_part="t-0/")
        it.flusher.request(it.log, lambda _: None)
        await wait_until(lambda: it.failed_logs)
        assert await it.flusher.flush(other) == 1
        other.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        it.directory.fail(StorageError("the disk"))
        with pytest.raises(StorageError, match="was not flushed"):
            await it.flusher.flush(other)


async def test_a_bug_in_a_callback_is_not_swallowed() -> None:
    async with flushing() as it:
        it.flusher.request(it.log, lambda _: {}["bug"])
        await wait_until(lambda: it.failures)
        assert isinstance(it.failures[0], KeyError)


@pytest.mark.parametrize("recreate", [False, True])
async def test_a_log_may_be_deleted_while_its_fsync_runs(recreate: bool) -> None:
    """Deleting a topic is no disk failure."""
    async with flushing() as it:
        it.fs.gate.clear()
        done: list[int] = []
        it.flusher.request(it.log, done.append)
        await wait_until(lambda: it.fs.syncs)
        it.flusher.request(it.log, done.append)
        it.directory.delete_log("t", 0)
        recreated = it.directory.open_log("t" if recreate else "u", 0, UUID(int=6), now_ms=0)
        it.fs.gate.set()
        await wait_until(lambda: not it.flusher.is_flushing(it.log))
        assert it.failures == []
        assert done == []
        assert not it.fs.is_dir(f"{DIRECTORY}/t-0-delete")
        recreated.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        assert await it.flusher.flush(recreated) == 1


async def test_a_truncation_during_an_fsync_is_not_taken_for_flushed() -> None:
    async with flushing() as it:
        it.log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        it.fs.gate.clear()
        flush = asyncio.create_task(it.flusher.flush(it.log))
        await wait_until(lambda: it.fs.syncs)
        it.fs.gate.set()
        it.log.truncate_to(1)
        it.log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
        assert await flush < 2


async def test_stop_waits_for_what_runs_and_starts_nothing() -> None:
    async with flushing() as it:
        it.fs.gate.clear()
        done: list[int] = []
        it.flusher.request(it.log, done.append)
        await wait_until(lambda: it.fs.syncs)
        it.flusher.request(it.log, done.append)
        stopping = asyncio.create_task(it.flusher.stop())
        await quiet_for(0.01)
        assert not stopping.done()
        it.fs.gate.set()
        await stopping
        assert done == [1]
        it.flusher.request(it.log, done.append)
        assert not it.flusher.is_flushing(it.log)


async def test_whoever_asks_is_told_how_long_each_fsync_took() -> None:
    async with flushing() as it:
        await it.flusher.flush(it.log)
        assert len(it.flush_seconds) == 1
        it.fs.faults.fail_next(Operation.SYNC, path_part=".log")
        it.log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        with pytest.raises(StorageError):
            await it.flusher.flush(it.log)
        assert len(it.flush_seconds) == 2, "a failed one took its time too"


async def test_a_flush_that_found_no_descriptor_is_done_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.disk.flusher.RETRY_S", 0.001)
    async with flushing() as it:
        it.log.roll(0)
        refused = [OSError(errno.EMFILE, "too many")] * 3
        sync_dir = it.fs.sync_dir

        def few(path: str) -> None:
            if refused:
                raise refused.pop()
            sync_dir(path)

        monkeypatch.setattr(it.fs, "sync_dir", few)
        assert await it.flusher.flush(it.log) == 1
        assert (refused, it.failures, it.failed_logs) == ([], [], [])
