"""Files of a closed log that are gone, cut or exchanged: the missing offsets are named, never read over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from local_kit import values

import replog
from replog.errors import CorruptRecordError, StorageError
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.records import scan
from replog_checkpoints import OsFileSystem

RECORDS = 200
SEGMENT_BYTES = 1024


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed log in several segments, to be copied."""
    path = tmp_path_factory.mktemp("sound") / "log"
    with replog.open_log(path, segment_bytes=SEGMENT_BYTES, max_batch_bytes=512, flush="os") as log:
        for number in range(RECORDS):
            log.append(b"%03d" % number)
    return path


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "log")


def bases(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("log-0/*.log"))


def files(folder: Path, base_offset: int) -> list[Path]:
    return list(folder.glob(f"log-0/{base_offset:020d}.*"))


def cut_last_batch(folder: Path, number: int) -> int:
    """Of a sealed segment, with indexes that do not name it; returns its base offset."""
    path = folder / "log-0" / f"{bases(folder)[number]:020d}.log"
    data = path.read_bytes()
    last = list(scan(data))[-1]
    path.write_bytes(data[: last.position])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    return last.base_offset


def lose(folder: Path, number: int) -> int:
    """Deletes all files of a segment; returns its base offset."""
    base_offset = bases(folder)[number]
    for path in files(folder, base_offset):
        path.unlink()
    return base_offset


def lose_first(folder: Path) -> int:
    return lose(folder, 0)


def lose_middle(folder: Path) -> int:
    return lose(folder, 5)


def cut_sealed(folder: Path) -> int:
    return cut_last_batch(folder, 5)


def lose_log(folder: Path) -> int:
    """Deletes the `.log` alone; its indexes still promise the records."""
    base_offset = bases(folder)[5]
    (folder / "log-0" / f"{base_offset:020d}.log").unlink()
    return base_offset


HOLES = pytest.mark.parametrize("damage", [lose_first, lose_middle, cut_sealed])
UNCLEAN = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])


def verified(folder: Path) -> list[Finding]:
    directory = str(folder / "log-0")
    findings = LogVerifier(OsFileSystem(), directory, RECORDS, is_closed=True).run()
    return [finding for finding in findings if finding.kind is not FindingKind.DERIVED]


@HOLES
@UNCLEAN
def test_a_log_with_a_hole_is_refused_and_unchanged(
    folder: Path, damage: Callable[[Path], int], *, is_clean: bool
) -> None:
    if not is_clean:
        (folder / ".kafka_cleanshutdown").unlink()
    first = damage(folder)
    logs = {path: path.read_bytes() for path in folder.glob("log-0/*.log")}
    with pytest.raises(CorruptRecordError, match=rf"offsets {first} to \d+ are missing") as caught:
        replog.open_log(folder, segment_bytes=SEGMENT_BYTES, max_batch_bytes=512)
    assert caught.value.path.endswith(".log")
    assert {path: path.read_bytes() for path in folder.glob("log-0/*.log")} == logs


@HOLES
def test_what_is_before_and_behind_a_hole_can_be_read(folder: Path, damage: Callable[[Path], int]) -> None:
    first = damage(folder)
    behind = next(base for base in bases(folder) if base > first)
    with replog.open_log(folder, read_only=True) as log:
        read = log.iterate(0)
        assert [next(read).offset for _ in range(first)] == list(range(first))
        with pytest.raises(CorruptRecordError, match=f"offsets {first} to {behind - 1} are missing"):
            next(read)
        assert [record.offset for record in log.iterate(behind)] == list(range(behind, RECORDS))
        with pytest.raises(CorruptRecordError, match="are missing"):
            log.read(first)


@HOLES
def test_verify_names_the_hole(folder: Path, damage: Callable[[Path], int]) -> None:
    first = damage(folder)
    (finding,) = verified(folder)
    assert (finding.kind, finding.offset) == (FindingKind.MISSING, first)


