"""The folder of a local log: what lies in it, who may open it, and what else can read it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import uuid
from pathlib import Path

import pytest
from local_kit import PATH, open_simulated, values

import replog
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    CorruptRecordError,
    DirectoryLockedError,
    InconsistentClusterIdError,
    StorageError,
)
from replog.log import LogConfig, LogDirectory
from replog.testing import Operation, SimulatedFileSystem
from replog_checkpoints import OsFileSystem, read_offset_checkpoint


def test_a_closed_log_is_a_log_directory_with_one_replica(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "orders") as log:
        log.append(b"a")
    names = {path.name for path in (tmp_path / "orders").iterdir()}
    assert {"log-0", ".lock", "meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} <= names
    fs = OsFileSystem()
    assert read_offset_checkpoint(fs, f"{tmp_path}/orders/recovery-point-offset-checkpoint") == {("log", 0): 1}
    assert "cluster.id=replog-open-log" in (tmp_path / "orders/meta.properties").read_text()
    assert (tmp_path / "orders/log-0/00000000000000000000.log").stat().st_size == 61 + 8


def test_the_partition_folder_serves_under_a_broker_directory(tmp_path: Path) -> None:
    """`docs/OPEN_LOG.md`: moved to `<topic>-<partition>` without `partition.metadata`."""
    with replog.open_log(tmp_path / "orders", segment_bytes=1024) as log:
        log.append_many([b"%d" % number for number in range(20)])
        for _ in range(20):
            log.append(b"x" * 50)
    broker = {"cluster_id": "c", "node_id": 1, "now_ms": 0}
    LogDirectory.open(OsFileSystem(), f"{tmp_path}/broker", **broker).close(now_ms=0, broker_epoch=1)
    shutil.copytree(tmp_path / "orders/log-0", tmp_path / "broker/flights-3")
    (tmp_path / "broker/flights-3/partition.metadata").unlink()
    directory = LogDirectory.open(OsFileSystem(), f"{tmp_path}/broker", **broker)
    replica = directory.open_log("flights", 3, uuid.uuid4(), LogConfig(), now_ms=0)
    assert (replica.log_end_offset, replica.last_epoch) == (40, 0)
    directory.close(now_ms=0, broker_epoch=1)


def test_one_writer(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        with pytest.raises(DirectoryLockedError, match="read_only=True"):
            replog.open_log(tmp_path / "log")
        log.append(b"still works")
    replog.open_log(tmp_path / "log").close()


def _try_to_open(path: str, outcome: multiprocessing.SimpleQueue[str]) -> None:
    try:
        replog.open_log(path).close()
        outcome.put("opened")
    except DirectoryLockedError:
        outcome.put("locked")


def test_another_process_is_locked_out(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    outcome = context.SimpleQueue()
    with replog.open_log(tmp_path / "log"):
        process = context.Process(target=_try_to_open, args=(str(tmp_path / "log"), outcome))
        process.start()
        process.join()
    assert outcome.get() == "locked"


# a process of pytest-xdist is
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", maintenance_interval_ms=0) as log:
        log.append(b"parent")
        pid = os.fork()
        if pid == 0:
            try:
                log.append(b"child")
            except BrokerClosedError:
                log.close()  # touches nothing
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        log.append(b"parent again")
        assert values(log) == [b"parent", b"parent again"]


def test_a_broker_directory_is_refused_and_a_broker_refuses_ours(tmp_path: Path) -> None:
    fs = OsFileSystem()
    LogDirectory.open(fs, f"{tmp_path}/broker", cluster_id="c", node_id=1, now_ms=0).close(now_ms=0, broker_epoch=1)
    before = sorted(path.name for path in (tmp_path / "broker").iterdir())
    with pytest.raises(InconsistentClusterIdError, match="give open_log a folder of its own"):
        replog.open_log(tmp_path / "broker")
    assert sorted(path.name for path in (tmp_path / "broker").iterdir()) == before
    replog.open_log(tmp_path / "ours").close()
    with pytest.raises(InconsistentClusterIdError):
        LogDirectory.open(fs, f"{tmp_path}/ours", cluster_id="c", node_id=0, now_ms=0)


def test_another_replica_beside_ours_is_refused(tmp_path: Path) -> None:
    replog.open_log(tmp_path / "log").close()
    shutil.copytree(tmp_path / "log/log-0", tmp_path / "log/flights-0")
    with pytest.raises(StorageError, match="it holds flights-0"):
        replog.open_log(tmp_path / "log")


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with replog.open_log("log", segment_bytes=1024) as log:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for _ in range(50):
            log.append(b"x" * 50)
        assert len(list(log)) == 50
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("error_number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_a_storage_error(error_number: int) -> None:
    disk = SimulatedFileSystem()
    disk.faults.fail_next(Operation.CREATE, error_number=error_number)
    with pytest.raises(StorageError, match=os.strerror(error_number)):
        open_simulated(disk)


# Read-only


def _content(path: Path) -> dict[str, tuple[bytes, int]]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_reading_changes_no_byte_beside_a_writer_and_after_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with replog.open_log(path, segment_bytes=1024) as log:
        for number in range(30):
            log.append(b"%d" % number)
        before = _content(path)
        with replog.open_log(path, read_only=True) as reader:
            assert values(reader) == [b"%d" % number for number in range(30)]
            assert not hasattr(reader, "append")
            log.append(b"later")
            assert len(values(reader)) == 30
        assert {name for name, _ in _content(path).items()} == set(before)
    before = _content(path)
    for source in (path, path / "log-0"):
        with replog.open_log(source, read_only=True) as reader:
            assert reader.log_end_offset == 31
            assert reader.offset_for_timestamp(0) == 0
        with pytest.raises(BrokerClosedError):
            reader.read(0)
    assert _content(path) == before


@pytest.mark.parametrize("make", ["nothing", "empty"])
def test_reading_what_is_no_log(tmp_path: Path, make: str) -> None:
    path = tmp_path / "log"
    if make == "empty":
        path.mkdir()
    with pytest.raises(StorageError, match=r"no folder|holds no log"):
        replog.open_log(path, read_only=True)
    assert path.exists() == (make == "empty")


# Damage


def test_damage_is_named_by_file_and_byte_and_the_rest_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with replog.open_log(path) as log:
        for number in range(5):
            log.append(b"%d" % number * 100)
        segment = path / "log-0/00000000000000000000.log"
        batch_bytes = log.size_bytes // 5
        with segment.open("r+b") as file:
            file.seek(2 * batch_bytes + 100)
            file.write(b"\xff")
        with pytest.raises(CorruptRecordError) as caught:
            list(log)
        assert (caught.value.path, caught.value.position) == (str(segment), 2 * batch_bytes)
        assert "offset 2" in caught.value.reason
        assert [record.offset for record in log.iterate(3)] == [3, 4]
        with pytest.raises(CorruptRecordError) as caught:
            log.to_arrow()
        assert caught.value.position == 2 * batch_bytes


def test_flushed_bytes_that_are_gone_are_not_recovered_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with replog.open_log(path) as log:
        log.append_many([b"a"] * 100)
        log.append_many([b"b"] * 100)
    (path / ".kafka_cleanshutdown").unlink()
    segment = path / "log-0/00000000000000000000.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:-10])
    for _ in range(2):  # the lock is given back, and nothing was changed
        with pytest.raises(CorruptRecordError, match="was flushed"):
            replog.open_log(path)
    segment.write_bytes(data)
    with replog.open_log(path) as log:
        assert log.log_end_offset == 200


def test_settings_are_checked_before_the_disk_is_touched() -> None:
    disk = SimulatedFileSystem()
    with pytest.raises(ConfigError):
        open_simulated(disk, segment_bytes=0)
    assert not disk.exists(PATH)


@pytest.mark.parametrize("is_renamed", [False, True])
def test_an_append_to_a_folder_that_is_gone_is_not_acknowledged(tmp_path: Path, *, is_renamed: bool) -> None:
    path = tmp_path / "orders"
    log = replog.open_log(path, maintenance_interval_ms=0)
    log.append(b"kept")
    path.rename(tmp_path / "elsewhere") if is_renamed else shutil.rmtree(path)
    with pytest.raises(StorageError, match="removed or renamed while it was open"):
        log.append(b"lost")
    assert log.failed
    with pytest.raises(StorageError, match="removed or renamed"):
        log.append(b"lost, too")
    with pytest.raises(StorageError, match="removed or renamed"):
        log.close()
    if is_renamed:
        with replog.open_log(tmp_path / "elsewhere") as log:
            assert values(log)[:1] == [b"kept"]


def test_a_read_from_a_folder_that_is_gone_names_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    log = replog.open_log(path, maintenance_interval_ms=0, flush="os", segment_bytes=1024, max_batch_bytes=512)
    for _ in range(9):
        log.append(b"x" * 300)
    log.flush()
    shutil.rmtree(path)
    with pytest.raises(StorageError, match="removed or renamed"):
        list(log)
    with pytest.raises(StorageError, match="No such file"):  # at the next segment, at the latest
        log.append_many([b"x" * 300] * 9)
    with pytest.raises(StorageError):
        log.close()
