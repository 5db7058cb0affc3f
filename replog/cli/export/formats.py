"""What exports are written as, and how bytes are shown where a format is text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, assert_never

from replog.cli.common import shown_bytes


class Format(Enum):
    """What an export is written as."""

    ARROW = "arrow"
    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


class Encoding(Enum):
    """How JSON lines show keys, values and header values.

    UTF_8 shows bytes as text where they are UTF-8, else as `{"base64": "..."}`; BASE64 shows all of them as base64 text.
    """

    UTF_8 = "utf-8"
    BASE64 = "base64"


def json_text(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Any],
    shown: Callable[[bytes | None], object],
    **more: object,
) -> str:
    """Returns a record as a line of JSON; headers are pairs, or objects of `key` and `value`."""
    pairs = [each.values() if isinstance(each, dict) else each for each in headers]
    row = {
        "offset": offset,
        "timestamp": timestamp,
        "key": shown(key),
        "value": shown(value),
        "headers": [[name, shown(data)] for name, data in pairs],
    }
    return json.dumps(row | more, ensure_ascii=False) + "\n"


def shower(encoding: Encoding) -> Callable[[bytes | None], object]:
    """Returns the function that makes what JSON shows of bytes."""
    match encoding:
        case Encoding.UTF_8:
            return shown_bytes
        case Encoding.BASE64:
            return lambda data: None if data is None else base64.b64encode(data).decode("ascii")
        case _:
            assert_never(encoding)
