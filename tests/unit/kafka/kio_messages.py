"""Messages of Kafka's protocol as `kio` knows them, an implementation that is not ours: made at random, and compared.

kio has a class for each message in each version; a duration there is a `timedelta`, an error code an enum, a time a
`datetime`, and the zero UUID None.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import math
import types
import typing
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

ZERO = UUID(int=0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
ERROR_CODES = tuple(ErrorCode)
FLOATS = (0.0, -1.5, 5e-324, 1e308, math.inf, -math.inf)
CHARACTERS = (range(0x80), range(0x80, 0x800), range(0x800, 0xD800), range(0xE000, 0x110000))
"""The code points that take so many bytes in UTF-8, without surrogates."""


def kio_class(api: str, side: str, version: int) -> Any:
    """kio's class: `api` in snake case, `side` "request" or "response"."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    name = f"{api}_{side}".replace("_", "")
    return next(each for key, each in vars(module).items() if key.lower() == name)


def written(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def read(cls: Any, data: bytes) -> Any:
    message, size = entity_reader(cls)(data, 0)
    assert size == len(data)
    return message


def any_message(cls: Any, rng: Random) -> Any:
    """Makes any message of a class of kio: what Hypothesis needs for one takes twenty times as long as all that is done with it."""
    return cls(**{name: _any_value(hint, metadata, rng) for name, hint, metadata in _described(cls)})


@cache
def _described(cls: Any) -> list[tuple[str, Any, Any]]:
    hints = typing.get_type_hints(cls)
    return [(each.name, hints[each.name], each.metadata) for each in dataclasses.fields(cls)]


def _any_value(hint: Any, metadata: Any, rng: Random) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (given,) = [each for each in typing.get_args(hint) if each is not type(None)]
        return None if rng.random() < 0.3 else _any_value(given, metadata, rng)
    if origin is tuple:
        return tuple(_any_value(typing.get_args(hint)[0], metadata, rng) for _ in range(rng.randrange(4)))
    if dataclasses.is_dataclass(hint):
        return any_message(hint, rng)
    return _any_scalar(metadata["kafka_type"], rng)


def _any_scalar(kind: str, rng: Random) -> Any:
    if kind in INTEGERS:
        lowest, highest = INTEGERS[kind]
        return rng.choice((0, 1, max(-1, lowest), lowest, highest, rng.randint(lowest, highest)))
    if kind.startswith("timedelta_"):
        return timedelta(milliseconds=rng.choice((0, 1, 2**31 - 1, rng.randrange(2**31))))
    match kind:
        case "datetime_i64":
            return EPOCH + timedelta(milliseconds=rng.choice((0, 1, rng.randrange(2**40))))
        case "error_code":
            return rng.choice(ERROR_CODES)
        case "string":
            return "".join(chr(rng.choice(rng.choice(CHARACTERS))) for _ in range(rng.choice((0, 1, 5, 20))))
        case "bytes" | "records":
            return rng.choice((b"", rng.randbytes(rng.randrange(40)), b"x" * 5_000))
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return UUID(int=rng.randrange(1, 2**128))
        case "float64":
            return rng.choice(FLOATS)
    raise AssertionError(kind)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Fields of our message that are not those of kio's."""
    found: list[str] = []
    if not isinstance(ours, Struct):
        return [] if ours == theirs else [f"{path}: {ours!r} is not {theirs!r}"]
    if theirs is None:  # a tagged struct of defaults
        return found
    names = {each.name for each in dataclasses.fields(theirs)}
    for each in _fields(type(ours)):
        value = getattr(ours, each.name)
        name = next((name for name in (each.name, each.name.removesuffix("_ms")) if name in names), None)
        if name is None:  # the version has no such field
            default = each.default if each.default_factory is NODEFAULT else each.default_factory()
            found += [] if value == default else [f"{path}.{each.name}: {value!r} is no default"]
            continue
        names.discard(name)
        found += _difference(value, getattr(theirs, name), f"{path}.{each.name}")
    return found + [f"{path}.{name} is missing" for name in sorted(names)]


_fields = cache(fields)  # it evaluates the annotations anew each time


def _difference(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(theirs, tuple) and isinstance(ours, list) and len(ours) == len(theirs):
        return [
            line for n, pair in enumerate(zip(ours, theirs, strict=True)) for line in _difference(*pair, f"{path}[{n}]")
        ]
    if isinstance(theirs, timedelta):
        theirs = theirs // timedelta(milliseconds=1)
    elif isinstance(theirs, datetime):
        theirs = (theirs - EPOCH) // timedelta(milliseconds=1)
    elif isinstance(theirs, IntEnum):
        theirs = int(theirs)
    elif theirs is None and isinstance(ours, UUID):
        theirs = ZERO
    elif theirs is None and ours == -1:  # no time
        theirs = -1
    elif ours is None and dataclasses.is_dataclass(theirs):  # not written: all of it has its defaults
        return [] if theirs == type(theirs)() else [f"{path}: nothing is not {theirs!r}"]
    if dataclasses.is_dataclass(theirs):
        return differences(ours, theirs, path)
    return [] if ours == theirs else [f"{path}: {ours!r} is not {theirs!r}"]
