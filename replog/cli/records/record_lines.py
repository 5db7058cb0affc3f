"""What a line of `replog produce` says of a record: its value, its value and key, or all of it as JSON or CSV.

| format      | a line                                                                              |
|-------------|-------------------------------------------------------------------------------------|
| `text`      | the value; with a separator the key, the separator and the value                    |
| `key-value` | the key, a tab and the value                                                        |
| `json`      | what `replog consume --format json` prints; all but `value` may be left out         |
| `csv`       | cells, as the first line names them: value, key, timestamp, partition, header.NAME  |

In JSON a key, a value and the data of a header are text, null, or `{"base64": "..."}` for bytes of any kind.  A value of null is a
tombstone.  `topic` and `offset` are passed over: they say where the record was.  A cell of CSV that is empty is no key, no
timestamp, no partition or no header, but a value of no bytes.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from replog.cli.common import INT_MAX, OFFSET_MAX, is_number, shown_bytes
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.client import ConsumerRecord


LINE_BYTES_MAX: Final = 64 << 20
"""A longer line counts as several; no record can be that large."""

_REASON_CHARACTERS_MAX: Final = 300


class LineFormat(StrEnum):
    """What a line is."""

    TEXT = "text"
    KEY_VALUE = "key-value"
    JSON = "json"
    CSV = "csv"


class LineRecord(Struct, frozen=True):
    """A record as a line says it; None where it does not.

    Attributes:
        timestamp_ms: The time, milliseconds since 1970; -1: the record has none.
        headers: Pairs of a name and data.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class WrongLineError(Exception):
    """A line is no record; the text says why, to stand behind the number of the line."""


class Lines(Protocol):
    """Takes line after line, without their ends."""

    @property
    def is_open(self) -> bool:
        """Whether the lines to come belong to a record that has begun."""

    def record(self, line: bytes) -> LineRecord | None:
        """Returns the record that ends with this line; None: none does.

        Raises:
            WrongLineError: It is none.
        """


def lines_of(form: LineFormat, key_separator: str | None) -> Lines:
    """Returns what takes lines, as the options say.

    Raises:
        UsageError: The separator is empty, or given for another format than text.
    """
    if key_separator == "":
        reason = "--key-separator is empty; leave it out for records without keys"
        raise UsageError("--key-separator", key_separator, reason)
    if key_separator is not None and form is not LineFormat.TEXT:
        raise UsageError(
            "--key-separator",
            key_separator,
            f"--key-separator is of --format text; --format {form} has a key of its own",
        )
    if form is LineFormat.JSON:
        return JsonRecordLines()
    if form is LineFormat.CSV:
        return CsvRecordLines()
    return TextRecordLines(KEY_VALUE_SEPARATOR if form is LineFormat.KEY_VALUE else key_separator)


class TextRecordLines:
    """Lines of text.

    Args:
        separator: What stands between key and value; None: there are no keys.
    """

    is_open = False

    def __init__(self, separator: str | None) -> None:
        self._shown = separator
        self._separator = None if separator is None else separator.encode()

    def record(self, line: bytes) -> LineRecord:
        """Returns the record.

        Raises:
            WrongLineError: The separator is not in it.
        """
        text = line.removesuffix(b"\r")
        if self._separator is None:
            return LineRecord(text)
        key, found, value = text.partition(self._separator)
        if not found:
            shown = "tab" if self._shown == KEY_VALUE_SEPARATOR else f'"{self._shown}"'
            raise WrongLineError(f"has no {shown} between key and value")
        return LineRecord(value, key)


class _Base64(Struct, forbid_unknown_fields=True):
    base64: bytes


_Data: TypeAlias = str | _Base64 | None


class _JsonRecord(Struct, forbid_unknown_fields=True):
    value: _Data
    key: _Data = None
    headers: list[tuple[str, _Data]] | dict[str, _Data] = []
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


class JsonRecordLines:
    """Lines of JSON, an object each."""

    is_open = False

    def __init__(self) -> None:
        self._decode: Callable[[bytes], _JsonRecord] = msgspec.json.Decoder(_JsonRecord).decode

    def record(self, line: bytes) -> LineRecord:
        """Returns the record.

        Raises:
            WrongLineError: It is no JSON, or none of a record.
        """
        try:
            found = self._decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # the second: no UTF-8
            told = str(error)[:_REASON_CHARACTERS_MAX].rstrip(".")
            raise WrongLineError(
                f'is no record as JSON: {told}. Say for example {{"key": "k", "value": "v"}}; text, null and '
                '{"base64": "..."} are data'
            ) from None
        headers = found.headers.items() if isinstance(found.headers, dict) else found.headers
        return LineRecord(
            _bytes(found.value),
            _bytes(found.key),
            _number("partition", found.partition, 0, INT_MAX),
            _number("timestamp", found.timestamp, -1, OFFSET_MAX),
            tuple((name, _bytes(data)) for name, data in headers),
        )


