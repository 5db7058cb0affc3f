"""The records of transactions: what Kafka wrote has the fields that its tool prints, and is written in the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.transactions.messages import TransactionLogKey
from replog.coordinator.transactions.records import TRANSACTION_RECORDS, WrittenTransaction
from replog.errors import MalformedFrameError, UnsupportedVersionError
from tests.kafka.message_json import differences

GOLDEN = Path(__file__).parents[2] / "data" / "coordinator" / "transaction_records.txt"


def test_what_kafka_wrote() -> None:
    lines = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) >= 4
    for line in lines:
        key, value, key_text, value_text = line.split(" ")
        encoded = bytes.fromhex(key), bytes.fromhex(value)
        found = TRANSACTION_RECORDS.decode(*encoded)
        assert found is not None
        assert differences(found.key, json.loads(key_text), "key") == []
        assert differences(found.value, json.loads(value_text), "value") == []
        assert TRANSACTION_RECORDS.encode(found) == encoded


def test_tagged_fields_and_no_partitions_there_and_back() -> None:
    value = WrittenTransaction(
        7,
        previous_producer_id=5,
        next_producer_id=9,
        next_producer_epoch=0,
        producer_epoch=32_766,
        transaction_timeout_ms=1,
        transaction_status=4,
        transaction_partitions=None,
        client_transaction_version=2,
    )
    record = CoordinatorRecord(TransactionLogKey("etl"), value, 1)
    assert TRANSACTION_RECORDS.decode(*TRANSACTION_RECORDS.encode(record)) == record
    assert TRANSACTION_RECORDS.decode(TRANSACTION_RECORDS.encode(record)[0], None) == CoordinatorRecord(
        record.key, None
    )


def test_what_is_cut_or_newer_is_refused() -> None:
    key, value = TRANSACTION_RECORDS.encode(CoordinatorRecord(TransactionLogKey("etl"), WrittenTransaction(), 1))
    assert value is not None
    with pytest.raises(MalformedFrameError):
        TRANSACTION_RECORDS.decode(key, value[:-1])
    with pytest.raises(UnsupportedVersionError, match="version 2"):
        TRANSACTION_RECORDS.decode(key, b"\x00\x02" + value[2:])
