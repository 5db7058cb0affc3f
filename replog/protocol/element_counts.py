"""Counts the elements of an answer: even a short request may have an answer of a hundred thousand elements."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct


def elements_count(message: object, most: int) -> int:
    """Returns how many elements the arrays of a message have together, nested ones included.

    Elements that are written already do not count (`WrittenElements`).

    Args:
        message: The message.
        most: The number at which counting stops.
    """
    count, left = 0, list[Any]((message,))
    while left and count <= most:
        each = left.pop()
        cls: type = type(each)
        for name in _composed(cls):
            value = getattr(each, name)
            if isinstance(value, list):
                count += len(value)
                left += value[: most + 1] if value and isinstance(value[0], Struct) else ()
            elif isinstance(value, Struct):
                left.append(value)
    return count


@cache
def _composed(cls: type) -> tuple[str, ...]:
    """Returns the fields of a generated class that may be arrays or structs of the same message."""
    return tuple(name for name, kind in cls.__annotations__.items() if "list[" in kind or "." in kind)
