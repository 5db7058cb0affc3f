"""Json values to Arrow columns, in pure Python: the twin of `_compiled`, and the meaning of both.

The standard library reads the json; what it would let pass, or makes something else of, is looked at here.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from typing import Any, Final, NoReturn

from replog.records._columns_py import BinaryColumn
from replog.records.model import Buffer
from replog.spark.json_decoder.model import CELLS_MAX, DEPTH_MAX, JsonColumn, JsonKind, Shape
from replog.spark.json_decoder.texts import days_of, microseconds_of, unscaled_of

IMPLEMENTATION = "python"

_SHOWN_CHARACTERS_MAX = 40
_BITS: Final = {JsonKind.INT8: 8, JsonKind.INT16: 16, JsonKind.INT32: 32, JsonKind.INT64: 64}
_CODES: Final = {
    JsonKind.INT8: "b", JsonKind.INT16: "h", JsonKind.INT32: "i", JsonKind.INT64: "q", JsonKind.FLOAT: "f", JsonKind.DOUBLE: "d", JsonKind.DATE: "i",
    JsonKind.TIMESTAMP: "q",
}  # fmt: skip
_TEXT_KINDS: Final[dict[JsonKind, tuple[Callable[[str], int | None], str]]] = {
    JsonKind.DATE: (days_of, 'no date such as "2024-02-29"'),
    JsonKind.TIMESTAMP: (microseconds_of, 'no time with its zone, such as "2024-02-29T12:00:00Z"'),
}


class MisfitError(ValueError):
    """A value does not fit the shape.

    Args:
        reason: What is wrong with it.
        path: The names and places that lead to it; none: it is the whole value.
    """

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


class TooLargeError(MisfitError):
    """A value fits, and would become too much."""


class _Object(list[tuple[str, Any]]):
    """An object of json with all of its pairs."""

    __slots__ = ()


class _Integer(str):
    """A number without a fraction or an exponent, as it was written."""

    __slots__ = ()


class _Fraction(str):
    """Another number, as it was written."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of json")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Integer, parse_float=_Fraction, parse_constant=_refuse_constant
)


def decode_values(
    shape: Shape,
    validity: Buffer | None,
    offsets: Buffer,
    data: Buffer,
    start: int,
    stop: int,
    *,
    is_strict: bool,
    cells_max: int,
) -> tuple[JsonColumn, int, bool]:
    """Decodes values of a binary column of Arrow.

    Args:
        shape: The struct that each value is read as.
        validity: The bitmap of the column; None: nothing is null.
        offsets: The places in `data` where the values end, int32, with a 0 in front of the first.
        data: The bytes of all values.
        start: The first value to decode.
        stop: The end of what to decode, exclusive.
        is_strict: Whether to end before a value that does not fit; otherwise it is null.
        cells_max: The number of cells at which to end behind a value, so that memory is bounded; at least one value is decoded.

    Returns:
        The column, the place of the next value, and whether that one does not fit.

    Raises:
        ValueError: The buffers are shorter than `stop`, or an offset leads out of the data.
    """
    ends = memoryview(offsets).cast("B").cast("i")
    present = None if validity is None else memoryview(validity).cast("B")
    view = memoryview(data).cast("B")
    if not 0 <= start <= stop < len(ends) or (present is not None and len(present) * 8 < stop):
        raise ValueError(f"values {start} to {stop} are not all in these buffers")
    builder, cells, row = _Builder(shape), 0, start
    null_cells = _null_cells(shape)
    while row < stop and cells < cells_max:
        if not 0 <= ends[row] <= ends[row + 1] <= len(view):
            raise ValueError(f"value {row} leads out of the data")
        fitted: Any = None
        own_cells = null_cells
        if present is None or present[row >> 3] >> (row & 7) & 1:
            fitting = _Fitting()
            try:
                fitted = fitting.fit_value(shape, bytes(view[ends[row] : ends[row + 1]]))
            except MisfitError:
                if is_strict:
                    return builder.finish(), row, True
            else:
                own_cells = fitting.cells
        builder.append(fitted)
        cells += own_cells
        row += 1
    return builder.finish(), row, False


