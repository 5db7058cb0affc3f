"""`replog log export`: Kafka's folders and ours as Arrow, Parquet and JSON lines."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import Done, Replog

import replog as replog_package
import replog_checkpoints as checkpoints
from replog.cli.export import arrow_sinks
from replog.cli.export.arrow_sinks import record_batch
from replog.errors import StorageError
from replog.host.extras import install_command
from replog.log import Log, LogConfig, LogDirectory
from replog.records import decode_records, encode_batch, encode_end_transaction_marker
from replog.tables.log_source import LogSource, Run
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures

T0 = 1_700_000_000_000
SEGMENT = "00000000000000000000.log"
ISOLATIONS = ("read_uncommitted", "read_committed")


def exported(replog: Replog, *arguments: object) -> list[dict[str, Any]]:
    done = replog("log", "export", *arguments, "--to", "jsonl", "--output", "-")
    assert (done.status, done.err.count("\n")) == (0, 1), done.err
    return [json.loads(line) for line in done.out.splitlines()]


def refused(done: Done, status: int, text: str) -> None:
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1 if text else 0)
    assert text in done.err


def values(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"] for row in rows]


def as_expected(topic: str, rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Rows of Arrow in the shape of what Kafka's consumer read."""
    kind = 2 if topic == "append-time" else 1
    return [
        [
            row["offset"],
            kind,
            row["timestamp"],
            kafka_fixtures.shown(row["key"]),
            kafka_fixtures.shown(row["value"]),
            [[header["key"], kafka_fixtures.shown(header["value"])] for header in row["headers"]],
            row["leader_epoch"],
        ]
        for row in rows
    ]


def arrow_rows(table: pa.Table) -> list[dict[str, Any]]:
    at = table.schema.get_field_index("timestamp")
    rows: list[dict[str, Any]] = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return rows


def read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("directory", kafka_fixtures.DIRECTORIES)
@pytest.mark.parametrize("topic", kafka_fixtures.TOPICS)
def test_kafkas_folders_are_what_kafkas_consumer_read(
    replog: Replog, tmp_path: Path, topic: str, directory: str, isolation: str
) -> None:
    folder = kafka_fixtures.ROOT / directory / f"{topic}-0"
    before = kafka_fixtures.tree_digest(folder)
    expected = kafka_fixtures.expected_rows(topic, isolation)
    file = tmp_path / "out"
    for name, read in (("arrow", read_arrow), ("parquet", pq.read_table)):
        done = replog("log", "export", folder, "--to", name, "--output", file, "--isolation", isolation, "--force")
        assert (done.status, done.out) == (0, "")
        assert as_expected(topic, arrow_rows(read(file))) == expected
    rows = exported(replog, folder, "--isolation", isolation, "--encoding", "base64")
    for row in rows:
        row |= {name: row[name] and base64.b64decode(row[name]) for name in ("key", "value")}
        row["headers"] = [{"key": key, "value": value and base64.b64decode(value)} for key, value in row["headers"]]
        row |= {name: b"" for name in ("key", "value") if row[name] == ""}
        for header in row["headers"]:
            header["value"] = b"" if header["value"] == "" else header["value"]
    assert as_expected(topic, rows) == expected
    assert kafka_fixtures.tree_digest(folder) == before
    assert list(tmp_path.iterdir()) == [file]


