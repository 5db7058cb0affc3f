"""Clients of transactions in the simulation: writers, chains of reading and writing, readers; our clients, as they are shipped.

A client of a transactional id has lives, processes of their own.  One is killed, paused beyond the time-out of its transaction, or
gets a successor while it goes on: then it is a zombie until it hears that it is fenced.  Each life does what docs/TRANSACTIONS.md
tells programs to do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from replog.client import Consumer, ConsumerRecord, Producer, Transaction
from replog.client.admin.together import Deadline, ask_coordinator
from replog.client.groups.coordinator import Coordinator
from replog.client.producer.transaction import PreparedTransaction
from replog.client.protocol.questions.group_members import TRANSACTION
from replog.client.protocol.questions.transactions import DecideTransaction
from replog.client.types import TopicPartition
from replog.coordinator.transactions.requests import Incarnation as Prepared
from replog.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    ReplogError,
    RetriableError,
    TransactionOutcomeUnknownError,
    UnknownTopicOrPartitionError,
)
from replog.testing.simulated_process import SimulatedProcess
from replog_chaos.transaction_history import RecordedTransaction, TransactionOutcome
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.transaction_checks import Producer as Incarnation

if TYPE_CHECKING:
    from tests.sim.transaction_simulation import TransactionSimulation

GROUP = "chain"
LIVES_MAX = 2
POLL_MS = 200
BACKOFF_S = 0.1
TAKEN_MAX = 5
WRITES_MAX = 4
REQUEST_MS = 2_000
DECIDE_MS = 20_000
_WAS_ENDED = (ProducerFencedError, InvalidProducerEpochError, InvalidTxnStateError)
"""What whoever decides is told where somebody else has ended the transaction."""
CONNECT_MS = 120_000
GETS_ON_WITHIN_S = 60.0


class _AbortWantedError(Exception):
    """The transaction is to be aborted."""


class _EndedError(Exception):
    """The life cannot go on."""


class Life:
    """One process of a client.

    Attributes:
        name: of the life, and at the front of what it writes.
        is_stopping: it ends with the transaction that goes on.
        producer: that writes, once it has been made.
    """

    def __init__(self, name: str, host: str, process: SimulatedProcess) -> None:
        self.name = name
        self.host = host
        self.process = process
        self.is_stopping = False
        self.producer: Producer | None = None
        self.count = 0
        self.ended = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it was killed, or has ended."""
        return self.process.is_dead or self.ended.is_set()

    @property
    def incarnation(self) -> Incarnation:
        """What it writes with."""
        identity = self.producer._transactions._book.identity
        return Incarnation(identity.producer_id, identity.producer_epoch)


