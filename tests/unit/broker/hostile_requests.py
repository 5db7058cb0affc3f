"""Every request a node answers, with one field at a time made hostile, as bytes on the wire.

A good request of each kind is the template.  What is changed is its protobuf message, so that each field gets what its wire
type can hold and no more, the fields of a call itself (cluster, time-out, forwarded) included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

COUNT = 20_000
"""Twice as many as a request may name."""

LONG = 5_000_000
"""More than a batch of the metadata log takes, and less than the port of a message that brings no records."""

_TEXTS = ("", "\0", "../..", " ", "x" * 300, "é" * 3_000, "9" * 5_000, "1" + " " * LONG)
_BYTES = (b"", b"\xff" * 15, bytes(16), b"\xff" * 16)
_NUMBERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), -2, -1, 0, 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), -2, -1, 0, 2**31, 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_BOOL: (False, True),
}

Change = Callable[[Any], None]


def hostile(message: Any, *, with_call: bool) -> Iterator[tuple[str, bytes]]:
    """The message changed in one place, in every way: what was done, and the bytes.

    Args:
        message: A good request.
        with_call: Whether the fields of the call, around the request itself, are changed too.
    """
    for path, name, change in _changes(message, ()):
        if not path and not with_call:
            continue
        changed = type(message).FromString(message.SerializeToString())
        change(_at(changed, path))
        yield f"{type(message).__name__}.{'.'.join(map(str, path))} {name}", changed.SerializeToString()


def _at(message: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


def _changes(message: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str, Change]]:
    for field in message.DESCRIPTOR.fields:
        name = field.name
        if field.containing_oneof is not None and field.message_type is not None and not message.HasField(name):
            continue  # a request of another kind
        if field.is_repeated:
            yield from _of_list(message, path, name, field)
        elif field.message_type is not None:
            if message.HasField(name):
                yield path, f"without {name}", lambda at, name=name: at.ClearField(name)
                yield from _changes(getattr(message, name), (*path, name))
        else:
            for value in _scalars(field):
                text = _shown(value)
                yield path, f"{name} = {text}", lambda at, name=name, value=value: setattr(at, name, value)


def _of_list(
    message: Any, path: tuple[str | int, ...], name: str, field: FieldDescriptor
) -> Iterator[tuple[tuple[str | int, ...], str, Change]]:
    values = getattr(message, name)
    yield path, f"no {name}", lambda at: at.ClearField(name)
    if field.message_type is None:
        for value in _scalars(field):
            yield path, f"{name} = [{_shown(value)}]", lambda at, value=value: getattr(at, name).append(value)
    if values:
        for count in (2, COUNT):
            yield path, f"{name} x {count}", lambda at, count=count: getattr(at, name).extend([values[0]] * count)
        if field.message_type is not None:
            yield from _changes(values[0], (*path, name, 0))


def _scalars(field: FieldDescriptor) -> Sequence[Any]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXTS
    return _BYTES if field.type == FieldDescriptor.TYPE_BYTES else _NUMBERS[field.type]


def _shown(value: Any) -> str:
    """The beginning of a value; it may have megabytes."""
    return repr(value[:20] if isinstance(value, str) else value)[:20]
