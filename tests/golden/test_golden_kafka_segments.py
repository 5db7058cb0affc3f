"""Segments that a real Kafka 4.1.1 broker wrote, record by record against what its consumer read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from replog import records as r
from tests.records_codecs import IMPLEMENTATIONS, use

FIXTURES = Path(__file__).parent.parent / "data" / "kafka"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())["topics"]
DIGEST_ABOVE_BYTES = 64


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use(monkeypatch, request.param)
    return request.param


def shown(data: bytes | None) -> str | None:
    if data is None:
        return None
    return data.hex() if len(data) <= DIGEST_ABOVE_BYTES else "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("topic", EXPECTED)
def test_every_record_equals_what_kafkas_consumer_read(topic: str) -> None:
    log = (FIXTURES / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    assert r.whole_batches_bytes(log) == len(log)
    rows = []
    for header in r.scan(log):
        r.check_crc(log, header)
        if header.is_control:
            continue
        kind = 2 if header.timestamp_type is r.TimestampType.LOG_APPEND_TIME else 1
        for record in r.decode_batch(log, header.position):
            headers = [[name, shown(value)] for name, value in record.headers]
            where = (record.offset, kind, record.timestamp)
            rows.append([*where, shown(record.key), shown(record.value), headers, header.partition_leader_epoch])
    assert rows == EXPECTED[topic]


@pytest.mark.parametrize("topic", EXPECTED)
def test_uncompressed_batches_are_rebuilt_byte_for_byte(topic: str) -> None:
    log = (FIXTURES / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    for header in r.scan(log):
        if header.timestamp_type is r.TimestampType.LOG_APPEND_TIME:
            continue  # the broker overwrote the times, so the producer's deltas cannot be known
        rows = [record[1:] for record in r.decode_batch(log, header.position)]
        again = r.encode_batch(
            rows,
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
        assert again == log[header.position : header.end_position]


def test_records_in_a_range_cut_both_edges() -> None:
    log = (FIXTURES / "none-0" / "00000000000000000000.log").read_bytes()
    chosen = r.decode_records(log[:-1], start_offset=7, end_offset=150)
    assert [record.offset for record in chosen] == list(range(7, 150))
