"""Batches of transactions: the coordinator is asked before the first one, and only its producer waits (KIP-890)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic, wait_until

from replog.broker.requests.transaction_joins import told
from replog.errors import BrokerNotAvailableError, ConcurrentTransactionsError, ErrorCode, ProducerFencedError
from replog.metadata.records import PartitionChangeRecord
from replog.records import encode_batch, encode_end_transaction_marker
from replog.rpc.messages import ProducedTransaction, ProducePartition, ProduceRequest, ProduceResponse, ProduceResult
from replog.rpc.transaction_messages import JoinTransactionRequest, NamedPartitions, PartitionRefusal

BROKERS = (registered(1), registered(2), registered(3))
LOOKS_UP = ProducedTransaction("pay", adds_partitions=False)
ADDS = ProducedTransaction("pay", adds_partitions=True)
OTHER_ID = UUID(int=101)


def data(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    return encode_batch(
        [(1, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def refused(error: ErrorCode, message: str = "") -> PartitionRefusal:
    return PartitionRefusal(TOPIC, 0, error, message)


async def one_replica(it: Rig) -> None:
    await it.apply(*BROKERS, *topic())


def send(
    it: Rig, sequence: int, *, transaction: ProducedTransaction | None = LOOKS_UP, epoch: int = 0
) -> asyncio.Future[ProduceResult]:
    return it.produce(data(sequence, epoch=epoch), transaction=transaction)


async def end(it: Rig, *, epoch: int = 0, commit: bool = True) -> None:
    marker = encode_end_transaction_marker(
        base_offset=0, leader_epoch=-1, timestamp_ms=1, producer_id=7, producer_epoch=epoch, coordinator_epoch=1,
        is_commit=commit,
    )  # fmt: skip
    await it.stepper.driver.call(lambda: it.replica.log.append_as_leader(marker, leader_epoch=0, now_ms=0))


@pytest.mark.parametrize("transaction", [LOOKS_UP, ADDS], ids=["looks-up", "adds"])
async def test_the_coordinator_is_asked_once_for_a_transaction(transaction: ProducedTransaction) -> None:
    async with rig() as it:
        await one_replica(it)
        first, second = send(it, 0, transaction=transaction), send(it, 1, transaction=transaction)
        await it.settle()
        assert it.replica.log.log_end_offset == 0
        await it.verifier.answer()
        assert [(await one).base_offset for one in (first, second)] == [0, 1]
        assert (await send(it, 2, transaction=transaction)).base_offset == 2
        is_lookup = not transaction.adds_partitions
        assert it.verifier.asked == [JoinTransactionRequest("pay", 7, 0, is_lookup, (NamedPartitions(TOPIC, (0,)),))]
        await end(it)
        following = send(it, 3, transaction=transaction)
        await it.verifier.answer()
        assert (await following).base_offset == 4


async def test_others_are_not_held_up() -> None:
    async with rig() as it:
        await one_replica(it)
        waiting = send(it, 0)
        assert (await it.produce(batch())).base_offset == 0
        assert (await it.produce(batch(producer_id=8, base_sequence=0))).base_offset == 1
        assert not waiting.done()
        await it.verifier.answer()
        assert (await waiting).base_offset == 2


async def test_all_partitions_of_a_producer_are_one_question() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), *topic(name="u", topic_id=OTHER_ID))
        answers: list[ProduceResponse] = []
        partitions = (ProducePartition(TOPIC_ID, 0), ProducePartition(OTHER_ID, 0))
        it.produce_path.submit(ProduceRequest(1, 1000, 1, partitions, (data(0), data(0)), ADDS), answers.append)
        await it.verifier.answer(PartitionRefusal("u", 0, ErrorCode.INVALID_TXN_STATE, "no"))
        await wait_until(lambda: answers)
        assert [one.error for one in answers[0].results] == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
        (asked,) = it.verifier.asked
        assert asked.topics == (NamedPartitions(TOPIC, (0,)), NamedPartitions("u", (0,)))


async def test_a_marker_between_answer_and_append_refuses_what_waited() -> None:
    """The batch would open a transaction that nobody ends."""
    async with rig() as it:
        await one_replica(it)
        late = send(it, 0)
        await it.settle()
        await end(it, commit=False)
        await it.verifier.answer()
        assert (await late).error is ErrorCode.INVALID_TXN_STATE
        assert it.replica.log.producers.first_unstable_offset(it.replica.log.log_end_offset) is None


async def test_with_bumped_epochs_the_marker_before_it_lets_the_next_transaction_begin() -> None:
    async with rig() as it:
        await one_replica(it)
        first = send(it, 0, transaction=ADDS)
        await it.verifier.answer()
        assert (await first).error is ErrorCode.NONE
        following = send(it, 0, transaction=ADDS, epoch=1)
        await it.settle()
        await end(it, epoch=1)
        await it.verifier.answer()
        assert (await following).base_offset == 2


async def test_what_was_never_asked_is_refused_as_the_log_refuses_it() -> None:
    async with rig() as it:
        await one_replica(it)
        await end(it, epoch=3)
        assert (await send(it, 0, epoch=2)).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert it.verifier.asked == []
        assert (await send(it, 0, transaction=None)).error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_batch_that_is_to_be_sent_again_comes_before_the_one_behind_it() -> None:
    async with rig() as it:
        await one_replica(it)
        first = send(it, 0)
        await it.verifier.answer(error=BrokerNotAvailableError("nobody leads it"))
        assert (await first).error is ErrorCode.NOT_ENOUGH_REPLICAS
        second = send(it, 1)
        await it.verifier.answer()
        assert (await second).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = send(it, 0)
        await it.verifier.answer()
        assert (await again).error is ErrorCode.NONE


async def test_a_batch_is_sent_again_whose_producer_is_ending_its_last_transaction() -> None:
    async with rig() as it:
        await one_replica(it)
        waiting = send(it, 0, transaction=ADDS)
        await it.verifier.answer(error=ConcurrentTransactionsError("it is being ended"))
        assert (await waiting).error is ErrorCode.CONCURRENT_TRANSACTIONS
        waiting = send(it, 0, transaction=ADDS)
        await it.verifier.answer()
        assert (await waiting).error is ErrorCode.NONE


async def test_who_lost_the_partition_meanwhile_appends_nothing() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        waiting = send(it, 0)
        await it.settle()
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        await it.verifier.answer()
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_newer_incarnation_behind_a_waiting_one_is_asked_for_itself() -> None:
    async with rig() as it:
        await one_replica(it)
        zombie, newer = send(it, 0), send(it, 0, epoch=1)
        await it.verifier.answer(error=ProducerFencedError("taken over"))
        assert (await zombie).error is ErrorCode.INVALID_PRODUCER_EPOCH
        await it.verifier.answer()
        assert (await newer).base_offset == 0
        assert [one.producer_epoch for one in it.verifier.asked] == [0, 1]


async def test_a_zombie_that_is_refused_takes_nothing_from_its_successor() -> None:
    """What the successor has to send again still comes before the batch behind it."""
    async with rig() as it:
        await one_replica(it)
        first = send(it, 0, epoch=1)
        await it.verifier.answer(error=BrokerNotAvailableError("nobody leads it"))
        assert (await first).error is ErrorCode.NOT_ENOUGH_REPLICAS
        zombie = send(it, 0)
        await it.verifier.answer(error=ProducerFencedError("taken over"))
        assert (await zombie).error is ErrorCode.INVALID_PRODUCER_EPOCH
        second = send(it, 1, epoch=1)
        await it.verifier.answer()
        assert (await second).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_no_answer_in_time_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.requests.transaction_joins.ANSWER_WAIT_MIN_MS", 1)
    async with rig() as it:
        await one_replica(it)
        silent = it.produce(data(0), transaction=LOOKS_UP, timeout_ms=1)
        assert (await silent).error is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_stop_ends_the_questions() -> None:
    async with rig() as it:
        await one_replica(it)
        waiting = send(it, 0)
        await wait_until(lambda: it.verifier.asked)
        await it.produce_path.stop()
        assert not waiting.done()


@pytest.mark.parametrize(
    ("error", "to_old", "to_abortable", "to_adding"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.NOT_COORDINATOR, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        (ErrorCode.INVALID_TXN_STATE, *[ErrorCode.INVALID_TXN_STATE] * 3),
    ],
)
def test_clients_are_told_what_their_version_handles(
    error: ErrorCode, to_old: ErrorCode, to_abortable: ErrorCode, to_adding: ErrorCode
) -> None:
    old = ProducedTransaction("pay", adds_partitions=False, knows_abortable=False)
    assert [told(refused(error), one)[0] for one in (old, LOOKS_UP, ADDS)] == [to_old, to_abortable, to_adding]
