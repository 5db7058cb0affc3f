"""Transactions of a `Producer` against a scripted coordinator: what is committed when answers are lost and callers are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster
from fake_transactions import FakeTransactions

from replog.client import GroupMetadata, Producer, Transaction
from replog.client.producer import batch as batch_module
from replog.client.producer import transaction as transaction_module
from replog.client.producer import transaction_calls as calls_module
from replog.client.protocol.questions.transactions import (
    AddGroupToTransaction,
    AddToTransaction,
    BeginProducing,
    CommitInTransaction,
    DecideTransaction,
)
from replog.errors import (
    BrokerClosedError,
    CommitStaleError,
    ConcurrentTransactionsError,
    ConfigError,
    CoordinatorLoadInProgressError,
    ErrorCode,
    IllegalGenerationError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    MalformedFrameError,
    ProducerFencedError,
    RecordTooLargeError,
    ReplogError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    UnknownTopicOrPartitionError,
)
from replog.records import CodecName, decode_columns, encode_batch, parse_header, with_producer
from replog.rpc.messages import ProducedTransaction
from tests.cancelling import WAITS_MAX, cancelled_at_wait

VERSIONS = pytest.mark.parametrize("version", [1, 2])


def make_cluster(version: int = 2, partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic("t", partitions)
    cluster.transactions.version = version
    return cluster


def make(cluster: FakeCluster, name: str = "pay", **settings: Any) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), transactional_id=name, **settings)


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_batches_of_a_transaction_are_made_as_those_of_others(
    monkeypatch: pytest.MonkeyPatch, compression: CodecName
) -> None:
    """Trap: each was copied twice more, with a second checksum, to say that it is part of one: a tenth of what a record costs."""
    stamped: list[bool] = []

    def noted(batch: bytes, *identity: int, is_transactional: bool) -> bytes:
        stamped.append(parse_header(batch).is_transactional)
        return with_producer(batch, *identity, is_transactional=is_transactional)

    monkeypatch.setattr(batch_module, "with_producer", noted)
    cluster = make_cluster()
    async with make(cluster, compression=compression) as producer:
        for number in range(2):
            async with producer.transaction():
                await producer.send("t", b"%d" % number * 1_000)
    headers = [parse_header(batch) for batch in cluster.logs["t", 0].batches]
    assert [header.is_transactional for header in headers if not header.is_control] == [True, True]
    assert stamped == ([] if compression == "none" else [True, True]), "what was compressed before had no producer yet"


@VERSIONS
async def test_what_is_sent_in_a_transaction_is_committed_at_its_end(version: int) -> None:
    cluster = make_cluster(version, 2)
    async with make(cluster) as producer:
        for number in range(3):
            async with producer.transaction():
                delivery = await producer.send("t", b"a%d" % number, partition=0)
                await producer.send_many("t", [b"b%d" % number], partition=1)
            assert (await delivery).offset == number
    assert cluster.transactions.decided == [True] * 3
    assert cluster.transactions.committed("t", 0) == [b"a0", b"a1", b"a2"]
    assert cluster.transactions.committed("t", 1) == [b"b0", b"b1", b"b2"]
    headers = [parse_header(batch) for batch in cluster.logs["t", 0].batches]
    assert all(header.is_transactional for header in headers)
    epochs = [(header.producer_epoch, header.base_sequence) for header in headers]
    assert epochs == ([(0, 0), (1, 0), (2, 0)] if version == 2 else [(0, 0), (0, 1), (0, 2)])
    assert {one.transaction for one in cluster.nodes[1].produced} == {ProducedTransaction("pay", version == 2)}
    joins = cluster.transactions.asked_of(AddToTransaction)
    assert bool(joins) == (version == 1)


@VERSIONS
async def test_an_exception_aborts_and_the_next_transaction_works(version: int) -> None:
    cluster = make_cluster(version)
    async with make(cluster) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"gone")
                raise KeyError
        async with producer.transaction():
            await producer.send("t", b"kept")
    assert cluster.transactions.decided == [False, True]
    assert cluster.transactions.committed("t") == [b"kept"]


async def test_a_record_that_is_not_sent_when_it_is_aborted_is_never_sent() -> None:
    cluster = make_cluster()
    async with make(cluster, linger_ms=60_000) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                delivery = await producer.send("t", b"gone")
                raise KeyError
        with pytest.raises(TransactionAbortableError, match="not sent"):
            await delivery
    assert cluster.nodes[1].produced == []
    assert cluster.transactions.asked_of(DecideTransaction) == []  # the coordinator has never heard of it


async def test_an_empty_transaction_costs_the_coordinator_nothing() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        for _ in range(3):
            async with producer.transaction():
                pass
    assert len(cluster.transactions.asked) == 1  # the producer id


async def test_columns_belong_to_the_transaction_too() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        columns = decode_columns(encode_batch([(1, None, b"x", ()), (2, None, b"y", ())]), with_headers=True)
        with pytest.raises(InvalidRequestError, match="in no open transaction"):
            await producer.send_columns("t", columns)
        async with producer.transaction():
            await producer.send_columns("t", columns)
    assert cluster.transactions.committed("t") == [b"x", b"y"]


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_send_outside_of_a_transaction_says_what_to_do(phase: str) -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        if phase == "after":
            async with producer.transaction():
                await producer.send("t", b"x")
        for send in (producer.send("t", b"y"), producer.send_many("t", [b"y"]), producer.send_and_wait("t", b"y")):
            with pytest.raises(
                InvalidRequestError, match=r"'pay' is in no open transaction: send inside of `async with"
            ):
                await send
    assert cluster.transactions.committed("t") == ([b"x"] if phase == "after" else [])


async def test_one_transaction_at_a_time() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        async with producer.transaction() as outer:
            await producer.send("t", b"x")
            with pytest.raises(InvalidRequestError, match="in a transaction already"):
                async with producer.transaction():
                    pass
            assert isinstance(outer, Transaction)
        with pytest.raises(InvalidRequestError, match="in no open transaction"):
            await outer.commit_offsets(GroupMetadata("g"), {("t", 0): 1})
        async with producer.transaction():
            with pytest.raises(InvalidRequestError, match="this transaction has ended"):
                await outer.commit_offsets(GroupMetadata("g"), {("t", 0): 1})
    assert cluster.transactions.committed("t") == [b"x"]


async def test_a_transaction_begins_once() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        async with producer.transaction() as txn:
            await producer.send("t", b"kept")
        with pytest.raises(InvalidRequestError, match="has begun before"):
            async with txn:
                await producer.send("t", b"never")
        async with producer.transaction():
            await producer.send("t", b"next")
    assert cluster.transactions.committed("t") == [b"kept", b"next"]


def test_a_transactional_id_needs_idempotence() -> None:
    for settings in ({"acks": 1}, {"enable_idempotence": False}, {"name": ""}, {"name": 7}):
        with pytest.raises(ConfigError, match=r"transactional\.id"):
            make(FakeCluster(), **settings)
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms"):
        make(FakeCluster(), transaction_timeout_ms=0)


async def test_a_producer_without_one_has_no_transactions() -> None:
    cluster = make_cluster()
    async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
        with pytest.raises(InvalidRequestError, match="transactional_id"):
            producer.transaction()


async def test_a_transaction_after_close_is_refused() -> None:
    cluster = make_cluster()
    producer = make(cluster)
    async with producer:
        pass
    with pytest.raises(BrokerClosedError):
        producer.transaction()


# ---- failures of records ---------------------------------------------------------------------------------------------


@VERSIONS
async def test_a_record_that_fails_lets_it_be_aborted_in_the_place_of_a_commit(version: int) -> None:
    cluster = make_cluster(version, 2)
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError, match=r"'pay' was aborted.*MESSAGE_TOO_LARGE") as told:
            async with producer.transaction():
                await producer.send_and_wait("t", b"good", partition=1)
                cluster.nodes[1].script.append(lambda _partition, _batch: ErrorCode.MESSAGE_TOO_LARGE)
                failed = await producer.send("t", b"bad", partition=0)
                with pytest.raises(RecordTooLargeError):
                    await failed
                with pytest.raises(TransactionAbortableError, match="can only be aborted") as refused:
                    await producer.send("t", b"more", partition=1)
                assert isinstance(refused.value.__cause__, RecordTooLargeError)
        assert isinstance(told.value.__cause__, RecordTooLargeError)
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
            await producer.send("t", b"good", partition=1)
    assert cluster.transactions.decided == [False, True]
    assert cluster.transactions.committed("t", 0) == [b"again"]
    assert cluster.transactions.committed("t", 1) == [b"good"]


async def test_a_failure_while_the_commit_waits_ends_the_wait() -> None:
    """What waits behind it for an answer that does not come must not hold up the abort for its delivery time-out."""
    cluster = make_cluster(partitions=2)

    def answer(partition: Any, _batch: bytes) -> ErrorCode | str:
        return "drop" if partition.partition_id else ErrorCode.MESSAGE_TOO_LARGE

    async with make(cluster) as producer:
        cluster.nodes[1].script.extend([answer] * 2)
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction():
                await producer.send("t", b"bad", partition=0)
                silent = await producer.send("t", b"never answered", partition=1)
        with pytest.raises(TransactionAbortableError):
            await silent
    (asked,) = cluster.transactions.asked_of(DecideTransaction)
    assert not asked.is_commit


async def test_a_record_that_is_refused_at_once_is_no_part_of_it() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer, producer.transaction():
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", bytes(2 << 20))
        await producer.send("t", b"kept")
    assert cluster.transactions.committed("t") == [b"kept"]


async def test_lost_answers_and_markers_that_are_late_double_nothing() -> None:
    cluster = make_cluster()
    cluster.nodes[1].script.extend(
        [lambda _p, _b: ErrorCode.CONCURRENT_TRANSACTIONS, lambda _p, _b: "lose", lambda _p, _b: "append"]
    )
    async with make(cluster, request_timeout_ms=50) as producer, producer.transaction():
        await producer.send("t", b"x")
    assert cluster.transactions.committed("t") == [b"x"]
    assert len(cluster.logs["t", 0].batches) == 1


# ---- answers of the coordinator --------------------------------------------------------------------------------------

LATER = [ConcurrentTransactionsError("later"), CoordinatorLoadInProgressError("later")]


@VERSIONS
@pytest.mark.parametrize("kind", [BeginProducing, AddToTransaction, DecideTransaction, CommitInTransaction])
async def test_what_can_be_asked_again_is(kind: type, version: int) -> None:
    cluster = make_cluster(version)
    cluster.transactions.script[kind].extend([*LATER, "lose"] if kind is not BeginProducing else LATER)
    async with make(cluster) as producer, producer.transaction() as txn:
        await producer.send("t", b"x")
        await txn.commit_offsets(GroupMetadata("g"), {("t", 0): 7})
    if version == 2 or kind is not DecideTransaction:
        assert cluster.transactions.committed("t") == [b"x"]
        assert cluster.transactions.offsets == {("g", "t", 0): 7}
        assert len(cluster.transactions.asked_of(AddGroupToTransaction)) == (version == 1)


@pytest.mark.parametrize("kind", [AddToTransaction, CommitInTransaction])
async def test_a_coordinator_that_has_not_heard_of_a_new_topic_is_asked_again(kind: type) -> None:
    cluster = make_cluster(version=1)
    cluster.transactions.script[kind].extend([UnknownTopicOrPartitionError("not yet")] * 2)
    async with make(cluster) as producer, producer.transaction() as txn:
        await producer.send("t", b"x")
        await txn.commit_offsets(GroupMetadata("g"), {("t", 0): 7})
    assert cluster.transactions.committed("t") == [b"x"]


async def test_a_topic_that_there_is_not_lets_it_be_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "VISIBLE_WITHIN_MS", 50)
    cluster = make_cluster(version=1)
    cluster.transactions.script[AddToTransaction].extend([UnknownTopicOrPartitionError("never")] * 100)
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError, match="never"):
            async with producer.transaction():
                await producer.send("t", b"x")


async def test_a_coordinator_that_moves_is_found() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    async with make(cluster) as producer:
        for coordinator in (1, 2, 1):
            cluster.coordinator_id = coordinator
            async with producer.transaction():
                await producer.send("t", b"%d" % coordinator)
    assert cluster.transactions.committed("t") == [b"1", b"2", b"1"]


async def test_a_transaction_that_the_coordinator_has_timed_out_is_aborted_and_the_next_one_works() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError, match=r"decided the other way|aborted"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"late")
                cluster.transactions.time_out("pay")
        async with producer.transaction():
            await producer.send("t", b"kept")
    assert cluster.transactions.committed("t") == [b"kept"]


async def test_a_record_after_the_time_out_lets_it_be_aborted() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"in time")
                cluster.transactions.time_out("pay")
                await producer.send("t", b"late")
        async with producer.transaction():
            await producer.send("t", b"kept")
    assert cluster.transactions.committed("t") == [b"kept"]


@VERSIONS
async def test_a_producer_goes_on_under_another_name(version: int) -> None:
    """Over its connections; what is left open under the former name is its coordinator's to end."""
    cluster = make_cluster(version)
    async with make(cluster) as producer:
        async with producer.transaction():
            await producer.send("t", b"first")
            with pytest.raises(InvalidRequestError, match="a transaction is open"):
                await producer.take_over("other")
        await producer.take_over("other")
        async with producer.transaction():
            await producer.send("t", b"second")
            async with make(cluster):  # fences the name that it had
                pass
    assert cluster.transactions.committed("t") == [b"first", b"second"]
    assert set(cluster.transactions.producers) == {"pay", "other"}


