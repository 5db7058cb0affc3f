"""What the data source is used for.  An option belongs to one use or to several."""

from __future__ import annotations

import enum
from typing import Final

STRUCTURED: Final = ("json", "avro", "protobuf")
"""The value formats whose values are read as what a schema says."""


class Use(enum.Flag):
    """A kind of use, or several of them."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    ANY = READ | WRITE

    @property
    def title(self) -> str:
        """The words for it, as in "a batch read"."""
        return " or ".join(title for use, title in _TITLES.items() if use in self)


_TITLES = {Use.BATCH_READ: "batch read", Use.STREAM_READ: "stream read", Use.WRITE: "write"}
