"""Several log directories: what is refused before anything is changed, what opens alone, and where new replicas go."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append, content, read_file, write_file

from replog.errors import (
    ConfigError,
    CorruptCheckpointError,
    CorruptRecordError,
    DirectoryLockedError,
    ForeignDirectoryError,
    InconsistentClusterIdError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log import LogDirectory, LogManager, RecoveryProgress, run_together
from replog.log.disk_space import NO_LIMITS
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OsFileSystem

TOPIC = UUID(int=77)
PATHS = ("/a", "/b", "/c")


def open_manager(
    fs: FileSystem,
    paths: tuple[str, ...] = PATHS,
    *,
    cluster_id: str | None = "c1",
    node_id: int = 1,
    on_progress: Callable[[RecoveryProgress], None] | None = None,
    monotonic_ms: Callable[[], int] = lambda: 0,
) -> LogManager:
    return LogManager.open(
        fs,
        paths,
        cluster_id=cluster_id,
        node_id=node_id,
        now_ms=T0,
        config=TINY,
        limits=NO_LIMITS,
        on_progress=on_progress,
        monotonic_ms=monotonic_ms,
    )


def with_records(count: int = 6) -> tuple[SimulatedFileSystem, LogManager]:
    """`count` replicas of one topic, 20 records each."""
    fs = SimulatedFileSystem()
    logs = open_manager(fs)
    for partition in range(count):
        append(logs.open_log("t", partition, TOPIC, now_ms=T0), 20)
    return fs, logs


def homes(logs: LogManager) -> dict[str, list[int]]:
    return {path: sorted(partition for _, partition in found.logs) for path, found in logs.directories.items()}


def test_new_replicas_go_to_the_directory_with_the_fewest() -> None:
    fs, logs = with_records(5)
    assert homes(logs) == {"/a": [0, 3], "/b": [1, 4], "/c": [2]}
    logs.delete_log("t", 1)
    logs.delete_log("t", 4)
    logs.open_log("t", 9, TOPIC, now_ms=T0)
    assert homes(logs) == {"/a": [0, 3], "/b": [9], "/c": [2]}
    logs.close(now_ms=T0, broker_epoch=7)
    logs = open_manager(fs)
    assert homes(logs) == {"/a": [0, 3], "/b": [9], "/c": [2]}
    assert (logs.previous_broker_epoch, logs.offline, logs.cluster_id) == (7, {}, "c1")
    assert len(set(logs.directory_ids)) == 3
    assert logs.topic_id("t", 9) == TOPIC
    assert logs.home_of("t", 1) is None
    with pytest.raises(UnknownTopicOrPartitionError):
        logs.delete_log("t", 1)


def test_all_replicas_come_back_after_a_crash() -> None:
    fs, logs = with_records()
    for log in logs.logs.values():
        log.flush()
    logs.checkpoint_recovery_points()
    for log in logs.logs.values():
        append(log, 3)
    fs.crash(random.Random(3))
    logs = open_manager(fs)
    assert sorted(logs.logs) == [("t", partition) for partition in range(6)]
    for log in logs.logs.values():
        assert 20 <= log.log_end_offset <= 23
        assert len(content(log)) == log.log_end_offset


def test_checkpoints_stand_in_the_directory_of_their_replicas() -> None:
    fs, logs = with_records(3)
    logs.checkpoint_high_watermarks({("t", 0): 5, ("t", 1): 6, ("t", 2): 7, ("gone", 0): 9})
    logs.logs["t", 2].flush()
    logs.logs["t", 2].set_log_start_offset(3)
    logs.checkpoint_log_start_offsets()
    assert [read_file(fs, f"{path}/replication-offset-checkpoint") for path in PATHS] == [
        b"0\n1\nt 0 5\n",
        b"0\n1\nt 1 6\n",
        b"0\n1\nt 2 7\n",
    ]
    assert read_file(fs, "/c/log-start-offset-checkpoint") == b"0\n1\nt 2 3\n"
    assert logs.high_watermarks == {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}
    logs.delete_log("t", 1)
    assert read_file(fs, "/b/replication-offset-checkpoint") == b"0\n0\n", "a deleted replica leaves no line behind"
    assert logs.high_watermark("t", 1) == 0


def another_cluster(fs: SimulatedFileSystem) -> None:
    LogDirectory.open(fs, "/new", cluster_id="c2", node_id=1, now_ms=T0).close(now_ms=T0, broker_epoch=1)
    fs.rename("/b", "/old")
    fs.rename("/new", "/b")


def another_node(fs: SimulatedFileSystem) -> None:
    LogDirectory.open(fs, "/new", cluster_id="c1", node_id=2, now_ms=T0).close(now_ms=T0, broker_epoch=1)
    fs.rename("/b", "/old")
    fs.rename("/new", "/b")


def a_copy(fs: SimulatedFileSystem) -> None:
    write_file(fs, "/b/meta.properties", read_file(fs, "/a/meta.properties"))


def of_kafka(fs: SimulatedFileSystem) -> None:
    meta = read_file(fs, "/c/meta.properties")
    write_file(fs, "/c/meta.properties", meta.replace(b"replog.format=1\n", b""))


def a_replica_twice(fs: SimulatedFileSystem) -> None:
    fs.make_dirs("/c/t-1")
    write_file(fs, "/c/t-1/00000000000000000000.log", b"")


def in_use(fs: SimulatedFileSystem) -> None:
    fs.lock("/c/.lock")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (another_cluster, InconsistentClusterIdError, "c2"),
        (another_node, InconsistentClusterIdError, "belongs to node 2"),
        (a_copy, ForeignDirectoryError, "have the same directory id"),
        (of_kafka, ForeignDirectoryError, "formatted by Apache Kafka"),
        (a_replica_twice, ForeignDirectoryError, "replica t-1 is in /b and in /c"),
        (in_use, DirectoryLockedError, "in use by another process"),
    ],
)
def test_one_directory_that_must_not_be_used_leaves_all_untouched(
    spoil: Callable[[SimulatedFileSystem], None], error: type[Exception], words: str
) -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    spoil(fs)
    before = fs.image()
    for cluster_id in ("c1", None):
        with pytest.raises(error, match=words):
            open_manager(fs, cluster_id=cluster_id)
    assert fs.image() == before
    assert fs.lock("/a/.lock") is not None, "no lock is left"


def test_a_new_directory_takes_the_cluster_of_the_others() -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    logs = open_manager(fs, (*PATHS, "/d"), cluster_id=None)
    assert logs.directories["/d"].meta.cluster_id == "c1"
    assert logs.previous_broker_epoch == -1, "a directory without a past proves nothing"
    with pytest.raises(ConfigError):
        open_manager(SimulatedFileSystem(), cluster_id=None)


def test_a_directory_that_cannot_be_read_is_offline_alone() -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    fs.faults.fail_always(Operation.OPEN, path_part="/b/meta.properties")
    logs = open_manager(fs)
    assert list(logs.directories) == ["/a", "/c"]
    assert list(logs.unopened) == ["/b"]
    assert sorted(logs.logs) == [("t", partition) for partition in (0, 2, 3, 5)]
    assert logs.previous_broker_epoch == -1, "not all of what this broker had is proven"
    with pytest.raises(StorageError, match="its data may be there"):
        logs.open_log("t", 1, TOPIC, now_ms=T0, is_new=False)
    assert logs.open_log("u", 0, TOPIC, now_ms=T0, is_new=True).log_end_offset == 0
    with pytest.raises(StorageError, match="/b"):
        logs.open_log("m", 0, TOPIC, now_ms=T0, directory="/b")


def test_where_none_can_be_opened_the_first_problem_is_told() -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    fs.faults.fail_always(Operation.OPEN, path_part="meta.properties")
    with pytest.raises(StorageError, match="/a"):
        open_manager(fs)


def test_a_damaged_checkpoint_takes_its_directory_offline_untouched() -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    write_file(fs, "/b/recovery-point-offset-checkpoint", b"")
    before = {path: data for path, data in fs.image().items() if path.startswith("/b")}
    logs = open_manager(fs)
    assert isinstance(logs.unopened["/b"], CorruptCheckpointError)
    assert {path: data for path, data in fs.image().items() if path.startswith("/b")} == before
    fs.lock("/b/.lock")


def test_bit_rot_takes_one_replica_offline() -> None:
    fs, logs = with_records()
    for log in logs.logs.values():
        log.flush()
    logs.checkpoint_recovery_points()
    fs.kill()
    fs.flip_bit("/b/t-1/00000000000000000016.log", 90)
    logs = open_manager(fs)
    assert isinstance(logs.offline["t", 1], CorruptRecordError)
    assert isinstance(logs.offline_error("t", 1), CorruptRecordError)
    with pytest.raises(CorruptRecordError):
        logs.open_log("t", 1, TOPIC, now_ms=T0)
    assert logs.open_log("t", 4, TOPIC, now_ms=T0).log_end_offset == 20, "its neighbour goes on"


def test_progress_is_told_with_what_there_is_to_do() -> None:
    fs, _ = with_records()
    sizes = {path: sum(fs.size(f"{path}/t-{p}/{n:020d}.log") for p in ps for n in (0, 8, 16)) for path, ps in
             {"/a": (0, 3), "/b": (1, 4), "/c": (2, 5)}.items()}  # fmt: skip
    fs.kill()
    told: list[RecoveryProgress] = []
    time = iter(range(0, 100_000, 200))
    open_manager(fs, on_progress=told.append, monotonic_ms=lambda: next(time))
    for path in PATHS:
        mine = [progress for progress in told if progress.directory == path]
        first, last = mine[0], mine[-1]
        assert (first.logs_done, first.logs_total, first.bytes_done, first.eta_ms) == (0, 2, 0, None)
        assert first.bytes_total == last.bytes_done == sizes[path]
        assert (last.logs_done, last.eta_ms) == (2, 0)
        assert [progress.bytes_done for progress in mine] == sorted(progress.bytes_done for progress in mine)
    assert "2 of 2 logs open" in told[-1].describe()


def test_after_a_clean_stop_nothing_is_to_be_scanned() -> None:
    fs, logs = with_records()
    logs.close(now_ms=T0, broker_epoch=1)
    told: list[RecoveryProgress] = []
    open_manager(fs, on_progress=told.append)
    assert {progress.bytes_total for progress in told} == {0}


def test_a_failed_directory_takes_only_its_own_logs() -> None:
    fs, logs = with_records()
    error = StorageError("/b: gone")
    assert sorted(logs.fail_directory("/b", error)) == [("t", 1), ("t", 4)]
    assert sorted(logs.logs) == [("t", partition) for partition in (0, 2, 3, 5)]
    assert set(logs.offline) == {("t", 1), ("t", 4)}
    with pytest.raises(StorageError, match="gone"):
        logs.open_log("t", 1, TOPIC, now_ms=T0)
    assert [logs.is_essential(path) for path in PATHS] == [False, False, False]
    logs.open_log("u", 0, TOPIC, now_ms=T0)
    assert logs.home_of("u", 0) is not logs.directories["/b"]
    logs.checkpoint_recovery_points()
    with pytest.raises(StorageError, match="gone"):
        logs.close(now_ms=T0, broker_epoch=4)
    assert [fs.exists(f"{path}/.kafka_cleanshutdown") for path in PATHS] == [True, False, True]
    assert open_manager(fs).previous_broker_epoch == -1


def test_the_last_directory_and_that_of_the_metadata_log_are_essential() -> None:
    _, logs = with_records()
    logs.open_log("__cluster_metadata", 0, UUID(int=1), now_ms=T0, directory="/c")
    assert [logs.is_essential(path) for path in PATHS] == [False, False, True]
    logs.fail_directory("/a", StorageError("x"))
    logs.fail_directory("/c", StorageError("x"))
    assert logs.is_essential("/b")


@pytest.mark.parametrize("spoil", ["unmounted", "replaced", "unreadable"])
def test_a_disk_that_goes_away_is_noticed(spoil: str) -> None:
    fs, logs = with_records()
    if spoil == "unmounted":
        fs.rename("/b", "/elsewhere")
        fs.make_dirs("/b")
    elif spoil == "replaced":
        write_file(fs, "/b/meta.properties", read_file(fs, "/a/meta.properties"))
    else:
        fs.faults.fail_next(Operation.READ, path_part="/b/meta.properties", error_number=errno.EIO)
    found = logs.check_disks()
    assert [path for path, state in found.items() if isinstance(state, StorageError)] == ["/b"]


def test_creating_in_threads_spreads_and_fails_alone() -> None:
    fs, logs = with_records(3)
    jobs = [logs.prepare_create("u", partition, TOPIC, TINY, now_ms=T0) for partition in range(6)]
    assert logs.prepare_create("t", 0, TOPIC, TINY, now_ms=T0) is None
    fs.faults.fail_next(Operation.CREATE, path_part="u-3")
    for job in jobs:
        assert job is not None
        job.run()
        logs.complete_create(job)
    assert homes(logs) == {"/a": [0, 0], "/b": [1, 1, 4], "/c": [2, 2, 5]}
    assert logs.home_of("u", 3) is None
    assert logs.open_log("u", 3, TOPIC, now_ms=T0) is logs.directories["/a"].logs["u", 3]


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.SYNC, Operation.SYNC_DIR])
def test_one_that_fails_among_many(operation: Operation) -> None:
    fs, logs = with_records(2)
    jobs = [logs.prepare_create("u", partition, TOPIC, TINY, now_ms=T0, leader_epoch=5) for partition in range(6)]
    fs.faults.fail_always(operation, path_part="u-3")
    run_together([job for job in jobs if job is not None])
    for job in jobs:
        assert job is not None
        assert (job.error is None) == (job.replica.key != ("u", 3))
        logs.complete_create(job)
    made = [partition for partition in range(6) if ("u", partition) in logs.logs]
    assert made == [0, 1, 2, 4, 5]
    assert {tuple(logs.logs["u", partition].leader_epochs.entries) for partition in made} == {((5, 0),)}
    assert not [path for path in fs.image() if "u-3" in path]


def test_on_a_real_disk(tmp_path: Path) -> None:
    fs = OsFileSystem()
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    logs = open_manager(fs, paths)
    for partition in range(4):
        append(logs.open_log("t", partition, TOPIC, now_ms=T0), 10)
    with pytest.raises(DirectoryLockedError):
        open_manager(fs, paths)
    logs.close(now_ms=T0, broker_epoch=3)
    logs = open_manager(fs, paths)
    assert [log.log_end_offset for log in logs.logs.values()] == [10] * 4
    assert logs.previous_broker_epoch == 3
    logs.close(now_ms=T0, broker_epoch=4)
