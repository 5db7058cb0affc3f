"""Our own APIs (`replog.protocol.private`): each is handed to the node as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from replog.controller.requests import DrainBroker
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.coordinator.transactions.requests import ForgetTransactionalId, PrepareTransaction
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS
from replog.protocol.handlers.node import AT_ONCE_MAX, Call, Failure, KafkaNode
from replog.protocol.private import PrivateAnswer, PrivateApi, PrivateCall, encoded
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.request_limits import check_request

METADATA_WAIT_MAX_MS: Final = 30_000
"""How long a client may wait for a change of the metadata at most."""

Handle = Callable[[KafkaNode, PrivateCall, Call], Awaitable[PrivateAnswer]]


async def _wait_for_metadata(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    question: WaitForMetadata = asked.question
    wait_ms = min(max(question.wait_ms, 0), METADATA_WAIT_MAX_MS)
    return PrivateAnswer(parts=list(await node.wait_for_metadata(question, wait_ms, call.listener)))


async def _wait_for_group_news(node: KafkaNode, asked: PrivateCall, _call: Call) -> PrivateAnswer:
    question: WaitForGroupNews = asked.question
    check_request(question)
    return PrivateAnswer(parts=[encoded(await node.coordinate(question.group_id, question, None))])


async def _ask_coordinator(node: KafkaNode, asked: PrivateCall, _call: Call) -> PrivateAnswer:
    """Asks the coordinator of a transactional id, which has to be this broker."""
    question: PrepareTransaction | ForgetTransactionalId = asked.question
    check_request(question)
    answer: Struct = await node.coordinate_transaction(question.transactional_id, question, TIMEOUT_MS)
    return PrivateAnswer(parts=[encoded(answer)])


async def _drain_broker(node: KafkaNode, asked: PrivateCall, _call: Call) -> PrivateAnswer:
    return PrivateAnswer(parts=[encoded(await node.change(asked.question, asked.timeout_ms))])


async def _ask_node(node: KafkaNode, asked: PrivateCall, _call: Call) -> PrivateAnswer:
    answer: Struct = await node.call(asked.question, asked.timeout_ms)
    return PrivateAnswer(parts=[await asyncio.to_thread(encoded, answer) if _is_long(answer) else encoded(answer)])


def refuse_private(_asked: Any, failure: Failure) -> PrivateAnswer:
    """Returns the answer to a request that failed."""
    return PrivateAnswer(failure.code, failure.message)


def _is_long(answer: Struct) -> bool:
    """Whether an answer tells of thousands of things, be it of each of a few."""
    count, left = 0, [answer]
    while left and count <= AT_ONCE_MAX:
        each = left.pop()
        for name in each.__struct_fields__:
            value = getattr(each, name)
            if isinstance(value, tuple):
                count += len(value)
                left += value if len(value) <= AT_ONCE_MAX and value and isinstance(value[0], Struct) else ()
    return count > AT_ONCE_MAX


_HANDLERS: Final[Mapping[type[Struct], Handle]] = {
    WaitForMetadata: _wait_for_metadata,
    WaitForGroupNews: _wait_for_group_news,
    DrainBroker: _drain_broker,
    PrepareTransaction: _ask_coordinator,
    ForgetTransactionalId: _ask_coordinator,
}


def handler(api: PrivateApi) -> Handle:
    """Returns the function that answers an API."""
    return _HANDLERS.get(api.request, _ask_node)
