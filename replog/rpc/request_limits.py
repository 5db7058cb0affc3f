"""Bounds of what a request may say, checked where it arrives, before anything is made of it.

Why: names, paths and addresses are repeated in answers, in messages to people and in the metadata log, so one value of
megabytes would be carried everywhere.  Bytes of a message are bounded by the transport, records by the log; but a partition
takes twenty bytes in a request and a thousand in the memory of the broker that answers it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import Struct

from replog.errors import MalformedFrameError

MAX_TEXT_CHARACTERS = 4_096
"""Of one text in a request: as long as a path may be, and much longer than any name."""

MAX_PARTITIONS = 10_000
"""In one request for records, or with records: each is a step of the broker's loop, and an answer of its own."""

_Check = Callable[[Any], None]


def check_request(request: object) -> None:
    """Checks every text in a request, whatever it is nested in.

    Raises:
        MalformedFrameError: A text is longer than `MAX_TEXT_CHARACTERS`.
    """
    cls: type = type(request)
    check = _check_of(cls)
    if check is not None:
        check(request)


def check_text(name: str, text: str | None) -> None:
    """Checks one text as `check_request` does."""
    if text is not None and len(text) > MAX_TEXT_CHARACTERS:
        raise MalformedFrameError(f"{name} has {len(text)} characters, {MAX_TEXT_CHARACTERS} may be; shorten it")


def check_partitions(count: int) -> None:
    """Checks how many partitions a produce or fetch request names; raises as `check_request` does."""
    if count > MAX_PARTITIONS:
        raise MalformedFrameError(
            f"a request names {count:,} partitions, {MAX_PARTITIONS:,} may be; ask in several requests"
        )


@cache
def _check_of(cls: type) -> _Check | None:
    """Returns what checks a message; None where nothing in it is text."""
    hints = typing.get_type_hints(cls)
    texts = [name for name in _fields(cls) if hints[name] in {str, str | None}]
    checks = [(name, _of_field(f"{cls.__name__}.{name}", hints[name])) for name in _fields(cls) if name not in texts]
    others = [(name, check) for name, check in checks if check is not None]
    if not texts and not others:
        return None

    def check_all(value: Any) -> None:
        for name in texts:  # without a call for each: a request may name ten thousand things
            text = getattr(value, name)
            if text is not None and len(text) > MAX_TEXT_CHARACTERS:
                check_text(f"{cls.__name__}.{name}", text)
        for name, check in others:
            check(getattr(value, name))

    return check_all


def _fields(cls: type) -> tuple[str, ...]:
    return cls.__struct_fields__ if issubclass(cls, Struct) else ()


def _of_field(name: str, hint: Any) -> _Check | None:
    for arm in typing.get_args(hint):
        if arm is not type(None) and arm is not Ellipsis and (check := _of_field(name, arm)) is not None:
            return _each(check) if typing.get_origin(hint) is tuple else check
    if hint is str:
        return lambda text: check_text(name, text)
    if not (isinstance(hint, type) and issubclass(hint, Struct)):
        return None
    nested = _check_of(hint)
    return None if nested is None else lambda value: None if value is None else nested(value)


def _each(check: _Check) -> _Check:
    def check_all(values: Any) -> None:
        for value in values or ():
            check(value)

    return check_all
