"""`replog produce`: lines of text in, acknowledgements out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from replog.cli import common
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.client import Producer

LINES_MAX = 500
"""Lines that are sent together; they never wait for each other: what stdin has is sent at once."""


class Acks(StrEnum):
    """Whose word counts as an acknowledgement."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


def produce(
    topic: Annotated[str, typer.Argument(help="Must exist.")],
    file: Annotated[Path | None, typer.Option("--file", help="Read lines from here; default: stdin.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="What stands between key and value, such as ':'."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Default: by key, or spread.")] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have the records.")] = Acks.ALL,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Write each line as a record, and print how many were acknowledged."""
    if key_separator == "":
        raise UsageError(
            "--key-separator", key_separator, "--key-separator is empty; leave it out for records without keys"
        )
    separator = None if key_separator is None else key_separator.encode()
    if file is None:
        common.run(_produce(bootstrap_servers, topic, sys.stdin.buffer, separator, partition, acks))
        return
    with file.open("rb") as lines:
        common.run(_produce(bootstrap_servers, topic, lines, separator, partition, acks))


async def _produce(
    bootstrap_servers: str, topic: str, lines: BinaryIO, separator: bytes | None, partition: int | None, acks: Acks
) -> None:
    from replog.client import Producer

    await common.require_listener(bootstrap_servers)
    count = 0
    setting = "all" if acks is Acks.ALL else int(acks.value)
    async with Producer(bootstrap_servers, acks=setting) as producer:  # type: ignore[arg-type]  # int(...) is 0 or 1
        await producer.partitions_for(topic)  # a missing topic is told before the first line is typed
        with common.waiting("producing"):
            while chunk := await asyncio.to_thread(_read_lines, lines):
                count += await _send(producer, topic, chunk, separator, partition, count)
            await producer.flush()
    what = "acknowledged" if acks is not Acks.NONE else "sent, nobody asked for acknowledgements"
    typer.echo(f"{common.counted(count, 'record')} {what}")


async def _send(
    producer: Producer, topic: str, lines: list[bytes], separator: bytes | None, partition: int | None, before: int
) -> int:
    records = list(_records(lines, separator, before))
    await producer.send_many(topic, records, partition=partition)
    return len(records)


def _records(lines: list[bytes], separator: bytes | None, before: int) -> Iterator[bytes | tuple[bytes, bytes]]:
    for number, line in enumerate(lines, start=before + 1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if separator is None:
            yield text
            continue
        key, found, value = text.partition(separator)
        if not found:
            shown = separator.decode()
            raise UsageError("--key-separator", shown, f'line {number} has no "{shown}" between key and value')
        yield value, key


def _read_lines(lines: BinaryIO) -> list[bytes]:
    """The next line, and whatever else is there already; empty at the end."""
    first = lines.readline()
    if not first:
        return []
    found = [first]
    buffered = lines.peek(1) if hasattr(lines, "peek") else b""
    while b"\n" in buffered and len(found) < LINES_MAX:
        found.append(lines.readline())
        buffered = lines.peek(1) if hasattr(lines, "peek") else b""
    return found
