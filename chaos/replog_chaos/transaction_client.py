"""A client of transactions under chaos, a process of its own, with librdkafka's clients.

    python -m replog_chaos.transaction_client write SERVERS ID TOPIC PARTITIONS    # appends unique values, and aborts some
    python -m replog_chaos.transaction_client chain SERVERS ID GROUP FROM TO       # makes an output from each input, once
    python -m replog_chaos.transaction_client read SERVERS PARTITIONS TOPIC ...    # reads what is committed

It writes a line before and after each step, which a kill does not take back, with times of the monotonic clock in ns:

    ready                        the transactional id is its own
    begin 17                     a transaction begins
    write topic 3 value          a value is about to be appended; then topic, partition and offset of the input, if it has one
    ask 19                       its commit is about to be asked for
    end committed, end aborted   how it has ended
    read 21 topic 3 0 value      a reader was handed a value, at this offset
    fenced reason                another producer has the transactional id: the process ends
    stuck reason                 a call of librdkafka has not come back long after its timeout: the process ends

librdkafka looks at no timeout while it waits for the coordinator of a group, and may wait for a broker that it has forgotten
meanwhile, since the metadata did not name it for a moment (issues 5456 and 5511 of confluentinc/librdkafka, with 2.16).  No
broker can end that, so such a process ends itself, and another one takes its transactional id over.

SIGTERM lets it end the transaction and leave.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

TRANSACTION_MS: Final = 4_000
"""How long a transaction may be open: a process that is stopped for longer is fenced."""

PATIENCE_S: Final = 60.0
CALL_S: Final = 20.0
"""The timeout of one call of librdkafka."""

STUCK_S: Final = 30.0
"""After how long the call that looks at no timeout is taken for one that does not come back."""

POLL_S: Final = 0.1
TAKEN_MAX: Final = 20
WRITES_MAX: Final = 6
ABORTED: Final = 0.2
PAUSE_S: Final = 0.01

SHARED: Final[Mapping[str, Any]] = {"reconnect.backoff.max.ms": 500, "socket.timeout.ms": 3_000, "log_level": 2}


class FencedError(Exception):
    """The producer cannot go on: another one has its transactional id, or the client says that this is fatal."""


def write(*words: object) -> None:
    """Writes a line, which a kill does not take back."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def producer_of(servers: str, transactional_id: str) -> Any:
    """Returns a producer that has taken over a transactional id.

    Raises:
        FencedError: It could not.
    """
    from confluent_kafka import Producer

    settings = {"transaction.timeout.ms": TRANSACTION_MS, "linger.ms": 0, "request.timeout.ms": 3_000}
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, **settings, **SHARED})
    _insist(lambda: producer.init_transactions(CALL_S))
    return producer


def reader_of(servers: str, group: str, **settings: Any) -> Any:
    """Returns a consumer of committed records that commits nothing by itself."""
    from confluent_kafka import Consumer

    fixed = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({"bootstrap.servers": servers, "group.id": group, **fixed, **names, **SHARED})


