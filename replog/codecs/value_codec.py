"""`ValueCodec`: the two functions that a codec has."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class ValueCodec(Protocol[T]):
    """Makes bytes of keys or values, and the other way round.  It is never given None: that is a tombstone, or no key.

    Whatever it raises says that this key or value is not one of its own.  Trouble that will pass and is not the record's, such as
    a server that does not answer, is a `RetriableError`: the same record is tried again, and none is skipped for it.
    """

    def encode(self, value: T, /) -> bytes:
        """Returns the bytes of a value; those of equal keys must be equal, for they choose the partition."""

    def decode(self, data: bytes, /) -> T:
        """Returns the value that bytes stand for; never None, which would look like a tombstone."""
