"""Partition folders that a Kafka broker has just written: opened, recovered and read by us, record by record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka_run import DELETED_BELOW, ISOLATIONS, WRITTEN, KafkaRun
from kafka_shapes import SHAPES, T0

import replog_checkpoints as checkpoints
from replog.log import Log
from replog.log.producers.snapshot import decode_snapshot
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures as fixtures

FS = OsFileSystem()
STATIONS = ("stopped", "killed")
LATER_MS = T0 + 3_600_000

every_place = pytest.mark.parametrize("place", WRITTEN, ids=lambda place: place[0])
every_station = pytest.mark.parametrize("station", STATIONS)


def folder_of(run: KafkaRun, station: str, place: tuple[str, int]) -> Path:
    return run.data(station) / f"{place[0]}-{place[1]}"


def checkpointed(run: KafkaRun, station: str, name: str, place: tuple[str, int]) -> int:
    return (checkpoints.read_offset_checkpoint(FS, str(run.data(station) / name)) or {}).get(place, 0)


@contextmanager
def opened(run: KafkaRun, station: str, place: tuple[str, int], tmp_path: Path, *, bare: bool = False) -> Iterator[Log]:
    """A copy, opened as a start after this station would; `bare`: with nothing left but the `.log` files."""
    source = folder_of(run, station, place)
    folder = tmp_path / source.name
    shutil.copytree(source, folder, ignore=lambda _, names: [n for n in names if bare and not n.endswith(".log")])
    start = checkpointed(run, station, checkpoints.LOG_START_OFFSET_FILE, place)
    point = 0 if bare else checkpointed(run, station, checkpoints.RECOVERY_POINT_FILE, place)
    clean = station == "stopped" and not bare
    log = fixtures.open_log(folder, recovery_point=point, log_start_offset=start, clean=clean, now_ms=LATER_MS)
    assert log.recovery.bytes_cut == 0
    yield log
    log.close(LATER_MS)


def check_records(run: KafkaRun, station: str, place: tuple[str, int], log: Log) -> None:
    committed, uncommitted = (run.consumed[station][*place, isolation] for isolation in reversed(ISOLATIONS))
    assert uncommitted
    if log.log_start_offset < DELETED_BELOW <= uncommitted[0][0]:
        log.set_log_start_offset(DELETED_BELOW)  # a killed node may not have checkpointed it
    assert fixtures.rows(log) == uncommitted
    assert fixtures.committed_rows(log) == committed


@every_station
@every_place
@pytest.mark.parametrize("bare", [False, True], ids=["all files", "log files alone"])
def test_records(kafka_run: KafkaRun, tmp_path: Path, station: str, place: tuple[str, int], bare: bool) -> None:
    with opened(kafka_run, station, place, tmp_path, bare=bare) as log:
        check_records(kafka_run, station, place, log)


@every_station
@every_place
def test_reading_changes_nothing(kafka_run: KafkaRun, station: str, place: tuple[str, int]) -> None:
    folder = folder_of(kafka_run, station, place)
    before = fixtures.tree_digest(folder)
    log = Log.open_read_only(FS, str(folder), now_ms=LATER_MS)
    if log.log_start_offset < DELETED_BELOW and place[0] == "rolled":
        rows = [row for row in fixtures.rows(log) if row[0] >= DELETED_BELOW]
    else:
        rows = fixtures.rows(log)
    log.close(LATER_MS)
    assert rows == kafka_run.consumed[station][*place, "read_uncommitted"]
    assert fixtures.tree_digest(folder) == before


@every_place
def test_producers(kafka_run: KafkaRun, tmp_path: Path, place: tuple[str, int]) -> None:
    snapshot = max(folder_of(kafka_run, "stopped", place).glob("*.snapshot"))
    theirs = sorted(decode_snapshot(str(snapshot), snapshot.read_bytes()))
    with opened(kafka_run, "stopped", place, tmp_path, bare=True) as log:
        assert log.log_end_offset == int(snapshot.stem)
        assert sorted(log.producers.to_snapshot()) == theirs
    written = tmp_path / f"{place[0]}-{place[1]}" / snapshot.name
    assert sorted(decode_snapshot(str(written), written.read_bytes())) == theirs


@every_place
def test_rebuilt_indexes(kafka_run: KafkaRun, tmp_path: Path, place: tuple[str, int]) -> None:
    """Kafka had no restart before this station, so its indexes are those of one walk from the first byte: as ours."""
    theirs = folder_of(kafka_run, "stopped", place)
    with opened(kafka_run, "stopped", place, tmp_path, bare=True):
        pass
    for path in sorted((tmp_path / theirs.name).glob("*.*index")):
        assert path.read_bytes() == (theirs / path.name).read_bytes(), path.name
    assert sorted(p.name for p in theirs.glob("*.*index")) == sorted(
        p.name for p in (tmp_path / theirs.name).glob("*.*index")
    )


@every_place
def test_times(kafka_run: KafkaRun, tmp_path: Path, place: tuple[str, int]) -> None:
    """A difference on purpose: Kafka finds nothing where the first segment with such a time lies below the log start."""
    first = kafka_run.consumed["stopped"][*place, "read_uncommitted"][0]
    with opened(kafka_run, "stopped", place, tmp_path) as log:
        for timestamp, kafkas_answer in kafka_run.times[place]:
            answer = kafkas_answer
            if answer is None and timestamp <= first[2]:
                assert log.log_start_offset == DELETED_BELOW
                answer = (first[0], first[2])
            assert log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset) == answer


def test_an_open_transaction_stays_open(kafka_run: KafkaRun, tmp_path: Path) -> None:
    place = ("transactions", 0)
    with opened(kafka_run, "killed", place, tmp_path) as log:
        first = min(
            entry.current_transaction_first_offset
            for entry in log.producers.to_snapshot()
            if entry.current_transaction_first_offset >= 0
        )
        assert log.last_stable_offset(log.log_end_offset) == first < log.log_end_offset


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=SHAPES)
def test_our_own_log_after_kafka_went_on_with_it(kafka_run: KafkaRun, tmp_path: Path, number: int) -> None:
    """Written by us, appended to by Kafka, then kill -9: recovered by us again."""
    place = ("ours", number)
    with opened(kafka_run, "killed", place, tmp_path) as log:
        check_records(kafka_run, "killed", place, log)
