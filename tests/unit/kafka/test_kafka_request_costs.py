"""What one request costs a broker, for every API: the size of the answer, and how much is done in one turn of the event loop.

Each request is made wide, one array at a time, with as many names, with one name again and again, or with that of the topic that
coordinators write; one without arrays is sent as it is, and each nullable array also as none, which asks for everything.  The name that
is known is that of a topic, of a group with offsets and of a transactional id with an open transaction, whose producer is named too.
What counts are calls of functions between two turns of the loop, which are the same on every machine: a million take a third of a
second.  What compiled code does within a call is bounded elsewhere (decompression, sizes of batches).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import importlib
import struct
import sys
import types
import typing
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kafka_node_kit import Served, serving
from msgspec import Struct
from test_kafka_acls import KEYS
from test_kafka_large_requests import frame

from replog.access.entries import AclOperation, PatternType, Permission, ResourceKind
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.protocol.private import PRIVATE_APIS, PrivateApi, PrivateRequest
from replog.protocol.served import SERVED
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.kafka.raw_client import RawClient

CALLS_PER_NAME_MAX = 120
TURN_CALLS_MAX = 50_000
"""In one turn, of three thousand names: some 15 ms."""
CALLS_ABOVE: Mapping[str, int] = MappingProxyType({"DeleteAcls": 65_000})
"""Bounds of those that are above it where there is an authorizer: entries are looked for and the first of them removed in one turn.
`docs/REQUEST_COSTS.md` names them."""
ANSWER_RATIO_MAX = 20
"""How many bytes are answered for one of a request, beyond the first `ANSWER_BYTES`."""
ANSWER_BYTES = 64 << 10

TELLS_ALL = "DeleteAcls"
"""The API whose answer names what it has removed, at most ten thousand entries, each once."""

TAKE_APART: frozenset[str] = frozenset()
"""The APIs that are not asked, since they would take the node apart."""

TURN = asyncio.base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
"""What the loop calls for each of its turns."""

ACL_NUMBERS = {
    "resource_type_filter": ResourceKind.TOPIC,
    "resource_pattern_type": PatternType.PREFIXED,
    "pattern_type_filter": PatternType.PREFIXED,
    "operation": AclOperation.READ,
    "permission_type": Permission.ALLOW,
}

Path = tuple[str, ...]
NAMINGS = ("names", "times one name", f"times {OFFSETS_TOPIC}")


class Wide(NamedTuple):
    """A request, the API that it asks, and what it is called in errors."""

    api: str
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


@functools.cache
def fields(kind: Any) -> dict[str, Any]:
    """The types of the fields of a message; kept, since the loop that makes the requests is the node's, and a minute is too long."""
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


def value(kind: Any, wide: Path | None, count: int, naming: str, path: Path = (), number: int = 0) -> Any:
    """A value of a field; the array at `wide` has `count` elements, any other one; with none, those that may be null are."""
    if wide is None and types.NoneType in typing.get_args(kind):
        return None
    kind = arm(kind)
    name = path[-1] if path else ""
    if typing.get_origin(kind) in {list, tuple}:
        numbers = range(count) if path == wide else [number]
        of = typing.get_args(kind)[0]
        return [value(of, wide, count, naming, path, each) for each in numbers]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind(
            **{each: value(of, wide, count, naming, (*path, each), number) for each, of in fields(kind).items()}
        )
    if issubclass(kind, enum.Enum):
        return next(iter(kind))
    number = number if naming == "names" else 0
    if kind is int:
        return _number(name, number)
    text = f"u{number}" if naming == "names" else OFFSETS_TOPIC if OFFSETS_TOPIC in naming else "t"
    text = f"User:{text}" if name in {"principal", "principal_filter"} else text
    texts = {str: text, bytes: b"", bool: False, float: 1.0, UUID: UUID(int=number + 5)}
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
        **ACL_NUMBERS,
    }
    return 200 if name.endswith("timeout_ms") else usual.get(name, 1 if name.endswith(("id", "ids")) else 0)


def wide_requests(count: int) -> Iterator[Wide]:
    yield from wide_kafka_requests(count)
    for cls, api in PRIVATE_APIS.items():
        for path, naming in shapes(cls):
            question = value(cls, path, count, naming)
            data = bytes(frame(PrivateRequest(api, question, 200), 0))
            yield Wide(api.__name__.removesuffix("Request"), title(cls.__name__, path, naming, count), data)