class TransactionalWork:
    """One transaction after the other.

    Args:
        producer: The producer, which has its transactional id.
        transactional_id: The id; it is part of each value.
        stuck_s: The seconds after which a call that sends offsets is taken for stuck.
    """

    def __init__(self, producer: Any, transactional_id: str, stuck_s: float = STUCK_S) -> None:
        self._producer = producer
        self._stuck_s = stuck_s
        self._name = f"{transactional_id}.{time.monotonic_ns():x}"
        self._count = 0

    def run(self, fill: Callable[[], None], *, aborts: bool = False) -> bool:
        """Runs a transaction; returns whether it was committed.

        Args:
            fill: The function that appends and commits offsets.
            aborts: Whether it is to be aborted.

        Raises:
            FencedError: The producer cannot go on.
        """
        from confluent_kafka import KafkaException

        write("begin", time.monotonic_ns())
        try:
            self._producer.begin_transaction()
            fill()
            if aborts:
                return self._abort()
            write("ask", time.monotonic_ns())
            _insist(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if error.args[0].fatal() or not error.args[0].txn_requires_abort():
                raise FencedError(str(error)) from None
            return self._abort()
        write("end committed")
        return True

    def append(self, topic: str, partition: int, source: tuple[str, int, int] | None = None) -> None:
        """Appends a value; of a record that was consumed for it the place is noted."""
        self._count += 1
        value = f"{self._name}.{self._count}"
        write("write", topic, partition, value, *(source or ()))
        self._producer.produce(topic, value.encode(), partition=partition)
        self._producer.poll(0)

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], consumer: Any) -> None:
        """Makes offsets of a group part of the transaction."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]

        def send() -> None:
            with ends_when_stuck(self._stuck_s):
                self._producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), CALL_S)

        _insist(send)

    def _abort(self) -> bool:
        _insist(lambda: self._producer.abort_transaction(CALL_S))
        write("end aborted")
        return False


@contextlib.contextmanager
def ends_when_stuck(limit_s: float) -> Iterator[None]:
    """Ends the process if the block has not ended in time.

    Args:
        limit_s: The seconds that it may take.
    """
    watch = threading.Timer(limit_s, _end_stuck, (limit_s,))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _end_stuck(limit_s: float) -> None:
    write("stuck", f"offsets have not been sent within {limit_s:g} s")
    os._exit(1)


def _insist(call: Callable[[], object]) -> None:
    """Calls again as long as the client says that this helps.

    Raises:
        FencedError: The client says that nothing helps.
        KafkaException: The transaction has to be aborted.
    """
    from confluent_kafka import KafkaException

    deadline_s = time.monotonic() + PATIENCE_S
    is_done = False
    while not is_done:
        try:
            call()
            is_done = True
        except KafkaException as error:
            if error.args[0].fatal():
                raise FencedError(str(error)) from None
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise


def _write(stopping: Sequence[int], servers: str, transactional_id: str, topic: str, partitions: str) -> None:
    """Appends values to random partitions until SIGTERM."""
    work = TransactionalWork(producer_of(servers, transactional_id), transactional_id)
    write("ready")
    draw = random.Random(time.monotonic_ns())  # noqa: S311 -- a load

    def fill() -> None:
        for _ in range(draw.randint(1, WRITES_MAX)):
            work.append(topic, draw.randrange(int(partitions)))

    while not stopping:
        work.run(fill, aborts=draw.random() < ABORTED)
        time.sleep(PAUSE_S)


def _chain(stopping: Sequence[int], servers: str, transactional_id: str, group: str, source: str, sink: str) -> None:
    """Appends to `sink` one value for each record of `source` until SIGTERM, in transactions with the offsets."""
    work = TransactionalWork(producer_of(servers, transactional_id), transactional_id)
    times = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    consumer = reader_of(servers, group, **times)
    consumer.subscribe([source])
    write("ready")
    while not stopping:
        taken = [each for each in consumer.consume(TAKEN_MAX, POLL_S) if each.error() is None]
        if taken and not work.run(lambda messages=taken: _pass_on(work, consumer, messages, sink)):  # type: ignore[misc]
            _rewind(consumer)
    consumer.close()


def _pass_on(work: TransactionalWork, consumer: Any, taken: Sequence[Any], sink: str) -> None:
    """Appends what is made of some inputs, and commits the offsets behind them."""
    offsets: dict[tuple[str, int], int] = {}
    for message in taken:
        place = (message.topic(), message.partition())
        work.append(sink, message.partition(), (*place, message.offset()))
        offsets[place] = message.offset() + 1
    work.send_offsets(offsets, consumer)


def _rewind(consumer: Any) -> None:
    """Goes back to what is committed: what was taken since is to be taken again."""
    from confluent_kafka import KafkaException, TopicPartition

    with contextlib.suppress(KafkaException):  # the partitions are somebody else's by now
        for each in consumer.committed(consumer.assignment(), PATIENCE_S):
            consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


def _read(stopping: Sequence[int], servers: str, partitions: str, *topics: str) -> None:
    """Reads all partitions of topics from their beginning until SIGTERM."""
    from confluent_kafka import TopicPartition

    consumer = reader_of(servers, "nobody")
    consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(int(partitions))])
    write("ready")
    while not stopping:
        for each in consumer.consume(TAKEN_MAX, POLL_S):
            if each.error() is None:
                place = (each.topic(), each.partition(), each.offset())
                write("read", time.monotonic_ns(), *place, each.value().decode())
    consumer.close()


KINDS: Final[Mapping[str, Callable[..., None]]] = {"write": _write, "chain": _chain, "read": _read}


def main(kind: str, *arguments: str) -> None:
    """Works until the process is ended, or fenced."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    try:
        KINDS[kind](stopping, *arguments)
    except FencedError as error:
        write("fenced", error)


if __name__ == "__main__":
    main(*sys.argv[1:])
