"""DescribeProducers: the idempotent producers that have written to the partitions of this broker (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import ErrorCode
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.metadata.image import TopicImage
from replog.protocol.handlers.metadata import find_topic
from replog.protocol.handlers.node import STEP, Call, Failure, KafkaNode, require_few, text
from replog.protocol.written_steps import Steps
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

TopicAnswer = DescribeProducersResponse.TopicResponse
PartitionAnswer = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState


async def describe_producers(
    node: KafkaNode, request: DescribeProducersRequest, _call: Call
) -> DescribeProducersResponse:
    """Returns the producers of each partition that this broker leads; a client asks the leader."""
    require_few(sum(len(topic.partition_indexes) for topic in request.topics), "partitions")
    steps, answers = Steps(), list[TopicAnswer]()
    for topic in request.topics:
        answers.append(TopicAnswer(topic.name, await _described(node, topic)))
        await steps.next()
    return DescribeProducersResponse(topics=answers)


def refuse_describe_producers(request: DescribeProducersRequest, failure: Failure) -> DescribeProducersResponse:
    """Returns the answer to a request that failed as a whole."""
    return DescribeProducersResponse(
        topics=[
            TopicAnswer(
                topic.name,
                [PartitionAnswer(number, failure.code, failure.message) for number in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _described(node: KafkaNode, topic: DescribeProducersRequest.TopicRequest) -> list[PartitionAnswer]:
    found = find_topic(node.image, topic.name)
    if not isinstance(found, TopicImage):
        message = "this broker does not know the topic"
        return [PartitionAnswer(number, found, message) for number in topic.partition_indexes]
    numbers = list(dict.fromkeys(topic.partition_indexes))
    answers: list[PartitionAnswer] = []
    for first in range(0, len(numbers), STEP):
        asked = numbers[first : first + STEP]
        told = await node.producers(found.topic_id, asked)
        answers += [_answer(number, one) for number, one in zip(asked, told, strict=True)]
    return answers


def _answer(number: int, told: Sequence[ProducerSnapshotEntry] | Failure) -> PartitionAnswer:
    if isinstance(told, Failure):
        return PartitionAnswer(number, told.code, text(told.message))
    return PartitionAnswer(number, ErrorCode.NONE, active_producers=[_producer(entry) for entry in told])


def _producer(entry: ProducerSnapshotEntry) -> Producer:
    return Producer(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.timestamp,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )
