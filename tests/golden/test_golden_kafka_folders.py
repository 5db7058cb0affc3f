"""Partition folders that Kafka 4.1.1 wrote, opened by us in every state a start may find them in.

Goal: whatever is left of a folder beside its `.log` files, what we read and rebuild is what Kafka's consumer read and what
Kafka's own files say.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import replog_checkpoints as checkpoints
from replog.log import Log
from replog.log.producers.snapshot import ProducerSnapshotEntry, decode_snapshot
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures as kafka

TRANSACTION_ENTRY = struct.Struct(">hqqqq")
RESTARTED = frozenset({"epochs"})
"""Kafka was restarted between its batches, and counts bytes to the next index entry from 0 again after a start."""

Open = Callable[[Path, str, str], Log]


def as_after_a_clean_stop(folder: Path, directory: str, topic: str) -> Log:
    end = kafka.end_offset(topic)
    start = kafka.log_start_offset(directory, topic)
    return kafka.open_log(folder, recovery_point=end, log_start_offset=start, clean=True)


def as_after_a_kill(folder: Path, directory: str, topic: str) -> Log:
    point, start = kafka.recovery_point(directory, topic), kafka.log_start_offset(directory, topic)
    return kafka.open_log(folder, recovery_point=point, log_start_offset=start, clean=False)


def for_reading_only(folder: Path, directory: str, topic: str) -> Log:
    """With the checkpoints beside it, as in Kafka's directory, and nothing that may be changed."""
    for path in (kafka.ROOT / directory).iterdir():
        if path.is_file():
            shutil.copy(path, folder.parent)
    return Log.open_read_only(OsFileSystem(), str(folder), kafka.CONFIG, now_ms=kafka.NOW_MS)


def with_the_log_files_alone(folder: Path, directory: str, topic: str) -> Log:
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    return kafka.open_log(folder, recovery_point=0, log_start_offset=0, clean=False)


WAYS = (as_after_a_clean_stop, as_after_a_kill, for_reading_only, with_the_log_files_alone)
WRITING = (as_after_a_kill, with_the_log_files_alone)
every_folder = pytest.mark.parametrize("directory", kafka.DIRECTORIES)
every_topic = pytest.mark.parametrize("topic", kafka.TOPICS)
every_way = pytest.mark.parametrize("opened", WAYS, ids=lambda way: way.__name__)


def kafkas_file(topic: str, name: str, directory: str = "clean") -> bytes:
    return (kafka.ROOT / directory / f"{topic}-0" / name).read_bytes()


def kafkas_producers(topic: str) -> list[ProducerSnapshotEntry]:
    name = f"{kafka.end_offset(topic):020d}.snapshot"
    return sorted(decode_snapshot(name, kafkas_file(topic, name)))


def known_producers(directory: str, topic: str) -> list[ProducerSnapshotEntry]:
    """Those of `kafkas_producers` that the folder's newest snapshot knows, or that wrote after it.

    Kafka forgets a producer by the timestamps of its records, and those of `epochs` are years old: a node that was
    restarted has written snapshots without it.
    """
    newest = max((kafka.ROOT / directory / f"{topic}-0").glob("*.snapshot"), default=None)
    if newest is None:
        return kafkas_producers(topic)
    known = {entry.producer_id for entry in decode_snapshot(str(newest), newest.read_bytes())}
    offset = int(newest.stem)
    return [e for e in kafkas_producers(topic) if e.producer_id in known or e.last_offset >= offset]


def kafkas_epochs(directory: str, topic: str) -> list[tuple[int, int]]:
    """Epochs that have records; Kafka too drops one that begins at the log end when it opens a log."""
    path = kafka.ROOT / directory / f"{topic}-0" / checkpoints.LEADER_EPOCH_FILE
    entries = checkpoints.read_leader_epochs(OsFileSystem(), str(path)) or []
    return [entry for entry in entries if entry[1] < kafka.end_offset(topic)]


def first_batches(log: Log) -> list[tuple[int, int]]:
    """(epoch, base offset of its first batch)."""
    starts: dict[int, int] = {}
    for header, _ in kafka.batches(log):
        starts.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(starts.items())


@every_folder
@every_topic
@every_way
def test_records_offsets_and_epochs(tmp_path: Path, directory: str, topic: str, opened: Open) -> None:
    folder = kafka.copy_partition(directory, topic, tmp_path)
    log = opened(folder, directory, topic)
    start = kafka.log_start_offset(directory, topic)
    epochs = kafkas_epochs(directory, topic)
    if opened is with_the_log_files_alone:  # what compaction and DeleteRecords did can only be seen in the batches
        assert log.log_start_offset == log.segment_base_offsets[0]
        epochs = first_batches(log)
        log.set_log_start_offset(start)
    assert (log.log_start_offset, log.log_end_offset) == (start, kafka.end_offset(topic))
    assert kafka.rows(log) == kafka.expected_rows(topic)
    assert log.leader_epochs.entries == epochs
    assert log.recovery.bytes_cut == 0
    log.close(kafka.NOW_MS)


@every_folder
@pytest.mark.parametrize("topic", [*kafka.TOPICS, kafka.METADATA])
def test_opening_for_reading_changes_no_byte(tmp_path: Path, directory: str, topic: str) -> None:
    folder = kafka.copy_partition(directory, topic, tmp_path)
    before = kafka.tree_digest(folder)
    log = for_reading_only(folder, directory, topic)
    everything = kafka.tree_digest(tmp_path)
    assert kafka.batches(log)
    log.offset_for_timestamp(0, end_offset=log.log_end_offset)
    log.aborted_transactions(0, log.log_end_offset)
    log.close(kafka.NOW_MS)
    assert kafka.tree_digest(folder) == before
    assert kafka.tree_digest(tmp_path) == everything


