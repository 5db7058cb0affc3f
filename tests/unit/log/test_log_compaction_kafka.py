"""What Kafka compacted opens here and is compacted further, and so are its transactions (`tests/data/kafka/4.1.1`)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from replog.log import Cleanup, Log
from replog.log.repair.repair import repair_log
from replog.records import decode_batch
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures
from tests.kafka_fixtures import NOW_MS, batches, committed_rows, copy_partition, end_offset, open_log, rows

KEY, VALUE = 3, 4


def compacted(log: Log, *, now_ms: int = NOW_MS) -> None:
    """Everything but the (new, empty) active segment."""
    log.set_config(replace(log.config, cleanup_policy=Cleanup.COMPACT, min_cleanable_dirty_ratio=0))
    log.roll(now_ms)
    log.flush()
    job = log.prepare_compaction(now_ms, log.log_end_offset)
    assert job is not None
    job.run()
    assert log.complete_compaction(job, now_ms) is not None


@pytest.mark.parametrize("first_dirty_offset", [0, 240])
def test_kafkas_compacted_topic_is_compacted_further(tmp_path: Path, first_dirty_offset: int) -> None:
    """240 is what Kafka's own `cleaner-offset-checkpoint` says."""
    folder = copy_partition("clean", "compacted", tmp_path)
    log = open_log(folder, recovery_point=end_offset("compacted"), log_start_offset=0, clean=True)
    log.restore_first_dirty_offset(first_dirty_offset)
    before = rows(log)
    newest = {row[KEY]: row for row in before}
    assert len(newest) < len(before)
    compacted(log)
    after = rows(log)
    assert after == sorted(newest.values())
    assert log.log_end_offset == end_offset("compacted")
    log.close(NOW_MS)
    for clean in (True, False):
        again = open_log(folder, recovery_point=end_offset("compacted"), log_start_offset=0, clean=clean)
        assert rows(again) == after
        assert again.recovery.bytes_cut == 0
        again.close(NOW_MS)


def test_tombstones_go_when_their_horizon_has_passed(tmp_path: Path) -> None:
    log = open_log(copy_partition("clean", "compacted", tmp_path), recovery_point=0, log_start_offset=0, clean=False)
    compacted(log)
    assert any(row[VALUE] is None for row in rows(log))
    live = [row for row in rows(log) if row[VALUE] is not None]
    log.restore_first_dirty_offset(0)
    compacted(log, now_ms=NOW_MS + 2 * log.config.delete_retention_ms)
    assert rows(log) == live
    log.close(NOW_MS)


def test_kafkas_transactions_are_compacted(tmp_path: Path) -> None:
    log = open_log(
        copy_partition("clean", "txn", tmp_path), recovery_point=end_offset("txn"), log_start_offset=0, clean=True
    )
    committed, producers = committed_rows(log), sorted(log.producers.to_snapshot())
    newest = {row[KEY]: row for row in committed if row[KEY] is not None}
    compacted(log)
    assert rows(log) == committed_rows(log) == sorted(newest.values())
    assert sorted(log.producers.to_snapshot()) == producers
    assert all(
        decode_batch(batch) or header.has_producer_id or header.next_offset == end_offset("txn")
        for header, batch in batches(log)
    )
    log.close(NOW_MS)


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("damaged", [".timeindex", ".log"])
def test_a_repair_takes_no_gap_of_kafkas_compaction_for_a_hole(tmp_path: Path, stop: str, damaged: str) -> None:
    """Kafka has compacted a folder that we had made, and left our `complete-from` in it."""
    shutil.copytree(kafka_fixtures.ROOT / stop, tmp_path / "kafka")
    folder, fs = tmp_path / "kafka" / "compacted-0", OsFileSystem()
    (folder / "complete-from").write_bytes(b"")
    kept = offsets(folder)
    assert kept[0] > 0  # the oldest segment begins at 0
    path = sorted(folder.glob(f"*{damaged}"))[0 if damaged != ".log" else -1]
    if damaged == ".log":  # a torn tail, above what was flushed
        path.write_bytes(path.read_bytes() + b"torn")
    else:
        path.write_bytes(b"\x7f" * len(path.read_bytes()))
    report = repair_log(fs, str(folder), accept_loss=False, now_ms=NOW_MS)
    assert (len(report.found), report.left) == (1, ())
    assert not (folder / "complete-from").exists()
    assert offsets(folder) == kept


def offsets(folder: Path) -> list[int]:
    """Of the records in a folder that nobody has open."""
    log = Log.open_read_only(OsFileSystem(), str(folder), now_ms=NOW_MS)
    try:
        return [row[0] for row in rows(log)]
    finally:
        log.close(NOW_MS)