class TransactionalWriter:
    """One transactional id over all the lives of its client: appends values to partitions of all topics.

    Args:
        simulation: the run.
        name: the transactional id.
        is_abandoned: nobody succeeds it when the faults are over.

    Attributes:
        commits: how many transactions it was told are committed.
    """

    def __init__(self, simulation: TransactionSimulation, name: str, *, is_abandoned: bool = False) -> None:
        self.is_abandoned = is_abandoned
        self.name = name
        self.commits = 0
        self.rng = Random(f"client {name} of {simulation.seed}")
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.lives: list[Life] = []
        self._lives_count = 0

    # ---- its lives -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Until the faults are over; then it has to get on, and ends.  Raises: Violation: it does not get on."""
        shape = self.simulation.shape
        self.start()
        while not self.simulation.is_healed:
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
            self.lives = [life for life in self.lives if not life.is_over]
            if not self.lives:
                self.start()
            elif self.rng.random() < shape.client_fault and not self.simulation.is_healed:
                await self._suffer(self.rng.choice(shape.client_faults))
        if self.is_abandoned:
            for life in list(self.lives):
                self._kill(life)
            return
        await self._get_on()
        await self._stop()

    async def _suffer(self, fault: str) -> None:
        self.simulation.seen[f"client: {fault}"] += 1
        match fault:
            case "kill":
                self._kill(self.lives[-1])
                await asyncio.sleep(self.rng.choice((0.05, 0.5, 2.0)))
                self.start()
            case "successor":
                self.start()
            case _:
                await self._pause(self.lives[-1], self.rng.choice((0.5, 1.5 * self.simulation.shape.timeout_ms / 1000)))

    def start(self) -> None:
        """Begins a life; the oldest one ends where there would be too many."""
        while len(self.lives) >= LIVES_MAX:
            self._kill(self.lives[0])
        self._lives_count += 1
        name = f"{self.name}.{self._lives_count}"
        host = f"{self.name}-{self._lives_count % LIVES_MAX}"
        process = self.simulation.loop.new_process(name)
        process.on_kill.append(self.cluster.internet.host(host).tcp.lose_process)
        life = Life(name, host, process)
        self.lives.append(life)
        self.note(life, "begins")
        process.create_task(self._run(life), name=name)

    def _kill(self, life: Life) -> None:
        self.note(life, "is killed")
        self.lives.remove(life)
        life.process.kill()

    async def _pause(self, life: Life, duration_s: float) -> None:
        self.note(life, f"is paused for {duration_s:g} s")
        life.process.pause()
        await asyncio.sleep(duration_s)
        life.process.resume()

    async def _get_on(self) -> None:
        """Waits until it has done what it has to without faults; only the last life goes on."""
        for life in self.lives[:-1]:
            self._kill(life)
        before, until_s = self.commits, self.simulation.loop.time() + GETS_ON_WITHIN_S
        while lacks := await self.what_lacks(before):
            if not self.lives or self.lives[-1].is_over:
                self.lives.clear()
                self.start()
            if self.simulation.loop.time() > until_s:
                raise Violation(f"X6 {self.lives[-1].name} does not get on within {GETS_ON_WITHIN_S:g} s: {lacks}")
            await asyncio.sleep(BACKOFF_S)

    async def what_lacks(self, commits_before: int) -> str:
        """Returns what it has yet to do since the faults are over; empty: nothing."""
        return "" if self.commits > commits_before + 1 else f"{self.commits - commits_before} commits"

    async def _stop(self) -> None:
        life = self.lives[-1]
        life.is_stopping = True
        try:
            async with asyncio.timeout(GETS_ON_WITHIN_S):
                await life.ended.wait()
        except TimeoutError:
            raise Violation(f"X6 {life.name} does not end within {GETS_ON_WITHIN_S:g} s") from None

    def note(self, life: Life, text: str) -> None:
        self.simulation.events.note("client", f"{life.name} {text}")

    async def _run(self, life: Life) -> None:
        try:
            await self.serve(life)
        except _EndedError as error:
            self.note(life, f"ends: {error}")
        except Exception as error:
            if not life.process.is_dead:
                self.simulation.checker.report(f"X6 {life.name} ends with {error!r}")
            raise
        finally:
            if not life.process.is_dead:
                life.ended.set()

    # ---- one life --------------------------------------------------------------------------------------------------------

    async def serve(self, life: Life) -> None:
        """One transaction after the other."""
        async with await self.started_producer(life):
            while not life.is_stopping:
                await self.transact(life, partial(self._fill, life))
                await asyncio.sleep(self.rng.choice((0.0, 0.05, self.simulation.swarm.send_interval_s)))

    async def started_producer(self, life: Life) -> Producer:
        """Makes the producer of a life, which has its transactional id: it tries again where nobody has answered."""
        producer = self.new_producer(life)
        while True:
            try:
                await producer.start()
            except RetriableError:
                await asyncio.sleep(BACKOFF_S)
            else:
                return producer

    def new_producer(self, life: Life) -> Producer:
        """Makes the producer of a life."""
        shape = self.simulation.shape
        life.producer = Producer(
            self.cluster.bootstrap_servers,
            transactional_id=self.name,
            transaction_timeout_ms=shape.timeout_ms,
            delivery_timeout_ms=shape.delivery_timeout_ms,
            request_timeout_ms=REQUEST_MS,
            connect_timeout_ms=CONNECT_MS,
            client_id=life.name,
            transport=self.cluster.transport(life.host),
        )
        self.simulation.life_of[life.producer._transactions._book] = life
        return life.producer

    async def transact(self, life: Life, fill: Callable[[Transaction, RecordedTransaction], Awaitable[object]]) -> bool:
        """Runs a transaction; returns whether it was committed.

        Raises:
            _EndedError: Another producer has the transactional id, or the outcome is not known.
        """
        simulation, rng = self.simulation, self.rng
        history, seen = simulation.history, simulation.seen
        limit_s = rng.choice((0.01, 0.1)) if rng.random() < simulation.shape.cancels else None
        recorded: RecordedTransaction | None = None
        asked_as: Incarnation | None = None
        prepared: PreparedTransaction | None = None
        try:
            async with asyncio.timeout(limit_s), life.producer.transaction() as transaction:
                recorded = history.begin(self.name)
                self.note(life, f"begins {recorded.number}")
                await fill(transaction, recorded)
                if rng.random() < simulation.shape.aborts:
                    raise _AbortWantedError  # noqa: TRY301 -- leaving the block so is what aborts
                if self._is_to_prepare():
                    prepared = await transaction.prepare()
                else:
                    asked_as = life.incarnation
                    history.ask_commit(recorded, simulation.loop.time())
        except ProducerFencedError as error:
            self._ends(life, recorded, TransactionOutcome.ABORTED, error)
            seen["producer fenced"] += 1
            raise _EndedError(str(error)) from error
        except TransactionOutcomeUnknownError as error:
            self._ends(life, recorded, TransactionOutcome.UNKNOWN, error)
            seen["outcome unknown"] += 1
            raise _EndedError(str(error)) from error
        except TimeoutError as error:
            was_asked = recorded is not None and recorded.commit_asked_at is not None
            self._ends(life, recorded, TransactionOutcome.UNKNOWN if was_asked else TransactionOutcome.ABORTED, error)
            seen["transaction cancelled"] += 1
            if was_asked:
                raise _EndedError("it has cancelled a commit") from error
            return False
        except (ReplogError, _AbortWantedError) as error:
            self._ends(life, recorded, TransactionOutcome.ABORTED, error)
            seen["transaction aborted" if isinstance(error, _AbortWantedError) else "transaction failed"] += 1
            if recorded is None:
                await asyncio.sleep(BACKOFF_S)
            return False
        if prepared is not None:
            asked_as = Incarnation(prepared.producer_id, prepared.producer_epoch)
            if not await self._decide(life, recorded, asked_as):
                return False
        self._ends(life, recorded, TransactionOutcome.COMMITTED)
        seen["transaction committed"] += 1
        self.commits += 1
        if asked_as is not None:
            simulation.transactions.committed(self.name, asked_as, life.name, recorded.commit_asked_at or 0.0)
        return True

    def _is_to_prepare(self) -> bool:
        """One that nobody succeeds would leave its transaction open for good, as it says."""
        shape = self.simulation.shape
        return shape.prepares > 0.0 and not self.is_abandoned and self.rng.random() < shape.prepares

    async def _decide(self, life: Life, recorded: RecordedTransaction, producer: Incarnation) -> bool:
        """Decides about a prepared transaction, now or later than its time-out; returns whether it is committed.

        Raises:
            _EndedError: The outcome is not known.
        """
        simulation, is_commit = self.simulation, self.rng.random() < 0.7
        simulation.seen["transaction prepared"] += 1
        await asyncio.sleep(self.rng.choice((0.0, 0.2, 1.5 * simulation.shape.timeout_ms / 1000)))
        if is_commit:
            simulation.history.ask_commit(recorded, simulation.loop.time())
        self.note(life, f"decides {recorded.number}: {'commit' if is_commit else 'abort'}")
        view = life.producer._view
        question = DecideTransaction(self.name, Prepared(*producer), is_commit, None)
        unanswered: list[ReplogError] = []
        try:
            coordinator = Coordinator(view, self.name, TRANSACTION)
            await ask_coordinator(view, coordinator, question, Deadline(DECIDE_MS), "decide", unanswered.append)
        except ReplogError as error:
            was_ended = not unanswered and isinstance(error, _WAS_ENDED)
            if was_ended and self._lives_count == 1:
                simulation.checker.report(
                    f"X9 {life.name} has prepared {recorded.number}, and cannot decide: {error!r}"
                )
            is_aborted = was_ended or not is_commit
            self._ends(life, recorded, TransactionOutcome.ABORTED if is_aborted else TransactionOutcome.UNKNOWN, error)
            raise _EndedError(str(error)) from error
        if not is_commit:
            self._ends(life, recorded, TransactionOutcome.ABORTED)
        return is_commit

    def _ends(
        self,
        life: Life,
        recorded: RecordedTransaction | None,
        outcome: TransactionOutcome,
        error: Exception | None = None,
    ) -> None:
        if recorded is not None:
            recorded.outcome = outcome
            self.note(life, f"{recorded.number} is {outcome} {error or ''}")

    async def _fill(self, life: Life, _transaction: Transaction, recorded: RecordedTransaction) -> None:
        for _ in range(self.rng.randint(1, WRITES_MAX)):
            await self.append(life, recorded, self.rng.choice(self.simulation.partitions))
            if self.simulation.shape.deletes and self.rng.random() < 0.3:
                await life.producer.send(self.simulation.passing_topic, b"passing", partition=0)
            await self.dwell()

    async def append(
        self, life: Life, recorded: RecordedTransaction, partition: TopicPartition, record: ConsumerRecord | None = None
    ) -> None:
        """Appends a value; of one that is made from a record, its place is noted."""
        life.count += 1
        value = f"{life.name}.{life.count}".encode()
        source = None if record is None else (TopicPartition(record.topic, record.partition), record.offset)
        recorded.append(partition, value, source)
        await life.producer.send(partition.topic, value, partition=partition.partition)

    async def dwell(self) -> None:
        """Takes its time, now and then more than the transaction has."""
        shape = self.simulation.shape
        if self.rng.random() < shape.dwells:
            await asyncio.sleep(self.rng.choice((0.02, 0.2, 1.5 * shape.timeout_ms / 1000)))


