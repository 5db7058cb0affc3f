"""librdkafka's transactional producer behind standard input, for measurements; the language is that of `librdkafka_peer`."""

from __future__ import annotations

import array
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

TIMEOUT_S = 300.0
RECORD = bytes(100)
POLL_EACH = 100
BULK = {"linger.ms": "50", "batch.size": "100000"}
"""Full batches of some 900 records, in transactions as without: with a short linger a commit, which drains the queue, has smaller ones behind it."""


class TransactionPeer:
    """Runs commands.

    Args:
        servers: The brokers.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._failure: object = None
        self._commands: dict[str, Callable[..., str]] = {
            "commits": self._commits,
            "small": self._small,
            "plain": self._plain,
            "timed": self._timed,
        }

    def run(self, name: str, *words: str) -> str:
        """Runs a command; returns the words of its answer between tabs."""
        return self._commands[name](*words)

    def _commits(self, topic: str, transactional_id: str, partitions: str, count: str, out: str) -> str:
        """Writes how long each commit took, of transactions with a record in each partition, which brokers have by then."""
        producer = self._transactional(transactional_id)
        took_s = array.array("d")
        for _ in range(int(count)):
            producer.begin_transaction()
            for partition in range(int(partitions)):
                producer.produce(topic, RECORD, partition=partition, on_delivery=self._note)
            self._finish(producer)
            begun_s = time.monotonic()
            producer.commit_transaction(TIMEOUT_S)
            took_s.append(time.monotonic() - begun_s)
        if sys.byteorder == "little":
            took_s.byteswap()
        Path(out).write_bytes(took_s.tobytes())
        return ""

    def _small(self, topic: str, transactional_id: str, partitions: str, records: str, count: str) -> str:
        """Tells how many seconds so many transactions took, one after the other, of so many records each."""
        producer = self._transactional(transactional_id)
        begun_s = time.monotonic()
        for _ in range(int(count)):
            producer.begin_transaction()
            for number in range(int(records)):
                producer.produce(topic, RECORD, partition=number % int(partitions), on_delivery=self._note)
            producer.commit_transaction(TIMEOUT_S)
        return str(time.monotonic() - begun_s)

    def _plain(self, topic: str, partitions: str, count: str) -> str:
        """Tells how many seconds so many records took with an idempotent producer."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": "true", **BULK})
        begun_s = time.monotonic()
        for number in range(int(count)):
            self._send(producer, topic, number, int(partitions))
        self._finish(producer)
        return str(time.monotonic() - begun_s)

    def _timed(self, topic: str, transactional_id: str, partitions: str, count: str, each_s: str) -> str:
        """Tells how many seconds so many records took in transactions of a length, and how many transactions these were."""
        producer = self._transactional(transactional_id, **BULK)
        transactions, begun_s = 1, time.monotonic()
        producer.begin_transaction()
        due_s = begun_s + float(each_s)
        for number in range(int(count)):
            self._send(producer, topic, number, int(partitions))
            if number % POLL_EACH == 0 and time.monotonic() > due_s:
                producer.commit_transaction(TIMEOUT_S)
                producer.begin_transaction()
                transactions, due_s = transactions + 1, time.monotonic() + float(each_s)
        producer.commit_transaction(TIMEOUT_S)
        return f"{time.monotonic() - begun_s}\t{transactions}"

    def _transactional(self, transactional_id: str, **settings: str) -> Any:
        """Returns a producer that has its transactional id."""
        fixed = {"bootstrap.servers": self._servers, "transactional.id": transactional_id, "linger.ms": "0"}
        producer = Producer({**fixed, **settings})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _send(self, producer: Any, topic: str, number: int, partitions: int) -> None:
        is_taken = False
        while not is_taken:
            try:
                producer.produce(topic, RECORD, partition=number // POLL_EACH % partitions, on_delivery=self._note)
                is_taken = True
            except BufferError:
                producer.poll(0.01)
        if number % POLL_EACH == 0:
            producer.poll(0)

    def _note(self, error: object, _message: object) -> None:
        if error is not None:
            self._failure = error

    def _finish(self, producer: Any) -> None:
        left = producer.flush(TIMEOUT_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} records without an answer; {self._failure}")


def main(servers: str) -> None:
    """Answers commands until the input ends."""
    peer = TransactionPeer(servers)
    for line in sys.stdin:
        try:
            answer = "\t".join(("ok", peer.run(*line.rstrip("\n").split("\t")))).strip()
        except Exception as error:  # noqa: BLE001 -- whoever asked is told
            answer = f"!\t{type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