@VERSIONS
async def test_a_producer_whose_name_another_one_takes_over_cannot_go_on(version: int) -> None:
    cluster = make_cluster(version)
    successor = make(cluster)
    async with make(cluster) as zombie:
        with pytest.raises(ProducerFencedError, match="cannot go on"):
            async with zombie.transaction():
                await zombie.send_and_wait("t", b"zombie")
                async with successor:
                    async with successor.transaction():
                        await successor.send("t", b"kept")
                    async with successor.transaction():
                        await successor.send("t", b"kept too")
        with pytest.raises(ProducerFencedError):
            async with zombie.transaction():
                pass
        with pytest.raises(ProducerFencedError):
            await zombie.send("t", b"more")
    assert cluster.transactions.committed("t") == [b"kept", b"kept too"]


async def test_the_time_out_that_brokers_do_not_allow_is_told_at_the_beginning() -> None:
    cluster = make_cluster()
    cluster.transactions.script[BeginProducing].append(InvalidTransactionTimeoutError("too long"))
    with pytest.raises(InvalidTransactionTimeoutError):
        async with make(cluster):
            pass


async def test_what_the_last_producer_left_open_is_aborted_when_the_next_one_starts() -> None:
    """Who reads before it writes waits for that: it would, until the time-out, for itself."""
    cluster = make_cluster()
    gone = make(cluster)
    await gone.start()
    await gone.transaction().__aenter__()
    await gone.send_and_wait("t", b"left open")
    async with make(cluster) as successor:
        assert cluster.transactions.decided == [False]
        async with successor.transaction():
            await successor.send("t", b"kept")
    assert len(cluster.transactions.asked_of(BeginProducing)) == 2
    await gone.close(timeout_ms=0)


