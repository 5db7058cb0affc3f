"""Whatever stands in a request, it is answered, and the node goes on: requests of all kinds, with likely and unlikely values."""

from __future__ import annotations

import importlib
import logging
import random
import struct
import types
import typing
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from kafka_node_kit import serving
from msgspec import Struct

from replog.protocol.private import PrivateApi
from replog.protocol.served import SERVED
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.produce import ProduceRequest
from replog.wire.primitives import Writer
from tests.random_examples import seeds

pytestmark = pytest.mark.exhaustive

ROUNDS = 60
TEXTS = (
    "t",
    "",
    "__cluster_metadata",
    "__consumer_offsets",
    "no/name",
    "é",
    "x" * 300,
    "1",
    "-1",
    "retention.ms",
    "compact",
    "/data",
    "\0",
)
NUMBERS = (0, 1, 1, 2, 3, 4, -1, 7, 99, 2**31 - 1, -(2**31), 32_767)
SHORT_WAITS = (1, 50, 200)


def any_value(kind: Any, name: str, rng: random.Random) -> Any:
    """A value of a field, whose name says whether it is a wait."""
    origin, arms = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        (arm,) = (arm for arm in arms if arm is not types.NoneType)
        return None if rng.random() < 0.2 else any_value(arm, name, rng)
    if origin is list:
        return [any_value(arms[0], name, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind(**{name: any_value(hint, name, rng) for name, hint in _fields(kind)})
    if kind is int:
        return rng.choice(SHORT_WAITS if name.endswith("timeout_ms") else NUMBERS)
    if kind is bytes:
        return rng.choice(TEXTS).encode()
    return {
        str: rng.choice(TEXTS),
        float: rng.choice(NUMBERS) * 1.0,
        bool: rng.random() < 0.5,
        UUID: UUID(int=rng.choice((0, 1, 5))),
    }[kind]


@cache
def _fields(struct: type[Struct]) -> list[tuple[str, Any]]:
    """Returns the names of a message's fields, in order, with their types; to evaluate those takes longer than all that a node does."""
    hints = typing.get_type_hints(struct, vars(importlib.import_module(struct.__module__)))
    return [(name, hints[name]) for name in struct.__struct_fields__]


def is_writable(request: Any, version: int) -> bool:
    """Whether a client could send it in this version."""
    try:
        request.write(Writer(), version)
    except (ValueError, struct.error):
        return False
    return True


@pytest.mark.parametrize("seed", seeds(1))
async def test_any_request_is_answered(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng, answered = random.Random(seed), set[str]()
    keys = {"offsets_topic_num_partitions": 2, "group_min_session_timeout_ms": 1, "group_initial_rebalance_delay_ms": 1}
    async with serving(auto_create_topics_enable=True, **keys) as it:
        await it.create("t", partitions=2)
        for _ in range(ROUNDS):
            for api in SERVED:
                cls: Any = api.load().request
                request, version = any_value(cls, "", rng) if not _has_records(cls) else None, rng.choice(api.versions)
                if request is None or not is_writable(request, version):
                    continue
                answer = getattr(importlib.import_module(cls.__module__), cls.__name__.replace("Request", "Response"))
                await it.ask(request, version, answer)
                answered.add(cls.__name__)
        await it.create("still-there")
    assert answered == {api.load().request.__name__ for api in SERVED if not _has_records(api.load().request)}  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def _has_records(cls: Any) -> bool:
    """Whether a request is about records, or one of our own, for which there are tests of their own."""
    return cls in {ProduceRequest, FetchRequest} or isinstance(cls, PrivateApi)
