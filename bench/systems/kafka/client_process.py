"""A program with one of Kafka's clients inside, which stays from one measurement to the next.

Two speak the same language over standard input and output: `bench/java/peer/Peer.java` and `bench.systems.kafka.librdkafka_peer`.  A command
is one line of words between tabs, its answer another one; values and latencies go through files.
"""

from __future__ import annotations

import array
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.model import WrongResultError
from bench.systems.child_processes import dying_with_us
from bench.systems.maven import PeerUnavailableError, class_path, program

ClientKind = Literal["java", "librdkafka"]
ANSWER_TIMEOUT_S = 600.0
BULK_LINGER_MS = 5
LOG_NAME = "client.log"
JVM = ("-Xmx1g", "-Xshare:auto")
ROOT = Path(__file__).resolve().parents[3]
_LENGTH = struct.Struct(">i")


class ClientProcess:
    """One such program.

    Args:
        command: The command that starts it.
        directory: The folder for what goes through files, and for what it complains of.
    """

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._directory = directory
        with (directory / LOG_NAME).open("ab") as errors:
            self._process = subprocess.Popen(
                dying_with_us(*command),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *words: object) -> list[str]:
        """Gives one command; returns the words of its answer.

        Raises:
            WrongResultError: It failed, the program ended, or it was killed because it did not answer.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the client's process has no pipes")
        alarm = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        alarm.start()
        try:
            stdin.write("\t".join(map(str, words)) + "\n")
            stdin.flush()
            kind, *answer = stdout.readline().rstrip("\n").split("\t")
        except BrokenPipeError:
            kind, answer = "", []
        finally:
            alarm.cancel()
        if kind != "ok":
            reason = " ".join(answer) or f"its process ended: {self._last_words()}"
            raise WrongResultError(f"the client could not {words[0]}: {reason}")
        return answer

    def _last_words(self) -> str:
        text = (self._directory / LOG_NAME).read_text(errors="replace").strip()
        return text[-1_000:] or f"it was silent (after {ANSWER_TIMEOUT_S:.0f} s it is killed)"

    def write_values(self, values: Sequence[bytes]) -> Path:
        """Writes values for it to read."""
        path = self._directory / "values"
        path.write_bytes(b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value)))
        return path

    def write_lines(self, lines: Sequence[str]) -> Path:
        """Writes lines for it to read."""
        path = self._directory / "lines"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    @property
    def answer_file(self) -> Path:
        """Where it writes what is too long for a line."""
        return self._directory / "answer"

    def read_seconds(self) -> list[float]:
        """Reads numbers that it wrote."""
        found = array.array("d", self.answer_file.read_bytes())
        if sys.byteorder == "little":
            found.byteswap()
        return list(found)

    def read_lines(self) -> list[list[str]]:
        """Reads lines of words that it wrote."""
        return [line.split("\t") for line in self.answer_file.read_text(encoding="ascii").splitlines()]

    def close(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Client:
    """One of Kafka's clients: how its program is started, and what it is tuned to.

    Attributes:
        bulk: The settings of a producer that sends as much as it can.
        single: Those of one that sends each record as soon as it can.
        consumer: Those of a consumer.
        tls: The settings of one that comes over TLS, by the file of the authority that it believes.
        doubles_by_default: Whether a producer without any settings may write a record twice.
    """

    command: Callable[[str], list[str]]
    missing: Callable[[], str | None]
    bulk: Mapping[str, Any]
    single: Mapping[str, Any]
    consumer: Mapping[str, Any]
    tls: Callable[[Path], Mapping[str, Any]]
    doubles_by_default: bool


def java_command(servers: str) -> list[str]:
    """The command of the Java clients' program."""
    return [program("java"), *JVM, "-cp", class_path("kafka", "peer"), "Peer", servers]


def java_missing() -> str | None:
    """Says why there is no Java client here, None where there is."""
    try:
        java_command("")
    except PeerUnavailableError as error:
        return str(error)
    return None


def _librdkafka_command(servers: str) -> list[str]:
    return [sys.executable, "-m", "bench.systems.kafka.librdkafka_peer", servers]


def _librdkafka_missing() -> str | None:
    try:
        import confluent_kafka  # noqa: F401 -- whether it is there
    except ModuleNotFoundError:
        return "confluent-kafka is not installed (replog[test] has it)"
    return None


CLIENTS: Mapping[ClientKind, Client] = {
    "java": Client(
        java_command,
        java_missing,
        bulk={"linger.ms": BULK_LINGER_MS, "batch.size": 1_000_000, "buffer.memory": 256 << 20},
        single={"linger.ms": 0},
        consumer={"max.poll.records": 10_000, "enable.auto.commit": "false"},
        tls=lambda authority: {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
        },
        doubles_by_default=False,
    ),
    "librdkafka": Client(
        _librdkafka_command,
        _librdkafka_missing,
        bulk={
            "linger.ms": BULK_LINGER_MS,
            "socket.nagle.disable": "true",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        },
        single={"linger.ms": 0, "socket.nagle.disable": "true"},
        consumer={"group.id": "bench", "enable.auto.commit": "false"},
        tls=lambda authority: {"security.protocol": "SSL", "ssl.ca.location": authority},
        doubles_by_default=True,
    ),
}
