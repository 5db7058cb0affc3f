"""Many threads on one log: shared fsyncs, waiting readers, and a close in the middle."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_kit import CountingFileSystem, abandon, open_simulated, wait_until

import replog
from replog.errors import BrokerClosedError, StorageError
from replog.local import LocalLog
from replog.testing import Operation, SimulatedFileSystem

THREADS = 16


def _append_from_threads(log: LocalLog, per_thread: int) -> dict[int, bytes]:
    def work(thread: int) -> list[tuple[int, bytes]]:
        return [(log.append(b"%d-%d" % (thread, n)), b"%d-%d" % (thread, n)) for n in range(per_thread)]

    with ThreadPoolExecutor(THREADS) as pool:
        return dict(pair for pairs in pool.map(work, range(THREADS)) for pair in pairs)


def test_every_thread_gets_offsets_of_its_own(tmp_path: Path) -> None:
    for flush in ("always", "os"):
        with replog.open_log(tmp_path / flush, flush=flush, segment_bytes=4096) as log:
            acknowledged = _append_from_threads(log, 50)
            assert sorted(acknowledged) == list(range(THREADS * 50))
            assert {record.offset: record.value for record in log} == acknowledged


def test_threads_share_an_fsync(tmp_path: Path) -> None:
    """While one fsync is held back, all others gather; the next one serves them together."""
    fs = CountingFileSystem()
    with replog.open_log(tmp_path / "log", file_system=fs, maintenance_interval_ms=0) as log:
        before = fs.syncs_count
        with ThreadPoolExecutor(THREADS) as pool, fs.held():
            first = pool.submit(log.append, b"first")
            wait_until(lambda: fs.syncs_count == before + 1)
            others = [pool.submit(log.append, b"other") for _ in range(THREADS - 1)]
            wait_until(lambda: log.log_end_offset == THREADS)
            assert log.high_watermark == 0
            fs.gate.set()
            assert sorted(future.result() for future in [first, *others]) == list(range(THREADS))
        assert fs.syncs_count == before + 2


def test_a_failed_fsync_is_told_to_everybody_who_waits() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append(b"safe")
    disk.faults.fail_next(Operation.SYNC, path_part=".log")
    outcomes: list[str] = []

    def append() -> None:
        try:
            log.append(b"x")
            outcomes.append("acknowledged")
        except StorageError:
            outcomes.append("refused")

    threads = [threading.Thread(target=append) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["refused"] * THREADS
    assert log.high_watermark == 1
    abandon(log)


def test_close_waits_for_the_fsync_under_way(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    log = replog.open_log(tmp_path / "log", file_system=fs, maintenance_interval_ms=0)
    with ThreadPoolExecutor(2) as pool, fs.held():
        append = pool.submit(log.append, b"a")
        assert fs.entered.acquire(timeout=60)
        close = pool.submit(log.close)
        wait_until(lambda: log.closed)
        with pytest.raises(BrokerClosedError):
            log.append(b"too late")
        assert not close.done()
        fs.gate.set()
        assert append.result() == 0
        close.result()
    with replog.open_log(tmp_path / "log", read_only=True) as reader:
        assert reader.log_end_offset == 1


def test_reads_and_appends_go_on_while_an_fsync_runs(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    with replog.open_log(tmp_path / "log", file_system=fs, flush="os", maintenance_interval_ms=0) as log:
        log.append(b"a")
        with ThreadPoolExecutor(1) as pool, fs.held():
            flush = pool.submit(log.flush)
            assert fs.entered.acquire(timeout=60)
            assert log.append(b"b") == 1
            assert [record.value for record in log] == [b"a", b"b"]
            fs.gate.set()
            assert flush.result() == 1


# Following


def test_tail_yields_what_is_there_and_what_comes(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log, ThreadPoolExecutor(1) as pool:
        log.append_many([b"0", b"1"])
        tail = log.tail(1)
        assert next(tail).value == b"1"
        waiting = pool.submit(next, tail)
        log.append(b"2")
        assert waiting.result(20).value == b"2"
        assert [record.value for record in log.tail(0, timeout_s=0.01)] == [b"0", b"1", b"2"]
        assert list(log.tail(timeout_s=0)) == []  # only what is new


@pytest.mark.parametrize("how", ["close", "fail"])
def test_a_waiting_reader_is_told_of_the_end(how: str) -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append(b"a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, log.tail(0))
        wait_until(lambda: log._watchers.waiters_count == 1)
        if how == "close":
            log.close()
            assert [record.value for record in waiting.result(20)] == [b"a"]
        else:
            disk.faults.fail_next(Operation.SYNC, path_part=".log")
            with pytest.raises(StorageError):
                log.append(b"b")
            with pytest.raises(StorageError, match="no record will come"):
                waiting.result(20)
            abandon(log)


def test_wait_for(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log, ThreadPoolExecutor(1) as pool:
        assert not log.wait_for(0, timeout_s=0)
        assert not log.wait_for(0, timeout_s=0.01)
        waiting = pool.submit(log.wait_for, 1)
        log.append(b"0")
        assert not waiting.done()
        log.append(b"1")
        assert waiting.result(20)
        assert log.wait_for(0, timeout_s=0)
