"""Our own APIs (`replog.protocol.private`): each is handed to the node as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.controller.requests import DrainBroker, ForkTopic
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.coordinator.transactions.requests import ForgetTransactionalId, PrepareTransaction
from replog.errors import TopicAuthorizationError
from replog.metadata.records import ResourceType
from replog.protocol.handlers.groups.group_codes import TIMEOUT_MS
from replog.protocol.handlers.node import AT_ONCE_MAX, Call, Failure, KafkaNode, mutating
from replog.protocol.private import PrivateAnswer, PrivateApi, PrivateCall, encoded
from replog.protocol.written_steps import Steps
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.node_messages import DescribeConfigsRequest
from replog.rpc.request_limits import check_request

METADATA_WAIT_MAX_MS: Final = 30_000
"""How long a client may wait for a change of the metadata at most."""

Handle = Callable[[KafkaNode, PrivateCall, Call], Awaitable[PrivateAnswer]]


async def _wait_for_metadata(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    question: WaitForMetadata = asked.question
    wait_ms = min(max(question.wait_ms, 0), METADATA_WAIT_MAX_MS)
    await _require_all_topics(node, call.rights)
    parts = list[bytes | memoryview](await node.wait_for_metadata(question, wait_ms, call.listener))
    if parts:
        await _require_all_topics(node, call.rights)  # there may be more topics now, or fewer rights
    return PrivateAnswer(parts=parts)


async def _require_all_topics(node: KafkaNode, rights: Rights) -> None:
    """Returns if a client may know all that there is: it is sent the same as all others, and its configurations with it.

    Raises:
        TopicAuthorizationError: It may not; it asks by Kafka's Metadata, which leaves out what it may not know.
    """
    if rights.is_open:
        return
    steps = Steps()
    for name in node.image.topics_by_name:
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
            if not rights.sees(operation, ResourceKind.TOPIC, name):
                raise TopicAuthorizationError(
                    f"{rights.principal} may not {operation.name} every topic of this cluster: ask for those it may by Metadata"
                )
        await steps.next()


async def _describe_configs(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    question: DescribeConfigsRequest = asked.question
    is_topic = question.resource_type is ResourceType.TOPIC
    kind, name = (ResourceKind.TOPIC, question.resource_name) if is_topic else (ResourceKind.CLUSTER, CLUSTER_NAME)
    call.rights.require(AclOperation.DESCRIBE_CONFIGS, kind, name)
    return await _ask_node(node, asked, call)


async def _wait_for_group_news(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    question: WaitForGroupNews = asked.question
    check_request(question)
    news = await node.coordinate(question.group_id, question, None)
    call.rights.require(AclOperation.READ, ResourceKind.GROUP, question.group_id)  # it may be a minute later
    return PrivateAnswer(parts=[encoded(news)])


async def _ask_coordinator(node: KafkaNode, asked: PrivateCall, _call: Call) -> PrivateAnswer:
    """Asks the coordinator of a transactional id, which has to be this broker."""
    question: PrepareTransaction | ForgetTransactionalId = asked.question
    check_request(question)
    answer: Struct = await node.coordinate_transaction(question.transactional_id, question, TIMEOUT_MS)
    return PrivateAnswer(parts=[encoded(answer)])


async def _drain_broker(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    return PrivateAnswer(parts=[encoded(await node.change(asked.question, asked.timeout_ms, call.rights))])


async def _fork_topic(node: KafkaNode, asked: PrivateCall, call: Call) -> PrivateAnswer:
    question = replace(asked.question, client=mutating(call, 0))
    return PrivateAnswer(parts=[encoded(await node.change(question, asked.timeout_ms, call.rights))])


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
    ForkTopic: _fork_topic,
    DescribeConfigsRequest: _describe_configs,
    PrepareTransaction: _ask_coordinator,
    ForgetTransactionalId: _ask_coordinator,
}


def handler(api: PrivateApi) -> Handle:
    """Returns the function that answers an API."""
    return _HANDLERS.get(api.request, _ask_node)
