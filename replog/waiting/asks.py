"""Questions that know what answers them, and so does a type checker."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

A_co = TypeVar("A_co", covariant=True)


class Asks(Struct, Generic[A_co], frozen=True):
    """A question; `A_co` is the class of its answer."""