def misfit_of(shape: Shape, value: bytes) -> str | None:
    """Returns why a value does not fit, as a part of a sentence behind "the value"; None: it does."""
    try:
        _Fitting().fit_value(shape, value)
    except MisfitError as error:
        place = ".".join(part[:_SHOWN_CHARACTERS_MAX] for part in error.path[:8])
        return f"does not fit the schema: {place!r} is {error.reason}" if place else error.reason
    return None


def _null_cells(shape: Shape) -> int:
    """Returns how many cells a null has, with those of a struct's fields."""
    return 1 + (sum(map(_null_cells, shape.children)) if shape.kind is JsonKind.STRUCT else 0)


class _Fitting:
    """Fits one value to a shape; counts the cells that it becomes."""

    def __init__(self) -> None:
        self.cells = 0

    def fit_value(self, shape: Shape, value: bytes) -> tuple[Any, ...]:
        """Returns what the struct `shape` has of a value, in the form that `_Builder` takes.

        Raises:
            MisfitError: The value is no json object, or does not fit.
        """
        try:
            parsed = _DECODER.decode(value.decode())
        except UnicodeDecodeError:
            raise MisfitError("is not UTF-8") from None
        except RecursionError:
            raise MisfitError(f"is nested deeper than {DEPTH_MAX}") from None
        except ValueError as error:
            raise MisfitError(f"is no json ({error})") from None
        if not isinstance(parsed, _Object):
            raise MisfitError(f"is {_word(parsed)}, and no json object")
        _check(parsed, 1)
        fitted: tuple[Any, ...] = self._struct(shape, parsed)
        self._count(0)
        return fitted

    def _fit(self, shape: Shape, parsed: Any) -> Any:
        self._count(0)
        if parsed is None:
            return self._count(_null_cells(shape))
        match shape.kind:
            case JsonKind.STRUCT:
                return self._struct(shape, parsed)
            case JsonKind.LIST:
                return self._list(shape, parsed)
            case JsonKind.MAP:
                return self._map(shape, parsed)
            case _:
                self._count(1)
                return _scalar(shape, parsed)

    def _struct(self, shape: Shape, parsed: Any) -> tuple[Any, ...]:
        _require(parsed, _Object, "an object")
        places = {name: place for place, name in enumerate(shape.names)}
        fitted: list[Any] = [None] * len(places)
        missing = set(places)
        for name, item in parsed:
            if (place := places.get(name)) is not None:
                fitted[place] = self._within(name, shape.children[place], item)
                missing.discard(name)
        for name in missing:
            self._count(_null_cells(shape.children[places[name]]))
        self._count(1)
        return tuple(fitted)

    def _list(self, shape: Shape, parsed: Any) -> list[Any]:
        _require(parsed, list, "an array")
        fitted = [self._within(str(place), shape.children[0], item) for place, item in enumerate(parsed)]
        self._count(1)
        return fitted

    def _map(self, shape: Shape, parsed: Any) -> list[tuple[bytes, Any]]:
        _require(parsed, _Object, "an object")
        fitted = [(name.encode(), self._within(name, shape.children[0], item)) for name, item in parsed]
        self._count(1 + len(fitted))
        return fitted

    def _within(self, name: str, shape: Shape, parsed: Any) -> Any:
        try:
            return self._fit(shape, parsed)
        except TooLargeError:
            raise
        except MisfitError as error:
            raise MisfitError(error.reason, (name, *error.path)) from None

    def _count(self, cells: int) -> None:
        self.cells += cells
        if self.cells > CELLS_MAX:
            raise TooLargeError(f"would become more than {CELLS_MAX} cells")


def _check(parsed: Any, depth: int) -> None:
    """Looks at all of a parsed value: how deep it is, and whether its texts are Unicode."""
    if isinstance(parsed, list):
        if depth > DEPTH_MAX:
            raise MisfitError(f"is nested deeper than {DEPTH_MAX}")
        for item in parsed:
            if isinstance(item, tuple):
                _check(item[0], depth)
                _check(item[1], depth + 1)
            else:
                _check(item, depth + 1)
    elif isinstance(parsed, str):
        try:
            parsed.encode()
        except UnicodeEncodeError:
            raise MisfitError("has half of a surrogate pair, which is no character") from None


def _require(parsed: Any, kind: type, wanted: str) -> None:
    if type(parsed) is not kind:
        raise MisfitError(f"{_word(parsed)}, not {wanted}")


