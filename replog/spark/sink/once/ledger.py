"""Decisions and transactions of writes that are there once, at real brokers; see `settling.Ledger`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Self, TypeVar

from msgspec.structs import replace

from replog.client import Admin, Consumer, Producer, Transaction
from replog.client.backoff import Backoff, retry
from replog.client.cluster.addresses import address_of
from replog.client.cluster.offsets import list_offsets
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.client.groups.coordinator import Coordinator
from replog.client.protocol.questions.group_members import TRANSACTION
from replog.client.protocol.questions.transactions import BeginProducing, DecideTransaction
from replog.client.protocol.transactions import ListTransactionalIds, OffersPreparing
from replog.client.ranges.range_client import CONNECT_TIMEOUT_MS
from replog.client.types import TopicPartition
from replog.coordinator.transactions.requests import ForgetTransactionalId, Incarnation
from replog.errors import (
    ConfigError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    TopicExistsError,
)
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.rpc.metadata_messages import BrokerInfo
from replog.spark.options.brokers import Brokers
from replog.spark.options.parsers import EXACTLY_ONCE
from replog.spark.options.writing import OnceOptions, WriteOptions
from replog.spark.sink.once import decisions
from replog.spark.sink.once.decisions import DECISIONS_TOPIC, Decision, Prepared, WriterStanding
from replog.spark.sink.once.names import AttemptName, Version, attempt_of, attempts_pattern, driver_id, new_run
from replog.spark.sink.once.settling import Ended, Settled, abort_version, commit_version, end_writer, finish_last
from replog.spark.worker_client import CLIENT_ID, ask_cluster, kept_view, loop_thread
from replog.waiting.asks import Asks

LIMIT_MS: Final = 60_000
"""How long each step may take, with all attempts: a broker that is gone has to be noticed, and another one to take over."""

FORGET_MS: Final = 2_000
"""How long transactional ids that are not needed any more are waited for; those that are still being ended then expire."""

TIMEOUT_MS: Final = 60_000
"""How long a driver's own transaction may be open: it has one record."""

OPEN: Final = ("Ongoing",)

COPIES_MAX: Final = 3

_log = logging.getLogger(__name__)

_GONE = (InvalidTxnStateError, InvalidProducerIdMappingError, ProducerFencedError)

T = TypeVar("T")


def require_ledger(brokers: Brokers, once: OnceOptions) -> OnceOptions:
    """Looks whether the cluster can write once, and makes the topic of decisions where there is none.

    Args:
        brokers: The brokers.
        once: The options of the write.

    Returns:
        The options of the write, which is planned now.

    Raises:
        ConfigError: Its brokers cannot, or none answers.
        ReplogError: The topic cannot be made.
    """

    async def look(view: ClusterView) -> OnceOptions:
        await view.ready(CONNECT_TIMEOUT_MS)
        if not await view.call_any(OffersPreparing(), timeout_ms=LIMIT_MS, what="look at what brokers can do"):
            raise ConfigError(
                "delivery",
                EXACTLY_ONCE,
                f'"delivery" "{EXACTLY_ONCE}" needs brokers that can prepare a transaction, for which no time-out counts any more, and '
                "those of this cluster cannot: Apache Kafka has no such request. Leave the option out, and "
                "let readers drop rows that come twice, or write to a cluster of this replog",
            )
        if DECISIONS_TOPIC not in view.image.topics:
            await _make_topic(brokers, len(view.image.brokers))
        ends = await _ends(view, range(decisions.PARTITIONS))
        return replace(once, planned_ends=ends)

    return ask_cluster(brokers, look)


async def _ends(view: ClusterView, numbers: Iterable[int]) -> tuple[int, ...]:
    """Returns the end offsets of partitions of the topic of decisions: the first transaction that is open, or the end."""
    partitions = [TopicPartition(DECISIONS_TOPIC, number) for number in numbers]
    found = await list_offsets(view, dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms=LIMIT_MS)
    return tuple(found[each].offset for each in partitions)


async def is_untouched(brokers: Brokers, writer: str, planned_ends: Sequence[int]) -> bool:
    """Whether no driver of a writer has read its decisions since the write was planned, as each does before it decides or aborts.

    Each leaves a record by which it knows how far it has read.  That this is the end also where it is not readable yet does not
    matter: the driver waits for that before it does anything.
    """
    if not planned_ends:
        return False
    number = decisions.partition_of(writer)
    try:
        async with kept_view(brokers) as view:
            return await _ends(view, [number]) == (planned_ends[number],)
    except ReplogError as error:
        _log.info("the end of the decisions could not be asked for, and they are read: %s", error)
        return False


