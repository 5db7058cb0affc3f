"""The two checkpoints that are one line of JSON share this reader and writer.

Written as Kafka writes them: no white space, no newline at the end.  Fields that the reader does not know are left alone,
so that a newer writer's file can be read; a field that appears twice is damage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from replog_checkpoints.errors import DamagedCheckpointError

JSON_SIZE_BYTES_MAX: Final = 1024 * 1024


def format_object(fields: Mapping[str, object]) -> bytes:
    """Returns compact JSON with the keys in the order given."""
    return json.dumps(dict(fields), separators=(",", ":")).encode("utf-8")


class JsonObject:
    """One parsed JSON object whose getters raise `DamagedCheckpointError` with the path of its file."""

    __slots__ = ("_fields", "path")

    def __init__(self, path: str, data: bytes) -> None:
        """Parses a complete file.

        Raises:
            CorruptCheckpointError: It is empty, not JSON or not an object, or a field appears twice.
        """
        self.path = path
        self._fields = _parse(path, data)

    def number(self, name: str, value_min: int, value_max: int) -> int:
        """Returns an integer field that must be there, in an inclusive range."""
        return self.as_number(name, self.field(name), value_min, value_max)

    def text(self, name: str) -> str:
        """Returns a string field that must be there."""
        value = self.field(name)
        if not isinstance(value, str):
            raise self.corrupt(f"{name} is not a string")
        return value

    def objects(self, name: str) -> list[Mapping[str, object]]:
        """Returns a field that is a list of objects; a JSON null reads as an empty list."""
        value = self.field(name)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not (value is None or isinstance(value, list)) or not all(isinstance(item, dict) for item in items):
            raise self.corrupt(f"{name} is not a list of objects")
        return cast("list[Mapping[str, object]]", items)

    def has(self, name: str) -> bool:
        """Whether a field is there."""
        return name in self._fields

    def field(self, name: str) -> object:
        """Returns a field of any type that must be there."""
        if name not in self._fields:
            raise self.corrupt(f"{name} is missing")
        return self._fields[name]

    def as_number(self, name: str, value: object, value_min: int, value_max: int) -> int:
        """Returns `value`, which must be an integer (not a bool) in the inclusive range."""
        if not isinstance(value, int) or isinstance(value, bool) or not value_min <= value <= value_max:
            raise self.corrupt(f"{name} is not a number from {value_min} to {value_max}")
        return value

    def corrupt(self, reason: str) -> DamagedCheckpointError:
        """Returns the error for this file, which has only one line."""
        return DamagedCheckpointError(self.path, 1, reason)


def _parse(path: str, data: bytes) -> dict[str, object]:
    if not data:
        raise DamagedCheckpointError(path, 1, "the file is empty")
    try:
        document: object = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_fields)
    except json.JSONDecodeError as error:
        raise DamagedCheckpointError(path, error.lineno, f"not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a field twice, a number or a nesting without end
        raise DamagedCheckpointError(path, 1, f"not a readable JSON object: {error}") from error
    if not isinstance(document, dict):
        raise DamagedCheckpointError(path, 1, "not a JSON object")
    return cast("dict[str, object]", document)


def _unique_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field appears twice")
    return fields