def wide_kafka_requests(count: int) -> Iterator[Wide]:
    for api in SERVED:
        cls: Any = api.load().request
        if isinstance(cls, PrivateApi):
            continue
        version = api.versions[-1]
        for path, naming in shapes(cls):
            with contextlib.suppress(ValueError, struct.error):  # this version has no such field, or wants another one
                data = bytes(frame(value(cls, path, count, naming), version))
                yield Wide(api.name, title(f"{cls.__name__} v{version}", path, naming, count), data)


def shapes(kind: Any) -> Iterator[tuple[Path | None, str]]:
    """What is wide in a request, and what names are in it; None: nothing."""
    yield None, NAMINGS[1]
    for path in arrays(kind):
        for naming in NAMINGS:
            yield path, naming


def title(kind: str, path: Path | None, naming: str, count: int) -> str:
    return f"{kind} of nothing" if path is None else f"{kind}: {count} {naming} in {'.'.join(path)}"


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Served]:
    few = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
    async with serving(auto_create_topics_enable=False, **few, **KEYS) as it:
        await it.create("t", partitions=20)
        await _begin_transaction(it)
        yield it


async def _begin_transaction(it: Served) -> None:
    """Opens a transaction of producer 1 under the id "t", and keeps an offset of the group "t"."""
    for key_type in range(2):  # groups and transactional ids; their topics are made with the first request
        await it.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["t"]), 4, FindCoordinatorResponse)
    for transactional_id, producer_id in ((None, 0), ("t", 1)):
        told = await _without_error(it, InitProducerIdRequest(transactional_id, 60_000), 4, InitProducerIdResponse)
        assert (told.producer_id, told.producer_epoch) == (producer_id, 0)
    added = await it.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", list(range(20)))],
        ),
        3,
        AddPartitionsToTxnResponse,
    )
    assert {each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition} == {0}
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])]
    await _without_error(it, OffsetCommitRequest("t", topics=topics), 9, OffsetCommitResponse)


async def _without_error(it: Served, request: Any, version: int, answer: type[Any]) -> Any:
    """The answer to a request, as soon as it is none that says that a coordinator reads its log."""
    async with asyncio.timeout(20):
        while True:
            told = await it.ask(request, version, answer)
            code = told.topics[0].partitions[0].error_code if answer is OffsetCommitResponse else told.error_code
            if not code:
                return told


def exchanged(client: RawClient, data: bytes) -> bytes:
    client.connection.sendall(struct.pack(">i", len(data)) + data)
    return client.frame()


async def costs(count: int, turn_calls_max: int, above: Mapping[str, int] = MappingProxyType({})) -> list[str]:
    """What costs too much; `above` has bounds of APIs that are above that of all."""
    found, calls, asked = [], TurnCalls(), set[str]()
    async with node() as it:
        client = await it.client()
        client.connection.settimeout(None)  # ten thousand groups take a while with calls counted
        for wide in wide_requests(count):
            asked.add(wide.api)
            with calls.counting():
                answer = await asyncio.to_thread(exchanged, client, wide.data)
            if "-v" in sys.argv:
                print(f"{calls.most:9d} {len(answer):9d} {len(wide.data):9d} {wide.name}", flush=True)
            if calls.most > above.get(wide.api, turn_calls_max):
                found.append(f"{wide.name}: {calls.most} calls in one turn of the loop")
            if wide.api != TELLS_ALL and len(answer) > ANSWER_BYTES + ANSWER_RATIO_MAX * len(wide.data):
                found.append(f"{wide.name}: {len(answer)} bytes are answered to {len(wide.data)}")
    assert asked == {api.name for api in SERVED} - TAKE_APART
    return found


async def test_no_request_costs_more_than_the_names_in_it() -> None:
    """Ten seconds: what is quadratic makes 40,000 calls and more of these names; the worst today are 15,000."""
    assert await costs(200, CALLS_PER_NAME_MAX * 200) == []


@pytest.mark.campaign
async def test_requests_for_thousands_of_names_leave_turns_to_others() -> None:
    """Half a minute: a handler that goes over all of them in one turn makes 60,000 calls and more."""
    assert await costs(3_000, TURN_CALLS_MAX, CALLS_ABOVE) == []
