"""An idempotent producer that speaks Kafka's protocol to a simulated cluster, and behaves as librdkafka's.

Up to five requests are on their way; one that is not answered in time ends the connection.  What may be sent again is, with
the sequence it has, in order, when all that was on its way is answered or given up.  It never gives a record up, with one
exception.  A partition takes any first sequence from a producer that it does not know (KIP-360).  So the first batch may be
refused, and a later one of the same connection taken: from then on the first one is out of order.  librdkafka calls that
fatal where it has to keep the order; the application begins with a new producer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from replog.errors import ErrorCode
from replog.records import BatchBuilder
from replog.testing.history import History, SentRecord
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.sim.event_log import EventLog
from tests.sim.kafka_connection import KafkaConnection, KafkaConnectionLostError, read
from tests.sim.kafka_view import KafkaView, Leader, within

VERSIONS = (3, 7, 8, 9, 10, 11, 12, 13)
BY_ID_FROM = 13
IN_FLIGHT_MAX = 5
QUEUED_MAX = 100
BACKOFF_S = 0.05
BATCH_BYTES_MAX = 1 << 20
FORGOTTEN_MAX = 30
"""So often in a row the oldest batch may be called out of order; what it follows was acknowledged."""

AGAIN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""After these a batch is sent again; at any other librdkafka fails it, or the producer."""


@dataclass(eq=False, slots=True)
class Batch:
    """Records that are sent together, with the sequence that they keep."""

    base_sequence: int
    values: list[bytes]
    sends: list[SentRecord]
    tries: int = 0
    forgotten: int = 0