class TransactionalChain(TransactionalWriter):
    """Makes a value from each record of the inputs, in transactions with the offsets of its group."""

    async def serve(self, life: Life) -> None:
        """Reads some records, and passes them on."""
        consumer = Consumer(
            self.cluster.bootstrap_servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=5_000,
            connect_timeout_ms=CONNECT_MS,
            client_id=life.name,
            transport=self.cluster.transport(life.host),
        )
        async with await self.started_producer(life), consumer:
            await self._subscribe(consumer)
            while not life.is_stopping:
                taken = await consumer.poll(TAKEN_MAX, POLL_MS)
                if taken and not await self.transact(life, partial(self._pass_on, life, consumer, taken)):
                    _go_back(consumer, taken)

    async def what_lacks(self, commits_before: int) -> str:
        """Returns what of the inputs is not passed on yet; empty: all is."""
        return await self.simulation.inputs_left()

    async def _subscribe(self, consumer: Consumer) -> None:
        """Subscribes; a broker that is cut off may not have heard of the topic."""
        while True:
            try:
                await consumer.subscribe([self.simulation.inputs_topic])
            except UnknownTopicOrPartitionError:
                await asyncio.sleep(BACKOFF_S)
            else:
                return

    async def _pass_on(
        self,
        life: Life,
        consumer: Consumer,
        taken: Sequence[ConsumerRecord],
        transaction: Transaction,
        recorded: RecordedTransaction,
    ) -> None:
        for record in taken:
            await self.append(life, recorded, self.rng.choice(self.simulation.partitions), record)
        await self.dwell()
        await transaction.commit_offsets(consumer)


