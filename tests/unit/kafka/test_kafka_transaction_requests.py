"""Transactions over a node's port, request by request, as producers of each `transaction.version` make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from kafka_node_kit import Served, batch, serving

from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import ListedTransaction, ListTransactionsResponse
from replog.errors import ErrorCode
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.protocol.handlers import transactions
from replog.protocol.handlers.node import Failure
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest
from replog.wire.messages.list_transactions import ListTransactionsResponse as Listed
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka.rights_kit import a_call

KEYS: dict[str, Any] = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}
LATER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Answers after which a client asks again."""
TIMEOUT_S = 30

T = TypeVar("T")

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


async def settled(ask: Callable[[], Awaitable[T]], is_it: Callable[[T], bool]) -> T:
    """What is told at last, however often it has to be asked for."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_it(told := await ask()):
            await asyncio.sleep(0.01)
    return told


class Producer:
    """A transactional producer that asks again as clients do.

    Args:
        it: The node.
        is_newer: Whether it goes by `transaction.version` 2.
        name: The transactional id.
    """

    def __init__(self, it: Served, *, is_newer: bool, name: str = "mine") -> None:
        self.it = it
        self.is_newer = is_newer
        self.name = name
        self.id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def begin(self, *, timeout_ms: int = 60_000) -> None:
        """Finds its coordinator, and takes over the transactional id."""
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        found = await self.it.ask(asked, 6, FindCoordinatorResponse)
        assert [each.error_code for each in found.coordinators] == [0]
        request = InitProducerIdRequest(self.name, timeout_ms, self.id, self.epoch)
        given = await self.ask(request, 5, InitProducerIdResponse)
        assert given.error_code == 0, given
        self.id, self.epoch, self.sequences = given.producer_id, given.producer_epoch, {}

    async def ask(self, request: Any, version: int, answer: type[Any]) -> Any:
        return await settled(lambda: self.it.ask(request, version, answer), lambda told: told.error_code not in LATER)

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[int]:
        """Makes partitions part of the transaction; returns their codes."""
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(topic, list(partitions))],
        )

        async def codes() -> list[int]:
            told = await self.it.ask(asked, version, AddPartitionsToTxnResponse)
            (one,) = told.results_by_topic_v3_and_below
            return [each.partition_error_code for each in one.results_by_partition]

        return await settled(codes, lambda found: not LATER.intersection(found))

    async def produce(self, partition: int = 0) -> int:
        """Writes a record in the transaction; returns the code."""
        sequence = self.sequences.get(partition, 0)
        data = batch(producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, is_transactional=True)
        version = 12 if self.is_newer else 11
        topic = ProduceRequest.TopicProduceData(
            "t", partition_data=[ProduceRequest.PartitionProduceData(partition, data)]
        )
        request = ProduceRequest(self.name, acks=-1, timeout_ms=5000, topic_data=[topic])

        async def code() -> int:
            answer = await self.it.ask(request, version, ProduceResponse)
            (told,) = answer.responses[0].partition_responses
            return int(told.error_code)

        found = await settled(code, lambda told: told not in {*LATER, ErrorCode.NOT_ENOUGH_REPLICAS})
        self.sequences[partition] = sequence + (found == 0)
        return found

    async def end(self, *, is_commit: bool = True) -> int:
        """Ends the transaction; returns the code."""
        version = 5 if self.is_newer else 4
        told = await self.ask(EndTxnRequest(self.name, self.id, self.epoch, is_commit), version, EndTxnResponse)
        if self.is_newer and told.error_code == 0:
            if told.producer_epoch != self.epoch:
                self.sequences = {}
            self.id, self.epoch = told.producer_id, told.producer_epoch
        return int(told.error_code)

    async def described(self) -> DescribeTransactionsResponse.TransactionState:
        told = await self.it.ask(DescribeTransactionsRequest([self.name]), 0, DescribeTransactionsResponse)
        (found,) = told.transaction_states
        assert isinstance(found, DescribeTransactionsResponse.TransactionState)
        return found

    async def until(self, state: str) -> DescribeTransactionsResponse.TransactionState:
        """Waits until the coordinator says that the transaction is so."""
        return await settled(self.described, lambda found: found.transaction_state == state)


def ends(it: Served, partition: int = 0, topic: str = "t") -> tuple[int, int]:
    """The end of a partition, and up to where readers of committed transactions see it."""
    topic_id = it.kafka.image.topics_by_name[topic].topic_id
    log = it.node.parts.replicas.stepper.replicas[topic_id, partition].log
    return log.log_end_offset, log.last_stable_offset(log.log_end_offset)


@pytest.mark.parametrize("is_newer", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
async def test_a_transaction_over_two_partitions_ends_in_both(is_newer: bool, is_commit: bool) -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 2)
        producer = Producer(it, is_newer=is_newer)
        await producer.begin()
        assert producer.epoch == 0
        for number in (1, 2):
            if not is_newer:
                assert await producer.add(0, 1) == [0, 0]
            assert [await producer.produce(0), await producer.produce(0), await producer.produce(1)] == [0, 0, 0]
            found = await producer.described()
            assert (found.transaction_state, [(one.topic, one.partitions) for one in found.topics]) == (
                "Ongoing",
                [("t", [0, 1])],
            )
            assert (ends(it, 0)[1], ends(it, 1)[1]) == (3 * (number - 1), 2 * (number - 1)), "nobody sees it yet"
            assert await producer.end(is_commit=is_commit) == 0
            await producer.until("CompleteCommit" if is_commit else "CompleteAbort")
            assert (ends(it, 0), ends(it, 1)) == ((3 * number,) * 2, (2 * number,) * 2)
            assert producer.epoch == (number if is_newer else 0)
        topic = it.kafka.image.topics_by_name[TRANSACTIONS_TOPIC]
        assert len(topic.partitions) == 2


async def test_a_producer_that_comes_anew_aborts_what_it_has_left_open_and_fences_the_one_before() -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 1)
        first, second = Producer(it, is_newer=True), Producer(it, is_newer=True)
        await first.begin()
        assert await first.produce() == 0
        await second.begin()
        assert (second.id, second.epoch > first.epoch) == (first.id, True)
        assert ends(it) == (2, 2), "the record, and the marker of its end"
        assert await first.end() == ErrorCode.PRODUCER_FENCED
        assert await first.produce() == ErrorCode.INVALID_PRODUCER_EPOCH
        old = EndTxnRequest(first.name, first.id, first.epoch, True)
        assert (await it.ask(old, 1, EndTxnResponse)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await second.produce() == 0
        assert await second.end() == 0


async def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    async with serving(transaction_abort_timed_out_transaction_cleanup_interval_ms=20, **KEYS) as it:
        await it.create("t", 1)
        producer = Producer(it, is_newer=True)
        await producer.begin(timeout_ms=50)
        assert await producer.produce() == 0
        await producer.until("CompleteAbort")
        assert ends(it) == (2, 2)
        assert await producer.end() == ErrorCode.INVALID_TXN_STATE


async def test_a_partition_that_is_unknown_keeps_all_others_out() -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 1)
        producer = Producer(it, is_newer=False)
        await producer.begin()
        for version in range(4):
            codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert await producer.add(0, 1, version=version) == codes
        assert await producer.add(0, topic="no") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (await producer.described()).transaction_state == "Empty"
        assert await producer.produce() == ErrorCode.TRANSACTION_ABORTABLE, "a batch without its partition in it"


async def test_what_coordinators_write_is_no_part_of_transactions() -> None:
    async with serving(**KEYS) as it:
        producer = Producer(it, is_newer=False)
        await producer.begin()
        refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        for topic in ("__transaction_state", "__consumer_offsets"):
            assert await producer.add(0, topic=topic) == refused
        own = Transaction(producer.name, producer.id, producer.epoch, topics=[Topic("__transaction_state", [0])])
        told = await it.ask(AddPartitionsToTxnRequest(transactions=[own]), 4, AddPartitionsToTxnResponse)
        (part,) = told.results_by_transaction[0].topic_results[0].results_by_partition
        assert part.partition_error_code == refused[0], "to a broker, too"
        assert (await producer.described()).transaction_state == "Empty"


async def test_brokers_of_kafka_ask_for_several_transactions_at_once() -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 2)
        producer = Producer(it, is_newer=True)
        await producer.begin()

        async def told(version: int, *, verify_only: bool, partition: int) -> list[list[int]]:
            own = Transaction(producer.name, producer.id, producer.epoch, verify_only, [Topic("t", [partition])])
            other = Transaction("other", 7, 0, verify_only, [Topic("t", [0])])
            asked = AddPartitionsToTxnRequest(transactions=[own, other])
            answer = await it.ask(asked, version, AddPartitionsToTxnResponse)
            assert [each.transactional_id for each in answer.results_by_transaction] == [producer.name, "other"]
            return [
                [each.partition_error_code for topic in one.topic_results for each in topic.results_by_partition]
                for one in answer.results_by_transaction
            ]

        unknown = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        await settled(  # the coordinator of the other one may still read its log
            lambda: told(4, verify_only=False, partition=0), lambda found: found[1] == unknown
        )
        assert await told(5, verify_only=False, partition=0) == [[0], unknown]
        assert await told(5, verify_only=True, partition=0) == [[0], unknown]
        assert await told(5, verify_only=True, partition=1) == [[ErrorCode.TRANSACTION_ABORTABLE], unknown]


@pytest.mark.parametrize("version", AddOffsetsToTxnRequest.VERSIONS)
async def test_the_partition_of_a_group_becomes_part_of_a_transaction(version: int) -> None:
    async with serving(**KEYS) as it:
        producer = Producer(it, is_newer=False)
        await producer.begin()
        asked = AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, "g")
        assert (await it.ask(asked, version, AddOffsetsToTxnResponse)).error_code == 0
        (topic,) = (await producer.described()).topics
        assert (topic.topic, len(topic.partitions)) == (OFFSETS_TOPIC, 1)
        assert await producer.end() == 0
        await producer.until("CompleteCommit")
        asked = AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, "")
        told = await it.ask(asked, version, AddOffsetsToTxnResponse)
        assert told.error_code == ErrorCode.INVALID_GROUP_ID
        late = AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch - 1, "g")
        told = await it.ask(late, version, AddOffsetsToTxnResponse)
        assert told.error_code == (ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_people_see_transactional_ids_and_filter_them() -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 1)
        producers = {name: Producer(it, is_newer=True, name=name) for name in ("a-1", "a-2", "b-1")}
        for each in producers.values():
            await each.begin()
        assert await producers["a-1"].produce() == 0

        async def listed(version: int = 2, **filters: Any) -> tuple[list[tuple[str, str]], list[str]]:
            told = await it.ask(ListTransactionsRequest(**filters), version, Listed)
            assert told.error_code == 0
            found = sorted((one.transactional_id, one.transaction_state) for one in told.transaction_states)
            return found, told.unknown_state_filters

        empty = [("a-2", "Empty"), ("b-1", "Empty")]
        for version in ListTransactionsRequest.VERSIONS:
            assert await listed(version) == ([("a-1", "Ongoing"), *empty], [])
        assert await listed(state_filters=["Empty", "Lost"]) == (empty, ["Lost"])
        assert await listed(state_filters=["Lost"]) == ([], ["Lost"])
        assert await listed(transactional_id_pattern="a-.*") == ([("a-1", "Ongoing"), ("a-2", "Empty")], [])
        assert await listed(producer_id_filters=[producers["b-1"].id]) == ([("b-1", "Empty")], [])
        assert await listed(duration_filter=3_600_000) == (empty, [])  # as in Kafka: those have not begun one
        found = await producers["a-1"].described()
        assert (found.error_code, found.producer_id, found.producer_epoch) == (0, producers["a-1"].id, 0)
        assert (found.transaction_timeout_ms, found.transaction_start_time_ms > 0) == (60_000, True)
        told = await it.ask(DescribeTransactionsRequest(["no", "no", ""]), 0, DescribeTransactionsResponse)
        assert {one.transactional_id: one.error_code for one in told.transaction_states} == {
            "no": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "": ErrorCode.INVALID_REQUEST,
        }


async def test_a_node_that_starts_again_ends_what_was_decided_and_knows_its_producers() -> None:
    async with serving(**KEYS) as it:
        await it.create("t", 1)
        producer = Producer(it, is_newer=False)
        await producer.begin()
        assert await producer.add(0) == [0]
        assert await producer.produce() == 0
        sender = it.node.parts.requests.marker_sender
        for key in list(it.node.parts.requests.coordinating.shards.hosts_of(TRANSACTIONS_TOPIC)):
            sender.ended(key)  # as if its markers were not sent in time
        assert await producer.end() == 0
        await producer.until("PrepareCommit")
        assert ends(it) == (1, 0)
        for key in list(it.node.parts.requests.coordinating.shards.hosts_of(TRANSACTIONS_TOPIC)):
            sender.begun(key)
        await producer.until("CompleteCommit")
        assert ends(it) == (2, 2)


async def test_what_fails_as_a_whole_is_told() -> None:
    failure = Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "stopping")
    asked = AddPartitionsToTxnRequest(v3_and_below_topics=[Topic("t", [0, 1])])
    (one,) = transactions.refuse_add_partitions_to_txn(asked, failure).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in one.results_by_partition] == [failure.code] * 2
    (state,) = transactions.refuse_describe_transactions(DescribeTransactionsRequest(["a"]), failure).transaction_states
    assert (state.transactional_id, state.error_code) == ("a", failure.code)


async def test_a_request_that_names_too_much_is_refused() -> None:
    async with serving(**KEYS) as it:
        many = DescribeTransactionsRequest([f"t{number}" for number in range(1_001)])
        told = await it.ask(many, 0, DescribeTransactionsResponse)
        assert {one.error_code for one in told.transaction_states} == {ErrorCode.INVALID_REQUEST}
        asked = AddPartitionsToTxnRequest(v3_and_below_topics=[Topic("t", list(range(10_001)))])
        refused = await it.ask(asked, 3, AddPartitionsToTxnResponse)
        (one,) = refused.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in one.results_by_partition} == {ErrorCode.INVALID_REQUEST}


async def test_others_have_their_turn_while_a_long_list_is_written() -> None:
    found = tuple(ListedTransaction(f"t{number}", number, TransactionStatus.EMPTY) for number in range(5_000))
    turns = 0

    class Broker:
        async def coordinate_all_transactions(self, request: Any, timeout_ms: int) -> list[ListTransactionsResponse]:
            return [ListTransactionsResponse(found[:2_500]), ListTransactionsResponse(found[2_500:])]

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    broker: Any = Broker()
    listed = await transactions.list_transactions(broker, ListTransactionsRequest(), a_call(1))
    counting.cancel()
    assert turns > 10
    written = Writer()
    listed.write(written, 1)
    told = Listed.read(Reader(memoryview(written.joined())), 1).transaction_states
    assert [(each.transactional_id, each.producer_id) for each in told] == [(f"t{n}", n) for n in range(5_000)]