async def test_starts_and_a_beginning_at_once_take_over_once() -> None:
    cluster = make_cluster()
    producer = make(cluster)
    async with producer.transaction():
        await asyncio.gather(producer.start(), producer.start())
    fresh = make(cluster)
    await asyncio.gather(fresh.start(), fresh.start())
    assert len(cluster.transactions.asked_of(BeginProducing)) == 2
    await producer.close()
    await fresh.close()


@pytest.mark.parametrize("turns", range(8))
async def test_another_name_beside_a_start_is_the_name_that_counts(turns: int) -> None:
    cluster = make_cluster()
    producer = make(cluster)
    start = asyncio.create_task(producer.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.gather(start, producer.take_over("other"))
    async with producer.transaction():
        await producer.send("t", b"kept")
    assert producer.config.transactional_id == "other"
    assert cluster.transactions.committed("t") == [b"kept"]
    assert {each.transactional_id for each in cluster.transactions.asked_of(DecideTransaction)} == {"other"}
    await producer.close()


async def test_without_an_answer_to_the_commit_its_outcome_is_unknown() -> None:
    cluster = make_cluster()
    async with make(cluster, delivery_timeout_ms=300) as producer:
        with pytest.raises(TransactionOutcomeUnknownError, match="may or may not be committed"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                cluster.transactions.script[DecideTransaction].extend(["lose"] * 100)
        assert cluster.transactions.decided == [True]


@VERSIONS
@pytest.mark.parametrize("is_commit", [False, True])
async def test_an_end_that_comes_late_cannot_end_the_next_transaction(version: int, is_commit: bool) -> None:
    cluster = make_cluster(version)
    async with make(cluster) as producer:
        cluster.transactions.script[DecideTransaction].append("lose")
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("t", b"first")
                await producer.flush()
                assert is_commit or 1 / 0
        async with producer.transaction():
            await producer.send("t", b"second")
    assert cluster.transactions.decided == [is_commit, True]
    first, *_, last = cluster.transactions.asked_of(DecideTransaction)
    assert first.producer.producer_epoch < last.producer.producer_epoch


async def test_one_that_was_certainly_not_committed_is_aborted() -> None:
    cluster = make_cluster()
    async with make(cluster, delivery_timeout_ms=300) as producer:
        with pytest.raises(TransactionAbortableError, match="was aborted"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                cluster.transactions.script[DecideTransaction].append(TransactionAbortableError("not this one"))
        async with producer.transaction():
            await producer.send("t", b"kept")
    assert cluster.transactions.decided == [False, True]


@pytest.mark.parametrize("error", [ReplogError("broke"), MalformedFrameError("cut off"), BrokerClosedError("ending")])
async def test_an_answer_that_says_nothing_of_the_commit_leaves_it_unknown(
    error: ReplogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator may break behind its decision: told as aborted, the work would be done, and committed, again."""
    cluster = make_cluster()

    def break_after(question: Any, node_id: int) -> Any:
        answer = FakeTransactions.answer(cluster.transactions, question, node_id)
        if isinstance(question, DecideTransaction):
            raise error
        return answer

    monkeypatch.setattr(cluster.transactions, "answer", break_after)
    async with make(cluster) as producer:
        with pytest.raises(TransactionOutcomeUnknownError):
            async with producer.transaction():
                await producer.send("t", b"x")
    assert cluster.transactions.committed("t") == [b"x"]
    assert cluster.transactions.decided == [True]


async def test_a_successor_after_a_commit_without_an_answer_leaves_it_unknown() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        script = cluster.transactions.script[DecideTransaction]
        with pytest.raises(TransactionOutcomeUnknownError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                script.extend(["lose", ProducerFencedError("another one")])
        with pytest.raises(ProducerFencedError):
            async with producer.transaction():
                pass
    assert cluster.transactions.committed("t") == [b"x"]


# ---- offsets of groups -----------------------------------------------------------------------------------------------


@VERSIONS
async def test_offsets_count_with_the_commit_alone(version: int) -> None:
    cluster = make_cluster(version)
    async with make(cluster) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction() as txn:
                await txn.commit_offsets(GroupMetadata("g", "m", 3), {("t", 0): 5})
                raise KeyError
        assert cluster.transactions.offsets == {}
        async with producer.transaction() as txn:
            await txn.commit_offsets(GroupMetadata("g", "m", 3), {("t", 0): 5})
            await txn.commit_offsets(GroupMetadata("g", "m", 3), {("t", 0): 6})
    assert cluster.transactions.offsets == {("g", "t", 0): 6}
    (asked, *_) = cluster.transactions.asked_of(CommitInTransaction)
    assert (asked.member_id, asked.generation) == ("m", 3)
    assert len(cluster.transactions.asked_of(AddGroupToTransaction)) == (2 if version == 1 else 0)


@VERSIONS
@pytest.mark.parametrize("is_commit", [False, True])
async def test_offsets_that_nobody_waits_for_get_into_no_transaction(version: int, is_commit: bool) -> None:
    cluster = make_cluster(version)
    held = cluster.transactions.script[CommitInTransaction]
    held.extend([CoordinatorLoadInProgressError("later")] * 3)
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError if is_commit else KeyError, match=r"wait for it|gone"):
            async with producer.transaction() as txn:
                task = asyncio.create_task(txn.commit_offsets(GroupMetadata("g"), {("t", 0): 1}))
                await until(lambda: len(held) < 3)
                if not is_commit:
                    raise KeyError("gone")
        async with producer.transaction():
            await producer.send("t", b"next")
            with pytest.raises(ReplogError):
                await task
    assert cluster.transactions.committed("t") == [b"next"]
    assert cluster.transactions.offsets == {}


@pytest.mark.parametrize(
    ("wrong", "name"),
    [((None,), "group"), (({("t", 0): 1},), "group"), ((GroupMetadata("g"), [("t", 0)]), "offsets")],
)
async def test_what_has_no_offsets_to_commit_is_named_and_the_transaction_goes_on(wrong: Any, name: str) -> None:
    cluster = make_cluster()
    async with make(cluster) as producer, producer.transaction() as txn:
        await producer.send("t", b"kept")
        with pytest.raises(TypeError, match=f"^{name} is "):
            await txn.commit_offsets(*wrong)
    assert cluster.transactions.committed("t") == [b"kept"]


async def test_an_offset_that_is_none_is_not_committed() -> None:
    cluster = make_cluster()
    async with make(cluster) as producer:
        with pytest.raises(InvalidRequestError, match="which is no offset"):
            async with producer.transaction() as txn:
                await txn.commit_offsets(GroupMetadata("g"), {("t", 0): -1})
    assert cluster.transactions.asked_of(CommitInTransaction) == []


async def test_offsets_of_a_member_that_was_put_out_abort() -> None:
    cluster = make_cluster()
    cluster.transactions.script[CommitInTransaction].append(IllegalGenerationError("another generation"))
    async with make(cluster) as producer:
        with pytest.raises(CommitStaleError, match="put out"):
            async with producer.transaction() as txn:
                await producer.send("t", b"gone")
                await txn.commit_offsets(GroupMetadata("g", "m", 3), {("t", 0): 5})
    assert cluster.transactions.decided == [False]
    assert cluster.transactions.offsets == {}


async def test_offsets_that_were_not_committed_let_it_be_aborted_whoever_catches_the_error() -> None:
    cluster = make_cluster()
    cluster.transactions.script[CommitInTransaction].append(ReplogError("no"))
    async with make(cluster) as producer:
        with pytest.raises(TransactionAbortableError, match="was aborted"):
            async with producer.transaction() as txn:
                with pytest.raises(ReplogError, match="no"):
                    await txn.commit_offsets(GroupMetadata("g"), {("t", 0): 5})
    assert cluster.transactions.offsets == {}


# ---- cancellation ----------------------------------------------------------------------------------------------------


async def whole(producer: Producer) -> None:
    async with producer.transaction() as txn:
        await producer.send("t", b"first")
        await producer.send_many("t", [b"second"] * 3, partition=1)
        await txn.commit_offsets(GroupMetadata("g"), {("t", 0): 5})
        await producer.send_and_wait("t", b"last")


@VERSIONS
async def test_a_transaction_that_is_cancelled_at_any_wait_is_whole_or_aborted(version: int) -> None:
    for number in range(1, WAITS_MAX):
        cluster = make_cluster(version, 2)
        async with make(cluster) as producer:
            is_cancelled = await cancelled_at_wait(number, whole(producer))
            async with producer.transaction():
                await producer.send("t", b"next", partition=0)
        fates = cluster.transactions
        committed = [*fates.committed("t", 0), *fates.committed("t", 1)]
        count = len(committed) - 1
        assert committed.count(b"next") == 1
        assert count in {0, 5}, f"wait {number}"
        assert (("g", "t", 0) in fates.offsets) == (count == 5)
        undecided = [
            place
            for (topic, partition), log in cluster.logs.items()
            for place in ((topic, partition, parse_header(batch).base_offset) for batch in log.batches)
            if place not in fates.fate
        ]
        assert undecided == [], f"wait {number}"
        if not is_cancelled:
            assert count == 5
            return
    pytest.fail("a transaction has more waits than are looked at")


async def test_who_is_cancelled_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "END_LIMIT_S", 0.05)
    cluster = make_cluster()
    async with make(cluster, delivery_timeout_ms=500) as producer:
        await producer.partitions_for("t")
        begun = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"gone")
                cluster.transactions.script[DecideTransaction].extend([ConcurrentTransactionsError("later")] * 5)
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert cluster.transactions.decided == []  # it is on its way
        async with producer.transaction():  # waits for it
            assert cluster.transactions.decided == [False]
            await producer.send("t", b"next")
    assert cluster.transactions.committed("t") == [b"next"]


async def test_a_producer_that_is_closed_in_a_transaction_aborts_it() -> None:
    cluster = make_cluster()
    producer = make(cluster)
    async with producer:
        with pytest.raises(TransactionAbortableError, match="was closed"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"gone")
                await producer.close()
    assert cluster.transactions.decided == [False]


@VERSIONS
async def test_nothing_is_sent_once_its_commit_has_begun(version: int) -> None:
    """The commit would not wait for it: it could be committed, and told as failed, or get into the next transaction."""
    cluster = make_cluster(version, 2)
    async with make(cluster) as producer:
        cluster.nodes[1].hold_replies = True

        async def send_late() -> None:
            await until(lambda: bool(cluster.nodes[1].produced))
            for send in (producer.send("t", b"late", partition=1), producer.send_many("t", [b"late"], partition=1)):
                with pytest.raises(InvalidRequestError, match="is being committed"):
                    await send
            await cluster.nodes[1].release_held()

        task = asyncio.create_task(send_late())
        async with producer.transaction():
            await producer.send("t", b"first", partition=0)
        await task
        async with producer.transaction():
            await producer.send("t", b"second", partition=0)
    assert cluster.transactions.committed("t", 0) == [b"first", b"second"]
    assert cluster.logs["t", 1].batches == []


async def test_a_send_that_waits_for_room_is_not_put_into_the_next_transaction() -> None:
    cluster = make_cluster()
    async with make(cluster, buffer_memory_bytes=2048, batch_size_bytes=1024) as producer:
        cluster.nodes[1].hold_replies = True
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send("t", bytes(1000))
                await until(lambda: bool(cluster.nodes[1].produced))
                late = asyncio.create_task(producer.send("t", bytes(1500)))
                await asyncio.sleep(0)
                raise KeyError
        await cluster.nodes[1].release_held()
        async with producer.transaction():
            with pytest.raises(InvalidRequestError):
                await late
            await producer.send("t", b"next")
    assert cluster.transactions.committed("t") == [b"next"]


async def test_many_transactions_of_many_partitions_go_on() -> None:
    cluster = make_cluster(partitions=100)
    async with make(cluster) as producer:
        for number in range(3):
            async with producer.transaction():
                for partition in range(100):
                    await producer.send("t", b"%d" % number, partition=partition)
    for partition in range(100):
        assert cluster.transactions.committed("t", partition) == [b"0", b"1", b"2"]
