"""The log directory: lock, identity, checkpoints, clean and unclean stops."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append, content, read_file, write_file

from replog.errors import (
    ConfigError,
    CorruptCheckpointError,
    CorruptRecordError,
    DirectoryLockedError,
    InconsistentClusterIdError,
    InconsistentTopicIdError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log import Log, LogConfig, LogDirectory
from replog.records import scan
from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OsFileSystem

TOPIC = UUID(int=77)


def open_directory(
    fs: FileSystem, *, path: str = "/data", cluster_id: str | None = "c1", node_id: int = 1
) -> LogDirectory:
    return LogDirectory.open(fs, path, cluster_id=cluster_id, node_id=node_id, now_ms=T0, config=TINY)


def with_records(count: int = 20) -> tuple[SimulatedFileSystem, LogDirectory]:
    fs = SimulatedFileSystem()
    directory = open_directory(fs)
    append(directory.open_log("t", 0, TOPIC, now_ms=T0), count)
    return fs, directory


def everything(fs: FileSystem, path: str = "/data") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in fs.list_dir(path):
        child = f"{path}/{name}"
        found.update(everything(fs, child) if fs.is_dir(child) else {child: read_file(fs, child)})
    return found


def test_a_clean_stop_and_start() -> None:
    fs, directory = with_records()
    directory.checkpoint_high_watermarks({("t", 0): 15})
    directory.close(now_ms=T0, broker_epoch=42)
    files = everything(fs)
    assert files["/data/.kafka_cleanshutdown"] == b'{"version":0,"brokerEpoch":42}'
    assert files["/data/recovery-point-offset-checkpoint"] == b"0\n1\nt 0 20\n"
    assert files["/data/replication-offset-checkpoint"] == b"0\n1\nt 0 15\n"
    assert b"replog.format=1\n" in files["/data/meta.properties"]
    directory = open_directory(fs)
    assert (directory.was_clean, directory.previous_broker_epoch) == (True, 42)
    assert directory.high_watermarks == {("t", 0): 15}
    assert not fs.exists("/data/.kafka_cleanshutdown")
    assert directory.logs["t", 0].recovery.segments_scanned == 0
    assert directory.topic_id("t", 0) == TOPIC


def test_an_unclean_stop_is_checked_from_the_recovery_point() -> None:
    fs, directory = with_records()
    directory.logs["t", 0].flush()
    directory.checkpoint_recovery_points()
    append(directory.logs["t", 0], 2)
    fs.kill()
    directory = open_directory(fs)
    log = directory.logs["t", 0]
    assert not directory.was_clean
    assert (len(content(log)), log.flushed_offset, log.recovery.segments_scanned) == (22, 20, 1)


@pytest.mark.parametrize("missing", ["file", "line"])
def test_without_a_recovery_point_everything_is_checked_even_after_a_clean_stop(missing: str) -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    path = "/data/recovery-point-offset-checkpoint"
    fs.remove(path)
    if missing == "line":
        write_file(fs, path, b"0\n0\n")
    log = open_directory(fs).logs["t", 0]
    assert log.recovery.segments_scanned == len(log.segment_base_offsets)
    assert log.flushed_offset == 16  # sealed segments were fsynced on the way


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_an_empty_checkpoint_is_refused(name: str) -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    write_file(fs, f"/data/{name}", b"")
    before = everything(fs)
    with pytest.raises(CorruptCheckpointError, match="Nothing was changed") as raised:
        open_directory(fs)
    assert raised.value.path == f"/data/{name}"
    assert everything(fs) == before
    assert fs.lock("/data/.lock") is not None  # it was released


def test_a_damaged_clean_marker_means_unclean() -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    write_file(fs, "/data/.kafka_cleanshutdown", b"")
    assert not open_directory(fs).was_clean


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "words"),
    [
        ("c2", 1, r"belongs to cluster c1, this node to c2.* /data/meta\.properties is damaged"),
        ("c1", 2, r"belongs to node 1, this is node 2.* /data/meta\.properties is damaged"),
    ],
)
def test_another_owners_directory_is_not_touched(cluster_id: str, node_id: int, words: str) -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    fs.remove("/data/.lock")
    before = everything(fs)
    with pytest.raises(InconsistentClusterIdError, match=words):
        open_directory(fs, cluster_id=cluster_id, node_id=node_id)
    assert everything(fs) == before
    assert open_directory(fs, cluster_id=None).meta.cluster_id == "c1"


def test_a_directory_of_kafka_and_one_without_identity_are_refused() -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    meta = read_file(fs, "/data/meta.properties")
    write_file(fs, "/data/meta.properties", meta.replace(b"replog.format=1\n", b""))
    with pytest.raises(StorageError, match=r"formatted by Apache Kafka.* /data/meta\.properties is damaged"):
        open_directory(fs)
    fs.remove("/data/meta.properties")
    with pytest.raises(StorageError, match=r"no meta\.properties"):
        open_directory(fs)
    with pytest.raises(ConfigError):
        open_directory(fs, path="/new", cluster_id=None)
    assert not fs.exists("/new")


def test_two_processes_cannot_share_a_directory(tmp_path: Path) -> None:
    fs = OsFileSystem()
    directory = open_directory(fs, path=str(tmp_path / "d"))
    with pytest.raises(DirectoryLockedError, match="in use by another process"):
        open_directory(fs, path=str(tmp_path / "d"))
    append(directory.open_log("t", 0, TOPIC, now_ms=T0), 30)
    directory.close(now_ms=T0, broker_epoch=None)
    again = open_directory(fs, path=str(tmp_path / "d"))
    assert (again.was_clean, again.logs["t", 0].log_end_offset) == (False, 30)
    again.close(now_ms=T0, broker_epoch=-1)


def test_bit_rot_takes_one_replica_offline_and_leaves_no_clean_marker() -> None:
    fs, directory = with_records()
    append(directory.open_log("u", 3, TOPIC, now_ms=T0), 5)
    for log in directory.logs.values():
        log.flush()
    directory.checkpoint_recovery_points()
    fs.kill()
    fs.flip_bit("/data/t-0/00000000000000000016.log", 90)
    directory = open_directory(fs)
    assert list(directory.offline) == [("t", 0)]
    with pytest.raises(CorruptRecordError):
        directory.open_log("t", 0, TOPIC, now_ms=T0)
    directory.close(now_ms=T0, broker_epoch=1)
    assert not fs.exists("/data/.kafka_cleanshutdown")
    assert read_file(fs, "/data/recovery-point-offset-checkpoint") == b"0\n2\nt 0 20\nu 3 5\n"
    directory = open_directory(fs)
    assert list(directory.offline) == [("t", 0)]
    directory.delete_log("t", 0)
    assert directory.open_log("t", 0, TOPIC, now_ms=T0).log_end_offset == 0


def test_an_offset_that_rotted_takes_one_replica_offline() -> None:
    fs = SimulatedFileSystem()
    config = LogConfig()

    def opened() -> LogDirectory:
        return LogDirectory.open(fs, "/data", cluster_id="c1", node_id=1, now_ms=T0, config=config)

    directory = opened()
    for topic in ("t", "u"):
        append(directory.open_log(topic, 0, TOPIC, config, now_ms=T0), 80)  # more than an index interval
    directory.close(now_ms=T0, broker_epoch=1)
    good = everything(fs)
    path = "/data/t-0/00000000000000000000.log"
    for header in scan(good[path]):
        for name, data in good.items():
            write_file(fs, name, data)
        fs.flip_bit(path, header.position + 3)  # 2^32 more: too far for an index
        directory = opened()
        assert set(directory.offline) <= {("t", 0)}
        directory.close(now_ms=T0, broker_epoch=1)


def test_a_topic_that_was_created_again_is_told_apart() -> None:
    fs, directory = with_records()
    directory.logs["t", 0].flush()
    directory.checkpoint_recovery_points()
    with pytest.raises(InconsistentTopicIdError, match="Delete the old replica first"):
        directory.open_log("t", 0, UUID(int=78), now_ms=T0)
    directory.delete_log("t", 0)
    assert read_file(fs, "/data/recovery-point-offset-checkpoint") == b"0\n0\n"
    assert directory.open_log("t", 0, UUID(int=78), now_ms=T0).log_end_offset == 0
    fs.kill()
    assert not open_directory(fs).offline  # the old recovery point makes no promise about the new replica
    with pytest.raises(UnknownTopicOrPartitionError):
        directory.delete_log("t", 5)


def test_half_deleted_replicas_are_swept_and_their_lines_dropped() -> None:
    fs, directory = with_records()
    directory.logs["t", 0].flush()
    directory.checkpoint_recovery_points()
    fs.kill()
    fs.rename("/data/t-0", f"/data/t-0.{'0' * 32}-delete")
    directory = open_directory(fs)
    assert not directory.logs
    assert "/data/t-0" not in " ".join(everything(fs))
    assert read_file(fs, "/data/recovery-point-offset-checkpoint") == b"0\n0\n"


def test_log_starts_inside_a_segment_are_checkpointed() -> None:
    fs, directory = with_records()
    directory.logs["t", 0].flush()
    directory.logs["t", 0].set_log_start_offset(9)
    directory.checkpoint_log_start_offsets()
    assert read_file(fs, "/data/log-start-offset-checkpoint") == b"0\n1\nt 0 9\n"
    fs.kill()
    log = open_directory(fs).logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset) == (9, 20)


def test_a_truncation_lowers_the_checkpoint_before_it_cuts() -> None:
    fs, directory = with_records()
    log = directory.logs["t", 0]
    log.flush()
    directory.checkpoint_recovery_points()
    log.truncate_to(12)
    assert read_file(fs, "/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 12\n"


def test_a_failed_log_leaves_no_clean_marker() -> None:
    fs, directory = with_records()
    fs.faults.fail_next(Operation.SYNC)
    with pytest.raises(StorageError):
        directory.logs["t", 0].flush()
    with pytest.raises(StorageError):
        directory.close(now_ms=T0, broker_epoch=1)
    assert not fs.exists("/data/.kafka_cleanshutdown")
    assert not open_directory(fs).was_clean


def test_a_power_cut_while_a_replica_starts_anew_leaves_it_usable() -> None:
    """Found by the crash test: no segment was left, and the recovery point was taken for records that are lost."""
    for operation_count in range(40):
        fs, directory = with_records()
        log = directory.logs["t", 0]
        log.flush()
        log.set_log_start_offset(16)
        log.delete_old_segments(T0, high_watermark=20)
        directory.checkpoint_recovery_points()
        fs.faults.cut_power_after(operation_count)
        with contextlib.suppress(PowerCutError):
            log.truncate_fully_and_start_at(50)
        fs.crash(random.Random(operation_count))
        directory = open_directory(fs)
        assert not directory.offline
        log = directory.logs["t", 0]
        assert (log.log_start_offset, log.log_end_offset) in {(16, 20), (50, 50)}


def test_what_is_compacted_is_remembered_until_the_replica_or_its_tail_goes() -> None:
    fs, directory = with_records()
    log = directory.logs["t", 0]
    log.flush()
    log.restore_first_dirty_offset(15)  # as after a compaction
    for job in directory.prepare_cleaner_offsets():
        job.run()
    path = "/data/cleaner-offset-checkpoint"
    assert read_file(fs, path) == b"0\n1\nt 0 15\n"
    fs.kill()
    directory = open_directory(fs)
    assert directory.logs["t", 0].first_dirty_offset == 15
    directory.logs["t", 0].truncate_to(7)
    assert read_file(fs, path) == b"0\n1\nt 0 7\n"
    directory.delete_log("t", 0)
    assert read_file(fs, path) == b"0\n0\n"


def test_recovery_points_are_gathered_in_one_walk_over_all_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: three walks, one of which asked twice, were 18 ms with ten thousand logs, each time out of the caches."""
    _, directory = with_records()
    log = directory.logs["t", 0]
    log.flush()
    log.restore_first_dirty_offset(15)
    asked: list[str] = []
    for name in ("checkpointed_recovery_point", "needs_log_start_checkpoint", "first_dirty_offset"):
        read = vars(Log)[name].fget
        monkeypatch.setattr(Log, name, property(lambda of, name=name, read=read: (asked.append(name), read(of))[1]))
    assert len(directory.prepare_recovery_points()) == 2
    assert asked == ["checkpointed_recovery_point", "needs_log_start_checkpoint", "first_dirty_offset"]


def test_nothing_is_written_as_long_as_nothing_is_compacted() -> None:
    fs, directory = with_records()
    directory.checkpoint_recovery_points()
    assert not fs.exists("/data/cleaner-offset-checkpoint")


def test_a_damaged_memory_of_compaction_costs_a_pass_and_nothing_else() -> None:
    fs, directory = with_records()
    directory.close(now_ms=T0, broker_epoch=1)
    write_file(fs, "/data/cleaner-offset-checkpoint", b"garbage")
    assert open_directory(fs).logs["t", 0].first_dirty_offset == 0
