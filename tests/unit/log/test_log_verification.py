"""`LogVerifier`: every byte of a log that may be wrong is found and named, and nothing is changed."""

from __future__ import annotations

import pytest
from log_test_kit import T0, filled

from replog.log.file_names import file_path
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode

DIRECTORY = "/data/t-0"
RECORDS = 40


@pytest.fixture
def fs() -> SimulatedFileSystem:
    """A log of 40 batches of one record in several segments, closed in order."""
    disk, log = filled(RECORDS)
    log.close(T0)
    return disk


def verified(
    fs: SimulatedFileSystem, *, recovery_point: int | None = RECORDS, deep: bool = True
) -> tuple[list[Finding], LogVerifier]:
    verifier = LogVerifier(fs, DIRECTORY, recovery_point, deep=deep)
    return list(verifier.run()), verifier


def files(fs: SimulatedFileSystem) -> dict[str, bytes]:
    found = {}
    for name in fs.list_dir(DIRECTORY):
        file = fs.open(f"{DIRECTORY}/{name}", OpenMode.READ)
        found[name] = file.pread(file.size(), 0)
        file.close()
    return found


def bases(fs: SimulatedFileSystem) -> list[int]:
    return [int(name[:20]) for name in fs.list_dir(DIRECTORY) if name.endswith(".log")]


def overwrite(fs: SimulatedFileSystem, path: str, position: int, data: bytes) -> None:
    file = fs.open(path, OpenMode.WRITE)
    file.pwrite([data], position)
    file.close()


def test_a_sound_log_has_no_findings_and_its_totals_are_what_is_in_it(fs: SimulatedFileSystem) -> None:
    findings, verifier = verified(fs)
    assert findings == []
    totals = verifier.totals
    assert (totals.batches, totals.records, totals.start_offset, totals.end_offset) == (RECORDS, RECORDS, 0, RECORDS)
    assert totals.segments == len(bases(fs)) > 3


@pytest.mark.parametrize("position", [8, 16, 17, 30, 65])
def test_a_changed_byte_is_found_with_its_offset_and_byte(fs: SimulatedFileSystem, position: int) -> None:
    second = bases(fs)[1]
    path = file_path(DIRECTORY, second, ".log")
    fs.flip_bit(path, position)
    before = files(fs)
    findings, _ = verified(fs)
    assert (findings[0].kind, findings[0].path) == (FindingKind.DAMAGED, path)
    assert (findings[0].position, findings[0].offset) == (0, second)
    assert files(fs) == before


def test_a_base_offset_that_reaches_into_the_next_segment_is_damage(fs: SimulatedFileSystem) -> None:
    """It lies outside the checksum."""
    second = bases(fs)[1]
    fs.flip_bit(file_path(DIRECTORY, second, ".log"), 3)
    findings, _ = verified(fs)
    assert (findings[0].kind, findings[0].position, findings[0].offset) == (FindingKind.DAMAGED, 0, second)


def test_damage_at_the_end_above_the_recovery_point_is_a_torn_tail(fs: SimulatedFileSystem) -> None:
    path = file_path(DIRECTORY, bases(fs)[-1], ".log")
    size = fs.size(path)
    fs.flip_bit(path, size - 1)
    assert [finding.kind for finding in verified(fs, recovery_point=RECORDS - 1)[0]] == [FindingKind.TORN]
    assert [finding.kind for finding in verified(fs, recovery_point=None)[0]] == [FindingKind.TORN]
    assert [finding.kind for finding in verified(fs, recovery_point=RECORDS)[0]] == [FindingKind.DAMAGED]


def test_records_that_are_gone_at_a_batch_border_are_missed(fs: SimulatedFileSystem) -> None:
    path = file_path(DIRECTORY, bases(fs)[-1], ".log")
    file = fs.open(path, OpenMode.WRITE)
    file.truncate(0)
    file.close()
    findings, _ = verified(fs)
    assert (FindingKind.DAMAGED, bases(fs)[-1]) in {(finding.kind, finding.offset) for finding in findings}


