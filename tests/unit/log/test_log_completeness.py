"""What a log claims of its own offsets: never more than is true, whatever happened to it."""

from __future__ import annotations

import pytest
from log_compaction_kit import compact, put, seal
from log_compaction_kit import new_log as new_compacted_log
from log_test_kit import TINY, append, batch, content, filled, offsets, open_log, stored, write_file
from msgspec.structs import replace

from replog.errors import CorruptRecordError
from replog.log.recovery.completeness import COMPLETE_FROM_FILE, read_complete_from
from replog.testing.simulated_filesystem import SimulatedFileSystem

FOLDER = "/data/t-0"
CLAIM = f"{FOLDER}/{COMPLETE_FROM_FILE}"


def test_a_new_log_claims_everything() -> None:
    fs, log = filled(20)
    assert (log.complete_from, read_complete_from(fs, FOLDER)) == (0, 0)


def test_a_gap_from_the_leader_ends_the_claim() -> None:
    fs, log = filled(3)
    log.append_as_follower(stored(batch(b"behind a gap"), 7, 0), now_ms=0)
    fs.kill()
    reopened = open_log(fs)
    assert (reopened.complete_from, offsets(reopened)) == (None, [0, 1, 2, 7])


def test_compaction_ends_the_claim() -> None:
    fs = SimulatedFileSystem()
    log = new_compacted_log(fs)
    for number in range(40):
        put(log, (b"k%d" % (number % 3), b"%d" % number))
    seal(log)
    assert log.complete_from == 0
    compact(log)
    assert (log.complete_from, read_complete_from(fs, FOLDER)) == (None, None)
    assert len(content(log)) < 40


def test_deleting_the_oldest_segments_raises_the_claim() -> None:
    fs, log = filled(40)
    log.flush()
    log.set_log_start_offset(20)
    assert log.delete_old_segments(0, 40) > 0
    assert log.complete_from == log.segment_base_offsets[0] == read_complete_from(fs, FOLDER)


def test_a_log_that_starts_elsewhere_claims_what_it_gets() -> None:
    fs, log = filled(3)
    log.truncate_fully_and_start_at(1000)
    append(log, 40)
    log.flush()
    fs.kill()
    reopened = open_log(fs, recovery_point=1040)
    assert (reopened.complete_from, offsets(reopened)) == (1000, list(range(1000, 1040)))


@pytest.mark.parametrize("text", [b"\0", b"x\n", b"-1\n", b"12", b"1\n2\n", b"1" * 40 + b"\n"])
def test_what_is_not_legible_claims_nothing(text: bytes) -> None:
    fs, log = filled(40)
    log.close(0)
    write_file(fs, CLAIM, text)
    lost = log.segment_base_offsets[2]
    for name in fs.list_dir(FOLDER):
        if name.startswith(f"{lost:020d}"):
            fs.remove(f"{FOLDER}/{name}")
    reopened = open_log(fs, recovery_point=40, clean=True)
    assert (reopened.complete_from, lost in offsets(reopened)) == (None, False)


def test_a_replica_with_a_hole_is_refused() -> None:
    fs, log = filled(40, config=replace(TINY, segment_bytes=600))
    log.close(0)
    lost, behind = log.segment_base_offsets[2:4]
    for name in fs.list_dir(FOLDER):
        if name.startswith(f"{lost:020d}"):
            fs.remove(f"{FOLDER}/{name}")
    for clean in (True, False):
        with pytest.raises(CorruptRecordError, match=f"offsets {lost} to {behind - 1} are missing"):
            open_log(fs, recovery_point=40, clean=clean)
