"""What is read out of json values, and what comes out: the words that both decoders share."""

from __future__ import annotations

import enum

from msgspec import Struct

from replog.records.model import Buffer

DEPTH_MAX = 128
"""Objects and arrays within one another; a value that goes deeper does not fit."""

CELLS_MAX = 1 << 24
"""What one value may become, in cells: an array of empty objects is small, and each of them has a cell in every column."""


class JsonKind(enum.IntEnum):
    """What a json value is read as."""

    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    DATE = 8
    TIMESTAMP = 9
    DECIMAL = 10
    STRUCT = 11
    LIST = 12
    MAP = 13


class Shape(Struct, frozen=True):
    """What a json value is read as, with all that is in it.

    Attributes:
        kind: What it is.
        names: The names of a struct's fields, each once.
        children: The shapes of a struct's fields, of a list's elements, or of a map's values.
        precision: The digits of a decimal, at most 38.
        scale: How many of them are behind the point.
    """

    kind: JsonKind
    names: tuple[str, ...] = ()
    children: tuple[Shape, ...] = ()
    precision: int = 0
    scale: int = 0


class JsonColumn(Struct, frozen=True):
    """One column in Arrow's memory layout.

    Attributes:
        length: The number of its cells.
        null_count: How many of them are null.
        validity: A bitmap, 1 = present; None: nothing is null.
        offsets: The ends of strings, lists and maps, int32 * (length + 1), in `data` or the children; None: it is of another kind.
        data: The bytes of all strings, a bitmap of booleans, or the cells of fixed width one after the other; None: it has children.
        children: The columns of a struct's fields, of a list's elements, or of a map's keys and values.
    """

    length: int
    null_count: int
    validity: Buffer | None
    offsets: Buffer | None
    data: Buffer | None
    children: tuple[JsonColumn, ...] = ()
