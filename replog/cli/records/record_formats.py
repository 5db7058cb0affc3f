"""How records are printed: as JSON, which `replog produce --format json` takes back byte for byte, or as text by a template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from replog.cli.common import shown_bytes
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.client import ConsumerRecord

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