def _word(parsed: Any) -> str:
    if isinstance(parsed, bool):
        return "true or false"
    words = {_Object: "an object", list: "an array", str: "a string", type(None): "null"}
    return words.get(type(parsed), "a number")


def _scalar(shape: Shape, parsed: Any) -> Any:
    kind = shape.kind
    if kind is JsonKind.BOOLEAN:
        _require(parsed, bool, "true or false")
        return parsed
    if kind is JsonKind.STRING:
        _require(parsed, str, "a string")
        return parsed.encode()
    if kind in _TEXT_KINDS:
        _require(parsed, str, "a string")
        read, complaint = _TEXT_KINDS[kind]
        return _unless_none(read(parsed), complaint)
    if kind is JsonKind.DECIMAL:
        if type(parsed) not in {_Integer, _Fraction, str}:
            raise MisfitError(f"{_word(parsed)}, not a number")
        complaint = f"no number of {shape.precision} digits, {shape.scale} of them behind the point"
        return _unless_none(unscaled_of(parsed, shape.precision, shape.scale), complaint)
    if type(parsed) not in {_Integer, _Fraction}:
        raise MisfitError(f"{_word(parsed)}, not a number")
    if kind in _BITS:
        return _unless_none(_integer(parsed, _BITS[kind]), f"no whole number of {_BITS[kind]} bits")
    return float(parsed)


def _integer(parsed: str, bits: int) -> int | None:
    if not isinstance(parsed, _Integer) or len(parsed) > 20:  # json allows no zeros in front
        return None
    number = int(parsed)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _unless_none(number: int | None, complaint: str) -> int:
    if number is None:
        raise MisfitError(complaint)
    return number


class _Builder:
    """A column being filled with what fits."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._nulls = bytearray()  # one byte for each cell, 1 = null
        self._ends = array("i", (0,))
        self._cells: Any = array(_CODES.get(shape.kind, "B"))
        self._texts = BinaryColumn()
        keys = (Shape(JsonKind.STRING),) if shape.kind is JsonKind.MAP else ()
        self._children = [_Builder(child) for child in (*keys, *shape.children)]

    def append(self, fitted: Any) -> None:
        """Adds a cell; None: null."""
        self._nulls.append(fitted is None)
        match self._shape.kind:
            case JsonKind.STRUCT:
                for child, item in zip(self._children, fitted or [None] * len(self._children), strict=True):
                    child.append(item)
            case JsonKind.LIST:
                for item in fitted or ():
                    self._children[0].append(item)
                self._ends.append(len(self._children[0]))
            case JsonKind.MAP:
                for name, item in fitted or ():
                    self._children[0].append(name)
                    self._children[1].append(item)
                self._ends.append(len(self._children[0]))
            case JsonKind.STRING:
                self._texts.append(fitted)
            case JsonKind.DECIMAL:
                self._cells.frombytes((fitted or 0).to_bytes(16, "little", signed=True))
            case _:
                self._cells.append(0 if fitted is None else fitted)  # -0.0 is not 0

    def __len__(self) -> int:
        return len(self._nulls)

    def finish(self) -> JsonColumn:
        """Returns the column."""
        kind = self._shape.kind
        offsets: Buffer | None = self._ends.tobytes() if kind in {JsonKind.LIST, JsonKind.MAP} else None
        data: Buffer | None = None if kind in {JsonKind.STRUCT, JsonKind.LIST, JsonKind.MAP} else self._cells.tobytes()
        if kind is JsonKind.STRING:
            offsets, data, _, _ = self._texts.finish()
        elif kind is JsonKind.BOOLEAN:
            data = _bitmap(self._cells)
        null_count = sum(self._nulls)
        validity = _bitmap(bytes(1 - null for null in self._nulls)) if null_count else None
        children = tuple(child.finish() for child in self._children)
        return JsonColumn(len(self), null_count, validity, offsets, data, children)


def _bitmap(bits: bytes | array[int]) -> bytes:
    """Packs bytes that are 0 or 1, the first into the lowest bit."""
    packed = bytearray((len(bits) + 7) // 8)
    for place, bit in enumerate(bits):
        packed[place >> 3] |= bit << (place & 7)
    return bytes(packed)
