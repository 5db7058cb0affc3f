"""Clients in other languages (Java, Go) behind `KafkaClient`, by programs of ours that are told what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from kafka_client_kit import TIMEOUT_S, Got, How, RefusedError, Sent

from tests.kafka.line_driver import Driver, DriverError, driver, read_record


class Driven:
    """See `KafkaClient`.  One program for each set of brokers, which lives until `close`.

    Attributes:
        name: What the client is called.
    """

    def __init__(self, name: str, command: Callable[[str], list[str]], folder: Path) -> None:
        """Takes what is needed to start a program.

        Args:
            name: What the client is called.
            command: The function that returns the command line for brokers.
            folder: An existing folder for what it reads and prints.
        """
        self.name = name
        self._command = command
        self._folder = folder
        self._drivers: dict[str, Driver] = {}
        self._running = ExitStack()

    def close(self) -> None:
        """Ends the programs."""
        self._drivers.clear()
        self._running.close()

    def produce(self, servers: str, topic: str, records: Sequence[Sent], how: How) -> list[int]:
        settings = {
            "acks": how.acks,
            "compression.type": how.codec,
            "enable.idempotence": str(how.is_idempotent).lower(),
            "max.request.size": how.bytes_max,
            "batch.size": how.bytes_max,
            "delivery.timeout.ms": int(TIMEOUT_S * 1000),
        }
        file = self._driver(servers).file([(each.timestamp_ms, each.key, each.value, each.headers) for each in records])
        pairs = [f"{name}={value}" for name, value in settings.items()]
        return [int(line) for line in self._ask(servers, "produce", topic, 0, file, *pairs)]

    def consume(self, servers: str, topic: str, start: int, count: int) -> list[Got]:
        read = [read_record(line) for line in self._ask(servers, "read", topic, 0, start, count)]
        return [Got(each.offset, each.key, each.value, each.headers, each.timestamp) for each in read]

    def read_as_member(self, servers: str, group: str, protocol: str, topic: str, count: int) -> list[bytes]:
        """Subscribes for a group, and commits behind the records that it returns the values of."""
        return [bytes.fromhex(line) for line in self._ask(servers, "read-as-member", group, protocol, topic, count)]

    def ends(self, servers: str, topic: str) -> tuple[int, int]:
        (line,) = self._ask(servers, "ends", topic, 0)
        begin, end = line.split("\t")
        return int(begin), int(end)

    def offset_for_time(self, servers: str, topic: str, timestamp_ms: int) -> int | None:
        (line,) = self._ask(servers, "offsets-for-times", topic, 0, timestamp_ms)
        return None if line == "-" else int(line.split("\t")[0])

    def create_topic(self, servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
        self._ask(servers, "create", topic, partitions, *(f"{name}={value}" for name, value in config.items()))

    def partitions_of(self, servers: str, topic: str) -> int:
        (line,) = self._ask(servers, "partitions", topic)
        return int(line)

    def delete_topic(self, servers: str, topic: str) -> None:
        self._ask(servers, "delete", topic)

    def begin_transaction(self, servers: str, transactional_id: str) -> None:
        self._ask(servers, "begin", transactional_id)

    def _ask(self, servers: str, *words: object) -> list[str]:
        try:
            return self._driver(servers).ask(*words)
        except DriverError as error:
            raise RefusedError(str(error)) from error

    def _driver(self, servers: str) -> Driver:
        if servers not in self._drivers:
            self._drivers[servers] = self._running.enter_context(driver(self._command(servers), self._folder))
        return self._drivers[servers]
