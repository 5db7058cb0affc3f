"""`replog log verify` and `replog log repair` on files of ours and of Kafka's."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cli_kit import Replog

from replog.errors import CorruptRecordError
from replog.local import open_log
from replog.log import LogConfig, LogDirectory
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.recovery.flushed_offset import encode_flushed_offset
from replog.records import encode_batch
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures

T0 = 1_700_000_000_000
RECORDS = 30
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two partitions of 30 records in several segments, stopped in order."""
    path = tmp_path / "data"
    logs = LogDirectory.open(OsFileSystem(), str(path), cluster_id="c" * 22, node_id=1, now_ms=T0)
    for partition in (0, 1):
        log = logs.open_log("flights", partition, UUID(int=2**100), LogConfig(segment_bytes=12_000), now_ms=T0)
        for number in range(RECORDS):
            batch = encode_batch([(T0 + number, None, bytes([number]) * 1000, ())])
            log.append_as_leader(batch, leader_epoch=0, now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=1)
    return path


def rows(replog: Replog, *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    done = replog("log", *arguments, "--json")
    assert (done.status, done.err) == (status, "")
    return [json.loads(line) for line in done.out.splitlines()]


def damage(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_sound_directory(replog: Replog, data: Path) -> None:
    found = rows(replog, "verify", data, "--deep")
    assert [(row["kind"], row["records"], row["recovery_point"], row["findings"]) for row in found] == [
        ("verified", RECORDS, RECORDS, 0),
        ("verified", RECORDS, RECORDS, 0),
    ]


def test_folders_that_are_only_named_as_partitions_are_are_none(replog: Replog, data: Path, tmp_path: Path) -> None:
    """Goal: the folder of a cluster, with node-1 and node-2 in it, is not found to be sound."""
    cluster = tmp_path / "cluster"
    (cluster / "node-2").mkdir(parents=True)
    done = replog("log", "verify", cluster)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"error: {cluster} holds no segments and no partition folders\n"
    shutil.copytree(data, cluster / "node-1" / "data")
    done = replog("log", "verify", cluster)
    assert (done.status, done.out) == (2, "")
    assert f"Log directories are in it: name one, such as {cluster}/node-1/data" in done.err
    (data / "empty-0").mkdir()
    assert len(rows(replog, "verify", data)) == 3, "in a log directory it is a partition's"


def test_the_first_bad_offset_and_byte_are_named(replog: Replog, data: Path) -> None:
    file = data / "flights-1" / SEGMENT
    damage(file, 1070 + 100)  # in the second batch
    *_, row = rows(replog, "verify", data / "flights-1", status=1)
    assert (row["first_bad_offset"], row["first_bad_file"]) == (1, str(file))
    assert 1000 < row["first_bad_byte"] <= 1170
    assert "first_bad_offset=1" in replog("log", "verify", data / "flights-1").out


def test_an_index_is_repaired_and_the_directory_opens_as_after_a_clean_stop(replog: Replog, data: Path) -> None:
    index = data / "flights-0" / SEGMENT.replace(".log", ".index")
    before = index.read_bytes()
    damage(index, 3)
    assert [row["kind"] for row in rows(replog, "verify", data, status=1)].count("finding") == 1
    assert [row["kind"] for row in rows(replog, "repair", data)] == ["finding", "repaired", "intact"]
    assert index.read_bytes() == before
    assert all(row["kind"] == "verified" for row in rows(replog, "verify", data))
    logs = LogDirectory.open(OsFileSystem(), str(data), cluster_id=None, node_id=1, now_ms=T0)
    assert logs.was_clean
    assert logs.logs["flights", 0].log_end_offset == RECORDS
    logs.close(now_ms=T0, broker_epoch=1)


def test_flushed_records_are_not_given_up_without_being_told(replog: Replog, data: Path) -> None:
    damage(data / "flights-0" / SEGMENT, 500)
    done = replog("log", "repair", data / "flights-0")
    assert done.status == 1
    assert "--accept-loss" in done.err
    assert "Traceback" not in done.err
    *_, row = rows(replog, "repair", data / "flights-0", "--accept-loss")
    assert (row["kind"], row["end_offset"], row["offsets_given_up"]) == ("repaired", 0, RECORDS)


def test_what_was_given_up_is_counted_and_named_wherever_it_was(replog: Replog, data: Path) -> None:
    folder = data / "flights-0"
    _, gone, last = sorted(folder.glob("*.log"))
    first, end, damaged = int(gone.stem), int(last.stem), int(last.stem) + 1
    gone.unlink()
    damage(last, 1070 + 100)  # in its second batch
    *_, row = rows(replog, "repair", folder, "--accept-loss")
    assert (row["offsets_given_up"], row["end_offset"]) == (end - first + RECORDS - damaged, damaged)
    assert row["given_up"] == [
        {"first_offset": first, "last_offset": end - 1},
        {"first_offset": damaged, "last_offset": RECORDS - 1},
    ]


def test_a_repaired_metadata_log_says_what_its_node_can_do_no_more(replog: Replog, data: Path) -> None:
    logs = LogDirectory.open(OsFileSystem(), str(data), cluster_id="c" * 22, node_id=1, now_ms=T0)
    logs.open_log(METADATA_TOPIC, 0, UUID(int=1), now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=1)
    shutil.rmtree(data / f"{METADATA_TOPIC}-0")
    (*_, row) = rows(replog, "repair", data / f"{METADATA_TOPIC}-0", "--accept-loss")
    for said in (
        "new directory id",
        "`replog quorum remove-voter` and `add-voter`",
        "elect-leaders --topic NAME --unclean",
    ):
        assert said in row["next_start"]


def test_a_running_node_is_left_alone(replog: Replog, data: Path) -> None:
    logs = LogDirectory.open(OsFileSystem(), str(data), cluster_id=None, node_id=1, now_ms=T0)
    done = replog("log", "repair", data)
    logs.close(now_ms=T0, broker_epoch=1)
    assert done.status == 1
    assert "in use by another process" in done.err


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_path_without_logs(replog: Replog, tmp_path: Path, command: str) -> None:
    for path in (tmp_path, tmp_path / "none"):
        done = replog("log", command, path)
        assert done.status == 2
        assert str(path) in done.err


def test_a_damaged_checkpoint_is_a_finding_and_stops_a_repair(replog: Replog, data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nflights zero 1\n")
    found = rows(replog, "verify", data / "flights-0", status=1)
    assert found[0]["problem"] == "checkpoint"
    done = replog("log", "repair", data / "flights-0", "--accept-loss")
    assert done.status == 1
    assert "recovery-point-offset-checkpoint line 3" in done.err


@pytest.mark.parametrize("loss", ["gone", "cut", "changed"])
def test_kafkas_transaction_index(replog: Replog, tmp_path: Path, loss: str) -> None:
    shutil.copytree(kafka_fixtures.ROOT / "clean", tmp_path / "kafka")
    index = tmp_path / "kafka" / "txn-0" / SEGMENT.replace(".log", ".txnindex")
    before = index.read_bytes()
    if loss == "gone":
        index.unlink()
    else:
        index.write_bytes(before[:-34] if loss == "cut" else before[:-1] + b"\0")
    *found, _ = rows(replog, "verify", tmp_path / "kafka" / "txn-0", status=1)
    assert {(row["problem"], row["path"]) for row in found} == {("derived", str(index))}
    *_, row = rows(replog, "repair", tmp_path / "kafka" / "txn-0")
    assert (row["kind"], row["offsets_given_up"]) == ("repaired", 0)
    assert index.read_bytes() == before
    assert rows(replog, "verify", tmp_path / "kafka" / "txn-0")[-1]["findings"] == 0


def test_a_flushed_offset_that_another_program_left_behind_is_forgotten_when_asked(replog: Replog, data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    note = data / "flights-0" / "flushed-offset"
    note.write_bytes(encode_flushed_offset(RECORDS + 5))
    done = replog("log", "repair", data / "flights-0")
    assert done.status == 1
    assert "--forget-flushed-offset" in done.err
    *_, row = rows(replog, "repair", data / "flights-0", "--forget-flushed-offset")
    assert (row["kind"], row["end_offset"], row["offsets_given_up"]) == ("intact", RECORDS, 0)
    assert not note.exists()


def test_the_damaged_identity_of_a_local_log_is_found_and_made_anew(replog: Replog, tmp_path: Path) -> None:
    with open_log(tmp_path / "orders") as log:
        log.append(b"a")
    meta = tmp_path / "orders" / "meta.properties"
    meta.write_bytes(meta.read_bytes()[:60])
    finding, _ = rows(replog, "verify", tmp_path / "orders", status=1)
    assert (finding["problem"], finding["path"]) == ("derived", str(meta))
    assert [row["kind"] for row in rows(replog, "repair", tmp_path / "orders")] == ["finding", "repaired"]
    with open_log(tmp_path / "orders") as log:
        assert [record.value for record in log] == [b"a"]


@pytest.mark.parametrize("kept", [None, (), (".index", ".timeindex")])
def test_a_folder_without_a_segment_is_repaired_as_its_error_says(
    replog: Replog, tmp_path: Path, kept: tuple[str, ...] | None
) -> None:
    with open_log(tmp_path / "mine") as log:
        for number in range(RECORDS):
            log.append(b"%d" % number)
    folder = tmp_path / "mine" / "log-0"
    if kept is None:
        shutil.rmtree(folder)
    else:
        for file in folder.iterdir():
            if file.suffix not in kept:
                file.unlink()
    with pytest.raises(CorruptRecordError, match=f"replog log repair {re.escape(str(folder))} --accept-loss"):
        open_log(tmp_path / "mine")
    assert rows(replog, "verify", folder, status=1)[0]["problem"] == "missing"
    (*_, repaired) = rows(replog, "repair", folder, "--accept-loss")
    assert (repaired["end_offset"], repaired["offsets_given_up"]) == (RECORDS, RECORDS)
    with open_log(tmp_path / "mine") as log:
        assert log.append(b"on") == RECORDS
