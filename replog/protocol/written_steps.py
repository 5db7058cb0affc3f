"""Long arrays of an answer that are written while they are made, a few elements at a time.

A hundred thousand partitions take more than a second to describe and to write.  In one piece, no other client would be served
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from replog.wire.primitives import Writer

AT_ONCE = 200
"""Elements that are made and written at a time: milliseconds."""


class Element(Protocol):
    """An element of an array, as it is generated."""

    def write(self, w: Writer, version: int) -> None: ...


E = TypeVar("E", bound=Element)
T = TypeVar("T")


class Steps:
    """Counts the parts of a long work, and lets others have their turn in between."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = AT_ONCE

    async def next(self) -> None:
        """Ends one of the small parts of the work."""
        self._left -= 1
        if not self._left:
            self._left = AT_ONCE
            await asyncio.sleep(0)


async def visible(things: Iterable[T], is_seen: Callable[[T], bool]) -> list[T]:
    """Returns the things that a client may see; the node does other work in between."""
    seen, steps = list[T](), Steps()
    for thing in things:
        if is_seen(thing):
            seen.append(thing)
        await steps.next()
    return seen


class WrittenElements:
    """Elements that are written already: stands in the place of an array, has their number, and writes them all.

    Args:
        version: The version in which they are written.

    Attributes:
        error_code: The error of one of them that has one; 0: none has.
    """

    def __init__(self, version: int) -> None:
        self.error_code = 0
        self._version = version
        self._count = 0
        self._writer = Writer()

    def add(self, element: Element) -> None:
        """Writes one more."""
        element.write(self._writer, self._version)
        self.error_code = self.error_code or getattr(element, "error_code", 0)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WrittenElements]:
        return iter((self,))

    def write(self, w: Writer, version: int) -> None:  # noqa: ARG002 -- the shape of elements
        """Writes them all."""
        w.written(self._writer.joined())


async def written_in_steps(elements: Iterable[E], version: int, steps: Steps) -> list[E]:
    """Returns the written elements in the place of an array of an answer, in order.

    Args:
        elements: The elements, which are made while they are asked for.
        version: The version of the answer.
        steps: The steps of the work of which this is a part.
    """
    written = WrittenElements(version)
    for element in elements:
        written.add(element)
        await steps.next()
    return cast("list[E]", written)


def elements_count(message: object, most: int) -> int:
    """Returns how many elements the arrays of a message have together, whatever they are nested in.

    What is written already counts as nothing (`WrittenElements`).

    Args:
        message: The message.
        most: The number beyond which nobody counts further.
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
