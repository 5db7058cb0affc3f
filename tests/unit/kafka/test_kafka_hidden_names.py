"""A tenant asks every API for a topic that is hidden and for one that there is not: by the name both answers are the same, by the id no name is told."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kafka_node_kit import Served, batch, serving
from msgspec import Struct
from rights_kit import AllowedOnly, govern
from test_kafka_rights import AnyAnswer

from replog.access.entries import AclOperation, ResourceKind
from replog.protocol.private import PRIVATE_APIS, PrivateApi, PrivateRequest
from replog.protocol.served import SERVED
from replog.rpc.messages import FindCutsPartition, FindCutsRequest
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

HIDDEN, ABSENT, OWN = "hidden-topic", "absent-topic", "t"
NO_ID = UUID(int=0x4000_8000)
NUMBERS = {"acks": -1, "resource_type": 2, "timeout_ms": 3_000, "replica_id": -1, "count": 1, "replication_factor": 1}
NUMBERS |= {"max_bytes": 1_000, "partition_max_bytes": 1_000, "response_partition_limit": 10}
NAMES = {"name", "topic", "topic_name", "topic_names", "resource_name", "subscribed_topic_names"}
KAFKAS: list[tuple[Any, range]] = [
    (api.load().request, api.versions) for api in SERVED if not isinstance(api.load().request, PrivateApi)
]
GRANTS = [
    *((each, ResourceKind.GROUP, "g") for each in AclOperation),
    *((each, ResourceKind.TRANSACTIONAL_ID, "x") for each in AclOperation),
    *((each, ResourceKind.TOPIC, OWN) for each in AclOperation),
]


class Asked(Struct, frozen=True):
    """What is asked for, by its name or by its id."""

    name: str
    topic_id: UUID | None = None


def filled(kind: Any, asked: Asked) -> Any:
    """A message that asks for a topic wherever it can name one, with one element in each array."""
    made = kind()
    for field, hint in get_type_hints(kind).items():
        if field in kind.__struct_fields__ and (value := filling(field, hint, asked)) is not None:
            setattr(made, field, value)
    return made


def filling(field: str, hint: Any, asked: Asked) -> Any:
    """What a field is set to; None: it stays as it is."""
    if get_origin(hint) in {types.UnionType, Union}:
        hint = get_args(hint)[0]
    if get_origin(hint) is list:
        one = filling(field, get_args(hint)[0], asked)
        return [0 if one is None else one] if get_args(hint)[0] is int else [] if one is None else [one]
    if isinstance(hint, type) and issubclass(hint, Struct):
        return filled(hint, asked)
    if hint is str:
        if field in NAMES:
            return "" if asked.topic_id else asked.name
        return next(
            (value for part, value in (("group", "g"), ("transactional", "x"), ("member", "m")) if part in field), None
        )
    if hint is UUID:
        return asked.topic_id if "topic" in field else None
    return batch(b"v") if field == "records" else NUMBERS.get(field)


def told(answer: Any) -> Iterator[Any]:
    """The values of an answer, one after the other."""
    if isinstance(answer, Struct):
        answer = [getattr(answer, name) for name in answer.__struct_fields__]
    if isinstance(answer, Iterable) and not isinstance(answer, str | bytes | memoryview):
        for each in answer:
            yield from told(each)
    else:
        yield bytes(answer) if isinstance(answer, memoryview) else answer


async def answer_to(it: Served, request: type[Any], version: int, asked: Asked) -> str:
    """What a client is told, without what it has named itself; how its connection ends where it does."""
    answer = getattr(sys.modules[request.__module__], request.__name__.replace("Request", "Response"))
    client = await it.client()
    try:
        found = repr(list(told(await asyncio.to_thread(client.ask, filled(request, asked), version, answer))))
    except EOFError:
        found = "ended"
    finally:
        client.connection.close()
    return found if asked.topic_id else found.replace(asked.name, "NAME")


@pytest.fixture
async def it() -> Any:
    async with serving(offsets_topic_num_partitions=1) as served:
        for name in (HIDDEN, OWN):
            await served.create(name, partitions=2)
        govern(served, AllowedOnly(*GRANTS))
        await served.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6, FindCoordinatorResponse)
        yield served


async def test_no_api_tells_whether_there_is_a_topic_of_a_hidden_name(it: Served) -> None:
    """Trap: Fetch by a name told that there is none, and READ was asked for only where there was one."""
    different = [
        (request.__name__, version)
        for request, versions in KAFKAS
        for version in sorted({min(versions), 4, 12, max(versions)} & set(versions))
        if await answer_to(it, request, version, Asked(HIDDEN)) != await answer_to(it, request, version, Asked(ABSENT))
    ]
    assert different == []


async def test_no_api_tells_the_name_of_a_hidden_topic_whose_id_is_known(it: Served) -> None:
    """Trap: the text of Fetch and of our FindCuts named it."""
    asked = Asked(HIDDEN, it.kafka.image.topics_by_name[HIDDEN].topic_id)
    telling = [each.__name__ for each, versions in KAFKAS if HIDDEN in await answer_to(it, each, max(versions), asked)]
    assert telling == []
    for topic_id in (asked.topic_id, NO_ID):
        assert topic_id is not None
        cuts = FindCutsRequest((FindCutsPartition(topic_id, 0, 0, 1),), 100)
        answer = await it.ask(PrivateRequest(PRIVATE_APIS[FindCutsRequest], cuts, 5_000), 0, AnyAnswer)
        assert "of the id that was asked for" in answer.message
