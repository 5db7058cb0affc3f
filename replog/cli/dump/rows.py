"""Rows: what a decoder found, ready for a line of text or of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

DAMAGE_KINDS = frozenset({"damage"})
"""Kinds of rows that say that a file is not as it should be."""


def damage(position: int | None, reason: str) -> Row:
    """Makes a row for something that cannot be read; `position` in bytes, None where the file as a whole is meant."""
    row: Row = {"kind": "damage"}
    if position is not None:
        row["position"] = position
    return row | {"reason": reason}


def row_as_text(row: Row) -> str:
    """Returns a row as text, `batch base_offset=0 last_offset=9 ...`; a file's name stands alone as a heading."""
    if row["kind"] == "file":
        return f"{row['path']}  {row['size_bytes']:,} bytes"
    fields = (f"{name}={_shown(value)}" for name, value in row.items() if name != "kind")
    indent = "    " if row["kind"] == "record" else "  "
    return f"{indent}{row['kind']}  {'  '.join(fields)}"


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case str() if value and value.isprintable() and " " not in value:
            return value
        case list() | tuple():
            return "[" + ",".join(map(_shown, value)) + "]"
        case str() | Mapping():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