@pytest.mark.parametrize("damage", [lose_first, lose_middle, cut_sealed, lose_log])
def test_an_accepted_hole_costs_nothing_else(folder: Path, damage: Callable[[Path], int]) -> None:
    first = damage(folder)
    behind = next(base for base in bases(folder) if base > first)
    directory = str(folder / "log-0")
    with pytest.raises(CorruptRecordError, match="accept-loss"):
        repair_log(OsFileSystem(), directory, accept_loss=False, now_ms=0)
    repair_log(OsFileSystem(), directory, accept_loss=True, now_ms=0)
    assert verified(folder) == []
    with replog.open_log(folder, segment_bytes=SEGMENT_BYTES, max_batch_bytes=512) as log:
        expected = [b"%03d" % number for number in range(RECORDS) if number < first or number >= behind]
        assert values(log) == expected
        assert log.append(b"next") == RECORDS


@UNCLEAN
@pytest.mark.parametrize("source", [2, 8], ids=["earlier", "later"])
@pytest.mark.parametrize("with_indexes", [True, False], ids=["all files", "the log"])
def test_a_copy_of_another_segment_is_damage(folder: Path, source: int, *, with_indexes: bool, is_clean: bool) -> None:
    if not is_clean:
        (folder / ".kafka_cleanshutdown").unlink()
    target = bases(folder)[5]
    for path in files(folder, bases(folder)[source]):
        if path.suffix == ".log" or with_indexes:
            shutil.copy(path, path.with_name(f"{target:020d}{path.suffix}"))
    with pytest.raises(CorruptRecordError, match=f"{target:020d}.log at byte 0"):
        replog.open_log(folder, segment_bytes=SEGMENT_BYTES, max_batch_bytes=512)
    assert FindingKind.DAMAGED in {finding.kind for finding in verified(folder)}


def test_deleting_from_the_front_leaves_no_hole(folder: Path) -> None:
    settings = {"segment_bytes": SEGMENT_BYTES, "max_batch_bytes": 512}
    with replog.open_log(folder, **settings) as log:
        log.truncate_before(100)
    for _ in range(2):
        with replog.open_log(folder, **settings) as log:
            assert [record.offset for record in log] == list(range(100, RECORDS))
    assert verified(folder) == []
    first = lose(folder, 0)
    with pytest.raises(CorruptRecordError, match=f"offsets {max(100, first)} to"):
        replog.open_log(folder, **settings)


def test_a_log_of_an_older_version_is_watched_from_now_on(folder: Path) -> None:
    (folder / "log-0" / "complete-from").unlink()
    with replog.open_log(folder, segment_bytes=SEGMENT_BYTES, max_batch_bytes=512) as log:
        assert len(values(log)) == RECORDS
        for _ in range(100):
            log.append(b"new")
    lose(folder, 5)
    assert verified(folder) == [], "why it is missing nobody can say"
    lose(folder, -3)
    assert [finding.kind for finding in verified(folder)] == [FindingKind.MISSING]


def test_a_hole_between_two_batches_is_named(folder: Path) -> None:
    path = folder / "log-0" / f"{bases(folder)[5]:020d}.log"
    data = path.read_bytes()
    headers = list(scan(data))
    gone = headers[4]
    path.write_bytes(data[: gone.position] + data[gone.end_position :])
    with replog.open_log(folder, read_only=True) as log:
        read = log.iterate(bases(folder)[5])
        assert [next(read).offset for _ in range(4)] == [header.base_offset for header in headers[:4]]
        with pytest.raises(CorruptRecordError, match=f"offsets {gone.base_offset} to {gone.base_offset} are missing"):
            next(read)


@pytest.mark.parametrize("bit", [0, 3, 7, 17, 30, 31, 34, 46, 62, 63])
def test_no_bit_of_an_offset_ends_a_read_short(tmp_path: Path, bit: int) -> None:
    records = 60
    with replog.open_log(tmp_path / "log", maintenance_interval_ms=0) as log:
        for number in range(records):
            log.append(b"%03d" % number)
    path = tmp_path / "log" / "log-0" / f"{0:020d}.log"
    data = path.read_bytes()
    for header in list(scan(data))[:-1]:  # of the last one nothing says where it must begin
        changed = bytearray(data)
        place = header.position + 7 - bit // 8
        changed[place] ^= 1 << bit % 8
        path.write_bytes(changed)
        with (
            pytest.raises((CorruptRecordError, StorageError)),
            replog.open_log(tmp_path / "log", read_only=True) as log,
        ):
            list(log)
