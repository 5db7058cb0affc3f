"""Dataclasses to protobuf messages and back, by field name.

Why: the cores' messages are dataclasses and must not know protobuf; writing each of the sixty mappings by hand would
repeat every field name three times.  A plan per class is made once from its type hints.  The record-carrying messages
of the hot path are mapped by hand in ``frames``.

A field of type ``T | None`` is absent on the wire when None; a tuple that may be None travels in a message with one
repeated field `values`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from replog.errors import InvalidRequestError, MalformedFrameError

T = TypeVar("T")

_SHOWN_CHARACTERS = 80
_BUFFERS = {bytes, bytearray, memoryview}

_Write = Callable[[Message, Any], None]
_Read = Callable[[Message], Any]


def to_proto(value: object, message: Message) -> None:
    """Fills `message` from the dataclass `value`; every field of `value` has a field of the same name.

    Raises:
        InvalidRequestError: A number is larger than its field, or something is of another type.
    """
    for name, write, _ in _plan(type(value)):
        field = getattr(value, name)
        if field is not None:
            try:
                write(message, field)
            except (ValueError, TypeError) as error:
                raise unsendable(f"{type(value).__name__}.{name}", field, error) from None


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


def from_proto(cls: type[T], message: Message) -> T:
    """Makes a `cls` from `message`.

    Raises:
        MalformedFrameError: An id is not 16 bytes, or an enum value is not known to this version.
    """
    try:
        return cls(**{name: read(message) for name, _, read in _plan(cls)})
    except ValueError as error:
        raise MalformedFrameError(
            f"{cls.__name__} from another version or damaged: {error}. Use the same replog version on both sides."
        ) from error


_Plan = tuple[tuple[str, _Write, _Read], ...]
_plans: dict[type, _Plan] = {}


def _plan(cls: type) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        hints = typing.get_type_hints(cls)
        plan = tuple((f.name, *_field(f.name, hints[f.name])) for f in dataclasses.fields(cls))
        _plans[cls] = plan
    return plan


def _field(name: str, hint: Any) -> tuple[_Write, _Read]:
    """Returns how one field is written and read."""
    arms = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    optional = type(None) in arms
    hint, *others = [arm for arm in arms if arm is not type(None)]
    if set(others) - _BUFFERS:
        raise TypeError(f"field {name}: no protobuf mapping for {arms!r}")
    if typing.get_origin(hint) is tuple:
        return _repeated(name, typing.get_args(hint)[0], optional=optional)
    if dataclasses.is_dataclass(hint):
        return _nested(name, typing.cast("type", hint), optional=optional)
    encode, decode = _scalar(hint)

    def write(message: Message, value: Any) -> None:
        setattr(message, name, encode(value))

    def read(message: Message) -> Any:
        if optional and not message.HasField(name):
            return None
        return decode(getattr(message, name))

    return write, read


def _nested(name: str, cls: type, *, optional: bool) -> tuple[_Write, _Read]:
    def write(message: Message, value: Any) -> None:
        target = getattr(message, name)
        target.SetInParent()
        to_proto(value, target)

    def read(message: Message) -> Any:
        if optional and not message.HasField(name):
            return None
        return from_proto(cls, getattr(message, name))

    return write, read


def _repeated_messages(name: str, cls: type, *, optional: bool) -> tuple[_Write, _Read]:
    def write(message: Message, value: Any) -> None:
        target = getattr(message, name)
        if optional:
            target.SetInParent()
            target = target.values
        for item in value:
            to_proto(item, target.add())

    def read(message: Message) -> Any:
        if optional and not message.HasField(name):
            return None
        field = getattr(message, name)
        return tuple(from_proto(cls, item) for item in (field.values if optional else field))

    return write, read


def _repeated(name: str, element: Any, *, optional: bool) -> tuple[_Write, _Read]:
    if dataclasses.is_dataclass(element):
        return _repeated_messages(name, typing.cast("type", element), optional=optional)

    if typing.get_origin(element) is tuple:

        def write_lists(message: Message, value: Any) -> None:
            target = getattr(message, name)
            for item in value:
                target.add().values.extend(item)

        return write_lists, lambda message: tuple(tuple(item.values) for item in getattr(message, name))

    encode, decode = _scalar(element)

    def write(message: Message, value: Any) -> None:
        target = getattr(message, name)
        if optional:
            target.SetInParent()
            target = target.values
        target.extend(encode(item) for item in value)

    def read(message: Message) -> Any:
        if optional:
            return tuple(map(decode, getattr(message, name).values)) if message.HasField(name) else None
        return tuple(map(decode, getattr(message, name)))

    return write, read


def _scalar(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if hint is UUID:
        return _uuid_to_bytes, _uuid_from_bytes
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return int, hint
    if hint is bytes:
        return bytes, _same  # a view is copied; the messages of the hot path are mapped in `frames`
    if hint in {int, str, bool, float}:
        return _same, _same
    raise TypeError(f"no protobuf mapping for {hint!r}")


def _same(value: Any) -> Any:
    return value


def _uuid_to_bytes(value: UUID) -> bytes:
    return value.bytes


def _uuid_from_bytes(value: bytes) -> UUID:
    return UUID(bytes=value)
