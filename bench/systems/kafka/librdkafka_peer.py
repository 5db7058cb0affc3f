"""librdkafka behind standard input, for measurements: what `bench/java/peer` is for the Java clients, with the same commands.

It is a process of its own: what the client costs is not the brokers' cost, and its threads do not share an interpreter with ours.
"""

from __future__ import annotations

import array
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
from confluent_kafka import Consumer, Message, Producer, TopicPartition

FIRST_OFFSET = 1
POLL_EACH = 1_000
CONSUMED_TOGETHER = 1_000
CONSUMED_WITHIN_S = 0.02
TIMEOUT_S = 300.0
SILENCE_MAX_S = 60.0


class ProducerPeer:
    """A producer for one topic, connected and warm: an empty record has gone to each partition."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._producer = Producer(settings)
        self._failure: object = None
        while not (partitions := self._producer.list_topics(topic, timeout=30).topics[topic].partitions):
            time.sleep(0.05)  # the broker that is asked has not heard of the topic yet
        for number in partitions:
            self._producer.produce(topic, b"", partition=number, on_delivery=self._note)
        self._finish()

    def send_all(self, file: str, rounds: int) -> None:
        """Returns when everything is acknowledged."""
        produce, topic, note = self._producer.produce, self._topic, self._note
        values = read_values(file)
        for _ in range(rounds):
            for number, value in enumerate(values):
                while True:
                    try:
                        produce(topic, value, on_delivery=note)
                        break
                    except BufferError:
                        self._producer.poll(0.01)
                if number % POLL_EACH == 0:
                    self._producer.poll(0)
        self._finish()

    def send_at_rate(self, file: str, rate_per_s: float, count: int, out: str) -> None:
        """Writes how long each acknowledgement took, from when its record was due."""
        value = read_values(file)[0]
        took_s = array.array("d", bytes(8 * count))
        start_s = time.monotonic() + 0.01

        def note_time(number: int, due_s: float) -> Callable[[object, Message], None]:
            def told(error: object, message: Message) -> None:
                self._note(error, message)
                took_s[number] = time.monotonic() - due_s

            return told

        with Polling(self._producer):
            for number in range(count):
                due_s = start_s + number / rate_per_s
                time.sleep(max(0.0, due_s - time.monotonic()))
                self._producer.produce(self._topic, value, on_delivery=note_time(number, due_s))
            self._finish()
        if sys.byteorder == "little":
            took_s.byteswap()
        Path(out).write_bytes(took_s.tobytes())

    def begin_steady(self, rate_per_s: float, partitions: int) -> None:
        """Sends numbered values in a thread, at a rate, until `end_steady`: one after the other to each partition, then a pause."""
        self._is_stopped = False
        self._sent = 0
        self._highest = -1
        self._told: dict[int, str] = {}
        self._steady = threading.Thread(target=self._run_steady, args=(rate_per_s, partitions), daemon=True)
        self._steady.start()

    def steady_seen(self) -> str:
        """Tells how many were sent, and the highest number that was acknowledged, or -1."""
        return f"{self._sent}\t{self._highest}"

    def end_steady(self, out: str) -> None:
        """Writes a line for each record: its offset (-1 when it failed), and when that was known, by the monotonic clock."""
        self._is_stopped = True
        self._steady.join()
        Path(out).write_text("".join(f"{self._told[number]}\n" for number in range(self._sent)), encoding="ascii")

    def _run_steady(self, rate_per_s: float, partitions: int) -> None:
        start_s = time.monotonic()
        with Polling(self._producer):
            while not self._is_stopped:
                number = self._sent
                if number % partitions == 0:
                    time.sleep(max(0.0, start_s + number / rate_per_s - time.monotonic()))
                value, answer = b"value %d" % number, self._answer_of(number)
                self._producer.produce(self._topic, value, partition=number % partitions, on_delivery=answer)
                self._sent = number + 1
            self._producer.flush(TIMEOUT_S)

    def _answer_of(self, number: int) -> Callable[[object, Message], None]:
        def told(error: object, message: Message) -> None:
            self._told[number] = f"{message.offset() if error is None else -1}\t{time.monotonic()}"
            if error is None:
                self._highest = max(self._highest, number)

        return told

    def _note(self, error: object, _message: Message) -> None:
        if error is not None:
            self._failure = error

    def _finish(self) -> None:
        left = self._producer.flush(TIMEOUT_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} records without an answer; {self._failure}")


class Polling:
    """Has a thread hand out answers while the block runs."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            self._producer.poll(0.1)


