"""What one request costs a broker, for every API: the size of the answer, and how much is done in one turn of the event loop.

Each request is made wide, one array at a time, with one name again and again or with as many names.  What counts are calls of
functions between two turns of the loop, which are the same on every machine: a million take a third of a second.  What compiled code
does within a call is bounded elsewhere (decompression, sizes of batches).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import struct
import sys
import types
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kafka_node_kit import Served, serving
from msgspec import Struct
from test_kafka_large_requests import frame

from replog.protocol.private import PRIVATE_APIS, PrivateRequest
from replog.protocol.served import SERVED
from tests.kafka.raw_client import RawClient

CALLS_PER_NAME_MAX = 120
TURN_CALLS_MAX = 50_000
"""In one turn, of three thousand names: some 15 ms."""
ANSWER_RATIO_MAX = 20
"""How many bytes are answered for one of a request, beyond the first `ANSWER_BYTES`."""
ANSWER_BYTES = 64 << 10

TURN = asyncio.base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
"""What the loop calls for each of its turns."""

Path = tuple[str, ...]


class Wide(NamedTuple):
    """A request, and what it is called in errors."""

    name: str
    data: bytes


class TurnCalls:
    """Counts the calls of functions in each turn of the loop, in its thread.

    Attributes:
        most: The most in one turn.
    """

    def __init__(self) -> None:
        self.most = 0
        self._count = 0

    def _called(self, frame: types.FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        self._count += 1
        if frame.f_code is TURN:
            self._count = 0
        self.most = max(self.most, self._count)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        self.most = self._count = 0
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)


def arm(kind: Any) -> Any:
    """The type that a field may have, but for None; of those of records bytes."""
    is_union = typing.get_origin(kind) in {types.UnionType, typing.Union}
    return (
        next(each for each in typing.get_args(kind) if each not in {types.NoneType, memoryview}) if is_union else kind
    )


def fields(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, vars(importlib.import_module(kind.__module__)))
    return {name: hints[name] for name in kind.__struct_fields__}


def arrays(kind: Any, path: Path = ()) -> Iterator[Path]:
    """The places of all arrays in a message."""
    kind = arm(kind)
    if typing.get_origin(kind) in {list, tuple}:
        yield path
        yield from arrays(typing.get_args(kind)[0], path)
    elif isinstance(kind, type) and issubclass(kind, Struct):
        for name, of in fields(kind).items():
            yield from arrays(of, (*path, name))


def value(kind: Any, wide: Path, count: int, *, is_distinct: bool, path: Path = (), number: int = 0) -> Any:
    """A value of a field; the array at `wide` has `count` elements, any other one."""
    kind = arm(kind)
    name = path[-1] if path else ""
    if typing.get_origin(kind) in {list, tuple}:
        numbers = range(count) if path == wide else [number]
        of = typing.get_args(kind)[0]
        return [value(of, wide, count, is_distinct=is_distinct, path=path, number=each) for each in numbers]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind(
            **{
                each: value(of, wide, count, is_distinct=is_distinct, path=(*path, each), number=number)
                for each, of in fields(kind).items()
            }
        )
    number = number if is_distinct else 0
    if kind is int:
        return _number(name, number)
    texts = {str: f"u{number}" if is_distinct else "t", bytes: b"", bool: False, UUID: UUID(int=number + 5)}
    return texts[kind]


def _number(name: str, number: int) -> int:
    if "partition_ind" in name or name in {"partition", "partitions"}:
        return number
    usual = {
        "watch_id": 0,
        "resource_type": 2,
        "timestamp": -1,
        "num_partitions": 1,
        "replication_factor": 1,
        "acks": 1,
    }
    return 200 if name.endswith("timeout_ms") else usual.get(name, 1 if name.endswith(("id", "ids")) else 0)


def wide_requests(count: int) -> Iterator[Wide]:
    yield from wide_kafka_requests(count)
    for cls, api in PRIVATE_APIS.items():
        for path in arrays(cls):
            for is_distinct in (False, True):
                question = value(cls, path, count, is_distinct=is_distinct)
                names = "names" if is_distinct else "times one name"
                data = bytes(frame(PrivateRequest(api, question, 200), 0))
                yield Wide(f"{cls.__name__}: {count} {names} in {'.'.join(path)}", data)


def wide_kafka_requests(count: int) -> Iterator[Wide]:
    for api in SERVED:
        cls: Any = api.load().request
        version = api.versions[-1]
        for path in arrays(cls):
            for is_distinct in (False, True):
                with contextlib.suppress(ValueError, struct.error):  # this version has no such field
                    request = value(cls, path, count, is_distinct=is_distinct)
                    data = bytes(frame(request, version))
                    names = "names" if is_distinct else "times one name"
                    yield Wide(f"{cls.__name__} v{version}: {count} {names} in {'.'.join(path)}", data)


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Served]:
    async with serving(auto_create_topics_enable=False, offsets_topic_num_partitions=2) as it:
        await it.create("t", partitions=20)
        yield it


def exchanged(client: RawClient, data: bytes) -> bytes:
    client.connection.sendall(struct.pack(">i", len(data)) + data)
    return client.frame()


async def costs(count: int, turn_calls_max: int) -> list[str]:
    """What costs too much."""
    found, calls, asked = [], TurnCalls(), 0
    async with node() as it:
        client = await it.client()
        client.connection.settimeout(None)  # ten thousand groups take a while with calls counted
        for wide in wide_requests(count):
            asked += 1
            with calls.counting():
                answer = await asyncio.to_thread(exchanged, client, wide.data)
            if "-v" in sys.argv:
                print(f"{calls.most:9d} {len(answer):9d} {len(wide.data):9d} {wide.name}", flush=True)
            if calls.most > turn_calls_max:
                found.append(f"{wide.name}: {calls.most} calls in one turn of the loop")
            if len(answer) > ANSWER_BYTES + ANSWER_RATIO_MAX * len(wide.data):
                found.append(f"{wide.name}: {len(answer)} bytes are answered to {len(wide.data)}")
    assert asked > 80
    return found


async def test_no_request_costs_more_than_the_names_in_it() -> None:
    """Four seconds: what is quadratic makes 40,000 calls and more of these names; the worst today are 16,000."""
    assert await costs(200, CALLS_PER_NAME_MAX * 200) == []


@pytest.mark.campaign
async def test_requests_for_thousands_of_names_leave_turns_to_others() -> None:
    """Half a minute: a handler that goes over all of them in one turn makes 60,000 calls and more."""
    assert await costs(3_000, TURN_CALLS_MAX) == []
