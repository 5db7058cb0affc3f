"""Groups whose members are processes that read, with a steady producer: at replog's brokers and at Apache Kafka's."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.model import System, WrongResultError
from bench.systems.child_processes import dying_with_us
from bench.systems.group_reader import MODULES, NOTE, MemberKind
from bench.systems.kafka.client_process import CLIENTS, ROOT, ClientProcess
from bench.systems.shared_brokers import SharedBrokers

FIRST_OFFSET = 0
POLL_S = 0.1
TIMEOUT_S = 120.0
LOG_NAME = "members.log"

SETTINGS = {**CLIENTS["librdkafka"].single, "acks": "all", "enable.idempotence": "true"}


class Handed(NamedTuple):
    """A record in the hands of an application.

    Attributes:
        at_s: When it was handed out, seconds of the monotonic clock.
        member: The number of the member.
        partition: Its partition.
        offset: Its offset.
    """

    at_s: float
    member: int
    partition: int
    offset: int


class GroupReaders(System):
    """Members of one kind at one kind of brokers, beside a producer that is librdkafka's everywhere.

    Args:
        name: The name in results.
        brokers: The brokers, which others may use, too.
        kind: The client of the members.
    """

    def __init__(self, name: str, brokers: SharedBrokers, kind: MemberKind) -> None:
        self.name = name
        self._brokers = brokers
        self._kind = kind
        self._directory = Path()
        self._producer: ClientProcess | None = None
        self._groups = itertools.count()

    def missing(self) -> str | None:
        return self._brokers.missing() or CLIENTS["librdkafka"].missing()

    def durability(self) -> str:
        return f"{self._brokers.durability()}, idempotent"

    def start(self, directory: Path) -> None:
        self._directory = directory
        (directory / "brokers").mkdir()
        self._brokers.start(directory / "brokers")
        self._producer = ClientProcess(CLIENTS["librdkafka"].command(self._brokers.kafka_servers), directory)

    def stop(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self._brokers.stop()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    def client_ids(self) -> Sequence[int]:
        return [self.producer.pid]

    @property
    def producer(self) -> ClientProcess:
        """The program of the producer."""
        if self._producer is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._producer

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """Makes a topic whose replicas are all in sync, with one record in each partition, and deletes it afterwards."""
        topic = self._brokers.create_topic(partitions)
        try:
            self.producer.ask("producer", topic, *(f"{name}={value}" for name, value in SETTINGS.items()))
            yield topic
        finally:
            self._brokers.delete_topic(topic)

    def begin_sending(self, rate_per_s: float, partitions: int) -> None:
        """Sends records at a rate, to the partitions in turn."""
        self.producer.ask("steady-begin", rate_per_s, partitions)

    def end_sending(self, partitions: int) -> set[tuple[int, int]]:
        """Returns partition and offset of all that is in the topic.

        Raises:
            WrongResultError: The producer gave up a record.
        """
        self.producer.ask("steady-end", self.producer.answer_file)
        offsets = [int(offset) for offset, _ in self.producer.read_lines()]
        self.producer.ask("producer-close")
        if refused := sum(offset < 0 for offset in offsets):
            raise WrongResultError(f"{self.name}: the producer gave up {refused} of {len(offsets)} records")
        sent = {(number % partitions, offset) for number, offset in enumerate(offsets)}
        return sent | {(partition, FIRST_OFFSET) for partition in range(partitions)}

    @contextmanager
    def group(self, topic: str) -> Iterator[ReadingGroup]:
        """Gives a group without members; whoever is a member in the end leaves."""
        place = self._directory / f"group-{next(self._groups)}"
        place.mkdir()
        arguments = (self._brokers.kafka_servers, place.name, topic)
        group = ReadingGroup(self.name, place, self._kind, arguments)
        try:
            yield group
        finally:
            group.end()


class ReadingGroup:
    """The members of one group, each a process.

    Args:
        name: The name of the system.
        directory: The empty folder of the notes that members take.
        kind: The client of the members.
        arguments: The arguments of a member's program between the client and the file of its notes.
    """

    def __init__(self, name: str, directory: Path, kind: MemberKind, arguments: Sequence[str]) -> None:
        self._name = name
        self._directory = directory
        self._kind = kind
        self._arguments = arguments
        self._numbers = itertools.count()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._handed: list[Handed] = []
        self._read_bytes: Counter[int] = Counter()  # of the notes of each member

    @property
    def members(self) -> set[int]:
        """The numbers of those that run."""
        return set(self._running)

    def start_member(self) -> int:
        """Starts a process; returns the number of the member, which no other has."""
        number = next(self._numbers)
        program = [sys.executable, "-m", "bench.systems.group_reader"]
        command = dying_with_us(*program, self._kind, *self._arguments, str(self._notes(number)))
        with (self._directory / LOG_NAME).open("ab") as output:
            self._running[number] = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return number

    def import_client(self) -> None:
        """Runs a process that imports the client of the members and does nothing with it; returns when it has ended."""
        subprocess.run([sys.executable, "-c", f"import {MODULES[self._kind]}"], cwd=ROOT, check=True)

    def close_member(self, number: int) -> None:
        """Lets a member leave; returns when its process has ended.

        Raises:
            WrongResultError: It did not end, or in disorder.
        """
        process = self._running.pop(number)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise WrongResultError(f"{self._name}: a member did not end {self._last_words()}") from None
        if code:
            raise WrongResultError(f"{self._name}: a member ended with {code} {self._last_words()}")

    def kill_member(self, number: int) -> None:
        """Ends a member with SIGKILL."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Ends all members, in order where they can."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def handed(self) -> Sequence[Handed]:
        """Returns all that members were handed up to now, by time."""
        for path in self._directory.glob("*.notes"):
            member = int(path.stem)
            with path.open("rb") as notes:
                notes.seek(self._read_bytes[member])
                data = notes.read()
            whole = data[: len(data) - len(data) % NOTE.size]
            self._read_bytes[member] += len(whole)
            self._handed += [Handed(at_s, member, *place) for *place, at_s in NOTE.iter_unpack(whole)]
        self._handed.sort()
        return self._handed

    def wait_until(self, is_met: Callable[[Sequence[Handed]], bool], what: str) -> None:
        """Returns when what members were handed is enough.

        Args:
            is_met: The condition of all that they were handed, by time.
            what: What is waited for, in words.

        Raises:
            WrongResultError: A member has ended by itself, or it took too long.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_met(self.handed()):
            ended = [number for number, process in self._running.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline_s:
                why = "a member ended" if ended else f"not so after {TIMEOUT_S:.0f} s"
                raise WrongResultError(f"{self._name}: {what}: {why} {self._last_words()}")
            time.sleep(POLL_S)

    def _notes(self, number: int) -> Path:
        return self._directory / f"{number}.notes"

    def _last_words(self) -> str:
        return (self._directory / LOG_NAME).read_text(errors="replace")[-1_000:].strip()
