"""What a coordinator of transactions does by itself, what it tells people, and what it refuses to keep."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from shard_kit import FULL, WALL_MS
from transaction_kit import A0, A1, B0, SPARE, TIMEOUT_MS, Producer, TransactionHost, begun

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.runtime.messages import Paused
from replog.coordinator.transactions.records import (
    TRANSACTION_RECORDS,
    TransactionStatus,
    WrittenTransaction,
    transaction_record,
)
from replog.coordinator.transactions.requests import (
    DescribeTransaction,
    Incarnation,
    ListTransactions,
    TransactionPartition,
)
from replog.coordinator.transactions.state import NO_TIMEOUT_MS
from replog.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    PolicyViolationError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)

CONFIG = TransactionsConfig(id_expiration_ms=1_000_000, visits_per_step=3)


@pytest.fixture
def host() -> TransactionHost:
    found = TransactionHost(CONFIG)
    found.lead()
    return found


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bumps", [False, True])
def test_a_transaction_that_is_open_for_too_long_is_aborted(host: TransactionHost, bumps: bool) -> None:
    host.cluster.transaction_version = 2 if bumps else 1
    producer = begun(host, bumps=bumps)
    host.ask(producer.add())
    host.pass_time(TIMEOUT_MS)
    assert host.status() is TransactionStatus.ONGOING
    host.pass_time(CONFIG.abort_interval_ms)
    assert host.error_of(producer.add(B0)).__name__ == "ConcurrentTransactionsError"
    (end,) = host.write_markers()
    assert (end.producer, end.is_commit, end.bumps_epochs) == (Incarnation(SPARE, 1), False, bumps)
    assert host.error_of(producer.add(B0)) is ProducerFencedError
    if bumps:  # it hears that its transaction was aborted, and goes on
        assert host.ask(producer.abort()).producer == Incarnation(SPARE, 1)
        assert host.ask(producer.init(knows=True)).producer == Incarnation(SPARE, 1)
    else:
        assert host.error_of(producer.abort()) is ProducerFencedError
        assert host.error_of(producer.init(knows=True)) is ProducerFencedError


def test_the_time_is_that_of_the_transaction_and_of_whichever_leader(host: TransactionHost) -> None:
    producer = begun(host)
    host.pass_time(TIMEOUT_MS)
    host.ask(producer.add())
    host.pass_time(TIMEOUT_MS // 2)
    host.change_leader()
    host.ask(producer.add(B0))
    host.pass_time(TIMEOUT_MS // 2 + CONFIG.abort_interval_ms)
    assert host.status() is TransactionStatus.PREPARE_ABORT


def test_only_producers_end_transactions_without_a_time_out(host: TransactionHost) -> None:
    value = WrittenTransaction(
        SPARE,
        transaction_timeout_ms=NO_TIMEOUT_MS,
        transaction_status=TransactionStatus.ONGOING,
        transaction_partitions=[WrittenTransaction.PartitionsSchema("a", [0])],
    )
    host.log = [TRANSACTION_RECORDS.encode(transaction_record("etl", value, 1))]
    host.high_watermark = 1
    host.lead()
    host.pass_time(4 * CONFIG.abort_interval_ms)
    assert host.status() is TransactionStatus.ONGOING


def test_many_are_aborted_in_steps_and_what_the_log_does_not_take_later(host: TransactionHost) -> None:
    for n in range(8):
        host.ask(begun(host, name=f"t{n}").add())
    host.refuses = FULL
    host.pass_time(TIMEOUT_MS + 2 * CONFIG.abort_interval_ms)
    assert all(host.status(f"t{n}") is TransactionStatus.ONGOING for n in range(8))
    host.refuses, largest = None, len(host.appended)
    host.pass_time(2 * CONFIG.abort_interval_ms)
    assert all(host.status(f"t{n}") is TransactionStatus.PREPARE_ABORT for n in range(8))
    assert max(len(each.records) for each in host.appended[largest:]) <= CONFIG.visits_per_step
    assert sorted(each.transactional_id for each in host.write_markers()) == [f"t{n}" for n in range(8)]


def test_what_a_step_writes_is_bounded_in_records() -> None:
    host = TransactionHost(replace(CONFIG, visits_per_step=1_000, records_per_step=2))
    host.lead()
    for n in range(5):
        host.ask(begun(host, name=f"t{n}").add())
    before = len(host.appended)
    host.pass_time(TIMEOUT_MS + 2 * CONFIG.abort_interval_ms)
    assert [len(each.records) for each in host.appended[before:]] == [2, 2, 1]
    host.write_markers()
    gone = len(host.appended)
    host.pass_time(CONFIG.id_expiration_ms + CONFIG.expiration_interval_ms)
    assert [len(each.records) for each in host.appended[gone:]] == [2, 2, 1]


def test_what_a_step_writes_is_bounded_in_bytes() -> None:
    config = replace(CONFIG, visits_per_step=1_000, bytes_per_step=5_000)
    host = TransactionHost(config, max_batch_bytes=10_000)
    host.lead()
    many = [TransactionPartition("a" * 200, 0), *(TransactionPartition(f"{n}" * 200, 0) for n in range(9))]
    for n in range(12):
        host.ask(begun(host, name=f"t{n}").add(*many))
    host.pass_time(TIMEOUT_MS + 2 * CONFIG.abort_interval_ms)
    assert all(host.status(f"t{n}") is TransactionStatus.PREPARE_ABORT for n in range(12))
    assert host.shard.status().timer_failures == 0


def test_a_transactional_id_expires_where_leaders_move_more_often_than_passes_come(host: TransactionHost) -> None:
    host.ask(Producer().init())
    for _ in range(2 * CONFIG.id_expiration_ms // (CONFIG.expiration_interval_ms // 4) + 1):
        host.pass_time(CONFIG.expiration_interval_ms // 4)
        host.change_leader()
    host.pass_time(2 * CONFIG.abort_interval_ms)
    assert host.error_of(DescribeTransaction(Producer().name)) is TransactionalIdNotFoundError


def test_a_transactional_id_that_nobody_uses_goes(host: TransactionHost) -> None:
    for name in ("empty", "complete", "open", "deciding"):
        producer = begun(host, name=name)
        if name != "empty":
            host.ask(producer.add())
        if name in {"complete", "deciding"}:
            host.ask(producer.commit())
        if name == "complete":
            host.write_markers()
    host.cluster.transaction_version = 1
    host.submit(Producer(name="open").init())  # it is being aborted from now on
    young_ms = CONFIG.id_expiration_ms // 2
    host.pass_time(young_ms)
    begun(host, name="young")
    host.pass_time(CONFIG.abort_interval_ms + CONFIG.expiration_interval_ms - young_ms - 10)
    assert host.status("empty") is TransactionStatus.EMPTY
    host.pass_time(1_000)
    for name in ("empty", "complete", "young"):
        assert host.error_of(DescribeTransaction(name)) is TransactionalIdNotFoundError
    assert host.log[-3:] == [
        (b"\0\0\0" + bytes((len(each),)) + each.encode(), None) for each in ("empty", "complete", "young")
    ]
    assert host.status("deciding") is TransactionStatus.PREPARE_COMMIT
    host.change_leader()
    assert host.error_of(DescribeTransaction("empty")) is TransactionalIdNotFoundError
    assert host.ask(Producer(name="empty", spare=88).init()).producer == Incarnation(88, 0)


def test_a_transactional_id_that_was_used_since_stays(host: TransactionHost) -> None:
    producer = begun(host)
    host.pass_time(CONFIG.expiration_interval_ms - CONFIG.id_expiration_ms + 1_000)
    producer.at = host.ask(producer.init()).producer
    host.pass_time(CONFIG.id_expiration_ms - 500)
    assert host.status() is TransactionStatus.EMPTY
    host.pass_time(CONFIG.expiration_interval_ms)
    assert host.error_of(DescribeTransaction("etl")) is TransactionalIdNotFoundError


# ---- people ----------------------------------------------------------------------------------------------------------


def listed(host: TransactionHost, **wanted: object) -> list[str]:
    request = host.submit(ListTransactions(**wanted))  # type: ignore[arg-type]
    host.commit()
    host.pass_time(1_000)
    return [each.transactional_id for each in host.response(request).transactions]


def test_lists(host: TransactionHost) -> None:
    for n, name in enumerate(("empty", "complete-1", "deciding-2", "open-3")):
        producer = begun(host, name=name, epoch=0)
        producer.at = host.ask(replace(producer, spare=n).init()).producer
        if n:
            host.ask(producer.add())
        if name.startswith(("complete", "deciding")):
            host.ask(producer.commit())
        if name.startswith("complete"):
            host.write_markers()
    begun(host, name="other")
    assert listed(host) == ["empty", "complete-1", "deciding-2", "open-3", "other"]
    assert listed(host, statuses=frozenset({TransactionStatus.EMPTY})) == ["empty", "other"]
    assert listed(host, statuses=frozenset({TransactionStatus.ONGOING, TransactionStatus.COMPLETE_COMMIT})) == [
        "complete-1",
        "open-3",
    ]
    assert listed(host, producer_ids=frozenset({SPARE})) == listed(host)
    assert listed(host, producer_ids=frozenset({1})) == []
    assert listed(host, pattern=".*-[12]") == ["complete-1", "deciding-2"]
    assert listed(host, pattern="open") == [], "it has to match as a whole"
    assert listed(host, pattern="(a*)*(a*)*(a|a)*b") == []
    assert listed(host, begun_longer_ago_than_ms=0) == listed(host), "as in Kafka, those at rest too"
    assert listed(host, begun_longer_ago_than_ms=TIMEOUT_MS) == ["empty", "other"], "these have not had one yet"
    with pytest.raises(InvalidRegularExpressionError, match="ask without a pattern"):
        listed(host, pattern="(")


def test_a_list_goes_in_steps_and_ends_where_the_node_may_not_serve(host: TransactionHost) -> None:
    for n in range(7):
        begun(host, name=f"t{n}")
    request = host.submit(ListTransactions())
    assert request not in host.answers
    host.step(Paused(0))
    with pytest.raises(CoordinatorNotAvailableError):
        host.response(request)


def test_descriptions(host: TransactionHost) -> None:
    assert host.error_of(DescribeTransaction("")) is InvalidRequestError
    assert host.error_of(DescribeTransaction("none")) is TransactionalIdNotFoundError
    producer = begun(host)
    assert host.describe().start_ms == -1
    host.ask(producer.add(A0))
    assert host.describe().start_ms == WALL_MS


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_what_a_producer_may_ask_for(host: TransactionHost) -> None:
    for timeout_ms in (0, -1, CONFIG.max_timeout_ms + 1):
        assert host.error_of(Producer().init(timeout_ms=timeout_ms)) is InvalidTransactionTimeoutError
    host.ask(Producer().init(timeout_ms=CONFIG.max_timeout_ms))
    assert host.error_of(Producer(name="").init()) is InvalidRequestError
    assert host.error_of(Producer(name="ä" * (CONFIG.max_id_bytes // 2 + 1)).init()) is InvalidRequestError
    host.ask(Producer(name="ä" * (CONFIG.max_id_bytes // 2)).init())


def test_a_shard_keeps_so_many_transactional_ids() -> None:
    host = TransactionHost(replace(CONFIG, max_ids=2))
    host.lead()
    for name in ("a", "b", "a"):
        host.ask(Producer(name=name).init())
    assert host.error_of(Producer(name="c").init()) is PolicyViolationError


def test_a_transaction_has_so_many_partitions_and_bytes() -> None:
    host = TransactionHost(replace(CONFIG, max_partitions=3, max_record_bytes=400))
    host.lead()
    producer = begun(host)
    long_topic = TransactionPartition("t" * 249, 0)
    host.ask(producer.add(A0, A1))
    with pytest.raises(TransactionAbortableError, match="would have 4 partitions, and may have 3: abort it"):
        host.ask(producer.add(B0, TransactionPartition("b", 1)))
    host.ask(producer.add(long_topic))
    assert host.describe().partitions == (A0, A1, long_topic)
    producer.at = host.ask(producer.abort()).producer
    host.write_markers()
    host.ask(producer.add(long_topic))
    with pytest.raises(TransactionAbortableError, match="abort it, and write to fewer topics"):
        host.ask(producer.add(TransactionPartition("u" * 249, 0)))
    host.ask(producer.add(TransactionPartition(long_topic.topic, 1)))


def test_the_largest_transaction_fits_into_a_change_and_ends() -> None:
    host = TransactionHost()
    host.lead()
    config = TransactionsConfig()
    producer = begun(host, name="t" * config.max_id_bytes)
    added = 0
    while True:
        some = [TransactionPartition(f"{n:0249}", 0) for n in range(added, added + 450)]
        if host.error_of(producer.add(*some)) is TransactionAbortableError:
            break
        added += len(some)
    assert added > 3_000
    host.ask(producer.commit())
    (end,) = host.write_markers()
    assert len(end.partitions) == added
    assert host.status(producer.name) is TransactionStatus.COMPLETE_COMMIT


@pytest.mark.parametrize("name", TransactionsConfig.__struct_fields__)
def test_each_bound_is_at_least_one(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TransactionsConfig(**{name: 0})


def test_lists_are_refused_where_too_many_are_made(host: TransactionHost) -> None:
    for n in range(7):
        begun(host, name=f"t{n}")
    refused = [host.submit(ListTransactions()) for _ in range(101)]
    with pytest.raises(CoordinatorLoadInProgressError):
        host.response(refused[-1])
