"""Members of groups in processes of their own, which tests start, watch and kill."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

TIMEOUT_S = 60
PARTITIONS = 4


def until(condition: Callable[[], object]) -> None:
    """Waits for something that processes do."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


class Member:
    """A member in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def assigned(self) -> list[int]:
        """The partitions that it has."""
        found = re.findall(r"^assigned \[(.*)\]$", self._output.read_text(), re.MULTILINE)
        return [int(each) for each in found[-1].split(",") if each.strip()] if found else []

    @property
    def read(self) -> set[str]:
        """The records that it has read and committed."""
        return set(re.findall(r"^read (.*)$", self._output.read_text(), re.MULTILINE))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def member(servers: str, folder: Path, name: str, group: str, protocol: str, topic: str) -> Iterator[Member]:
    """A member that runs `group_member.py`."""
    program = Path(__file__).with_name("group_member.py")
    with running([sys.executable, str(program), servers, group, protocol, topic], folder, name) as found:
        yield found


@contextmanager
def running(command: Sequence[str], folder: Path, name: str) -> Iterator[Member]:
    """A member that runs any program which tells as that one does."""
    output = folder / name
    with output.open("wb") as told, (folder / f"{name}.errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=told, stderr=errors)
        found = Member(process, output)
        try:
            yield found
        finally:
            found.kill()


def produce(servers: str, topic: str, *values: str) -> None:
    """Writes values to all partitions in turn."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
