"""What a repair of a killed log gives up, and that the log opens after it, whatever was damaged."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from local_kit import PATH, abandon, open_simulated

from replog.errors import CorruptRecordError
from replog.local import LocalLog
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.repair import repair_log
from replog.testing import SimulatedFileSystem

FOLDER = f"{PATH}/log-0"
RECORDS = 30


def opened(fs: SimulatedFileSystem) -> LocalLog:
    return open_simulated(fs, segment_bytes=1024, max_batch_bytes=512)


def killed(start_offset: int = 0) -> tuple[SimulatedFileSystem, list[int]]:
    """A log in several segments after kill -9, and their base offsets."""
    fs = SimulatedFileSystem()
    log = opened(fs)
    for number in range(RECORDS):
        log.append(b"%03d" % number * 66)
    if start_offset:
        log.truncate_before(start_offset)
    bases = list(log._log.segment_base_offsets)
    fs.kill()
    abandon(log)
    return fs, bases


def repaired(fs: SimulatedFileSystem) -> LocalLog:
    repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
    return opened(fs)


def test_a_log_file_that_is_gone_from_the_middle_is_given_up_alone() -> None:
    fs, bases = killed()
    fs.remove(file_path(FOLDER, bases[3], LOG_SUFFIX))
    with pytest.raises(CorruptRecordError, match="--accept-loss"):
        opened(fs)
    with repaired(fs) as log:
        assert log.log_end_offset == RECORDS
        kept = [record.value for record in log.iterate(bases[4])]
    assert kept == [b"%03d" % number * 66 for number in range(bases[4], RECORDS)]


def test_damage_below_the_start_of_the_log_can_be_repaired() -> None:
    fs, bases = killed(start_offset=7)
    (base,) = [base for base in bases if base <= 7]
    fs.flip_bit(file_path(FOLDER, base, LOG_SUFFIX), 80, 0)
    with repaired(fs) as log:
        assert log.log_start_offset == log.log_end_offset == 7
        assert log.append(b"on") == 7


def test_a_log_of_an_older_version_claims_nothing_of_what_it_found() -> None:
    """Of a segment that has been missing for long nobody knows why; what is appended from now on is complete."""
    fs, bases = killed()
    for name in fs.list_dir(FOLDER):
        is_lost = name.startswith(f"{bases[3]:020d}") and PurePosixPath(name).suffix != ".snapshot"
        if is_lost or name in {"complete-from", "flushed-offset"}:
            fs.remove(f"{FOLDER}/{name}")
    opened(fs).close()
    with opened(fs) as log:
        assert log.append(b"new") == RECORDS
    with opened(fs) as log:
        assert [record.value for record in log.iterate(RECORDS)] == [b"new"]