async def _make_topic(brokers: Brokers, brokers_count: int) -> None:
    copies = min(COPIES_MAX, max(1, brokers_count))
    configs = {
        "cleanup.policy": "compact",
        "min.insync.replicas": max(1, copies - 1),
        "segment.bytes": 1 << 20,  # a driver reads what is not compacted yet
        "min.cleanable.dirty.ratio": 0.1,
    }
    async with Admin(brokers.servers, security=brokers.security, client_id=CLIENT_ID) as admin:
        try:
            await admin.create_topic(DECISIONS_TOPIC, decisions.PARTITIONS, copies, configs)
        except TopicExistsError:  # another driver has made it meanwhile
            await admin.wait_until_in_sync(DECISIONS_TOPIC)


def commit_at_brokers(options: WriteOptions, version: Version, run: str, attempts: Sequence[Prepared]) -> Settled:
    """Ends a write all of whose tasks have succeeded; see `commit_version`."""

    async def commit(ledger: BrokerLedger) -> Settled:
        return await commit_version(ledger, version, run, attempts)

    return loop_thread().run(partial(_settle, options.brokers, version.writer, commit))


def abort_at_brokers(options: WriteOptions, version: Version, run: str) -> Settled | None:
    """Ends a write that has failed; see `abort_version`."""

    async def abort(ledger: BrokerLedger) -> Settled | None:
        return await abort_version(ledger, version, run)

    return loop_thread().run(partial(_settle, options.brokers, version.writer, abort))


async def end_at_brokers(brokers: Brokers, writer: str) -> Ended:
    """Ends what a writer has open; see `end_writer`."""
    return await _settle(brokers, writer, end_writer)


async def finish_at_brokers(brokers: Brokers, writer: str) -> None:
    """Carries out the last decision of a writer; see `finish_last`."""
    await _settle(brokers, writer, finish_last)


async def _settle(brokers: Brokers, writer: str, settle: Callable[[BrokerLedger], Awaitable[T]]) -> T:
    async with AsyncExitStack() as stack:
        return await settle(await BrokerLedger.take_over(stack, brokers, writer))


def is_written(options: WriteOptions, version: Version) -> bool:
    """Whether a version has been decided for, so that no task needs to write it; one that is just being decided for is not."""
    return loop_thread().run(partial(read_standing, options.brokers, version.writer)).is_decided(version)


async def read_standing(brokers: Brokers, writer: str, bookmark: bytes = b"") -> WriterStanding:
    """Returns where a writer stands.

    Args:
        brokers: The brokers to begin with.
        writer: The name of the writer.
        bookmark: The value of the record up to which to read; b"": up to the first transaction that is open now.
    """
    last: Decision | None = None
    given_up: tuple[tuple[int, str], ...] = ()
    partition = TopicPartition(DECISIONS_TOPIC, decisions.partition_of(writer))
    name = writer.encode()
    bookmark_key, given_up_key = decisions.bookmark_key(writer), decisions.given_up_key(writer)
    async with Consumer(brokers.servers, security=brokers.security, client_id=CLIENT_ID) as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        await consumer.assign([partition])
        try:
            async with asyncio.timeout(LIMIT_MS / 1000):
                is_marked = not bookmark
                while not is_marked or consumer.position(partition) < end:
                    for record in await consumer.poll():
                        if record.key == name:
                            last = None if record.value is None else decisions.decode(name, record.value)
                        elif record.key == given_up_key:
                            given_up = () if record.value is None else decisions.decode_given_up(record.value)
                        is_marked = is_marked or (record.key == bookmark_key and record.value == bookmark)
        except TimeoutError:
            raise RequestTimedOutError(
                f"the decisions of {writer} could not be read within {LIMIT_MS} ms: an open transaction is in the way in {partition}, of "
                "another driver that has just died or has not gone on; try again in a minute"
            ) from None
    return WriterStanding(last, given_up)


