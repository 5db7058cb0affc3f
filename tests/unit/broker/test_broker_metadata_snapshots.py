"""Snapshots that a node writes while other things happen to its metadata log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

from broker_kit import FakeClock, wait_until

from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
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


async def test_who_has_stopped_writes_no_snapshot() -> None:
    """The quorum stops later, and commits until then; its log is closed next."""
    failures: list[BaseException] = []
    snapshots, _, _, threads = snapshots_of(SimulatedFileSystem(), failures)
    await snapshots.stop()
    snapshots.image_published(MetadataImage(end_offset=1, epoch=3))
    for _ in range(5):
        await asyncio.sleep(0)
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
