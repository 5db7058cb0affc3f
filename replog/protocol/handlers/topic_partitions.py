"""DescribeTopicPartitions: the replicas of partitions and which of them may lead, a page at a time (KIP-966)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Mapping

from msgspec import Struct

from replog.access.entries import AclOperation, ResourceKind
from replog.errors import ErrorCode, InvalidRequestError
from replog.metadata.image import TopicImage
from replog.metadata.records import NO_LEADER, BrokerEndpoint
from replog.metadata.registrations import PartitionRegistration
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.protocol.handlers.metadata import NOT_ASKED, find_topic, partition_code, reachable
from replog.protocol.handlers.node import Call, Failure, KafkaNode
from replog.protocol.written_steps import Steps, written_in_steps
from replog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

PARTITIONS_MAX = 2_000
"""The most partitions of one answer, as Kafka's max.request.partition.size.limit."""

_DESCRIBE, _TOPIC = AclOperation.DESCRIBE, ResourceKind.TOPIC

NAMES_AT_ONCE = 5_000
"""Names among which the first ones are looked for at a time: milliseconds."""

Request = DescribeTopicPartitionsRequest
Response = DescribeTopicPartitionsResponse
TopicAnswer = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionAnswer = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


class _Start(Struct, frozen=True):
    """Where a page begins: a topic, and the first of its partitions."""

    topic: str
    partition: int


async def describe(node: KafkaNode, request: Request, call: Call) -> Response:
    """Returns topics by name, as many partitions as the client wants at once, and where the next page begins.

    A topic that does not exist counts as one partition, so that a page has its size for any request.
    """
    image, endpoints, start, rights = node.image, reachable(node, call.listener), _start(request), call.rights
    named = {topic.name for topic in request.topics}
    names = named or (name for name in image.topics_by_name if rights.sees(_DESCRIBE, _TOPIC, name))
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response, steps = Response(), Steps()
    for name in await _first_names(names, start.topic, left):
        first = start.partition if name == start.topic else 0
        if left <= 0:
            response.next_cursor = Response.Cursor(name, first)
            break
        may_describe = rights.allows(_DESCRIBE, _TOPIC, name)
        found = find_topic(image, name) if may_describe else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        operations = rights.operations(_TOPIC, name) if may_describe else NOT_ASKED
        if not isinstance(found, TopicImage):
            response.topics.append(TopicAnswer(found, name, topic_authorized_operations=operations))
            left -= 1
            continue
        wanted = sorted(number for number in found.partitions if number >= first)
        answers = (_partition(number, found.partitions[number], endpoints) for number in wanted[:left])
        response.topics.append(
            TopicAnswer(
                name=found.name,
                topic_id=found.topic_id,
                is_internal=found.name in INTERNAL_TOPICS,
                partitions=await written_in_steps(answers, call.version, steps),
                topic_authorized_operations=operations,
            )
        )
        if len(wanted) > left:
            response.next_cursor = Response.Cursor(name, wanted[left])
            break
        left -= len(wanted)
    return response


def refuse_describe(request: Request, failure: Failure) -> Response:
    """Returns the answer to a request that failed as a whole."""
    return Response(topics=[TopicAnswer(failure.code, topic.name) for topic in request.topics])


def _start(request: Request) -> _Start:
    cursor = request.cursor
    if cursor is None:
        return _Start("", 0)
    if cursor.partition_index < 0:
        raise InvalidRequestError("a page begins at a partition; take the cursor of the answer before")
    if request.topics and cursor.topic_name not in {topic.name for topic in request.topics}:
        raise InvalidRequestError("a page begins with one of the topics; ask for the same ones in each request")
    return _Start(cursor.topic_name, cursor.partition_index)


async def _first_names(names: Iterable[str], first: str, partitions_count: int) -> list[str]:
    """Returns the names of one page and of where the next one begins, in order, from `first` on."""
    count = partitions_count + 2  # of `first` there may be no partition left
    unread, found = iter(names), list[str]()
    while some := list(itertools.islice(unread, NAMES_AT_ONCE)):
        found = heapq.nsmallest(count, itertools.chain(found, (name for name in some if name >= first)))
        await asyncio.sleep(0)
    return found


def _partition(
    number: int, partition: PartitionRegistration, endpoints: Mapping[int, BrokerEndpoint]
) -> PartitionAnswer:
    return PartitionAnswer(
        error_code=partition_code(partition, endpoints),
        partition_index=number,
        leader_id=partition.leader if partition.leader in endpoints else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[replica for replica in partition.replicas if replica not in endpoints],
    )