class BrokerLedger:
    """The decisions of one writer, and the transactions of its attempts.

    Args:
        brokers: The brokers to begin with.
        writer: The name of the writer.
        producer: What has the transactional id of its driver.
        view: The open view of the cluster.
    """

    def __init__(self, brokers: Brokers, writer: str, producer: Producer, view: ClusterView) -> None:
        self._brokers = brokers
        self._writer = writer
        self._partition = TopicPartition(DECISIONS_TOPIC, decisions.partition_of(writer))
        self._producer = producer
        self._view = view
        self._transaction: Transaction | None = None

    @classmethod
    async def take_over(cls, stack: AsyncExitStack, brokers: Brokers, writer: str) -> Self:
        """Takes over from whichever driver was there before.

        Args:
            stack: What closes everything in the end.
            brokers: The brokers to begin with.
            writer: The name of the writer.

        Raises:
            ReplogError: No broker answers, or the coordinator refuses.
        """
        view = ClusterView(brokers.servers, security=brokers.security, client_id=CLIENT_ID)
        stack.push_async_callback(view.close)
        await view.ready(CONNECT_TIMEOUT_MS)
        producer = await stack.enter_async_context(
            Producer(
                brokers.servers,
                security=brokers.security,
                client_id=CLIENT_ID,
                transactional_id=driver_id(writer),
                transaction_timeout_ms=TIMEOUT_MS,
                delivery_timeout_ms=LIMIT_MS,
            )
        )
        ledger = cls(brokers, writer, producer, view)
        stack.push_async_callback(ledger._leave)
        await ledger._begin()
        return ledger

    async def read(self) -> WriterStanding:
        """Returns where the writer stands.

        What the driver before has decided is there: its transaction has ended since this one has taken over.  That everything before
        now is read, a record of our own shows: readers of committed records come to it once all transactions before it have ended.

        Raises:
            RequestTimedOutError: Open transactions of other drivers are in the way, and have not ended in time.
        """
        bookmark = new_run().encode()
        await self._put(decisions.bookmark_key(self._writer), bookmark)
        return await read_standing(self._brokers, self._writer, bookmark)

    async def write(self, decision: Decision) -> None:
        """Writes a decision, alone in a transaction."""
        await self._put(*decisions.encode(decision))

    async def give_up(self, runs: Collection[tuple[int, str]]) -> None:
        """Writes which versions and runs nobody will decide for, alone in a transaction."""
        await self._put(decisions.given_up_key(self._writer), decisions.encode_given_up(runs))

    async def _put(self, key: bytes, value: bytes) -> None:
        if self._transaction is None:
            await self._begin()
        await self._producer.send(DECISIONS_TOPIC, value, key, partition=self._partition.partition)
        await self._end()

    async def commit(self, name: AttemptName, attempt: Prepared) -> None:
        """Commits a transaction; does nothing where that has been done.

        Raises:
            ReplogError: It was aborted, which nobody may do.
        """
        tid = name.transactional_id
        producer = Incarnation(attempt.producer_id, attempt.producer_epoch)
        question = DecideTransaction(tid, producer, is_commit=True, transaction_version=None)
        try:
            await self._ask(tid, question, f"commit transaction {tid}")
        except _GONE as error:
            raise ReplogError(
                f"{name.version} was decided, and transaction {tid} of it can no longer be committed: {error} Either another driver of "
                "the same writer is at work and has done it, or somebody has aborted it; then its rows are missing, and are to be "
                "written again under another name"
            ) from error

    async def abort(self, name: AttemptName) -> None:
        """Takes over the transactional id of an attempt, which fences its producer, and aborts what is open."""
        tid = name.transactional_id
        await self._ask(tid, BeginProducing(tid, TIMEOUT_MS), f"abort transaction {tid}")

    async def open_attempts(self) -> Sequence[AttemptName]:
        """Asks all brokers for the open transactions of the writer's attempts; those of one that does not answer are left out, with a warning."""
        found = await asyncio.gather(*map(self._attempts_at, self._view.image.brokers.values()))
        return list(dict.fromkeys(name for names in found for name in names))

    async def _attempts_at(self, broker: BrokerInfo) -> list[AttemptName]:
        if broker.fenced:  # it coordinates nothing
            return []
        question = ListTransactionalIds(OPEN, pattern=attempts_pattern(self._writer))
        try:
            answer = await self._view.read(address_of(broker), question, timeout_ms=ATTEMPT_TIMEOUT_MS)
        except RetriableError as error:
            _log.warning(
                "transactions of attempts that were not needed for %s may be open at broker %d, which does not answer, and hold readers of "
                "committed records back until its next write: %s",
                self._writer,
                broker.broker_id,
                error,
            )
            return []
        names = [attempt_of(each.transactional_id) for each in answer]
        return [name for name in names if name is not None and name.version.writer == self._writer]

    async def forget(self, names: Collection[AttemptName]) -> None:
        """Lets coordinators forget transactional ids, once their markers are written, within `FORGET_MS`."""
        await asyncio.gather(*map(self._forget, names))

    async def _forget(self, name: AttemptName) -> None:
        tid = name.transactional_id
        await self._ask(tid, ForgetTransactionalId(tid), f"forget transactional id {tid}", FORGET_MS)

    async def _ask(self, transactional_id: str, question: Asks[T], what: str, limit_ms: int = LIMIT_MS) -> T:
        coordinator = Coordinator(self._view, transactional_id, TRANSACTION)

        async def attempt(remaining_ms: int) -> T:
            return await coordinator.call(question, min(remaining_ms, ATTEMPT_TIMEOUT_MS))

        return await retry(attempt, timeout_ms=limit_ms, what=what, backoff=Backoff(self._view.rng, min_ms=10))

    async def _begin(self) -> None:
        transaction = self._producer.transaction()
        await transaction.__aenter__()
        self._transaction = transaction

    async def _end(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.__aexit__(None, None, None)

    async def _leave(self) -> None:
        """Ends a transaction in which nothing was written."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            error = ReplogError("nothing was decided")
            await transaction.__aexit__(type(error), error, None)
