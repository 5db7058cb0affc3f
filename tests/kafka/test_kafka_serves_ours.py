"""Our partition folders under a Kafka broker: it starts on them, recovers them, serves them, and writes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kafka_run import FOUND, ISOLATIONS, OURS, KafkaRun
from kafka_shapes import SHAPES, T0

from replog.log import Log
from replog.log.producers.snapshot import decode_snapshot
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures as fixtures

every_shape = pytest.mark.parametrize("number", range(len(SHAPES)), ids=SHAPES)
every_isolation = pytest.mark.parametrize("isolation", ISOLATIONS)


def our_rows(folder: Path, tmp_path: Path, isolation: str) -> fixtures.Rows:
    """What a reader of ours gets from the folder as we wrote it."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    log = Log.open_read_only(OsFileSystem(), str(copy), now_ms=T0)
    rows = fixtures.rows(log) if isolation == "read_uncommitted" else fixtures.committed_rows(log)
    log.close(T0)
    return rows


@every_shape
@every_isolation
def test_served_after_a_clean_start(kafka_run: KafkaRun, tmp_path: Path, number: int, isolation: str) -> None:
    rows = our_rows(kafka_run.ours(OURS) / f"{OURS}-{number}", tmp_path, isolation)
    assert rows
    assert kafka_run.consumed["served_clean"][OURS, number, isolation] == rows


@every_shape
@every_isolation
def test_served_after_kafkas_recovery(kafka_run: KafkaRun, tmp_path: Path, number: int, isolation: str) -> None:
    rows = our_rows(kafka_run.ours(FOUND) / f"{FOUND}-{number}", tmp_path, isolation)
    assert rows
    assert kafka_run.consumed["served_unclean"][FOUND, number, isolation] == rows


@every_shape
def test_kafka_wrote_on(kafka_run: KafkaRun, number: int) -> None:
    """Kafka's records follow ours, before its kill and after the recovery of both."""
    served = kafka_run.consumed["served_clean"][OURS, number, "read_uncommitted"]
    later = kafka_run.consumed["killed"][OURS, number, "read_uncommitted"]
    assert later[: len(served)] == served
    assert len(later) == len(served) + 5
    assert kafka_run.consumed["served_unclean"][OURS, number, "read_uncommitted"] == later


@every_shape
def test_kafkas_recovery_cut_nothing_and_rebuilt_our_indexes(kafka_run: KafkaRun, number: int) -> None:
    ours, theirs = (root / f"{FOUND}-{number}" for root in (kafka_run.ours(FOUND), kafka_run.data("recovered")))
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        files = {path.name: path.read_bytes() for path in ours.glob(f"*{suffix}")}
        assert files == {path.name: path.read_bytes() for path in theirs.glob(f"*{suffix}")}, suffix


@every_shape
def test_kafka_found_the_producers_we_had(kafka_run: KafkaRun, number: int) -> None:
    ours, theirs = (
        max((root / f"{FOUND}-{number}").glob("*.snapshot"))
        for root in (kafka_run.ours(FOUND), kafka_run.data("recovered"))
    )
    assert ours.name == theirs.name
    assert sorted(decode_snapshot(str(ours), ours.read_bytes())) == sorted(
        decode_snapshot(str(theirs), theirs.read_bytes())
    )