def _go_back(consumer: Consumer, taken: Sequence[ConsumerRecord]) -> None:
    """What was taken is taken again, where the partitions are not somebody else's by now."""
    for record in reversed(taken):
        with contextlib.suppress(InvalidRequestError):
            consumer.seek((record.topic, record.partition), record.offset)


class CommittedReader:
    """Reads committed records from the replicas in one rack, from their beginning; now and then it begins anew.

    Args:
        simulation: the run.
        node_id: whose rack it is in; None: it reads from leaders.
    """

    def __init__(self, simulation: TransactionSimulation, node_id: int | None) -> None:
        self.name = "reader" if node_id is None else f"reader-{node_id}"
        self.is_stopping = False
        self._simulation = simulation
        self._rack = "" if node_id is None else simulation.rack_of(node_id)
        self._rng = Random(f"{self.name} of {simulation.seed}")

    async def run(self) -> None:
        """Reads until it is stopped."""
        lives = 0
        while not self.is_stopping:
            lives += 1
            async with self._new_consumer() as consumer:
                await self._assign(consumer)
                polls = self._rng.choice((20, 100))
                while not self.is_stopping and (polls := polls - 1):
                    records = await consumer.poll(timeout_ms=POLL_MS)
                    self._take(f"{self.name}.{lives}", records)

    async def read_all(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        """Returns all committed records up to these offsets."""
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {each: [] for each in ends}
        async with self._new_consumer() as consumer:
            await consumer.assign(list(ends))
            while any(consumer.position(each) < end for each, end in ends.items()):
                for record in await consumer.poll(timeout_ms=POLL_MS):
                    place = TopicPartition(record.topic, record.partition)
                    found[place].append((record.offset, record.value or b""))
        return found

    def _new_consumer(self) -> Consumer:
        cluster = self._simulation.cluster
        return Consumer(
            cluster.bootstrap_servers,
            client_rack=self._rack,
            request_timeout_ms=REQUEST_MS,
            connect_timeout_ms=CONNECT_MS,
            client_id=self.name,
            transport=cluster.transport(self.name),
        )

    async def _assign(self, consumer: Consumer) -> None:
        """A broker that is cut off may not have heard of the topics."""
        while not self.is_stopping:
            try:
                await consumer.assign(self._simulation.partitions)
            except ReplogError:
                await asyncio.sleep(BACKOFF_S)
            else:
                return

    def _take(self, name: str, records: Sequence[ConsumerRecord]) -> None:
        simulation = self._simulation
        simulation.seen["read"] += len(records)
        by_partition: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(place, []).append((record.offset, record.value or b""))
        for place, found in by_partition.items():
            simulation.history.poll(name, place, found, simulation.loop.time())