class KafkaProducer:
    """Sends unique values all the time.

    Args:
        view: its own.
        name: in the history, and at the front of its values.
        on_acknowledged: told each offset.
        report: told what must not be.

    Attributes:
        stored: values of which it was told that they are there, and not where.
    """

    def __init__(
        self,
        view: KafkaView,
        name: str,
        history: History,
        rng: Random,
        *,
        on_acknowledged: Callable[[int], None],
        report: Callable[[str], None],
        events: EventLog,
        seen: Counter[str],
        interval_s: float,
        burst_max: int,
    ) -> None:
        self.stored: list[bytes] = []
        self._view = view
        self._name = name
        self._history = history
        self._rng = rng
        self._on_acknowledged = on_acknowledged
        self._report = report
        self._events = events
        self._seen = seen
        self._interval_s = interval_s
        self._burst_max = burst_max
        self._version = rng.choice(VERSIONS)
        self._request_timeout_s = rng.choice((0.4, 1.5))
        self._timeout_ms = rng.choice((200, 1_000))
        self._producer_id = (-1, -1)
        self._batches: deque[Batch] = deque()  # without an outcome, in order
        self._news = asyncio.Event()
        self._count = 0
        self._lives = 0
        self._first = 0  # the number of the value that has sequence 0
        self._acknowledged_to = -1  # the last sequence of the current life
        self.is_stopping = False

    def stop(self) -> None:
        self.is_stopping = True
        self._news.set()

    async def run(self) -> None:
        """Until it is stopped, and every record is acknowledged."""
        filling = asyncio.create_task(self._fill())
        while not (self.is_stopping and filling.done() and not self._batches):
            try:
                await self._work()
            except KafkaConnectionLostError as error:
                self._events.note("client", f"{self._name}: {error}")
                self._seen["kafka producer: connection lost"] += 1
            await asyncio.sleep(BACKOFF_S)
        await filling

    async def _fill(self) -> None:
        while not self.is_stopping:
            if len(self._batches) < QUEUED_MAX:
                count = self._rng.randint(1, self._burst_max)
                values = [b"%s%d" % (self._name.encode(), self._count + number) for number in range(count)]
                sends = [self._history.send(f"{self._name}life {self._lives}", value) for value in values]
                self._batches.append(Batch(self._count - self._first, values, sends))
                self._count += count
                self._news.set()
            await asyncio.sleep(self._interval_s)

    async def _work(self) -> None:
        """One connection to the leader, for as long as it is of use."""
        if self._producer_id[0] < 0 and not await self._has_id():
            return
        leader = await self._view.leader()
        if leader is None:
            return
        connection = await KafkaConnection.open(self._view.tcp, leader.host, leader.port)
        try:
            await self._send_all(connection, leader)
        finally:
            connection.close()

    async def _has_id(self) -> bool:
        given = await self._view.ask_any(InitProducerIdRequest(None, 60_000), InitProducerIdResponse, 4)
        if given.error_code == ErrorCode.NONE:
            self._producer_id = (given.producer_id, given.producer_epoch)
        elif given.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._report(f"InitProducerId is answered with {given.error_code}, at which clients give up")
        return self._producer_id[0] >= 0

    async def _send_all(self, connection: KafkaConnection, leader: Leader) -> None:
        """Until something has to be sent again: then what is on its way is waited for, and everything begins anew."""
        in_flight: deque[tuple[Batch, asyncio.Future[bytes]]] = deque()
        sent: set[int] = set()  # base sequences
        is_good = True
        while is_good or in_flight:
            if is_good:
                self._send_more(connection, leader, in_flight, sent)
            if in_flight:
                batch, answered = in_flight.popleft()
                is_good &= self._take(batch, await within(answered, self._request_timeout_s), leader)
            elif self.is_stopping and not self._batches:
                return
            else:
                self._news.clear()
                await self._news.wait()

    def _send_more(
        self,
        connection: KafkaConnection,
        leader: Leader,
        in_flight: deque[tuple[Batch, asyncio.Future[bytes]]],
        sent: set[int],
    ) -> None:
        for batch in self._batches:
            if len(in_flight) >= IN_FLIGHT_MAX:
                return
            if batch.base_sequence not in sent:
                sent.add(batch.base_sequence)
                self._seen["kafka producer: sent again"] += batch.tries > 0
                batch.tries += 1
                in_flight.append((batch, connection.ask(self._request(batch, leader), self._version)))

    def _request(self, batch: Batch, leader: Leader) -> ProduceRequest:
        builder = BatchBuilder(max_bytes=BATCH_BYTES_MAX)
        for value in batch.values:
            builder.append(0, None, value)
        records = builder.build(*self._producer_id, base_sequence=batch.base_sequence)
        data = ProduceRequest.PartitionProduceData(0, records)
        topic = ProduceRequest.TopicProduceData(self._view.topic, partition_data=[data])
        if self._version >= BY_ID_FROM:
            topic = ProduceRequest.TopicProduceData(topic_id=leader.topic_id, partition_data=[data])
        return ProduceRequest(None, -1, self._timeout_ms, [topic])

    def _take(self, batch: Batch, frame: bytes, leader: Leader) -> bool:
        """Takes an answer in; whether the next ones may be sent."""
        told = read(frame, ProduceResponse, self._version).responses[0].partition_responses[0]
        code, place = told.error_code, f"{self._name}{batch.base_sequence} at node {leader.node_id}"
        self._events.note("client", f"{place}: code {code}, offset {told.base_offset}")
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if batch in self._batches:
                self._batches.remove(batch)
                self._acknowledged_to = max(self._acknowledged_to, batch.base_sequence)
            self._acknowledged(batch, told.base_offset)
            return True
        self._seen[f"kafka producer: {ErrorCode(code).name}"] += 1
        if code not in AGAIN:
            self._report(
                f"{place} is answered with {ErrorCode(code).name}, at which clients give up: {told.error_message}"
            )
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._batches and batch is self._batches[0]:
            if batch.base_sequence == 0 < self._acknowledged_to:  # nothing before it can have been forgotten
                self._begin_anew()
                return False
            batch.forgotten += 1
            if batch.forgotten > FORGOTTEN_MAX:
                self._report(f"{place} is out of order: what was acknowledged before it is forgotten")
        return False

    def _begin_anew(self) -> None:
        """Begins with a new id; what was not acknowledged may be there or not."""
        self._seen["kafka producer: begun anew"] += 1
        self._producer_id = (-1, -1)
        self._batches.clear()
        self._lives += 1
        self._first = self._count
        self._acknowledged_to = -1

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        if base_offset < 0:
            self.stored += batch.values
            return
        self._seen["kafka producer: acknowledged"] += len(batch.values)
        for offset, send in enumerate(batch.sends, base_offset):
            self._on_acknowledged(offset)
            send.acknowledged((self._view.topic, 0), offset)
