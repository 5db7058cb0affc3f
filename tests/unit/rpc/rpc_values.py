"""Hypothesis values for any message: types from its class, ranges from its protobuf message."""

from __future__ import annotations

import pkgutil
import types
import typing
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cache
from importlib import import_module
from typing import Any
from uuid import UUID

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st
from msgspec import Struct

from replog import rpc
from replog.access import credentials as access_credentials
from replog.access import delegation_tokens as access_tokens
from replog.access import entries as access_entries
from replog.controller import messages as controller_steps
from replog.controller import requests as controller
from replog.errors import ReplogError, RequestTimedOutError, StaleMemberEpochError
from replog.metadata import records
from replog.pb.v1 import controller_pb2, data_pb2, metadata_pb2, quorum_pb2
from replog.rpc.messages import IN_PROCESS, DivergingEpoch, Hello
from replog_quorum import peer_messages as quorum
from replog_quorum import voters as quorum_voters

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_OTHER_NAMES = {
    Hello: quorum_pb2.Hello,
    DivergingEpoch: quorum_pb2.EpochEnd,
    controller.NamedPartition: controller_pb2.TopicPartition,
    access_entries.AclFilter: controller_pb2.AclFilter,
}
_RPC_MESSAGES = [
    import_module(f"replog.rpc.{found.name}")
    for found in pkgutil.iter_modules(rpc.__path__)
    if found.name.endswith("messages")
]
_GENERATED = {
    records: metadata_pb2,
    access_entries: metadata_pb2,
    access_tokens: metadata_pb2,
    access_credentials: controller_pb2,
    controller: controller_pb2,
    controller_steps: controller_pb2,
    quorum: quorum_pb2,
    quorum_voters: quorum_pb2,
    **dict.fromkeys(_RPC_MESSAGES, data_pb2),
}

ERRORS = (StaleMemberEpochError("another epoch"), RequestTimedOutError("late"), ReplogError("what has no class"))
"""For a field that is an error."""


def alike(value: Any) -> Any:
    """What of a message can be compared: errors are equal if their class and text are."""
    if isinstance(value, ReplogError):
        return (type(value), str(value))
    if isinstance(value, tuple):
        return tuple(map(alike, value))
    if isinstance(value, Struct):
        return (type(value), *(alike(getattr(value, name)) for name in value.__struct_fields__))
    return value


def is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def sent_fields(cls: type[Struct]) -> list[str]:
    """The fields that travel."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return [name for name in cls.__struct_fields__ if IN_PROCESS not in getattr(hints[name], "__metadata__", ())]


def structs_of(module: types.ModuleType) -> list[type[Struct]]:
    return [cls for cls in vars(module).values() if is_struct(cls) and cls.__module__ == module.__name__]


def proto_of(cls: type) -> type[Message] | None:
    """The generated class for a struct; None for one that never travels."""
    module = next(module for module in _GENERATED if module.__name__ == cls.__module__)
    return _OTHER_NAMES.get(cls) or getattr(_GENERATED[module], cls.__name__, None)


ALL = [cls for module in _GENERATED for cls in structs_of(module)]
ON_THE_WIRE = [cls for cls in ALL if proto_of(cls) is not None]


@cache
def values(cls: type[Struct], *without: str) -> st.SearchStrategy[Any]:
    """Values of `cls` that its protobuf message can hold; the fields `without` are empty tuples."""
    proto = proto_of(cls)
    assert proto is not None
    descriptor: Descriptor = proto.DESCRIPTOR
    hints = typing.get_type_hints(cls)
    fields = {
        name: st.just(()) if name in without else _strategy(hints[name], descriptor.fields_by_name.get(name))
        for name in sent_fields(cls)
    }
    return st.builds(cls, **fields)


def _strategy(hint: Any, field: FieldDescriptor | None) -> st.SearchStrategy[Any]:
    arms = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    hint, *others = [arm for arm in arms if arm is not type(None)]
    if bytes in (hint, *others):
        return st.binary(max_size=20)
    if hint is ReplogError:
        return st.none() | st.sampled_from(ERRORS)
    strategy = _of_one(hint, field)
    return st.none() | strategy if type(None) in arms else strategy


def _of_one(hint: Any, field: FieldDescriptor | None) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) is tuple:
        return st.lists(_of_one(typing.get_args(hint)[0], _element_of(field)), max_size=3).map(tuple)
    if is_struct(hint):
        return values(hint)
    if typing.get_origin(hint) is Mapping:
        key, partitions = typing.get_args(hint)
        some = st.frozensets(st.integers(0, 2**31 - 1), max_size=3)
        assert (key, partitions) == (UUID, frozenset[int])
        return st.dictionaries(st.uuids(), some, max_size=3)
    if hint is UUID:
        return st.uuids()
    if hint is str:
        return st.text(max_size=10)
    if hint is bool:
        return st.booleans()
    if issubclass(hint, IntEnum | StrEnum):
        return st.sampled_from(hint)
    if hint is float:
        return st.floats(allow_nan=False)
    assert hint is int, hint
    assert field is not None
    low, high = _RANGES[field.type]
    return st.integers(low, high) | st.sampled_from([low, 0, high])


def _element_of(field: FieldDescriptor | None) -> FieldDescriptor | None:
    """A list in a message of its own: its elements are the field `values`."""
    if field is None or field.message_type is None:
        return field
    return field.message_type.fields_by_name.get("values", field)
