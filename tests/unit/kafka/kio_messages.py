"""Messages of Kafka's protocol as `kio` knows them, an implementation that is not ours: made at random, and compared.

kio has a class for each message in each version; a duration there is a `timedelta`, an error code an enum, a time a
`datetime`, and the zero UUID None.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import types
import typing
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
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
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=40) | st.just(b"x" * 5_000)


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


@cache
def messages(cls: Any) -> st.SearchStrategy[Any]:
    """Any message of a class of kio."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{each.name: _values(hints[each.name], each.metadata) for each in dataclasses.fields(cls)})


def _values(hint: Any, metadata: Any) -> st.SearchStrategy[Any]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        arms = typing.get_args(hint)
        (given,) = [each for each in arms if each is not type(None)]
        return st.none() | _values(given, metadata)
    if origin is tuple:
        return st.lists(_values(typing.get_args(hint)[0], metadata), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return messages(hint)
    kind = metadata["kafka_type"]
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind.startswith("timedelta_"):
        return st.integers(0, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms))
    if kind == "datetime_i64":
        return st.integers(0, 2**40).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
    return {
        "error_code": st.sampled_from(ErrorCode),
        "string": TEXTS,
        "bytes": BYTES,
        "records": BYTES,
        "bool": st.booleans(),
        "uuid": st.uuids(),
        "float64": st.floats(allow_nan=False),
    }[kind]


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