@every_folder
@every_topic
@every_way
def test_producers(tmp_path: Path, directory: str, topic: str, opened: Open) -> None:
    folder = kafka.copy_partition(directory, topic, tmp_path)
    log = opened(folder, directory, topic)
    check_producers(log.producers.to_snapshot(), directory, topic, opened)
    log.close(kafka.NOW_MS)
    if opened in {as_after_a_clean_stop, for_reading_only}:  # nothing was appended, nothing is written
        return
    name = f"{kafka.end_offset(topic):020d}.snapshot"
    check_producers(decode_snapshot(name, (folder / name).read_bytes()), directory, topic, opened)


def check_producers(ours: list[ProducerSnapshotEntry], directory: str, topic: str, opened: Open) -> None:
    """None is invented or different, and none is lost that the folder still tells of: its snapshot, or the log behind it."""
    everyone = kafkas_producers(topic)
    known = everyone if opened is with_the_log_files_alone else known_producers(directory, topic)
    assert set(known) <= set(ours) <= set(everyone)
    assert len(ours) == len(set(ours))


@every_folder
@every_way
def test_aborted_transactions(tmp_path: Path, directory: str, opened: Open) -> None:
    folder = kafka.copy_partition(directory, "txn", tmp_path)
    log = opened(folder, directory, "txn")
    entries = TRANSACTION_ENTRY.iter_unpack(kafkas_file("txn", f"{0:020d}.txnindex"))
    theirs = [(producer_id, first_offset) for _, producer_id, first_offset, _, _ in entries]
    ours = log.aborted_transactions(0, log.log_end_offset)
    assert [(aborted.producer_id, aborted.first_offset) for aborted in ours] == theirs
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert kafka.committed_rows(log) == kafka.expected_rows("txn", "read_committed")
    log.close(kafka.NOW_MS)


@every_topic
def test_what_a_committed_reader_gets(tmp_path: Path, topic: str) -> None:
    log = as_after_a_clean_stop(kafka.copy_partition("clean", topic, tmp_path), "clean", topic)
    assert kafka.committed_rows(log) == kafka.expected_rows(topic, "read_committed")
    log.close(kafka.NOW_MS)


@every_topic
def test_a_clean_stop_leaves_indexes_alone(tmp_path: Path, topic: str) -> None:
    folder = kafka.copy_partition("clean", topic, tmp_path)
    before = kafka.tree_digest(folder)
    as_after_a_clean_stop(folder, "clean", topic).close(kafka.NOW_MS)
    after = kafka.tree_digest(folder)
    assert {name for name in before if after.get(name) != before[name]} <= {checkpoints.LEADER_EPOCH_FILE}


@every_folder
@every_topic
@pytest.mark.parametrize("opened", WRITING, ids=lambda way: way.__name__)
def test_rebuilt_indexes_are_kafkas_byte_for_byte(tmp_path: Path, directory: str, topic: str, opened: Open) -> None:
    folder = kafka.copy_partition(directory, topic, tmp_path)
    opened(folder, directory, topic).close(kafka.NOW_MS)
    for log in folder.glob("*.log"):
        for suffix in (".index", ".timeindex", ".txnindex"):
            path, theirs = log.with_suffix(suffix), kafka.ROOT / "clean" / folder.name / f"{log.stem}{suffix}"
            assert path.exists() == theirs.exists(), path.name
            if theirs.exists() and (topic not in RESTARTED or suffix == ".txnindex"):
                assert path.read_bytes() == theirs.read_bytes(), path.name


@every_folder
@pytest.mark.parametrize("topic", ["epochs", "append-time", "rolled", "compacted", "zstd"])
def test_times(tmp_path: Path, directory: str, topic: str) -> None:
    log = as_after_a_kill(kafka.copy_partition(directory, topic, tmp_path), directory, topic)
    rows = kafka.expected_rows(topic)
    for _, _, timestamp, *_ in rows[:: max(1, len(rows) // 20)]:
        first = next((offset, time) for offset, _, time, *_ in rows if time >= timestamp)
        assert log.offset_for_timestamp(timestamp, end_offset=log.log_end_offset) == first
    assert log.offset_for_timestamp(max(row[2] for row in rows) + 1, end_offset=log.log_end_offset) is None
    log.close(kafka.NOW_MS)


def test_a_log_goes_on_after_kafka(tmp_path: Path) -> None:
    """What we append to Kafka's log and read after the next open follows what Kafka wrote; its producers are known."""
    folder = kafka.copy_partition("killed", "zstd", tmp_path)
    log = as_after_a_kill(folder, "killed", "zstd")
    _, last = kafka.batches(log)[-1]
    assert log.append_as_leader(last, leader_epoch=1, now_ms=kafka.NOW_MS).duplicate
    log.close(kafka.NOW_MS)
    again = kafka.open_log(folder, recovery_point=300, log_start_offset=0, clean=True)
    assert again.append_as_leader(last, leader_epoch=1, now_ms=kafka.NOW_MS).duplicate
    again.close(kafka.NOW_MS)
    shutil.rmtree(folder)
