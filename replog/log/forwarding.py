"""The face of an object whose work is done by parts: what users call there is a method of a part."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def forwarded(part: str, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Returns a method that does what a part's does, with the same arguments and docstring.

    It costs about half a microsecond more than one that is written out: what is called for each batch is.

    Args:
        part: The attribute that has the part.
        method: The method of the part's class.
    """
    find: Callable[[Any], Callable[P, T]] = attrgetter(f"{part}.{method.__name__}")

    def call(self: Any, /, *args: P.args, **others: P.kwargs) -> T:
        return find(self)(*args, **others)

    return update_wrapper(call, method)
