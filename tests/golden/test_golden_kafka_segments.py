"""Segments that a real Kafka 4.1.1 broker wrote, record by record against what its consumer read."""

from __future__ import annotations

from typing import Any

import pytest

from replog import records as r
from tests import kafka_fixtures as kafka
from tests.records_codecs import IMPLEMENTATIONS, use

SEGMENTS = sorted(kafka.ROOT.glob("*/*-0/*.log*"))
NAMES = [str(path.relative_to(kafka.ROOT)) for path in SEGMENTS]


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use(monkeypatch, request.param)
    return request.param


@pytest.mark.parametrize("topic", kafka.TOPICS)
@pytest.mark.parametrize("directory", kafka.DIRECTORIES)
def test_every_record_equals_what_kafkas_consumer_read(directory: str, topic: str) -> None:
    pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")
    rows = []
    for segment in sorted((kafka.ROOT / directory / f"{topic}-0").glob("*.log")):
        log = segment.read_bytes()
        headers = list(r.scan(log))
        assert sum(header.size_bytes for header in headers) == len(log)
        for header in headers:
            r.check_crc(log, header)
            if not header.is_control:
                rows += [kafka.row(header, record) for record in r.decode_batch(log, header.position)]
    start = kafka.log_start_offset(directory, topic)
    assert [row for row in rows if row[0] >= start] == kafka.expected_rows(topic)


@pytest.mark.parametrize("segment", SEGMENTS, ids=NAMES)
def test_uncompressed_batches_are_rebuilt_byte_for_byte(segment: Any) -> None:
    log = segment.read_bytes()
    for header in r.scan(log):
        if header.timestamp_type is r.TimestampType.LOG_APPEND_TIME or header.codec is not r.Codec.NONE:
            continue  # the broker overwrote the times, so the producer's deltas cannot be known; or the codec's own bytes
        if header.records_count != header.last_offset_delta + 1:
            continue  # compaction left gaps; `encode_batch` gives consecutive offsets
        again = r.encode_batch(
            [record[1:] for record in r.decode_batch(log, header.position)],
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
    log = (kafka.ROOT / "clean" / "none-0" / f"{0:020d}.log").read_bytes()
    chosen = r.decode_records(log[:-1], start_offset=7, end_offset=150)
    assert [record.offset for record in chosen] == list(range(7, 150))
