"""A message as Kafka's classes print it as JSON, compared with ours, field by field."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields


def json_name(name: str) -> str:
    first, *others = name.removesuffix("_").split("_")
    return first + "".join(map(str.capitalize, others))


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    """Fields of our message that are not those of Kafka's JSON."""
    found = []
    unseen = set(theirs)
    for each in fields(ours):
        value, name = getattr(ours, each.name), json_name(each.name)
        if name in theirs:
            unseen.discard(name)
            found += _difference(value, theirs[name], f"{path}.{name}")
        elif f"{name}SizeInBytes" in theirs:
            unseen.discard(f"{name}SizeInBytes")
            found += _difference(0 if value is None else len(value), theirs[f"{name}SizeInBytes"], f"{path}.{name}")
        else:  # the version lacks the field, or it is tagged and has its default
            default = each.default if each.default_factory is NODEFAULT else each.default_factory()
            found += [] if value == default or _is_bare(value) else [f"{path}.{name} is missing: {value!r}"]
    return found + [f"{path}.{name} is ours not" for name in sorted(unseen)]


def _is_bare(value: Any) -> bool:
    return isinstance(value, Struct) and value == type(value)()


def _difference(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(ours, Struct):
        return differences(ours, theirs, path)
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line for n, pair in enumerate(zip(ours, theirs, strict=True)) for line in _difference(*pair, f"{path}[{n}]")
        ]
    if isinstance(ours, UUID):
        ours = base64.urlsafe_b64encode(ours.bytes).rstrip(b"=").decode()
    elif isinstance(ours, bytes | memoryview):
        ours = base64.b64encode(ours).decode()
    elif isinstance(ours, float):
        theirs = float(theirs)  # Kafka writes what JSON has no number for as text
    return [] if ours == theirs else [f"{path}: {ours!r} is not {theirs!r}"]