def test_the_columns_of_a_file(replog: Replog, tmp_path: Path) -> None:
    folder = kafka_fixtures.ROOT / "clean" / "none-0"
    replog("log", "export", folder, "--to", "parquet", "-o", tmp_path / "out")
    kinds = {field.name: (str(field.type), field.nullable) for field in pq.read_schema(tmp_path / "out")}
    assert kinds.pop("headers")[0].endswith("struct<key: string not null, value: binary>>")
    assert kinds == {
        "offset": ("int64", False),
        "timestamp": ("timestamp[ms, tz=UTC]", True),
        "key": ("binary", True),
        "value": ("binary", True),
        "leader_epoch": ("int32", True),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of 30 records, values "0" to "29", three a batch, two leader epochs, several segments."""
    path = tmp_path / "data"
    logs = LogDirectory.open(OsFileSystem(), str(path), cluster_id="c" * 22, node_id=1, now_ms=T0)
    log = logs.open_log("flights", 0, UUID(int=2**100), LogConfig(segment_bytes=400), now_ms=T0)
    for first in range(0, 30, 3):
        batch = encode_batch([(T0 + number, None, b"%d" % number, ()) for number in range(first, first + 3)])
        log.append_as_leader(batch, leader_epoch=first // 15, now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=1)
    return path / "flights-0"


@pytest.mark.parametrize(("start", "end"), [(0, 30), (4, 5), (2, 16), (29, 30), (7, 7), (30, 30), (12, 15)])
def test_a_range_ends_inside_a_batch_too(replog: Replog, tmp_path: Path, folder: Path, start: int, end: int) -> None:
    options = (folder, "--from-offset", start, "--to-offset", end)
    rows = exported(replog, *options)
    assert [row["offset"] for row in rows] == list(range(start, end))
    assert [row["leader_epoch"] for row in rows] == [offset // 15 for offset in range(start, end)]
    replog("log", "export", *options, "--to", "arrow", "-o", tmp_path / "out")
    assert read_arrow(tmp_path / "out")["offset"].to_pylist() == list(range(start, end))


def test_groups_of_records(replog: Replog, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_sinks, "GROUP_BYTES", 1)
    for name, read in (("parquet", pq.read_table), ("arrow", read_arrow)):
        replog("log", "export", folder, "--to", name, "-o", tmp_path / name)
        assert read(tmp_path / name)["value"].to_pylist() == [b"%d" % number for number in range(30)]
    assert pq.ParquetFile(tmp_path / "parquet").metadata.num_row_groups > 2


def test_the_summary(replog: Replog, folder: Path) -> None:
    options = ("log", "export", folder.parent, "--to", "jsonl", "-o", "-", "--from-offset", 3)
    words = f"exported 27 records of {folder}, offsets 3 to 30 (exclusive), read_uncommitted, to stdout"
    assert replog(*options).err == f"{words}\n"
    high_watermarks = str(folder.parent / checkpoints.REPLICATION_OFFSET_FILE)
    checkpoints.write_offset_checkpoint(OsFileSystem(), high_watermarks, {("flights", 0): 21})
    assert replog(*options).err == (
        f"{words}; offsets from 21, the checkpointed high watermark, on may not be acknowledged yet\n"
    )
    assert "acknowledged" not in replog(*options, "--to-offset", 21).err


def test_bytes_that_are_no_text(replog: Replog, tmp_path: Path) -> None:
    with replog_package.open_log(tmp_path / "log") as log:
        log.append(b"\xff", key=b"\xc3\xa9", headers=[("h", b"\xfe"), ("n", None)], timestamp_ms=T0)
        log.append(None, timestamp_ms=T0)
        first, second = exported(replog, tmp_path / "log")  # while it is open for writing
    assert first == {
        "offset": 0,
        "timestamp": T0,
        "key": "é",
        "value": {"base64": "/w=="},
        "headers": [["h", {"base64": "/g=="}], ["n", None]],
        "leader_epoch": 0,
    }
    assert (second["key"], second["value"]) == (None, None)
    (row, _) = exported(replog, tmp_path / "log", "--encoding", "base64")
    assert (row["key"], row["value"], row["headers"]) == ("w6k=", "/w==", [["h", "/g=="], ["n", None]])


# Transactions


def transactional(log: Log, producer_id: int, *, sequence: int = 0) -> None:
    batch = encode_batch(
        [(T0, None, b"by %d" % producer_id, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=T0)


def end(log: Log, producer_id: int, *, is_commit: bool) -> None:
    batch = encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=T0,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=1,
        is_commit=is_commit,
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=T0)


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """0 by 1 (aborted at 2), 1 by 2 (committed at 3), 4 by 1 (committed at 6), 5 by 3 (undecided), 7 plain."""
    path = tmp_path / "transactions"
    logs = LogDirectory.open(OsFileSystem(), str(path), cluster_id="c" * 22, node_id=1, now_ms=T0)
    log = logs.open_log("t", 0, UUID(int=2**100), LogConfig(), now_ms=T0)
    transactional(log, 1)
    transactional(log, 2)
    end(log, 1, is_commit=False)
    end(log, 2, is_commit=True)
    transactional(log, 1, sequence=1)
    transactional(log, 3)
    end(log, 1, is_commit=True)
    log.append_as_leader(encode_batch([(T0, None, b"plain", ())]), leader_epoch=0, now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=1)
    return path / "t-0"


def test_isolation(replog: Replog, transactions: Path) -> None:
    assert [row["offset"] for row in exported(replog, transactions)] == [0, 1, 4, 5, 7]
    assert [row["offset"] for row in exported(replog, transactions, "--isolation", "read_committed")] == [1, 4]
    options = ("log", "export", transactions, "--to", "jsonl", "-o", "-")
    words = replog(*options).err
    assert "; aborted transactions included: 1; a transaction from offset 5 on is undecided" in words
    words = replog(*options, "--isolation", "read_committed").err
    assert "offsets 0 to 5 (exclusive), read_committed" in words
    assert "left out: 1; ends before an undecided transaction, the log has offsets up to 8" in words


def test_aborted_records_are_not_exported_as_committed_when_the_index_is_lost(
    replog: Replog, tmp_path: Path, transactions: Path
) -> None:
    for ending in (".txnindex", ".txnwitness"):  # what says that there is an index, too
        (transactions / SEGMENT.replace(".log", ending)).unlink()
    options = ("log", "export", transactions, "--to", "arrow", "-o", tmp_path / "out")
    refused(
        replog(*options, "--isolation", "read_committed"), 1, "that producer 1 aborted at offset 2: see `replog log"
    )
    assert not (tmp_path / "out").exists()
    assert replog(*options).status == 0


def test_an_index_that_is_lost_is_made_again_where_its_witness_says_that_there_was_one(
    replog: Replog, tmp_path: Path, transactions: Path
) -> None:
    (transactions / SEGMENT.replace(".log", ".txnindex")).unlink()
    options = ("log", "export", transactions, "--to", "jsonl", "-o", tmp_path / "out", "--isolation", "read_committed")
    assert replog(*options).status == 0
    assert [json.loads(line)["offset"] for line in (tmp_path / "out").read_text().splitlines()] == [1, 4]


@pytest.mark.parametrize(("byte", "bit"), [(17, 0), (17, 2), (25, 0), (25, 3)])  # of the first offset, of the last one
def test_no_committed_record_is_left_out_where_a_bit_of_the_index_is_wrong(
    replog: Replog, tmp_path: Path, transactions: Path, byte: int, bit: int
) -> None:
    """It may begin or end an aborted transaction elsewhere, which may cost nothing; but nothing is left out without a word."""
    options = ("log", "export", transactions, "--to", "jsonl", "-o", tmp_path / "out", "--isolation", "read_committed")
    path = transactions / SEGMENT.replace(".log", ".txnindex")
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)
    found = replog(*options)
    if found.status == 0:
        assert [json.loads(line)["offset"] for line in (tmp_path / "out").read_text().splitlines()] == [1, 4]
    else:
        assert "replog log repair" in found.err


# Damage


def test_a_corrupt_batch_leaves_no_file(replog: Replog, tmp_path: Path, folder: Path) -> None:
    content = bytearray((folder / SEGMENT).read_bytes())
    size = len(content)
    content[-1] ^= 1
    (folder / SEGMENT).write_bytes(content)
    before = kafka_fixtures.tree_digest(tmp_path)
    for name in ("arrow", "parquet", "jsonl"):
        done = replog("log", "export", folder, "--to", name, "-o", tmp_path / "out")
        refused(done, 1, f"{folder / SEGMENT} at byte ")
        assert "checksum" in done.err
        assert "Traceback" not in done.err
    assert kafka_fixtures.tree_digest(tmp_path) == before
    *_, last = [row["offset"] for row in exported(replog, folder, "--to-offset", 3)]
    assert (last, size) == (2, (folder / SEGMENT).stat().st_size)


@pytest.mark.parametrize("batch", [0, 2, 3])
def test_no_changed_bit_of_a_sealed_segment_hides_a_record(folder: Path, batch: int) -> None:
    """Also where no checksum reaches: offsets, lengths; and in what the decoder skips: control batches."""
    content = (folder / SEGMENT).read_bytes()
    start = [position for position in range(len(content)) if content[position + 16 : position + 17] == b"\x02"]
    start = [position for position in start if content[position : position + 7] == bytes(7)]
    assert len(start) == 4
    outside = set(range(12, 16))  # the leader epoch, which hides nothing
    for at in sorted({*range(27), 57, 60, 70} - outside):
        changed = bytearray(content)
        changed[start[batch] + at] ^= 1 << (5 if at == 22 else at % 8)
        (folder / SEGMENT).write_bytes(changed)
        with pytest.raises(StorageError):
            list(all_records(folder))
    (folder / SEGMENT).write_bytes(content)
    assert list(all_records(folder)) == list(range(30))


def all_records(folder: Path) -> Iterator[int]:
    """Offsets, without the command around it, which takes longer."""
    with closing(LogSource(folder, is_committed=False)) as source:
        for run in source.runs(*source.range_of(None, None)):
            records = decode_records(run.data, start_offset=run.start_offset, end_offset=run.end_offset)
            yield from (record.offset for record in records)


@pytest.fixture
def alone(tmp_path: Path, folder: Path) -> Path:
    """The same folder without checkpoints beside it, in one segment."""
    copy = tmp_path / "alone" / "flights-0"
    copy.mkdir(parents=True)
    segments = sorted(folder.glob("*.log"))
    (copy / SEGMENT).write_bytes(b"".join(segment.read_bytes() for segment in segments))
    return copy


def test_half_a_batch_at_the_end_is_left_out_and_said(replog: Replog, alone: Path) -> None:
    content = (alone / SEGMENT).read_bytes()
    for cut in (1, 20, 60, 85):
        (alone / SEGMENT).write_bytes(content[:-cut])
        done = replog("log", "export", alone, "--to", "jsonl", "-o", "-")
        assert (done.status, len(done.out.splitlines())) == (0, 27)
        assert " bytes of half a batch behind it left out" in done.err
        assert "half a batch" not in replog("log", "export", alone, "--to", "jsonl", "-o", "-", "--to-offset", 20).err


@pytest.mark.parametrize("position", [-1, 7, 8, 10, 16, 20])
def test_damage_in_the_last_segment_is_no_torn_tail(replog: Replog, tmp_path: Path, alone: Path, position: int) -> None:
    """Recovery would cut the log there, good records behind it included."""
    content = bytearray((alone / SEGMENT).read_bytes())
    batch_bytes = len(content) // 10  # about; the third batch from the end or so is hit
    at = bytes(content).index((21).to_bytes(8, "big"))
    content[at + (position if position >= 0 else batch_bytes - 5)] ^= 1
    (alone / SEGMENT).write_bytes(content)
    done = replog("log", "export", alone, "--to", "arrow", "-o", tmp_path / "out")
    refused(done, 1, f"{alone / SEGMENT} at byte {at}: ")
    assert "--to-offset 21" in done.err
    assert not (tmp_path / "out").exists()
    assert len(exported(replog, alone, "--to-offset", 21)) == 21
    refused(replog("log", "export", alone, "--to", "jsonl", "-o", "-", "--to-offset", 22), 1, "--to-offset 21")


# The output


def test_an_existing_file_is_left_alone(replog: Replog, tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "out"
    file.write_text("precious")
    options = ("log", "export", folder, "--to", "jsonl", "-o", file)
    refused(replog(*options), 2, "exists: name another file, or replace it with --force")
    assert file.read_text() == "precious"
    assert replog(*options, "--force").status == 0
    assert len(file.read_text().splitlines()) == 30


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(
    replog: Replog, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    file = tmp_path / "out"
    if force:
        file.write_text("precious")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = replog("log", "export", folder, "--to", "parquet", "-o", file, *(["--force"] if force else []))
    refused(done, 1, f"{file} cannot be written: No space left on device")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", *(["out"] if force else [])]
    assert not force or file.read_text() == "precious"


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_an_interrupted_export_leaves_nothing(
    replog: Replog, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls = []

    def interrupted(run: Run) -> pa.RecordBatch:
        calls.append(run)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return record_batch(run)

    monkeypatch.setattr(arrow_sinks, "record_batch", interrupted)
    refused(replog("log", "export", folder, "--to", name, "-o", tmp_path / "out", "--from-offset", 12), 130, "")
    assert (len(calls), sorted(path.name for path in tmp_path.iterdir())) == (2, ["data"])


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--to", "csv", "-o", "-"], 2, "not one of arrow, parquet, jsonl"),
        (["--to", "arrow", "-o", "-"], 2, "--to arrow needs a file"),
        (["--to", "arrow", "-o", "out", "--encoding", "base64"], 2, "--encoding is for --to jsonl"),
        (["--to", "jsonl", "-o", "-", "--isolation", "serializable"], 2, "not one of read_uncommitted"),
        (["--to", "jsonl", "-o", "-", "--from-offset", "31"], 1, "has offsets 0 to 30, 31 was asked for"),
        (["--to", "jsonl", "-o", "-", "--to-offset", "31"], 1, "has offsets 0 to 30, 31 was asked for"),
        (["--to", "jsonl", "-o", "-", "--from-offset", "5", "--to-offset", "4"], 2, "--to-offset 4 is below"),
        (["--to", "jsonl", "-o", "none/out"], 2, "none is not a directory"),
        (["--to", "jsonl", "-o", "data"], 2, "data is not a file"),
        (["--to", "jsonl", "-o", "data/flights-0/out"], 2, "is the log itself"),
    ],
)
def test_what_cannot_be(
    replog: Replog,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    status: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = kafka_fixtures.tree_digest(tmp_path)
    refused(replog("log", "export", folder, *options), status, text)
    assert kafka_fixtures.tree_digest(tmp_path) == before


def test_one_log_at_a_time(replog: Replog, folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "flights-1")
    refused(replog("log", "export", folder.parent, "--to", "jsonl", "-o", "-"), 2, "holds 2 logs: name one of them")


def test_without_pyarrow(tmp_path: Path, folder: Path) -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from replog.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "log", "export", str(folder), *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    done = run("--to", "parquet", "-o", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: --to parquet needs pyarrow, which is not installed: {install_command('arrow')}\n"
    assert len(run("--to", "jsonl", "-o", "-").stdout.splitlines()) == 30