class ConsumerPeer:
    """A consumer of all partitions of a topic, assigned to them; each reading begins after the first records."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._consumer = Consumer(settings)
        self._partitions = sorted(self._consumer.list_topics(topic, timeout=30).topics[topic].partitions)

    def read(self, count: int) -> int:
        """Reads so many records, or a few more; returns how many."""
        self._rewind()
        found = 0
        heard_s = time.monotonic()
        while found < count and time.monotonic() - heard_s < SILENCE_MAX_S:
            messages = self._consumer.consume(CONSUMED_TOGETHER, CONSUMED_WITHIN_S)
            found += len(messages)
            heard_s = time.monotonic() if messages else heard_s
        return found

    def digest(self) -> str:
        """Tells the number of records up to the ends of now, and the sum of their values' checksums."""
        count = checksum = 0
        for message in self._to_ends():
            count += 1
            checksum += crc32c.crc32c(message.value() or b"")
        return f"{count}\t{checksum}"

    def dump(self, out: str) -> None:
        """Writes a line with offset and value, which is text, for each record up to the ends of now."""
        lines = (f"{message.offset()}\t{(message.value() or b'').decode('ascii')}\n" for message in self._to_ends())
        Path(out).write_text("".join(lines), encoding="ascii")

    def close(self) -> None:
        self._consumer.close()

    def _to_ends(self) -> Iterator[Message]:
        ends = {
            number: self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)[1]
            for number in self._partitions
        }
        self._rewind()
        left = {number for number, end in ends.items() if end > FIRST_OFFSET}
        heard_s = time.monotonic()
        while left:
            for message in self._consumer.consume(CONSUMED_TOGETHER, CONSUMED_WITHIN_S):
                heard_s = time.monotonic()
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                if (message.offset() or 0) + 1 >= ends[message.partition() or 0]:
                    left.discard(message.partition() or 0)
                yield message
            if time.monotonic() - heard_s > SILENCE_MAX_S:
                raise RuntimeError(f"no records for a minute before the ends {ends}")

    def _rewind(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, number, FIRST_OFFSET) for number in self._partitions])


def read_values(file: str) -> list[bytes]:
    """Reads values, each after its length in four bytes."""
    data = Path(file).read_bytes()
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


class Peer:
    """Runs commands."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer: ProducerPeer | None = None
        self._consumer: ConsumerPeer | None = None

    def run(self, name: str, *words: str) -> str:
        """Runs one; returns the words of its answer between tabs."""
        if name == "producer":
            self._producer = ProducerPeer(words[0], self._settings(words[1:]))
        elif name == "producer-close":
            self._producer = None
        elif name == "consumer":
            self._consumer = ConsumerPeer(words[0], self._settings(words[1:]))
        elif self._producer is not None:
            return self._produce(self._producer, name, words)
        elif self._consumer is not None:
            return self._consume(self._consumer, name, words)
        else:
            raise ValueError(f"{name} needs a producer or a consumer")
        return ""

    def _produce(self, producer: ProducerPeer, name: str, words: tuple[str, ...]) -> str:
        match name:
            case "produce":
                producer.send_all(words[0], int(words[1]))
            case "rate":
                producer.send_at_rate(words[0], float(words[1]), int(words[2]), words[3])
            case "steady-begin":
                producer.begin_steady(float(words[0]), int(words[1]) if len(words) > 1 else 1)
            case "steady-seen":
                return producer.steady_seen()
            case "steady-end":
                producer.end_steady(words[0])
            case _:
                raise ValueError(f"no command {name} of a producer")
        return ""

    def _consume(self, consumer: ConsumerPeer, name: str, words: tuple[str, ...]) -> str:
        match name:
            case "read":
                return str(consumer.read(int(words[0])))
            case "digest":
                return consumer.digest()
            case "dump":
                consumer.dump(words[0])
            case "consumer-close":
                consumer.close()
                self._consumer = None
            case _:
                raise ValueError(f"no command {name} of a consumer")
        return ""

    def _settings(self, words: tuple[str, ...]) -> dict[str, Any]:
        return {"bootstrap.servers": self._servers} | dict(word.split("=", 1) for word in words)


def main(servers: str) -> None:
    """Answers commands until the input ends."""
    peer = Peer(servers)
    for line in sys.stdin:
        try:
            answer = "\t".join(("ok", peer.run(*line.rstrip("\n").split("\t")))).strip()
        except Exception as error:  # noqa: BLE001 -- whoever asked is told
            answer = f"!\t{type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
