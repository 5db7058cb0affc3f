"""Sorts a great many things in a thread without holding up the others.

A sort is one call of the interpreter, which no other thread interrupts: a hundred thousand names hold the event loop for most of a
tenth of a second, in whichever thread they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar, cast

SORTED_AT_ONCE: Final = 5_000
"""Things that are sorted in one call: a millisecond or two."""


T = TypeVar("T")


def sorted_in_pieces(things: Iterable[T]) -> Iterable[T]:
    """Returns the same as `sorted`, in pieces that are sorted one by one and merged; each thing is merged when it is asked for.

    Args:
        things: The things, which can be compared.
    """
    left, pieces = iter(cast("Iterable[Any]", things)), list[list[Any]]()
    while piece := sorted(islice(left, SORTED_AT_ONCE)):
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else merge(*pieces)