def test_segments_that_overlap_are_damage(fs: SimulatedFileSystem) -> None:
    first, second, *_ = bases(fs)
    for suffix in (".log", ".index", ".timeindex"):
        fs.rename(file_path(DIRECTORY, second, suffix), file_path(DIRECTORY, second - 1, suffix))
    findings, _ = verified(fs)
    assert findings[0].kind is FindingKind.DAMAGED
    assert findings[0].offset == second - 1 > first


@pytest.mark.parametrize(
    ("suffix", "position", "data"),
    [
        (".index", 0, b"\0\0\0\x7f"),  # an offset that is not in the segment
        (".index", 4, b"\0\0\0\x01"),  # a byte where no batch starts
        (".timeindex", 0, b"\0\0\0\0\0\0\0\x01"),  # a timestamp that the batch does not have
        (".timeindex", 8, b"\0\0\0\x7f"),  # an offset that is not in the segment
    ],
)
def test_an_index_entry_that_does_not_fit_is_found(
    fs: SimulatedFileSystem, suffix: str, position: int, data: bytes
) -> None:
    path = file_path(DIRECTORY, bases(fs)[0], suffix)
    overwrite(fs, path, position, data)
    findings, _ = verified(fs)
    assert {(finding.kind, finding.path) for finding in findings} == {(FindingKind.DERIVED, path)}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_of_a_sealed_segment_is_found(fs: SimulatedFileSystem, suffix: str) -> None:
    path = file_path(DIRECTORY, bases(fs)[0], suffix)
    fs.remove(path)
    assert [(finding.path, finding.reason) for finding in verified(fs)[0]] == [(path, "the file is missing")]


def test_a_time_index_that_ends_early_is_found(fs: SimulatedFileSystem) -> None:
    path = file_path(DIRECTORY, bases(fs)[0], ".timeindex")
    file = fs.open(path, OpenMode.WRITE)
    file.truncate(file.size() - 12)
    file.close()
    assert [finding.path for finding in verified(fs)[0]] == [path]


def test_zeros_behind_the_last_entry_are_no_entries(fs: SimulatedFileSystem) -> None:
    path = file_path(DIRECTORY, bases(fs)[-1], ".index")
    overwrite(fs, path, fs.size(path), bytes(800))
    assert verified(fs)[0] == []


def test_a_damaged_snapshot_and_epoch_file_are_found(fs: SimulatedFileSystem) -> None:
    snapshot = next(name for name in fs.list_dir(DIRECTORY) if name.endswith(".snapshot"))
    fs.flip_bit(f"{DIRECTORY}/{snapshot}", 7)
    overwrite(fs, f"{DIRECTORY}/leader-epoch-checkpoint", 0, b"9")
    assert {(finding.kind, finding.path.rpartition("/")[2]) for finding in verified(fs)[0]} == {
        (FindingKind.DERIVED, snapshot),
        (FindingKind.DERIVED, "leader-epoch-checkpoint"),
    }


def test_an_epoch_file_that_contradicts_the_records_is_found(fs: SimulatedFileSystem) -> None:
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    file = fs.open(path, OpenMode.REPLACE)
    file.pwrite([b"0\n2\n0 0\n3 20\n"], 0)
    file.close()
    findings, _ = verified(fs)
    assert findings == []  # an epoch that begins inside epoch 0 and has no batch: the batches all agree up to there
    file = fs.open(path, OpenMode.REPLACE)
    file.pwrite([b"0\n1\n3 0\n"], 0)
    file.close()
    assert [finding.reason for finding in verified(fs)[0]] == ["offset 0 has leader epoch 0, the file says 3"]


def test_it_looks_inside_the_records(fs: SimulatedFileSystem) -> None:
    from crc32c import crc32c

    path = file_path(DIRECTORY, bases(fs)[0], ".log")
    file = fs.open(path, OpenMode.WRITE)
    first = bytearray(file.pread(12, 0))
    size = int.from_bytes(first[8:12], "big") + 12
    batch = bytearray(file.pread(size, 0))
    batch[61] ^= 0x02  # the record's length
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    file.pwrite([batch], 0)
    file.close()
    assert verified(fs, deep=False)[0] == []
    findings, _ = verified(fs)
    assert (findings[0].kind, findings[0].position) == (FindingKind.DAMAGED, 0)
