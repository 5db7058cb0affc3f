"""Snapshots that a node writes while other things happen to its metadata log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest
from broker_kit import FakeClock, wait_until

from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from replog.errors import InvariantViolationError
from replog.log import Log, LogConfig
from replog.log.snapshots.files import SnapshotContext, SnapshotId
from replog.metadata.image import MetadataImage
from replog.testing import SimulatedFileSystem

DIRECTORY = "/data/__cluster_metadata-0"


class HeldThreads(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future


def snapshots_of(
    fs: SimulatedFileSystem, failures: list[BaseException]
) -> tuple[MetadataSnapshots, MetadataLog, Log, HeldThreads]:
    """Of a log with one leader change; one is due with every image."""
    log = Log.open(
        fs, DIRECTORY, LogConfig(), topic_partition="__cluster_metadata-0", recovery_point=0, log_start_offset=0,
        clean=False, now_ms=0,
    )  # fmt: skip
    it = MetadataLog(fs, log, FakeClock(), lambda: False)
    it.append_leader_change(3, 1, (1, 2), (1,))
    threads = HeldThreads()
    quorum: Any = SimpleNamespace(
        log=it, committed=SimpleNamespace(applied_bytes=100, applied_timestamp_ms=7, applied=1)
    )
    limits = SnapshotLimits(bytes_between=1, interval_ms=1 << 40, retention_bytes=-1, retention_ms=-1)
    return MetadataSnapshots(limits, quorum, FakeClock(), threads, list, failures.append), it, log, threads


async def published(snapshots: MetadataSnapshots, image: MetadataImage) -> None:
    """Nothing is left to do but for threads."""
    snapshots.image_published(image)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_has_stopped_writes_no_snapshot() -> None:
    """The quorum stops later, and commits until then; its log is closed next."""
    failures: list[BaseException] = []
    snapshots, _, _, threads = snapshots_of(SimulatedFileSystem(), failures)
    await snapshots.stop()
    await published(snapshots, MetadataImage(end_offset=1, epoch=3))
    assert threads.jobs == failures == []


async def test_a_snapshot_that_is_older_than_one_that_was_installed_meanwhile_is_dropped() -> None:
    """As the earliest one it would say that the log starts in an epoch in which it does not: followers would fetch the
    installed one for ever."""
    fs, failures = SimulatedFileSystem(), list[BaseException]()
    snapshots, it, log, threads = snapshots_of(fs, failures)
    snapshots.image_published(MetadataImage(end_offset=1, epoch=3))
    await wait_until(lambda: threads.jobs)
    log.truncate_fully_and_start_at(5)
    fetched = it.snapshots.prepare_write(SnapshotId(5, 4), SnapshotContext(9, ()), [b"state"], timestamp_ms=9)
    assert fetched is not None
    fetched.run()
    it.snapshots.add(SnapshotId(5, 4))
    while threads.jobs:
        threads.jobs.pop(0)()
        for _ in range(5):
            await asyncio.sleep(0)
    assert it.snapshots.ids == (SnapshotId(5, 4),)
    assert it.earliest_snapshot_id is not None
    assert it.earliest_snapshot_id.end_offset == it.log_start_offset
    assert not [name for name in fs.list_dir(DIRECTORY) if name.startswith("00000000000000000001-")]
    await snapshots.stop()
    assert failures == []


@pytest.mark.parametrize(
    ("end_offset", "epoch", "reason"),
    [
        (2, 3, "ends above offset 1, up to which is committed"),
        (9, 3, "ends above offset 1, up to which is committed"),
        (1, 2, "has epoch 3 in the log"),
        (1, 4, "has epoch 3 in the log"),
    ],
    ids=["uncommitted", "beyond the log", "of an older epoch", "of a later epoch"],
)
async def test_what_is_no_committed_state_is_not_written(end_offset: int, epoch: int, reason: str) -> None:
    """Who fetches a snapshot takes all of it for committed, and whoever starts with it believes its epoch."""
    fs, failures = SimulatedFileSystem(), list[BaseException]()
    snapshots, it, _, threads = snapshots_of(fs, failures)
    it.append_values(3, [b"not committed"])
    await published(snapshots, MetadataImage(end_offset=end_offset, epoch=epoch))
    (failure,) = failures
    assert isinstance(failure, InvariantViolationError)
    assert reason in str(failure)
    assert (threads.jobs, it.snapshots.ids) == ([], ())


async def test_what_is_there_already_is_not_written_again() -> None:
    failures: list[BaseException] = []
    snapshots, it, _, threads = snapshots_of(SimulatedFileSystem(), failures)
    known = it.snapshots.prepare_write(SnapshotId(1, 3), SnapshotContext(7, ()), [b"state"], timestamp_ms=7)
    assert known is not None
    known.run()
    it.snapshots.add(SnapshotId(1, 3))
    await published(snapshots, MetadataImage(end_offset=1, epoch=3))
    assert (threads.jobs, it.snapshots.ids, failures) == ([], (SnapshotId(1, 3),), [])


@pytest.mark.parametrize("log_start_offset", [1, 5])
async def test_what_the_log_has_left_behind_is_not_written(log_start_offset: int) -> None:
    failures: list[BaseException] = []
    snapshots, it, log, threads = snapshots_of(SimulatedFileSystem(), failures)
    log.truncate_fully_and_start_at(log_start_offset)
    await published(snapshots, MetadataImage(end_offset=1, epoch=3))
    assert (threads.jobs, it.snapshots.ids, failures) == ([], (), [])
