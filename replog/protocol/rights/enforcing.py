"""Answers a request as far as its sender may ask it.

What the whole request needs is looked at first.  Then the things that it names are divided: the handler gets those that are allowed, and the
answer to the others is the API's own refusal, with the code of Kafka and our text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from replog.access.entries import ResourceKind
from replog.access.rights import Rights
from replog.errors import BrokerNotAvailableError, ErrorCode
from replog.metadata.image import MetadataImage
from replog.protocol.audit import Audit
from replog.protocol.handlers.node import NO_TOPIC_ID, Call, Failure, KafkaNode
from replog.protocol.rights.needs import Each, Need, Resource, Right
from replog.protocol.written_steps import WrittenElements

AT_ONCE: Final = 6_000
"""Things that are looked at in one turn of the loop: more than a request has that may be in flight beside others without its turn taken."""

AT_ONCE_IN_ITS_TURN: Final = 1_000
"""The same of a request that no other one of its connection overtakes."""

UNKNOWN: Final = "this broker does not know the topic (yet, or any more)"


class Answering(Protocol):
    """The functions of an API (`replog.protocol.served.Handling`)."""

    @property
    def handle(self) -> Callable[[KafkaNode, Any, Call], Awaitable[Any]]: ...

    @property
    def refuse(self) -> Callable[[Any, Failure], Any]: ...


async def answered(right: Right, api: Answering, node: KafkaNode, request: Any, call: Call, audit: Audit) -> Any:
    """Returns the answer to a request, with what its sender may not do refused.

    What it administers is told in the audit log.

    Raises:
        AuthorizationError: It lacks what the whole request needs; nothing was done.
        ReplogError: As the handler raises it.
    """
    answer = api.handle(node, request, call) if call.rights.is_open else _authorized(right, api, node, request, call)
    if not right.administers:
        return await answer
    response = await answer
    rights = call.rights
    asked = tuple(_named(right, _image(node), request))
    audit.administered(rights.client, rights.api, asked, set(_errors(right, response)))
    return response


async def _authorized(right: Right, api: Answering, node: KafkaNode, request: Any, call: Call) -> Any:
    for need in right.needs:
        if isinstance(need, Need):
            _require(need, call.rights, request, _image(node))
    denied: list[tuple[Each, list[Any]]] = []
    for need in right.needs:
        if isinstance(need, Each):
            request, told = await _divided(need, api, node, request, call)
            denied.append((need, told))
    response = await api.handle(node, request, call)
    for need, told in denied:
        _add(response, need.told, told)
    return response


def _image(node: KafkaNode) -> MetadataImage:
    """Returns the metadata; none where the node has not read them since its start, and others may have."""
    try:
        return node.image
    except BrokerNotAvailableError:
        return MetadataImage()


def _require(need: Need, rights: Rights, request: Any, image: MetadataImage) -> None:
    if need.otherwise is not None and rights.sees(need.otherwise, need.kind):
        return
    if need.names is None:
        rights.require(need.operation, need.kind)
        return
    for name in need.names(request, image):
        rights.require(need.operation, need.kind, name, by_id=need.by_id)


async def _divided(each: Each, api: Answering, node: KafkaNode, request: Any, call: Call) -> tuple[Any, list[Any]]:
    """Returns a request for what is allowed, and what is told of the rest."""
    things, rights = getattr(request, each.asked), call.rights
    at_once = AT_ONCE_IN_ITS_TURN if call.turn is not None and call.turn.is_taken else AT_ONCE
    if not things or (each.everywhere is not None and rights.sees(each.everywhere, ResourceKind.CLUSTER)):
        return request, []
    image, known = _image(node), dict[tuple[Resource, bool], Failure | None]()
    allowed, told = [], list[Any]()
    for number, thing in enumerate(things, 1):
        resources = each.resources(image, thing)
        failure = (
            Failure(resources, UNKNOWN)
            if isinstance(resources, ErrorCode)
            else _failure(each, rights, resources, known, by_id=getattr(thing, "topic_id", NO_TOPIC_ID) != NO_TOPIC_ID)
        )
        if failure is None:
            allowed.append(thing)
        else:
            told += _told(each, api, request, thing, failure)
        if number % at_once == 0:
            await asyncio.sleep(0)
    return (request if len(allowed) == len(things) else replace(request, **{each.asked: allowed})), told


def _failure(
    each: Each,
    rights: Rights,
    resources: Iterable[Resource],
    known: dict[tuple[Resource, bool], Failure | None],
    *,
    by_id: bool,
) -> Failure | None:
    """Returns why a thing is refused, or None; the name of a topic that is asked for by its id is told to who may describe it."""
    for resource in resources:
        key = resource, by_id
        if key not in known:
            refused = rights.refused(each.operation, *resource, by_id=by_id)
            known[key] = None if refused is None else Failure(refused.code, str(refused))
        if known[key] is not None:
            return known[key]
    return None


def _told(each: Each, api: Answering, request: Any, thing: Any, failure: Failure) -> Iterable[Any]:
    if each.refuse is not None:
        return (each.refuse(thing, failure),)
    told: Iterable[Any] = getattr(api.refuse(replace(request, **{each.asked: [thing]}), failure), each.told)
    return told


def _add(response: Any, field: str, told: Iterable[Any]) -> None:
    there = getattr(response, field)
    if isinstance(there, WrittenElements):
        for one in told:
            there.add(one)
    else:
        there += told


# ---- for the audit log -----------------------------------------------------------------------------------------------


def _named(right: Right, image: MetadataImage, request: Any) -> Iterable[str]:
    for need in right.needs:
        if isinstance(need, Each):
            for thing in getattr(request, need.asked) or ():
                yield from _names(need.resources(image, thing))
        elif isinstance(need, Need) and need.names is not None:
            yield from need.names(request, image)


def _names(resources: Iterable[Resource] | ErrorCode) -> Iterable[str]:
    return () if isinstance(resources, ErrorCode) else (name for _, name in resources)


def _errors(right: Right, response: Any) -> Iterable[str]:
    yield from _error(response)
    for need in right.needs:
        if isinstance(need, Each):
            for one in getattr(response, need.told):
                yield from _error(one)


_CODE_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in ErrorCode}


def _error(one: Any) -> Iterable[str]:
    code = getattr(one, "error_code", 0)
    if code:
        yield _CODE_NAMES.get(code, str(code))
