"""The same load through the port for Kafka's clients: librdkafka's idempotent producer, and a consumer that tails it.

They write and read the topic of `Load`, into the same history, so that what either client was promised is compared with what
either reads.  `confluent_kafka` blocks: each of them runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from replog.testing.history import Anomaly, AnomalyKind, History, SentRecord
from replog_chaos.load import DELIVERY_TIMEOUT_MS, PADDING, Acknowledgement, Load

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

NAME = "librdkafka"
LAST = "librdkafka, at the end"
"""Its consumers in the history: the one that tails, and the one that reads everything back."""

POLL_S = 0.1
FETCHED_MAX = 500
SILENCE_S = 60.0
"""How long the last read waits for a record that must be there."""

OUT_OF_RANGE = "_AUTO_OFFSET_RESET"
"""What a consumer is told whose place is not in the log; its name in librdkafka."""

IMPATIENT_MS = 3_000
"""How long the clients wait for an answer: less than a fault lasts, so that what is sent is sent again."""

_SHARED: Mapping[str, Any] = {
    "reconnect.backoff.max.ms": 1_000,
    "socket.timeout.ms": IMPATIENT_MS,
    "log_level": 2,
}
"""Settings of both clients; that brokers are away is no news here."""


def missing() -> str:
    """Returns why there can be no such load here; "": there can."""
    try:
        import confluent_kafka  # noqa: F401 -- whether it is there
    except ImportError:
        return "confluent-kafka is missing: pip install confluent-kafka"
    return ""


class KafkaLoad(Load):
    """Sends and tails while its block runs.

    Args:
        bootstrap_servers: The brokers of the cluster to ask first, at their ports for Kafka's clients.
        topic: The topic that the records go to.
        partitions_count: The number of its partitions.
        rate_per_s: The records sent in a second, all partitions together.
        history: The history that it shares with the load of our own client.

    Attributes:
        tailed_count: The number of records that the tailing consumer has read.
        stored: The values of which the producer was told that they are there, and not where: the answer to such a batch was an
            error that left its fate open, or was lost, and librdkafka concludes from the acknowledgement of the next one.
    """

    name = NAME

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions_count: int, rate_per_s: float, history: History
    ) -> None:
        super().__init__(bootstrap_servers, topic, partitions_count, rate_per_s, history)
        self.tailed_count = 0
        self.stored: list[bytes] = []

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(self._produce, loop))
                tasks.create_task(asyncio.to_thread(self._tail))
        finally:
            self._is_stopping = True  # where one of them failed, the thread of the other ends too

    # ---- in threads ------------------------------------------------------------------------------------------------------

    def _produce(self, loop: asyncio.AbstractEventLoop) -> None:
        from confluent_kafka import Producer

        times = {"linger.ms": 0, "request.timeout.ms": IMPATIENT_MS, "message.timeout.ms": DELIVERY_TIMEOUT_MS}
        promises = {"enable.idempotence": True, "acks": "all"}
        producer = Producer({"bootstrap.servers": self._servers, "client.id": "chaos", **promises, **times, **_SHARED})
        start_s, number = time.monotonic(), 0  # the clock of asyncio's loops
        while not self._is_stopping:
            due_s = start_s + number / self._rate_per_s
            while (left_s := due_s - time.monotonic()) > 0:
                producer.poll(left_s)
            value = b"k%d%s" % (number, PADDING)
            send = self.history.send(NAME, value)
            on_delivery = partial(self._delivered, loop, send, due_s)
            while not _is_taken(producer, self._topic, value, number % self._partitions_count, on_delivery):
                producer.poll(POLL_S)
            number += 1
        if left := producer.flush(DELIVERY_TIMEOUT_MS / 1000):
            self.unknown_because[f"{NAME}: never told"] += left

    def _delivered(
        self,
        loop: asyncio.AbstractEventLoop,
        send: SentRecord,
        due_s: float,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self.unknown_because[f"{NAME}: {error.name()}"] += 1
            return
        if partition is None or offset is None or offset < 0:
            self.stored.append(send.value)
            return
        send.acknowledged((self._topic, partition), offset)
        self.acknowledged.append(Acknowledgement(partition, offset, due_s, time.monotonic()))
        loop.call_soon_threadsafe(self._progress.set)

    def _tail(self) -> None:
        consumer = self._consumer(dict.fromkeys(range(self._partitions_count), 0))
        try:
            while not self._is_stopping:
                self.tailed_count += self._poll(consumer, NAME)
        finally:
            consumer.close()

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def _consumer(self, offsets: Mapping[int, int]) -> Any:
        """Returns a consumer that is assigned the partitions from these offsets on, and says so where one is not there."""
        from confluent_kafka import Consumer as KafkaConsumer
        from confluent_kafka import TopicPartition

        settings = {"group.id": "chaos", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = KafkaConsumer({"bootstrap.servers": self._servers, **settings, **_SHARED})
        consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in offsets.items()])
        return consumer

    def _poll(self, consumer: Any, name: str) -> int:
        """Takes what there is into the history; returns how many records that is.

        Raises:
            KafkaException: The consumer cannot go on.
        """
        from confluent_kafka import KafkaException

        count = 0
        for message in consumer.consume(FETCHED_MAX, POLL_S):
            if (error := message.error()) is not None:
                if error.fatal() or error.name() == OUT_OF_RANGE:
                    raise KafkaException(error)
                continue  # a broker is away, or behind: the client goes on by itself
            place = (self._topic, message.partition())
            self.history.poll(name, place, [(message.offset(), message.value())])
            count += 1
        return count

    async def read_the_same(self, ends: Mapping[int, int]) -> list[Anomaly]:
        """Reads everything up to the ends of the partitions, as our own client did before, into the history.

        Returns:
            What was said to be stored, nobody knows where, and is not.
        """
        await asyncio.to_thread(self._read_to, {number: end for number, end in ends.items() if end > 0})
        found = {value for number in ends for value in self.history.values_of(LAST, (self._topic, number))}
        return [
            Anomaly(
                AnomalyKind.UNSEEN, (self._topic, -1), -1, f"{value[:20]!r} was acknowledged and was never readable"
            )
            for value in self.stored
            if value not in found
        ]

    def _read_to(self, ends: Mapping[int, int]) -> None:
        consumer = self._consumer(dict.fromkeys(ends, 0))
        try:
            heard_s = time.monotonic()
            while any(place.offset < ends[place.partition] for place in consumer.position(consumer.assignment())):
                if self._poll(consumer, LAST):
                    heard_s = time.monotonic()
                if time.monotonic() - heard_s > SILENCE_S:
                    raise TimeoutError(f"{NAME} reads nothing more of {dict(ends)} for {SILENCE_S:g} s")
        finally:
            consumer.close()


def _is_taken(producer: Any, topic: str, value: bytes, partition: int, on_delivery: Any) -> bool:
    """Whether the producer had room for the record."""
    try:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    except BufferError:
        return False
    return True
