"""What is cut from a log: it is told with offsets and bytes, and the bytes are kept beside it, bounded."""

from __future__ import annotations

import errno

import pytest
from log_test_kit import TINY, append, content, filled, open_log, read_file, write_file

from replog.log import Log, LogConfig
from replog.log.recovery import cut_bytes
from replog.log.recovery.cut_bytes import CUT_FILES_MAX, CutPiece, keep_cut
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/data/t-0"
BIG = LogConfig(index_interval_bytes=100)


def kept(fs: SimulatedFileSystem) -> dict[str, bytes]:
    """Name -> content of what is kept."""
    return {name: read_file(fs, f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY) if ".cut-" in name}


def killed(count: int, config: LogConfig = BIG) -> SimulatedFileSystem:
    fs, _ = filled(count, config=config)
    fs.kill()
    return fs


def test_a_torn_tail_is_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    fs = killed(5)
    path = f"{DIRECTORY}/{0:020d}.log"
    data = read_file(fs, path)
    write_file(fs, path, data[:-1])
    log = open_log(fs, config=BIG)
    assert kept(fs) == {f"{0:020d}.log.cut-{log.size_bytes}": data[log.size_bytes : -1]}
    assert (
        f"offsets from 4 on were cut, {len(data) - 1 - log.size_bytes} bytes from byte {log.size_bytes}" in caplog.text
    )


def test_the_segments_behind_a_torn_batch_are_kept_too() -> None:
    fs = killed(20, TINY)
    logs = {name: read_file(fs, f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY) if name.endswith(".log")}
    first, *later = sorted(logs)
    fs.flip_bit(f"{DIRECTORY}/{first}", len(logs[first]) - 1)
    log = open_log(fs, config=TINY)
    found = kept(fs)
    torn = found.pop(f"{first}.cut-{log.size_bytes}")
    assert torn[:-1] == logs[first][log.size_bytes : -1]
    assert found == {f"{name}.cut-0": logs[name] for name in later}


def test_what_a_follower_cuts_is_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    fs, log = filled(20, config=TINY)
    batches = content(log)
    log.truncate_to(12)
    assert b"".join(kept(fs)[name] for name in sorted(kept(fs))) == b"".join(batches[12:])
    assert "offsets 12 to 20 were cut" in caplog.text


def test_a_log_that_begins_anew_keeps_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    fs, log = filled(20, config=TINY)
    log.truncate_fully_and_start_at(100)
    assert kept(fs) == {}
    assert "offsets 0 to 20 were cut" in caplog.text
    assert "they are not kept" in caplog.text


def test_a_full_disk_keeps_nothing_and_the_cut_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    fs, log = filled(20, config=BIG)
    fs.faults.fail_next(Operation.WRITE, path_part=".cut-", error_number=errno.ENOSPC)
    log.truncate_to(12)
    assert (log.log_end_offset, kept(fs)) == (12, {})
    assert "they are not kept" in caplog.text


def test_the_oldest_go_first() -> None:
    clock = iter(range(10**6))
    fs = SimulatedFileSystem(now_ms=lambda: next(clock))
    log = open_log(fs, config=BIG)
    append(log, 30)
    ends = [log.truncate_to(offset) and log.size_bytes for offset in range(29, 15, -1)]
    assert sorted(kept(fs)) == sorted(f"{0:020d}.log.cut-{end}" for end in ends[-CUT_FILES_MAX:])


def test_no_more_than_the_first_bytes_of_a_large_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_bytes, "CUT_BYTES_MAX", 1000)
    fs, path = SimulatedFileSystem(), f"{DIRECTORY}/{0:020d}.log"
    fs.make_dirs(DIRECTORY)
    write_file(fs, path, bytes(range(250)) * 20)
    write_file(fs, f"{path}.cut-9", bytes(600))
    assert keep_cut(fs, DIRECTORY, [CutPiece(path, 10, 5000)], 500) == 500
    assert kept(fs) == {f"{0:020d}.log.cut-10": (bytes(range(250)) * 3)[10:510]}


def test_a_start_and_a_reader_leave_them_alone() -> None:
    fs, log = filled(20, config=TINY)
    log.truncate_to(12)
    before, batches = kept(fs), content(log)
    fs.kill()
    assert content(Log.open_read_only(fs, DIRECTORY, TINY, now_ms=0)) == batches
    assert content(open_log(fs, config=TINY)) == batches
    assert kept(fs) == before
