"""The records of transactions that Kafka wrote: we read them as Kafka's tool does, and write them in the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kafka_dump import TOOL
from kafka_install import KafkaInstall
from kafka_run import KafkaRun
from message_json import differences

from replog.cli.dump import dump_path
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.transactions.messages import TransactionLogKey, TransactionLogValue
from replog.coordinator.transactions.records import TRANSACTION_RECORDS, TransactionStatus
from replog.records import Record, decode_batch, parse_header

_SHOWN = re.compile(r"^\| offset: (\d+) .* key: (\{.*?\}) payload: (\{.*\})$", re.MULTILINE)


def _records(segment: bytes) -> Iterator[Record]:
    while segment:
        size_bytes = parse_header(segment).size_bytes
        yield from decode_batch(segment[:size_bytes])
        segment = segment[size_bytes:]


def test_what_kafka_wrote_of_its_transactions(kafka: KafkaInstall, kafka_run: KafkaRun) -> None:
    files = [
        path for path in sorted(kafka_run.data("killed").glob("__transaction_state-*/*.log")) if path.stat().st_size
    ]
    assert files
    shown = kafka.run(TOOL, "--transaction-log-decoder", "--files", ",".join(map(str, files))).output
    theirs = [(json.loads(key)["data"], json.loads(value)["data"]) for _, key, value in _SHOWN.findall(shown)]
    records = [record for path in files for record in _records(path.read_bytes())]
    rows = [row for path in files for row in dump_path(path, deep=True) if row["kind"] == "record"]
    assert len(rows) == len(records) == len(theirs) >= 5
    states = set()
    for record, row, (key, value) in zip(records, rows, theirs, strict=True):
        found = TRANSACTION_RECORDS.decode(record.key, record.value)
        assert isinstance(found, CoordinatorRecord)
        assert isinstance(found.key, TransactionLogKey)
        assert isinstance(found.value, TransactionLogValue)
        assert differences(found.key, key, "key") + differences(found.value, value, "value") == []
        assert TRANSACTION_RECORDS.encode(found) == (record.key, record.value)
        assert row["key"] == {"transactional_id": key["transactionalId"]}
        status = row["value"]["transaction_status"]
        states.add(status)
        assert TransactionStatus[status.upper()] == value["transactionStatus"]
    assert {"empty", "ongoing", "prepare_commit", "complete_commit"} <= states
