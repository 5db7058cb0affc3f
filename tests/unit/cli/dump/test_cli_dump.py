"""`replog log dump` on files that Kafka wrote and on files that we write."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cli_kit import Replog

import replog_checkpoints as checkpoints
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.transactions.messages import TransactionLogKey, TransactionLogValue
from replog.coordinator.transactions.records import TRANSACTION_RECORDS
from replog.log.producers.snapshot import ProducerSnapshotEntry, encode_snapshot
from replog.metadata.records import BrokerRegistrationChangeRecord, TopicRecord
from replog.records import encode_batch, encode_leader_change
from replog.rpc.metadata_records import encode_metadata_record
from replog_checkpoints import MetaProperties, OsFileSystem, PartitionMetadata, QuorumState
from tests import kafka_fixtures

KAFKA = kafka_fixtures.ROOT / "clean"
TOPIC_ID = UUID("01020304-0506-0708-1112-131415161718")
SEGMENT = "00000000000000000000.log"


def dumped(replog: Replog, *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    done = replog("log", "dump", *arguments, "--json")
    assert (done.status, done.err) == (status, "")
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("directory", kafka_fixtures.DIRECTORIES)
@pytest.mark.parametrize("topic", kafka_fixtures.TOPICS)
def test_kafkas_segments_record_by_record(replog: Replog, directory: str, topic: str) -> None:
    rows = dumped(replog, kafka_fixtures.ROOT / directory / f"{topic}-0", "--deep")
    start = kafka_fixtures.log_start_offset(directory, topic)
    records = [row for row in rows if row["kind"] == "record" and "control" not in row and row["offset"] >= start]
    expected = kafka_fixtures.expected_rows(topic)
    assert [row["offset"] for row in records] == [record[0] for record in expected]
    assert [row["timestamp"] for row in records] == [record[2] for record in expected]


def test_batches_of_a_segment(replog: Replog) -> None:
    rows = dumped(replog, KAFKA / "txn-0" / SEGMENT)
    assert rows[0]["kind"] == "file"
    assert rows[1] == {
        "kind": "batch",
        "base_offset": 0,
        "last_offset": 11,
        "records_count": 12,
        "position": 0,
        "size_bytes": 219,
        "partition_leader_epoch": 0,
        "timestamp_type": "create_time",
        "max_timestamp": 1795249939258,
        "codec": "none",
        "producer_id": 2000,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    assert rows[2]["is_control"] is True
    assert sum(row["size_bytes"] for row in rows[1:]) == rows[0]["size_bytes"]


def test_transaction_markers(replog: Replog) -> None:
    rows = dumped(replog, KAFKA / "txn-0", "--deep")
    assert {row["control"] for row in rows if "control" in row} == {"commit", "abort"}


def test_text_is_one_line_a_row(replog: Replog) -> None:
    lines = replog("log", "dump", KAFKA / "txn-0" / SEGMENT, "--deep").out.splitlines()
    assert lines[0].endswith("00000000000000000000.log  3,467 bytes")
    assert lines[1].startswith("  batch  base_offset=0  last_offset=11  records_count=12  position=0")
    assert lines[2] == "    record  offset=0  timestamp=1795249939258  key=tx0  value=0/0"


def segment(tmp_path: Path, data: bytes, directory: str = "flights-0") -> Path:
    file = tmp_path / directory / SEGMENT
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return file


def batch(*values: bytes | None, base_offset: int = 0) -> bytes:
    return encode_batch([(1_000, None, value, ()) for value in values], base_offset=base_offset)


def test_values_that_are_no_text(replog: Replog, tmp_path: Path) -> None:
    file = segment(tmp_path, encode_batch([(1, None, b"\xff\x00", [("h", b"\xfe"), ("n", None)])]))
    (row,) = [row for row in dumped(replog, file, "--deep") if row["kind"] == "record"]
    assert row["key"] is None
    assert row["value"] == {"base64": "/wA="}
    assert row["headers"] == [["h", {"base64": "/g=="}], ["n", None]]


def test_a_torn_tail_is_shown_behind_what_is_whole(replog: Replog, tmp_path: Path) -> None:
    whole = batch(b"a", b"b")
    file = segment(tmp_path, whole + batch(b"c", base_offset=2)[:-3])
    rows = dumped(replog, file, status=1)
    assert [row["kind"] for row in rows] == ["file", "batch", "damage"]
    assert rows[2]["position"] == len(whole)


def test_a_wrong_checksum_does_not_hide_the_batches_behind_it(replog: Replog, tmp_path: Path) -> None:
    first = bytearray(batch(b"a"))
    first[-2] ^= 1
    rows = dumped(replog, segment(tmp_path, bytes(first) + batch(b"b", base_offset=1)), "--deep", status=1)
    assert [row["kind"] for row in rows] == ["file", "batch", "damage", "batch", "record"]
    assert rows[2]["reason"].startswith("checksum ")


def test_bytes_that_are_no_batches(replog: Replog, tmp_path: Path) -> None:
    rows = dumped(replog, segment(tmp_path, b"x" * 100), status=1)
    assert [row["kind"] for row in rows] == ["file", "damage"]


def test_the_metadata_log_in_words(replog: Replog, tmp_path: Path) -> None:
    leader = encode_leader_change(
        base_offset=0, leader_epoch=3, timestamp_ms=5, leader_id=2, voters=[1, 2, 3], granting_voters=[2, 3]
    )
    change = BrokerRegistrationChangeRecord(1, 7, fenced=False)
    values = [encode_metadata_record(TopicRecord("flights", TOPIC_ID)), encode_metadata_record(change), b"\x01\x02"]
    file = segment(tmp_path, leader + batch(*values, base_offset=1), "__cluster_metadata-0")
    rows = [row for row in dumped(replog, file, "--deep") if row["kind"] == "record"]
    assert [{name: value for name, value in row.items() if name not in {"kind", "timestamp"}} for row in rows[:3]] == [
        {"offset": 0, "control": "leader_change", "leader_id": 2, "voters": [1, 2, 3], "granting_voters": [2, 3]},
        {"offset": 1, "record": "TopicRecord", "name": "flights", "topic_id": str(TOPIC_ID)},
        {
            "offset": 2,
            "record": "BrokerRegistrationChangeRecord",
            "broker_id": 1,
            "broker_epoch": 7,
            "fenced": False,
            "in_controlled_shutdown": None,
            "endpoints": None,
        },
    ]
    assert "frame version 1" in rows[3]["unreadable"]


def test_indexes_without_the_zeros_that_kafka_preallocates(replog: Replog, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000100.index").write_bytes(bytes.fromhex("00000005000010000000000a00002008") + bytes(16))
    (tmp_path / "00000000000000000100.timeindex").write_bytes(bytes.fromhex("0000018bcfe5680000000005") + bytes(12))
    assert [row for row in dumped(replog, tmp_path) if row["kind"] != "file"] == [
        {"kind": "index_entry", "offset": 105, "position": 4096},
        {"kind": "index_entry", "offset": 110, "position": 8200},
        {"kind": "time_index_entry", "timestamp": 1700000000000, "offset": 105},
    ]


def test_an_index_with_half_an_entry(replog: Replog, tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.index"
    file.write_bytes(struct.pack(">ii", 5, 100) + b"\x01")
    assert dumped(replog, file, status=1)[-1] == {
        "kind": "damage",
        "position": 8,
        "reason": "1 bytes are left over: entries have 8",
    }


def test_producer_snapshots(replog: Replog, tmp_path: Path) -> None:
    entry = ProducerSnapshotEntry(1000, 0, 41, 41, 9, 1700, -1, -1)
    file = tmp_path / "00000000000000000042.snapshot"
    file.write_bytes(encode_snapshot([entry]))
    assert dumped(replog, file)[1] == {"kind": "producer"} | entry._asdict()
    file.write_bytes(encode_snapshot([entry])[:-1])
    assert dumped(replog, file, status=1)[1]["kind"] == "damage"


def test_transaction_indexes(replog: Replog, tmp_path: Path) -> None:
    rows = dumped(replog, KAFKA / "txn-0" / "00000000000000000000.txnindex")
    assert rows[1] == {
        "kind": "aborted_transaction",
        "producer_id": 3,
        "first_offset": 13,
        "last_offset": 25,
        "last_stable_offset": 26,
    }
    assert len(rows) == 5
    content = (KAFKA / "txn-0" / "00000000000000000000.txnindex").read_bytes()
    file = tmp_path / "00000000000000000000.txnindex"
    file.write_bytes(content[:-1])
    *whole, last = dumped(replog, file, status=1)
    assert (whole[1:], last["kind"], last["position"]) == (rows[1:-1], "damage", 102)
    file.write_bytes(content[34:] + content[:34])
    assert [row["kind"] for row in dumped(replog, file, status=1)] == ["file", "damage"]


def test_the_witness_of_a_transaction_index(replog: Replog, tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.txnwitness"
    file.write_bytes(b"1\n8d1f03c6\n")
    assert dumped(replog, file)[1] == {"kind": "transaction_witness", "checksum": "8d1f03c6"}
    file.write_bytes(b"1\n8d1f\n")
    assert dumped(replog, file, status=1)[1]["kind"] == "damage"


@pytest.mark.parametrize("suffix", [".deleted", ".swap", ".cleaned"])
def test_files_that_are_not_in_use(replog: Replog, tmp_path: Path, suffix: str) -> None:
    names = ["00000000000000000000" + kind for kind in (".log", ".index", ".timeindex", ".txnindex")]
    for name in (*names, "00000000000000000144.snapshot"):
        (tmp_path / f"{name}{suffix}").write_bytes((KAFKA / "txn-0" / name).read_bytes())
    rows = dumped(replog, tmp_path)
    assert sum(row["kind"] == "file" for row in rows) == 5
    kept = {"leader_epoch", "partition_metadata", "file"}
    original = [row for row in dumped(replog, KAFKA / "txn-0") if row["kind"] not in kept]
    assert sorted(row["kind"] for row in rows if row["kind"] != "file") == sorted(row["kind"] for row in original)


def test_how_far_the_cleaner_is(replog: Replog) -> None:
    assert dumped(replog, KAFKA / "cleaner-offset-checkpoint")[1:] == [
        {"kind": "offset", "topic": "compacted", "partition": 0, "offset": 240}
    ]


def test_the_small_files_of_a_data_directory(replog: Replog, tmp_path: Path) -> None:
    fs, at = OsFileSystem(), str(tmp_path)
    meta = MetaProperties("cluster-1", 1, TOPIC_ID, {"replog.format": "1"})
    checkpoints.write_meta_properties(fs, f"{at}/meta.properties", meta)
    checkpoints.write_offset_checkpoint(fs, f"{at}/replication-offset-checkpoint", {("flights", 3): 1024})
    checkpoints.write_leader_epochs(fs, f"{at}/leader-epoch-checkpoint", [(0, 0), (3, 1024)])
    checkpoints.write_partition_metadata(fs, f"{at}/partition.metadata", PartitionMetadata(TOPIC_ID))
    checkpoints.write_clean_shutdown(fs, f"{at}/.kafka_cleanshutdown", checkpoints.CleanShutdown(5))
    checkpoints.write_quorum_state(fs, f"{at}/quorum-state", QuorumState(2, 4, None))
    (tmp_path / "server.log").write_text("not a file of the log")
    rows = {row["kind"]: row for row in dumped(replog, tmp_path) if row["kind"] != "file"}
    assert rows["meta_properties"] == {
        "kind": "meta_properties",
        "cluster.id": "cluster-1",
        "node.id": 1,
        "directory.id": checkpoints.uuid_to_text(TOPIC_ID),
        "replog.format": "1",
    }
    assert rows["offset"] == {"kind": "offset", "topic": "flights", "partition": 3, "offset": 1024}
    assert rows["leader_epoch"] == {"kind": "leader_epoch", "epoch": 3, "start_offset": 1024}
    assert rows["partition_metadata"]["topic_id"] == str(TOPIC_ID)
    assert rows["clean_shutdown"]["broker_epoch"] == 5
    assert (rows["quorum_state"]["leader_id"], rows["quorum_state"]["leader_epoch"]) == (2, 4)


def test_a_damaged_checkpoint(replog: Replog, tmp_path: Path) -> None:
    file = tmp_path / "leader-epoch-checkpoint"
    file.write_text("0\n2\n0 0\nthree 1024\n")
    assert dumped(replog, file, status=1)[1]["reason"].startswith("line 4: ")


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("missing.log", 1, "there is no such file or directory"),
        ("server.log", 2, "is not a segment, index, snapshot or checkpoint by its name"),
        ("empty", 2, "holds no segment, index, snapshot or checkpoint"),
    ],
)
def test_paths_that_hold_nothing_to_dump(replog: Replog, tmp_path: Path, name: str, status: int, text: str) -> None:
    (tmp_path / "server.log").write_text("")
    (tmp_path / "empty").mkdir()
    done = replog("log", "dump", tmp_path / name)
    assert (done.status, done.err.count("\n")) == (status, 1)
    assert text in done.err


def test_nothing_is_written(replog: Replog, tmp_path: Path) -> None:
    file = segment(tmp_path, batch(b"a")[:-1])
    file.chmod(0o444)
    file.parent.chmod(0o555)
    before = file.read_bytes()
    replog("log", "dump", file.parent)
    file.parent.chmod(0o755)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [SEGMENT]


def test_the_topics_of_coordinators_in_words(replog: Replog, tmp_path: Path) -> None:
    commit = CoordinatorRecord(OffsetCommitKey("g", "flights", 3), OffsetCommitValue(42, metadata="note"), 4)
    groups = [
        *(GROUP_RECORDS.encode(each) for each in (commit, CoordinatorRecord(OffsetCommitKey("g", "flights", 3), None))),
        (b"\x00\x63k", b"v"),  # of a type that is not known
        (b"\x00\x01", b"v"),
    ]
    partitions = [TransactionLogValue.PartitionsSchema("flights", [0, 2])]
    value = TransactionLogValue(
        7, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=1, transaction_partitions=partitions
    )
    begun = TRANSACTION_RECORDS.encode(CoordinatorRecord(TransactionLogKey("etl-1"), value, 1))
    group_rows, (transaction,) = (
        [row for row in dumped(replog, segment(tmp_path, data, name), "--deep") if row["kind"] == "record"]
        for name, data in (
            ("__consumer_offsets-7", encode_batch([(1, *each, ()) for each in groups])),
            ("__transaction_state-7", encode_batch([(1, *begun, ())])),
        )
    )
    kept, removed, unknown, damaged = group_rows
    place = {"record": "OffsetCommit", "key": {"group": "g", "topic": "flights", "partition": 3}}
    assert kept.items() >= place.items()
    assert removed.items() >= {**place, "value": None}.items()
    assert kept["value"].items() >= {"offset": 42, "metadata": "note"}.items()
    assert unknown.items() >= {"record": "unknown", "value": "v"}.items()
    assert "unreadable" in damaged
    assert transaction["key"] == {"transactional_id": "etl-1"}
    shown = {"transaction_status": "ongoing", "transaction_partitions": [{"topic": "flights", "partition_ids": [0, 2]}]}
    assert transaction["value"].items() >= shown.items()
