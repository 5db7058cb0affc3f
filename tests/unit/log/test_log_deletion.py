"""Deleted segments and directories: their names, when their bytes go, who reads on (docs/KAFKA.md 1.5)."""

from __future__ import annotations

from uuid import UUID

import pytest
from log_test_kit import T0, append, content, filled, offsets, open_log, write_file

from replog.errors import InvariantViolationError, StorageError
from replog.log import Log, LogConfig
from replog.log.deletion import DeletedSegments, retire_directory
from replog.log.file_closer import FileCloser
from replog.log.segments.segment import LogSegment
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/data/t-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=1000)
UNIQUE_ID = UUID(int=0x1234)


def deleted_names(fs: SimulatedFileSystem) -> list[str]:
    return [name for name in fs.list_dir(DIRECTORY) if name.endswith(".deleted")]


def cut_to(log: Log, offset: int, now_ms: int = T0) -> int:
    log.set_log_start_offset(offset)
    return log.delete_old_segments(now_ms, high_watermark=log.log_end_offset)


def test_files_wait_under_another_name() -> None:
    fs, log = filled(30, config=CONFIG)
    assert log.next_file_deletion_ms is None
    assert cut_to(log, 8) == 1
    assert deleted_names(fs) == [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    assert cut_to(log, 16, T0 + 500) == 1
    assert log.next_file_deletion_ms == T0 + 1000
    assert log.remove_deleted_files(T0 + 999) == 0
    assert log.remove_deleted_files(T0 + 1000) == 1
    assert {name[:20] for name in deleted_names(fs)} == {f"{8:020d}"}
    assert log.next_file_deletion_ms == T0 + 1500
    job = log.prepare_file_deletion(T0 + 9999)
    assert job is not None
    assert (job.segment_count, log.next_file_deletion_ms) == (1, None)
    job.run()
    job.run()  # what is gone is gone
    assert deleted_names(fs) == []
    assert offsets(log) == list(range(16, 30))


def test_a_prepared_read_goes_on_in_a_deleted_segment() -> None:
    _, log = filled(30, config=CONFIG)
    log.flush()
    expected = log.read(2, max_bytes=200, end_offset=30, min_one_batch=True)
    job = log.prepare_read(2, max_bytes=200, end_offset=30, min_one_batch=True)
    segment = log._state.segments[0]
    cut_to(log, 8)
    log.remove_deleted_files(T0 + 1000)
    job.run()
    assert job.error is None
    assert job.outcome is not None
    assert job.outcome.found.data == expected
    assert segment not in list(log._state.segments)


def test_whoever_has_the_segment_can_still_open_its_files() -> None:
    _, log = filled(30, config=CONFIG)
    segment = log._state.segments[0]
    cut_to(log, 8)
    found = segment.find(5)
    assert found is not None
    assert found.base_offset == 5


def test_the_next_start_sweeps() -> None:
    fs, log = filled(30, config=CONFIG)
    cut_to(log, 16)
    assert deleted_names(fs)
    log.close(T0)
    log = open_log(fs, config=CONFIG, recovery_point=30, clean=True)
    assert deleted_names(fs) == []
    assert offsets(log) == list(range(16, 30))


def test_compacted_twice_within_the_delay() -> None:
    """The second segment of a base takes the `.deleted` names of the first."""
    fs, log = filled(30, config=CONFIG)
    waiting = DeletedSegments(fs, FileCloser())
    first = log._state.segments[0]
    waiting.add([first], T0 + 10)
    write_file(fs, f"{DIRECTORY}/{0:020d}.log", b"second")
    second = LogSegment(fs, DIRECTORY, 0, 6, T0)
    waiting.add([second], T0 + 20)
    assert waiting.next_deletion_ms == T0 + 20
    assert fs.size(second.path) == 6
    job = waiting.take_due(T0 + 20)
    assert job is not None
    job.run()
    assert deleted_names(fs) == []


def test_a_file_that_cannot_be_removed_is_told_and_does_not_fail_the_log() -> None:
    fs, log = filled(30, config=CONFIG)
    cut_to(log, 8)
    fs.faults.fail_next(Operation.REMOVE)
    with pytest.raises(StorageError, match="cannot be removed"):
        log.remove_deleted_files(T0 + 1000)
    append(log, 1)
    assert not log.failed


def test_a_directory_gets_a_name_of_its_own_and_goes_later() -> None:
    fs, log = filled(5)
    log.close_for_good()
    job = retire_directory(fs, DIRECTORY, UNIQUE_ID)
    assert fs.list_dir("/data") == [f"t-0.{UNIQUE_ID.hex}-delete"]
    again = open_log(fs)
    append(again, 3)
    again.close_for_good()
    other = retire_directory(fs, DIRECTORY, UUID(int=5))
    job.run()
    job.run()
    assert fs.list_dir("/data") == [f"t-0.{UUID(int=5).hex}-delete"]
    other.run()
    assert fs.list_dir("/data") == []


def test_replacing_in_the_list() -> None:
    _, log = filled(40, config=CONFIG)
    segments = log._state.segments
    first, second, third = (segments[number] for number in range(3))
    merged = LogSegment(SimulatedFileSystem(), DIRECTORY, 0, 1, T0)
    assert segments.replace(0, 2, [merged]) == [first, second]
    assert [segment.base_offset for segment in segments][:2] == [0, 16]
    assert (segments.number_for(15), segments.number_for(16)) == (0, 1)
    assert segments.replace(0, 1, [first, second]) == [merged]
    assert segments.replace(0, 0, []) == []
    for wrong in ((len(segments) - 1, 1, []), (0, 1, [third]), (1, 1, [first]), (-1, 1, []), (0, 99, [])):
        with pytest.raises(InvariantViolationError):
            segments.replace(*wrong)
    assert len(content(log)) == 40
