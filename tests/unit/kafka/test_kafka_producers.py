"""DescribeProducers, over a node's port."""

from __future__ import annotations

from kafka_node_kit import batch, serving

from replog.errors import ErrorCode
from replog.protocol.handlers import producers
from replog.protocol.handlers.node import Failure
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

Asked = DescribeProducersRequest.TopicRequest


async def test_the_producers_of_a_partition_are_told() -> None:
    async with serving() as it:
        await it.create("t", partitions=2)
        await it.produce(batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0, timestamp_ms=90))
        await it.produce(batch(b"c", producer_id=8, producer_epoch=0, base_sequence=0), batch(b"nobody's"))
        request = DescribeProducersRequest([Asked("t", [0, 1, 9]), Asked("none", [0]), Asked("no/name", [0])])
        answer = await it.ask(request, 0, DescribeProducersResponse)
        told = {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}
        assert {name: one.error_code for name, one in told.items()} == {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("no/name", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        first, second = sorted(told["t", 0].active_producers, key=lambda one: one.producer_id)
        assert (first.producer_id, first.producer_epoch, first.last_sequence, first.last_timestamp) == (7, 3, 1, 90)
        assert (first.coordinator_epoch, first.current_txn_start_offset) == (-1, -1)
        assert (second.producer_id, second.producer_epoch, second.last_sequence) == (8, 0, 0)
        assert told["t", 1].active_producers == []
        assert all(bool(one.error_message) == bool(one.error_code) for one in told.values())


def test_what_fails_as_a_whole_is_told_of_each() -> None:
    failure = Failure(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
    answer = producers.refuse_describe_producers(DescribeProducersRequest([Asked("t", [4])]), failure)
    (partition,) = answer.topics[0].partitions
    assert (partition.partition_index, partition.error_code, partition.error_message) == (4, failure.code, "stopping")
