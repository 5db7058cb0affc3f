"""Partition folders that Apache Kafka 4.1.1 wrote, read and recovered (`tests/data/log/kafka`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from log_test_kit import T0, content

from replog.log import Log, LogConfig
from replog.log.producer_snapshot import decode_snapshot
from replog.records import decode_batch, parse_header
from replog_checkpoints import OsFileSystem

DATA = Path(__file__).parents[2] / "data" / "log" / "kafka"
EXPECTED: dict[str, list[list[int]]] = json.loads((DATA / "expected.json").read_text())["topics"]
ENDS = {"epochs": 130, "txn": 144, "compacted": 300, "append-time": 100}
EPOCHS = [(0, 0), (1, 25), (2, 60), (3, 95)]


def open_copy(tmp_path: Path, folder: str, *, recovery_point: int, clean: bool) -> Log:
    topic = folder.partition("/")[2]
    shutil.copytree(DATA / f"{folder}-0", tmp_path / f"{topic}-0")
    return Log.open(
        OsFileSystem(),
        str(tmp_path / f"{topic}-0"),
        LogConfig(segment_index_bytes=65536, retention_ms=-1),
        topic_partition=f"{topic}-0",
        recovery_point=recovery_point,
        log_start_offset=0,
        clean=clean,
        now_ms=T0,
    )


def consumed(log: Log) -> list[list[int]]:
    rows: list[list[int]] = []
    for data in content(log, max_bytes=5000):
        header = parse_header(data)
        if not header.is_control:
            rows += [[r.offset, r.timestamp, header.partition_leader_epoch] for r in decode_batch(data)]
    return rows


@pytest.mark.parametrize("topic", sorted(ENDS))
@pytest.mark.parametrize("clean", [True, False])
def test_kafkas_folder_reads_as_a_consumer_read_it(tmp_path: Path, topic: str, clean: bool) -> None:
    log = open_copy(tmp_path, f"clean/{topic}", recovery_point=ENDS[topic] if clean else 0, clean=clean)
    assert log.log_end_offset == ENDS[topic]
    assert consumed(log) == EXPECTED[topic]
    assert log.recovery.bytes_cut == 0
    if clean:
        for name in (".index", ".timeindex"):
            kept = {p.name: p.read_bytes() for p in (tmp_path / f"{topic}-0").glob(f"*{name}")}
            assert kept == {p.name: p.read_bytes() for p in (DATA / f"clean/{topic}-0").glob(f"*{name}")}
    log.close(T0)


def test_kafkas_killed_replica_is_recovered(tmp_path: Path) -> None:
    log = open_copy(tmp_path, "killed/epochs", recovery_point=95, clean=False)
    assert (log.log_end_offset, log.recovery_point, log.recovery.bytes_cut) == (130, 95, 0)
    assert consumed(log) == EXPECTED["epochs"]
    assert log.leader_epochs.entries == EPOCHS
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 3, 4)] == [(0, 25), (1, 60), (3, 130), None]
    log.close(T0)
    assert (tmp_path / "epochs-0" / f"{0:020d}.index").stat().st_size < 1000


def test_rebuilt_indexes_are_kafkas(tmp_path: Path) -> None:
    """The same rule (kafka-reference 1.6, 1.7) on the same batches gives the same entries."""
    folder = tmp_path / "epochs-0"
    log = open_copy(tmp_path, "clean/epochs", recovery_point=0, clean=False)
    log.close(T0)
    ours, theirs = (Path(p) / f"{0:020d}.index" for p in (folder, DATA / "clean/epochs-0"))
    assert len(ours.read_bytes()) == len(theirs.read_bytes())


@pytest.mark.parametrize("topic", ["epochs", "txn", "append-time"])
def test_producers_rebuilt_from_the_log_are_those_of_kafkas_snapshot(tmp_path: Path, topic: str) -> None:
    name = f"{ENDS[topic]:020d}.snapshot"
    theirs = decode_snapshot(name, (DATA / f"clean/{topic}-0" / name).read_bytes())
    shutil.copytree(DATA / f"clean/{topic}-0", tmp_path / "copy")
    log = open_copy(tmp_path, f"clean/{topic}", recovery_point=ENDS[topic], clean=True)
    assert sorted(log.producers.to_snapshot()) == sorted(theirs)
    log.close(T0)
    for snapshot in (tmp_path / f"{topic}-0").glob("*.snapshot"):
        snapshot.unlink()
    again = Log.open(
        OsFileSystem(), str(tmp_path / f"{topic}-0"), LogConfig(), topic_partition="t-0",
        recovery_point=ENDS[topic], log_start_offset=0, clean=True, now_ms=T0,
    )  # fmt: skip
    assert sorted(again.producers.to_snapshot()) == sorted(theirs)
    again.close(T0)


def test_times_in_kafkas_folder(tmp_path: Path) -> None:
    log = open_copy(tmp_path, "clean/epochs", recovery_point=130, clean=True)
    rows = EXPECTED["epochs"]
    for _, timestamp, _ in rows[::13]:
        first = next((offset, time) for offset, time, _ in rows if time >= timestamp)
        assert log.offset_for_timestamp(timestamp, end_offset=130) == first
    log.close(T0)
