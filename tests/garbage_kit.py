"""What nobody can reach any more and nothing has freed: cycles, and the records that they keep in memory.

A broker looks for cycles seldom on purpose, so what is in one stays for minutes.  Here the collector is off, and what it
would have found is looked through for records, which bear a mark.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Iterator
from typing import Any

MARK = b"these bytes are of a record and must go with whoever has read them; "
VALUE = MARK * 20


class Garbage:
    """What has become unreachable since the collector was switched off."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def with_records(self) -> list[str]:
        """Returns what holds records among that which has become unreachable since the last call, described."""
        gc.collect()
        new = [found for found in gc.garbage if id(found) not in self._seen]
        self._seen.update(map(id, new))
        return [_described(found) for found in new if _holds_records(found)]


@contextlib.contextmanager
def garbage() -> Iterator[Garbage]:
    """Switches the collector off, and keeps what it would have freed."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield Garbage()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _holds_records(found: Any) -> bool:
    """Whether it is a record, or refers to one; also by way of tuples that the collector has no eye on."""
    if _is_record(found):
        return True
    for held in gc.get_referents(found):
        if _is_record(held) or (isinstance(held, tuple) and not gc.is_tracked(held) and _holds_records(held)):
            return True
    return False


def _is_record(found: Any) -> bool:
    if isinstance(found, memoryview):
        try:
            return MARK in found.tobytes()
        except ValueError:  # it was released
            return False
    return isinstance(found, bytes | bytearray) and MARK in found


def _described(found: Any) -> str:
    if isinstance(found, types.FrameType):
        return f"frame of {found.f_code.co_qualname}, line {found.f_lineno}"
    if isinstance(found, types.FunctionType):
        return f"function {found.__qualname__}"
    return type(found).__qualname__
