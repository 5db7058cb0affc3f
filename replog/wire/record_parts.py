"""Keys and values of records of Kafka's internal topics, read and written by the types of their fields.

A class says of each field its type, and where that matters which versions have it and whether it is a tagged one::

    class OffsetCommitValue(RecordPart):
        offset: Int64 = 0
        leader_epoch: Annotated[Int32, FieldPlace(first=3)] = -1
        topic_id: Annotated[UUID, FieldPlace(first=4, tag=0)] = ZERO_UUID

A plan is made of that once for each version, when the first record of it comes.  The messages of requests are generated
as straight code instead, which takes half of the time: there are thousands of them for one of these records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from msgspec import Struct

from replog.wire.primitives import Reader, Writer

Int8: TypeAlias = Annotated[int, "b"]
Int16: TypeAlias = Annotated[int, "h"]
Int32: TypeAlias = Annotated[int, "i"]
Int64: TypeAlias = Annotated[int, "q"]

ZERO_UUID: Final = UUID(int=0)
_LAYOUTS: Final[Mapping[str, struct.Struct]] = {code: struct.Struct(f">{code}") for code in "bhiq"}


class FieldPlace(NamedTuple):
    """Where a field is.

    Attributes:
        first: The first version that has it.
        last: The last version that has it.
        tag: Its number among the tagged fields; None: it is none of them.
    """

    first: int = 0
    last: int = 2**15 - 1
    tag: int | None = None


class RecordPart(Struct):
    """A key or a value; its class says how it looks in each version.

    Attributes:
        RECORD_TYPE: The number of the type of records.
        VERSIONS: The versions that can be read and written; keys have one.
        FLEXIBLE_FROM: The first version whose structs end in tagged fields (KIP-482); keys have none.
    """

    RECORD_TYPE: ClassVar[int]
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_FROM: ClassVar[int] = 2**15 - 1

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        """Reads one.  Raises: MalformedFrameError: The bytes are none."""
        found: Self = _struct_codec(cls, version, version >= cls.FLEXIBLE_FROM).read(r)
        return found

    def write(self, w: Writer, version: int) -> None:
        """Writes it; fields that the version lacks are left out.  Raises: ValueError: A text is longer than its field can hold."""
        _struct_codec(type(self), version, version >= self.FLEXIBLE_FROM).write(w, self)


class _Codec(NamedTuple):
    """How a value is read and written in one version, and how many bytes it has at least."""

    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    least_bytes: int


@cache
def _struct_codec(cls: type[Struct], version: int, flexible: bool) -> _Codec:
    """Returns the codec of a struct in one version of its message."""
    plain: list[tuple[str, _Codec]] = []
    tagged: dict[int, tuple[str, _Codec, Any]] = {}
    blank, hints = cls(), get_type_hints(cls, include_extras=True)
    for name in cls.__struct_fields__:
        place = next(
            (each for each in getattr(hints[name], "__metadata__", ()) if isinstance(each, FieldPlace)), FieldPlace()
        )
        if not place.first <= version <= place.last:
            continue
        codec = _codec(hints[name], version, flexible, is_tagged=place.tag is not None)
        if place.tag is None:
            plain.append((name, codec))
        else:
            tagged[place.tag] = (name, codec, getattr(blank, name))

    def read(r: Reader) -> Struct:
        it = cls()
        for name, codec in plain:
            setattr(it, name, codec.read(r))
        for tag, value in r.tagged() if flexible else ():
            if tag in tagged:
                name, codec, _ = tagged[tag]
                setattr(it, name, codec.read(value))
                value.finish()
        return it

    def write(w: Writer, it: Struct) -> None:
        for name, codec in plain:
            codec.write(w, getattr(it, name))
        if flexible:
            w.tagged(
                (tag, _written(codec, getattr(it, name)))
                for tag, (name, codec, default) in sorted(tagged.items())
                if getattr(it, name) != default
            )

    return _Codec(read, write, max(1, sum(codec.least_bytes for _, codec in plain)))


def _written(codec: _Codec, value: Any) -> Writer:
    writer = Writer()
    codec.write(writer, value)
    return writer


def _codec(hint: Any, version: int, flexible: bool, *, is_tagged: bool = False) -> _Codec:
    """Returns the codec of a field's type.  Raises: TypeError: There is none."""
    if get_origin(hint) is Annotated:
        code = next((each for each in hint.__metadata__ if each in _LAYOUTS), None)
        return (
            _codec(hint.__origin__, version, flexible, is_tagged=is_tagged) if code is None else _number(_LAYOUTS[code])
        )
    is_nullable = get_origin(hint) in {Union, UnionType}
    (kind,) = (arm for arm in get_args(hint) if arm is not NoneType) if is_nullable else (hint,)
    if kind is UUID:
        return _Codec(Reader.uuid, Writer.uuid, 16)
    if kind is str or kind is bytes:
        return _sized(kind, flexible, is_nullable)
    if get_origin(kind) is list:
        return _array(
            _codec(get_args(kind)[0], version, flexible), get_args(kind)[0], flexible, is_nullable=is_nullable
        )
    if isinstance(kind, type) and issubclass(kind, Struct):
        inner = _struct_codec(kind, version, flexible)
        return _nullable(inner, is_tagged) if is_nullable else inner
    raise TypeError(f"no field of a record has the type {hint!r}")


def _number(layout: struct.Struct) -> _Codec:
    return _Codec(lambda r: r.fixed(layout)[0], lambda w, value: w.fixed(layout, value), layout.size)


def _sized(kind: type, flexible: bool, is_nullable: bool) -> _Codec:
    name = f"{'nullable_' if is_nullable else ''}{'text' if kind is str else 'raw'}"
    read, write = getattr(Reader, name), getattr(Writer, name)
    return _Codec(lambda r: read(r, flexible), lambda w, value: write(w, value, flexible), 1)


def _array(one: _Codec, hint: Any, flexible: bool, *, is_nullable: bool) -> _Codec:
    code = next((each for each in getattr(hint, "__metadata__", ()) if each in _LAYOUTS), None)
    read_count = Reader.nullable_count if is_nullable else Reader.count
    write_count = Writer.nullable_count if is_nullable else Writer.count

    def write(w: Writer, values: list[Any] | None) -> None:
        write_count(w, values, flexible)
        if code is not None:
            w.numbers(values or (), code)
            return
        if hint is str:
            w.texts(values or (), flexible)
            return
        for value in values or ():
            one.write(w, value)

    def read(r: Reader) -> list[Any] | None:
        count = read_count(r, flexible, one.least_bytes)
        if count is None:
            return None
        return [one.read(r) for _ in range(count)] if code is None else r.numbers(count, code)

    return _Codec(read, write, 1)


def _nullable(inner: _Codec, is_tagged: bool) -> _Codec:
    is_present = Reader.is_present_in_tag if is_tagged else Reader.is_present
    write_presence = Writer.presence_in_tag if is_tagged else Writer.presence

    def write(w: Writer, value: Any) -> None:
        write_presence(w, value)
        if value is not None:
            inner.write(w, value)

    return _Codec(lambda r: inner.read(r) if is_present(r) else None, write, 1)
