"""Clients in other languages behind standard input: a program of ours (`java/KafkaDriver.java`, `go/`) that is told what to do.

A command is one line of words between tabs; the answer is any number of lines and then one that is "." (done) or begins with "!"
(failed).  Bytes are in hex, "-" is null.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

ANSWER_TIMEOUT_S = 90

Input: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Timestamp in ms, key, value, headers."""


class DriverError(AssertionError):
    """The program answered that it failed."""


class ReadRecord(NamedTuple):
    """A record as a program prints it."""

    offset: int
    timestamp_type: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    epoch: int
    headers: tuple[tuple[str, bytes | None], ...]


class Driver:
    """A program that runs, and a folder for what it is to read."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._count = 0

    def file(self, records: Sequence[Input]) -> Path:
        """Writes records to a file, as the program reads them."""
        self._count += 1
        path = self._folder / f"records-{self._count}.txt"
        path.write_text("".join(_line(record) for record in records))
        return path

    def ask(self, *words: object) -> list[str]:
        """Gives a command; returns the lines of the answer.

        Raises:
            DriverError: The program failed at it.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        alarm = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        alarm.start()
        try:
            stdin.write("\t".join(str(word) for word in words) + "\n")
            stdin.flush()
            lines: list[str] = []
            for line in stdout:
                match line[:2]:
                    case ".\n":
                        return lines
                    case "! ":
                        raise DriverError(f"{words}: {line[2:].strip()}")
                    case _:
                        lines.append(line[:-1])
            raise AssertionError(f"{words}: the clients' process ended (after {ANSWER_TIMEOUT_S} s it is killed)")
        finally:
            alarm.cancel()


@contextmanager
def driver(command: list[str], folder: Path) -> Iterator[Driver]:
    """Runs a program until the block ends; its errors go to a file in the folder."""
    with (
        (folder / "clients.log").open("ab") as errors,
        subprocess.Popen(
            dying_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        ) as process,
    ):
        try:
            yield Driver(process, folder)
        finally:
            process.kill()


def dying_with_us(command: list[str]) -> list[str]:
    """Has the kernel end the process when this one ends, whatever ended it (util-linux; elsewhere only fixtures do)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command


def read_record(line: str) -> ReadRecord:
    """Reads a line of an answer."""
    offset, kind, timestamp, key, value, epoch, *headers = line.split("\t")
    named = [header.split("=") for header in headers]
    pairs = tuple((bytes.fromhex(name).decode(), _bytes(data)) for name, data in named)
    return ReadRecord(int(offset), kind, int(timestamp), _bytes(key), _bytes(value), int(epoch), pairs)


def _line(record: Input) -> str:
    timestamp, key, value, headers = record
    shown_headers = [f"{name.encode().hex()}={_hex(data)}" for name, data in headers]
    return "\t".join([str(timestamp), _hex(key), _hex(value), *shown_headers]) + "\n"


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)