class CsvRecordLines:
    """Lines of CSV (RFC 4180) behind one with the names of the columns; a quoted cell may have line ends in it."""

    HEADER: Final = "header."
    COLUMNS: Final = ("value", "key", "timestamp", "partition")

    def __init__(self) -> None:
        csv.field_size_limit(LINE_BYTES_MAX)
        self._columns: Sequence[str] = ()
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._is_quoted = False

    @property
    def is_open(self) -> bool:
        """Whether a quoted cell has begun and not ended."""
        return bool(self._begun)

    def record(self, line: bytes) -> LineRecord | None:
        """Returns the record that ends with this line; None: a quoted cell goes on, or it names the columns.

        Raises:
            WrongLineError: It is no CSV, or has other cells than the first line.
        """
        self._begun.append(line)
        self._begun_bytes += len(line) + 1
        self._is_quoted ^= bool(line.count(b'"') % 2)
        if self._is_quoted and self._begun_bytes <= LINE_BYTES_MAX:
            return None
        whole, self._begun, self._begun_bytes = b"\n".join(self._begun).removesuffix(b"\r"), [], 0
        try:
            rows = list(csv.reader([whole.decode()], strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise WrongLineError(f"is no CSV in UTF-8: {error}. Bytes of any kind go with --format json") from None
        cells = rows[0] if rows else []
        if self._columns:
            return self._record(cells)
        self._columns = self._checked(cells)
        return None

    def _checked(self, names: Sequence[str]) -> Sequence[str]:
        wrong = [name for name in names if name not in self.COLUMNS and not name.startswith(self.HEADER)]
        if wrong or "value" not in names or len(set(names)) < len(names):
            what = (
                f'names "{wrong[0][:80]}"'
                if wrong
                else "names one twice"
                if "value" in names
                else 'does not name "value"'
            )
            raise WrongLineError(
                f"{what}: the first line of CSV names each column once, as value, key, timestamp, partition or header.NAME"
            )
        return names

    def _record(self, cells: Sequence[str]) -> LineRecord:
        if len(cells) != len(self._columns):
            raise WrongLineError(f"has {len(cells)} cells, and the first line names {len(self._columns)}")
        by_name = dict(zip(self._columns, cells, strict=True))
        key = by_name.get("key")
        return LineRecord(
            by_name["value"].encode(),
            key.encode() if key else None,
            self._digits("partition", by_name.get("partition"), INT_MAX),
            self._digits("timestamp", by_name.get("timestamp"), OFFSET_MAX),
            tuple(
                (name.removeprefix(self.HEADER), cell.encode())
                for name, cell in by_name.items()
                if name.startswith(self.HEADER) and cell
            ),
        )

    @staticmethod
    def _digits(name: str, cell: str | None, number_max: int) -> int | None:
        if not cell:
            return None
        if not is_number(cell, number_max):
            raise WrongLineError(f'has the {name} "{cell[:80]}", which is no whole number from 0 to {number_max}')
        return int(cell)


def _bytes(data: _Data) -> bytes | None:
    return data.base64 if isinstance(data, _Base64) else None if data is None else data.encode()


def _number(name: str, number: int | None, number_min: int, number_max: int) -> int | None:
    if number is not None and not number_min <= number <= number_max:
        raise WrongLineError(f"has the {name} {number}, which is not from {number_min} to {number_max}")
    return number


# ---- how records are printed: as JSON, which `replog produce --format json` takes back byte for byte, or as text by a template


Show: TypeAlias = "Callable[[ConsumerRecord], bytes]"
"""What makes a line of a record, its end included."""

JSON = "json"
VALUE = "value"
KEY_VALUE = "key-value"
KEY_VALUE_SEPARATOR = "\t"
"""Of `key-value`, as Kafka's console consumer has it."""

_EXPECTED: Final = (
    f"{JSON}, {VALUE}, {KEY_VALUE}, or a template of %k (key), %v (value), %t (topic), %p (partition), %o (offset), "
    r"%T (timestamp, ms), %%, \t and \n, such as '%p %o %k=%v'"
)
_PART: Final = re.compile(r"%(.?)|\\(.?)", re.DOTALL)
_FIELDS: Final[dict[str, Show]] = {
    "%": lambda _: b"%",
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
}
_ESCAPES: Final = {"t": b"\t", "n": b"\n", "\\": b"\\"}


def show_of(form: str | None, key_separator: str | None, *, as_json: bool) -> Show:
    """Returns what makes a line of a record, as the options say.

    Args:
        form: What --format says; None: nothing.
        key_separator: What --key-separator says; None: nothing.
        as_json: Whether --json is given.

    Raises:
        UsageError: They contradict each other, or the format is none.
    """
    if (form is not None) + (key_separator is not None) + as_json > 1:
        reason = (
            "--format, --key-separator and --json: give one of them; a template such as '%k:%v' has the separator in it"
        )
        raise UsageError("--format", form, reason)
    if as_json or form == JSON:
        return json_line
    if form == KEY_VALUE:
        key_separator = KEY_VALUE_SEPARATOR
    if form is None or form in {VALUE, KEY_VALUE}:
        return text_line(key_separator)
    return _template(form)


def text_line(key_separator: str | None) -> Show:
    """Returns what shows a value as it is; with the key and a separator before it, where there is a separator."""
    separator = (key_separator or "").encode()

    def show(record: ConsumerRecord) -> bytes:
        key = b"" if key_separator is None else (record.key or b"") + separator
        return key + (record.value or b"") + b"\n"

    return show


def json_line(record: ConsumerRecord) -> bytes:
    """Returns everything that a record has as one line of JSON; bytes that are no UTF-8 as an object with their base64."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": [[name, shown_bytes(data)] for name, data in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _template(text: str) -> Show:
    if "%" not in text:
        raise UsageError("--format", text, f'--format "{text}" is none of {_EXPECTED}')
    parts: list[bytes | Show] = []
    end = 0
    for found in _PART.finditer(text):
        parts.append(text[end : found.start()].encode())
        part = _ESCAPES.get(found[2]) if found[1] is None else _FIELDS.get(found[1])
        if part is None:
            raise UsageError("--format", text, f'--format "{text}": {found[0]} means nothing; say {_EXPECTED}')
        parts.append(part)
        end = found.end()
    parts.append(f"{text[end:]}\n".encode())
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)
