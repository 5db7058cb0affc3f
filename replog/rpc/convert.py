"""Structs to protobuf messages and back, by field name.

Why: the cores' messages are plain structs and must not know protobuf; writing each of the sixty mappings by hand would
repeat every field name three times.  So two functions are generated for each class from its type hints, as a dataclass
generates `__init__`, when the class is first sent or received.  For `TopicPartition(topic: str, partition: int)`::

    def write(message, value):
        message.topic = value.topic
        message.partition = value.partition


    def read(message):
        return cls(topic=message.topic, partition=message.partition)

Bytes of records travel beside such a message (`frames`).

A field of type ``T | None`` is absent on the wire when None; a tuple that may be None travels in a message with one
repeated field `values`.  Partitions by topic id travel as a list of topics, an error as its code and its text.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.message import Message
from msgspec import Struct

from replog.errors import InvalidRequestError, MalformedFrameError, ReplogError
from replog.errors.from_code import error_code_of, error_from_number
from replog.rpc.messages import IN_PROCESS

T = TypeVar("T", bound=Struct)

_SHOWN_CHARACTERS = 80
_BUFFERS = {bytes, bytearray, memoryview}
_PARTITIONS_BY_TOPIC = Mapping[UUID, frozenset[int]]


class _Converter(Struct, frozen=True):
    """The functions generated for one class."""

    write: Callable[[Message, Any], None]
    read: Callable[[Message], Any]


class _Field(Struct, frozen=True):
    """Source text for one field: statements that fill it from `v`, an expression that reads it from `message`."""

    write: tuple[str, ...]
    read: str


_converters: dict[type[Struct], _Converter] = {}


def to_proto(value: Struct, message: Message) -> None:
    """Fills `message` from `value`; every field of `value` has a field of the same name.

    Raises:
        InvalidRequestError: A number is larger than its field, or something is of another type.
    """
    converter = _converters.get(type(value)) or _converter(type(value))
    converter.write(message, value)


def from_proto(cls: type[T], message: Message) -> T:
    """Makes a `cls` from `message`.

    Raises:
        MalformedFrameError: An id is not 16 bytes, or an enum value is not known to this version.
    """
    converter = _converters.get(cls) or _converter(cls)
    return typing.cast("T", converter.read(message))


def structs_of(message: type[Message], *modules: types.ModuleType) -> dict[str, Any]:
    """Returns the classes that travel in the fields of a message, by the name of the field: a class and its message have one name.

    Args:
        message: The message, of which each instance has one of the fields.
        modules: The modules that have the classes.
    """
    names = {name: cls for module in modules for name, cls in vars(module).items()}
    kinds = [(field.name, field.message_type.name) for field in message.DESCRIPTOR.fields if field.message_type]
    return {field: names[kind] for field, kind in kinds if kind in names}


def unsendable(where: str, value: object, error: Exception) -> InvalidRequestError:
    """Returns the error about a value that its field on the wire cannot hold.

    Args:
        where: The name of the message and the field.
        value: The value that was to be sent.
        error: The error that protobuf raised.
    """
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
    return InvalidRequestError(f"{where} is {shown}, which cannot be sent: {error}")


def _malformed(cls: type, error: ValueError) -> MalformedFrameError:
    return MalformedFrameError(
        f"{cls.__name__} from another version or damaged: {error}. Use the same replog version on both sides."
    )


def _converter(cls: type[Struct]) -> _Converter:
    """Returns the functions of a class, generated when it is asked for first.

    Raises:
        TypeError: A field is of a type that no field of a message stands for.
    """
    if cls not in _converters:
        names: dict[str, Any] = {"cls": cls, "unsendable": unsendable, "malformed": _malformed}
        hints = typing.get_type_hints(cls, include_extras=True)
        sent = [name for name in cls.__struct_fields__ if IN_PROCESS not in getattr(hints[name], "__metadata__", ())]
        fields = {name: _field(name, hints[name], names) for name in sent}
        exec(_source(cls.__name__, fields), names)  # noqa: S102 -- the text is made of our own field names
        _converters[cls] = _Converter(names["write"], names["read"])
    return _converters[cls]


def _source(name: str, fields: dict[str, _Field]) -> str:
    """Returns the text of `write` and `read` for a class with these fields."""
    lines = ["def write(message, value):", " at = ''", " try:", "  pass"]
    for field_name, field in fields.items():
        lines += [f"  at = {field_name!r}", f"  v = value.{field_name}", *(f"  {line}" for line in field.write)]
    lines += [" except (ValueError, TypeError) as error:"]
    lines += [f"  raise unsendable({name!r} + '.' + at, getattr(value, at), error) from None"]
    arguments = ", ".join(f"{field_name}={field.read}" for field_name, field in fields.items())
    lines += ["def read(message):", " try:", f"  return cls({arguments})"]
    lines += [" except ValueError as error:", "  raise malformed(cls, error) from error"]
    return "\n".join(lines)


def _field(name: str, hint: Any, names: dict[str, Any]) -> _Field:
    """Returns how one field is written and read; adds the functions that this needs to `names`."""
    arms = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    optional = type(None) in arms
    hint, *others = [arm for arm in arms if arm is not type(None)]
    if set(others) - _BUFFERS:
        raise TypeError(f"field {name}: no protobuf mapping for {arms!r}")
    if typing.get_origin(hint) is tuple:
        field = _repeated(name, typing.get_args(hint)[0], names, wrapped=optional)
    elif hint == _PARTITIONS_BY_TOPIC:
        field = _partitions_by_topic(name, names, wrapped=optional)
    elif hint is ReplogError:
        names.update(write_error=_write_error, read_error=_read_error)
        field = _Field((f"write_error(message.{name}, v)",), f"read_error(message.{name})")
    elif isinstance(hint, type) and issubclass(hint, Struct):
        names[f"{name}_of"] = _converter(hint)
        write = (f"message.{name}.SetInParent()", f"{name}_of.write(message.{name}, v)")
        field = _Field(write, f"{name}_of.read(message.{name})")
    else:
        encode, decode = _scalar(name, hint, names)
        field = _Field((f"message.{name} = {encode('v')}",), decode(f"message.{name}"))
    if not optional:
        return field
    return _Field(
        ("if v is not None:", *(f" {line}" for line in field.write)),
        f"({field.read} if message.HasField({name!r}) else None)",
    )


def _repeated(name: str, element: Any, names: dict[str, Any], *, wrapped: bool) -> _Field:
    """Returns how a tuple is written and read; wrapped ones travel in a message with a field `values`."""
    target = f"message.{name}.values" if wrapped else f"message.{name}"
    made = (f"message.{name}.SetInParent()",) if wrapped else ()
    if isinstance(element, type) and issubclass(element, Struct):
        names[f"{name}_of"] = _converter(element)
        write = (*made, f"for each in v: {name}_of.write({target}.add(), each)")
        return _Field(write, f"tuple([{name}_of.read(each) for each in {target}])")
    if typing.get_origin(element) is tuple and issubclass(typing.get_args(element)[0], Struct):
        names[f"{name}_of"] = _converter(typing.get_args(element)[0])
        write = (
            *made,
            "for some in v:",
            f" values = {target}.add().values",
            f" for each in some: {name}_of.write(values.add(), each)",
        )
        return _Field(write, f"tuple([tuple([{name}_of.read(each) for each in some.values]) for some in {target}])")
    if typing.get_origin(element) is tuple:
        write = (*made, f"for each in v: {target}.add().values.extend(each)")
        return _Field(write, f"tuple([tuple(each.values) for each in {target}])")
    encode, decode = _scalar(name, element, names)
    if (
        encode("each") == decode("each") == "each"
    ):  # most are empty; a slice is read faster than one element after the other
        return _Field((*made, f"if v != (): {target}.extend(v)"), f"(tuple(v[:]) if (v := {target}) else ())")
    write = (*made, f"{target}.extend([{encode('each')} for each in v])")
    return _Field(write, f"tuple([{decode('each')} for each in {target}])")


def _partitions_by_topic(name: str, names: dict[str, Any], *, wrapped: bool) -> _Field:
    """Returns how partitions by topic id are written and read; wrapped ones as in `_repeated`."""
    target = f"message.{name}.values" if wrapped else f"message.{name}"
    made = (f"message.{name}.SetInParent()",) if wrapped else ()
    names["read_partitions"] = _read_partitions
    write = (*made, f"for key in v: {target}.add(topic_id=key.bytes, partitions=sorted(v[key]))")
    return _Field(write, f"read_partitions({target})")


def _read_partitions(values: Iterable[Any]) -> dict[UUID, frozenset[int]]:
    """Returns partitions by topic id; all entries of a topic count."""
    found: dict[UUID, frozenset[int]] = {}
    for each in values:
        topic_id = UUID(bytes=each.topic_id)
        found[topic_id] = found.get(topic_id, frozenset()) | frozenset(each.partitions)
    return found


def _write_error(detail: Any, error: ReplogError) -> None:
    detail.code = error_code_of(error)
    detail.message = str(error)


def _read_error(detail: Any) -> ReplogError:
    return error_from_number(detail.code, detail.message)


def _scalar(name: str, hint: Any, names: dict[str, Any]) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Returns what turns the text of a value into the text of its form on the wire, and back."""
    if hint is UUID:
        names["UUID"] = UUID
        return "{}.bytes".format, "UUID(bytes={})".format
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        names[f"{name}_of"] = hint
        return "int({})".format, f"{name}_of({{}})".format
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        names[f"{name}_of"] = hint
        return "str({})".format, f"{name}_of({{}})".format
    if hint is bytes:
        return "bytes({})".format, "{}".format  # a view is copied; records travel beside the message
    if hint in {int, str, bool, float}:
        return "{}".format, "{}".format
    raise TypeError(f"no protobuf mapping for {hint!r}")
