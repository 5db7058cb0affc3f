"""Kafka's DumpLogSegments on every file we write: it takes all of them, and prints what we meant."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from uuid import UUID

import pytest
from kafka_dump import Dump, Fields, dump
from kafka_install import KafkaInstall
from kafka_shapes import EMPTY_BATCH_TIMESTAMP, SHAPES, write_topic

from replog.log.producers.snapshot import decode_snapshot
from replog.records import BatchHeader, Record, TimestampType, check_crc, decode_batch, scan

TOPIC_ID = UUID("01020304-0506-0708-1112-131415161718")
EPOCHS = (0, 3, 7)
GAPS = "Non-consecutive offsets in"
NO_SEQUENCE = -1

every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    write_topic(folder, "shapes", TOPIC_ID, epochs=EPOCHS)
    return folder


@pytest.fixture(scope="module")
def dumped(kafka: KafkaInstall, written: Path) -> Dump:
    return dump(kafka, files(written, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))


def files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.suffix in suffixes)


def of_shape(written: Path, shape: str, suffix: str) -> list[Path]:
    found = sorted((written / f"shapes-{SHAPES.index(shape)}").glob(f"*{suffix}"))
    assert found or suffix == ".txnindex", f"{shape} has no {suffix}"
    return found


def expected_batch(header: BatchHeader) -> Fields:
    kind = "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    return {
        "baseOffset": str(header.base_offset),
        "lastOffset": str(header.last_offset),
        "count": str(header.records_count),
        "baseSequence": str(header.base_sequence),
        "lastSequence": str(header.last_sequence),
        "producerId": str(header.producer_id),
        "producerEpoch": str(header.producer_epoch),
        "partitionLeaderEpoch": str(header.partition_leader_epoch),
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "deleteHorizonMs": horizon,
        "position": str(header.position),
        kind: str(header.max_timestamp),
        "size": str(header.size_bytes),
        "magic": "2",
        "compresscodec": header.codec.name.lower(),
        "crc": str(header.crc),
        "isvalid": "true",
    }


def expected_record(header: BatchHeader, record: Record) -> Fields:
    kind = "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
    sequence = NO_SEQUENCE if header.base_sequence < 0 else header.base_sequence + record.offset - header.base_offset
    fields = {
        "offset": str(record.offset),
        kind: str(record.timestamp),
        "keySize": str(-1 if record.key is None else len(record.key)),
        "valueSize": str(-1 if record.value is None else len(record.value)),
        "sequence": str(sequence),
        "headerKeys": f"[{','.join(name for name, _ in record.headers)}]",
    }
    if header.is_control:
        is_commit = (record.key or b"")[3] == 1
        return fields | {"endTxnMarker": "COMMIT" if is_commit else "ABORT", "coordinatorEpoch": "0"}
    if record.key is not None:
        fields["key"] = record.key.hex()
    if record.value is not None:
        fields["payload"] = record.value.hex()
    return fields


@every_shape
def test_batches_and_records(written: Path, dumped: Dump, shape: str) -> None:
    for path in of_shape(written, shape, ".log"):
        log = path.read_bytes()
        headers = list(scan(log))
        for header in headers:
            check_crc(log, header)
        assert dumped.files[path].batches == [expected_batch(header) for header in headers]
        records = [(header, record) for header in headers for record in decode_batch(log, header.position)]
        assert dumped.files[path].records == [expected_record(header, record) for header, record in records]


@every_shape
def test_offset_index(written: Path, dumped: Dump, shape: str) -> None:
    for path in of_shape(written, shape, ".index"):
        entries = [
            {"offset": str(int(path.stem) + offset), "position": str(position)}
            for offset, position in struct.iter_unpack(">ii", path.read_bytes())
        ]
        assert dumped.files[path].entries == entries


@every_shape
def test_time_index(written: Path, dumped: Dump, shape: str) -> None:
    for path in of_shape(written, shape, ".timeindex"):
        entries = [
            {"timestamp": str(timestamp), "offset": str(int(path.stem) + offset)}
            for timestamp, offset in struct.iter_unpack(">qi", path.read_bytes())
        ]
        assert entries, path
        assert dumped.files[path].entries == entries


@every_shape
def test_transaction_index(written: Path, dumped: Dump, shape: str) -> None:
    """Kafka reads the aborted transactions that the log itself tells of."""
    aborted: list[tuple[int, int, int]] = []
    open_since: dict[int, int] = {}
    for path in of_shape(written, shape, ".log"):
        log = path.read_bytes()
        for header in scan(log):
            if not header.is_control:
                if header.is_transactional:
                    open_since.setdefault(header.producer_id, header.base_offset)
                continue
            first_offset = open_since.pop(header.producer_id)
            if (decode_batch(log, header.position)[0].key or b"")[3] == 0:
                aborted.append((header.producer_id, first_offset, header.last_offset))
    entries = [entry for path in of_shape(written, shape, ".txnindex") for entry in dumped.files[path].entries]
    assert [(int(e["producerId"]), int(e["firstOffset"]), int(e["lastOffset"])) for e in entries] == aborted
    assert bool(aborted) == (shape in {"transactions", "open"})


@every_shape
def test_producer_snapshots(written: Path, dumped: Dump, shape: str) -> None:
    for path in of_shape(written, shape, ".snapshot"):
        rows = [
            (entry["producerId"], entry["producerEpoch"], entry["coordinatorEpoch"], entry["lastTimestamp"])
            for entry in dumped.files[path].entries
        ]
        ours = decode_snapshot(str(path), path.read_bytes())
        assert rows == [
            tuple(map(str, (e.producer_id, e.producer_epoch, e.coordinator_epoch, e.timestamp))) for e in ours
        ]
        batches = [e for e in ours if e.last_offset >= 0]
        found = [entry for entry in dumped.files[path].entries if "lastOffset" in entry]
        assert [(e["lastSequence"], e["lastOffset"], e["offsetDelta"]) for e in found] == [
            tuple(map(str, (e.last_sequence, e.last_offset, e.offset_delta))) for e in batches
        ]
        open_since = [entry["currentTxnFirstOffset"] for entry in dumped.files[path].entries]
        assert open_since == [
            "OptionalLong.empty"
            if e.current_transaction_first_offset < 0
            else f"OptionalLong[{e.current_transaction_first_offset}]"
            for e in ours
        ]


def test_nothing_to_complain_about(written: Path, dumped: Dump) -> None:
    """Gaps are what compaction leaves; everything else would be a wrong entry, timestamp or checksum."""
    (log,) = of_shape(written, "compacted", ".log")
    (times,) = of_shape(written, "compacted", ".timeindex")
    assert dumped.other_complaints(log, times) == []
    assert dumped.complaints_about(log)[0] == f"{GAPS} {log}"
    assert about_the_batch_without_records(dumped.complaints_about(times), times)
    assert set(dumped.files) == set(files(written, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))


def about_the_batch_without_records(complaints: list[str], path: Path) -> bool:
    """The tool compares with record timestamps, and that batch has none; Kafka's recovery makes the same entry as we."""
    return (
        complaints[0] == f"Found timestamp mismatch in :{path}"
        and len(complaints) == 2
        and complaints[1].endswith(f"Index timestamp: {EMPTY_BATCH_TIMESTAMP}, log timestamp: -1")
    )


