"""Records of consumer groups for tests: arbitrary ones of every type and version, and those that Kafka itself wrote."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import Struct

from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.records import CoordinatorRecord, EncodedRecord

GOLDEN = Path(__file__).parents[2] / "data" / "coordinator" / "group_records.txt"
TYPES = list(GROUP_RECORDS._types.values())
unhurried = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
"""For properties: other tests of the machine run at the same time."""
CASES = [(key, value, version) for key, value in TYPES for version in value.VERSIONS]


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field of the generated classes; numbers fit into the narrowest field."""
    origin, arms = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        (arm,) = (arm for arm in arms if arm is not types.NoneType)
        return st.none() | values(arm)
    if origin is list:
        return st.lists(values(arms[0]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return parts(kind)
    return {
        int: st.integers(-128, 127),
        str: st.text(max_size=5),
        bytes: st.binary(max_size=5),
        UUID: st.uuids() | st.just(UUID(int=0)),
    }[kind]


@cache
def parts(cls: Any) -> st.SearchStrategy[Any]:
    """Messages, or structs of them, with any value in every field."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{name: values(hints[name]) for name in cls.__struct_fields__})


@cache
def records(key: Any, value: Any, version: int) -> st.SearchStrategy[CoordinatorRecord]:
    """Records of one type, with values of one version."""
    not_packed = st.none()
    return st.builds(CoordinatorRecord, parts(key), parts(value), st.just(version), not_packed) | st.builds(
        CoordinatorRecord, parts(key), st.none(), st.just(0), not_packed
    )


def golden_records() -> Iterator[tuple[str, EncodedRecord]]:
    """Yields the records that Kafka itself wrote, with their names."""
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, key, value = line.split(" ")
            yield name, (bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
