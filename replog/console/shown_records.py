"""What the page is told of a record: its beginning in a list, all of it by itself, and lines that write it again."""

from __future__ import annotations

import base64
import shlex
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replog.cli.records.record_lines import json_line
from replog.client import ConsumerRecord
from replog.worker.dead_letters import DeadLetter

VALUE_BYTES: Final = 2_048
NAME_BYTES: Final = 256
HEADERS_COUNT: Final = 16
"""What a list shows of a value, of a key or header, and of how many headers."""

WHOLE_BYTES_MAX: Final = 1 << 20
"""Of a value that is shown by itself; a longer one is cut, and has no lines to copy."""

HEADERS_MAX: Final = 1_000
UTF8_CUT: Final = 3
"""Bytes of one character that may stand at the end of a cut text, at most."""


class ShownData(Struct, frozen=True, omit_defaults=True):
    """The beginning of a key, a value or a header.

    Attributes:
        size: The bytes of all of it.
        text: The beginning as text; None where it is no UTF-8.
        base64: The same as base64; None where it is text.
        is_cut: Whether there is more.
    """

    size: int
    text: str | None = None
    base64: str | None = None
    is_cut: bool = False


class RecordRow(Struct, frozen=True, omit_defaults=True):
    """A record as the page is told of it.

    Attributes:
        timestamp: The time, milliseconds since 1970; -1: it has none.
        headers: The first headers; `headers_count` says how many there are.
        letter: Where the record came from, if it is a dead letter.
        as_python, as_command: Lines that write the record again; only of a record that is shown by itself.
    """

    partition: int
    offset: int
    timestamp: int
    key: ShownData | None
    value: ShownData | None
    headers: list[tuple[str, ShownData | None]]
    headers_count: int
    letter: DeadLetter | None = None
    as_python: str = ""
    as_command: str = ""


def data(found: bytes | None, bytes_max: int) -> ShownData | None:
    """Returns the beginning of a key, a value or a header; None for None."""
    if found is None:
        return None
    cut, is_cut = bytes(found[:bytes_max]), len(found) > bytes_max
    text = _text(cut, may_be_cut=is_cut)
    encoded = base64.b64encode(cut).decode("ascii") if text is None else None
    return ShownData(len(found), text, encoded, is_cut)


def _text(cut: bytes, *, may_be_cut: bool) -> str | None:
    try:
        return cut.decode()
    except UnicodeDecodeError as error:
        if may_be_cut and error.start >= len(cut) - UTF8_CUT:
            return cut[: error.start].decode()
        return None


def row(record: ConsumerRecord) -> RecordRow:
    """Returns what a list says of a record."""
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp,
        data(record.key, NAME_BYTES),
        data(record.value, VALUE_BYTES),
        [(name[:NAME_BYTES], data(each, NAME_BYTES)) for name, each in record.headers[:HEADERS_COUNT]],
        len(record.headers),
        DeadLetter.from_headers(record.headers),
    )


def whole(record: ConsumerRecord, servers: str) -> RecordRow:
    """Returns all of one record, with lines that write it again where it is not too large for them."""
    found = replace(
        row(record),
        key=data(record.key, WHOLE_BYTES_MAX),
        value=data(record.value, WHOLE_BYTES_MAX),
        headers=[(name, data(each, WHOLE_BYTES_MAX)) for name, each in record.headers[:HEADERS_MAX]],
    )
    size = sum(len(each or b"") for each in (record.key, record.value, *(each for _, each in record.headers)))
    if size > WHOLE_BYTES_MAX:
        return found
    return replace(found, as_python=python_lines(record, servers), as_command=produce_line(record, servers))


def python_lines(record: ConsumerRecord, servers: str) -> str:
    """Returns a program that writes the record again; the partition follows from its key."""
    headers = f", headers={list(record.headers)!r}" if record.headers else ""
    return (
        "from replog.client import SyncProducer\n\n"
        f"with SyncProducer({servers!r}) as producer:\n"
        f"    producer.send({record.topic!r}, {record.value!r}, {record.key!r}{headers}).result()\n"
    )


def produce_line(record: ConsumerRecord, servers: str) -> str:
    """Returns a line for a shell that writes the record again, into its partition, with its time."""
    line = json_line(record).decode().rstrip("\n")
    return (
        f"printf '%s\\n' {shlex.quote(line)} | replog produce {shlex.quote(record.topic)} --format json "
        f"--bootstrap-servers {shlex.quote(servers)}"
    )