def test_index_checks(kafka: KafkaInstall, written: Path) -> None:
    indexes = files(written, ".index", ".timeindex")
    (times,) = of_shape(written, "compacted", ".timeindex")
    checked = dump(kafka, indexes, "--index-sanity-check")
    assert checked.complaints == []
    for path in indexes:
        says = "is empty." if path.suffix == ".index" and not path.stat().st_size else "passed sanity check."
        assert checked.files[path].lines == [f"{path} {says}"]
    verified = dump(kafka, indexes, "--verify-index-only")
    assert verified.other_complaints(times) == []
    assert about_the_batch_without_records(verified.complaints_about(times), times)
    assert set(verified.files) == set(indexes)


def test_the_tool_does_see_damage(kafka: KafkaInstall, written: Path, tmp_path: Path) -> None:
    """The counter-check: an entry that is off by one batch and a flipped bit are found, and found by our parser."""
    folder = tmp_path / "shapes-1"
    shutil.copytree(written / f"shapes-{SHAPES.index('epochs')}", folder)
    index = folder / f"{0:020d}.index"
    offset, position = struct.unpack_from(">ii", index.read_bytes())
    index.write_bytes(struct.pack(">ii", offset - 1, position) + index.read_bytes()[8:])
    log = index.with_suffix(".log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    complaints = dump(kafka, [index], "--verify-index-only").complaints
    complaints += dump(kafka, [log], "--max-bytes", str(len(data))).complaints
    assert any("Mismatches in" in line for line in complaints)
    assert any("isvalid: false" in line for line in complaints)
