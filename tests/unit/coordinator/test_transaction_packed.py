"""What is seen of a record at a glance is what the classes of its message say of it; of what may be damaged nothing is said."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from group_record_kit import unhurried
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.transactions import records
from replog.coordinator.transactions.messages import TransactionLogKey
from replog.coordinator.transactions.packed import Glance, glance_at, read_key, unpack
from replog.coordinator.transactions.records import TRANSACTION_RECORDS, TransactionStatus, WrittenTransaction
from tests.random_examples import examples
from tests.work_counts import calls_of

GOLDEN = Path(__file__).parents[2] / "data" / "coordinator" / "transaction_records.txt"

int64 = st.integers(-(2**63), 2**63 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
topics = st.builds(WrittenTransaction.PartitionsSchema, st.text(max_size=200), st.lists(int32, max_size=150))
values = st.builds(
    WrittenTransaction,
    producer_id=int64,
    previous_producer_id=int64,
    next_producer_id=int64,
    producer_epoch=int16,
    next_producer_epoch=int16,
    transaction_timeout_ms=int32,
    transaction_status=st.integers(0, 5),
    transaction_partitions=st.none() | st.lists(topics, max_size=4),
    transaction_last_update_timestamp_ms=int64,
    transaction_start_timestamp_ms=int64,
    client_transaction_version=int16,
    last_producer_epoch=int16,
)


def encoded(value: WrittenTransaction, version: int) -> bytes:
    found = TRANSACTION_RECORDS.encode(CoordinatorRecord(TransactionLogKey("etl"), value, version))[1]
    assert found is not None
    return found


def slowly(value: bytes) -> WrittenTransaction | None:
    """What the classes of messages say."""
    try:
        record = TRANSACTION_RECORDS.decode(b"\0\0\0\3etl", value)
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return None
    assert record is None or isinstance(record.value, WrittenTransaction)
    return None if record is None else record.value


def agrees(value: bytes) -> bool:
    """Whether a glance says what the classes say, or nothing."""
    seen, whole = glance_at(value), slowly(value)
    if seen is None:
        return True
    assert whole is not None, value.hex()
    assert unpack(value) == whole
    return seen == Glance(
        whole.producer_id,
        TransactionStatus(whole.transaction_status),
        bool(whole.transaction_partitions),
        whole.transaction_timeout_ms,
        whole.transaction_last_update_timestamp_ms,
        whole.transaction_start_timestamp_ms,
    )


@settings(unhurried, max_examples=examples(40))
@given(values, st.sampled_from([0, 1]))
def test_a_glance_at_any_record(value: WrittenTransaction, version: int) -> None:
    written = encoded(value, version)
    assert glance_at(written) is not None
    assert agrees(written)
    assert not any(glance_at(written[:size]) for size in range(len(written) - 1, max(len(written) - 9, 0), -1))


@settings(unhurried, max_examples=examples(40))
@given(values, st.sampled_from([0, 1]), st.integers(0), st.integers(0, 255), st.sampled_from([b"", b"\0", b"\1\0"]))
def test_a_glance_at_a_damaged_record(
    value: WrittenTransaction, version: int, at: int, byte: int, behind: bytes
) -> None:
    damaged = bytearray(encoded(value, version))
    damaged[at % len(damaged)] = byte
    assert agrees(bytes(damaged) + behind)
    assert agrees(bytes(damaged)[: at % len(damaged)])


@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_a_number_of_partitions_below_none_is_left_to_the_classes(count: int) -> None:
    at_rest = encoded(WrittenTransaction(1, transaction_partitions=None), 0)
    damaged = at_rest.replace((-1).to_bytes(4, signed=True), count.to_bytes(4, signed=True))
    assert damaged != at_rest
    assert glance_at(at_rest) is not None
    assert glance_at(damaged) is None


def test_each_bit_of_what_kafka_wrote_is_flipped() -> None:
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        key, value = (bytes.fromhex(each) for each in line.split(" ")[:2])
        assert read_key(key) is not None
        assert glance_at(value) is not None
        for at in range(len(value)):
            for bit in range(8):
                assert agrees(value[:at] + bytes((value[at] ^ 1 << bit,)) + value[at + 1 :])


@pytest.mark.parametrize(
    "key", [b"", b"\0\0", b"\0\1\0\0", b"\0\0\0\2a", b"\0\0\0\1ab", b"\0\0\xff\xff", b"\0\0\0\1\xff"]
)
def test_keys_of_other_records_are_left_to_the_classes(key: bytes) -> None:
    assert read_key(key) is None


def test_the_least_work_for_each_record() -> None:
    """Goal: a million transactional ids are loaded about as fast as a million offsets; calls, since time depends on the machine."""
    at_rest = encoded(WrittenTransaction(1, client_transaction_version=2, last_producer_epoch=3), 1)
    is_open = encoded(
        WrittenTransaction(
            1, transaction_status=1, transaction_partitions=[WrittenTransaction.PartitionsSchema("topic", [0, 1, 2])]
        ),
        1,
    )
    slow = calls_of(partial(unpack, is_open))
    assert calls_of(partial(glance_at, at_rest)) < slow / 2
    assert calls_of(partial(glance_at, is_open)) < slow / 2


# ---- partitions of many topics -------------------------------------------------------------------------------------------


@settings(unhurried, max_examples=examples(10))
@given(values, st.lists(topics, min_size=records.TOPICS_TOGETHER, max_size=2 * records.TOPICS_TOGETHER))
def test_many_topics_are_written_as_by_the_classes(
    value: WrittenTransaction, wide: list[WrittenTransaction.PartitionsSchema]
) -> None:
    value.transaction_partitions = wide
    record = CoordinatorRecord(TransactionLogKey("etl"), value, 1)
    assert TRANSACTION_RECORDS.encode(record) == records._BY_FIELDS.encode(record)
    assert agrees(encoded(value, 1))


def test_each_of_many_topics_is_written_and_read_in_few_calls() -> None:
    """Trap: each batch of partitions that came to those of 10,000 topics held the loop for a twentieth of a second."""
    many = [WrittenTransaction.PartitionsSchema(f"flights-{number}", [number]) for number in range(1_000)]
    value = WrittenTransaction(transaction_partitions=many, transaction_status=TransactionStatus.ONGOING)
    written = encoded(value, 1)
    assert calls_of(lambda: encoded(value, 1)) < 2_000
    assert calls_of(lambda: unpack(written)) < 4_000
