"""Clients leave no records to the garbage collector, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cluster import FakeCluster
from garbage_kit import VALUE, garbage

from replog.client import Consumer, Producer
from replog.errors import CorruptRecordError, ErrorCode, RecordTooLargeError


def cluster_with_topic() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic("t")
    return cluster


async def produce(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
        await (await producer.send("t", VALUE))


async def test_a_consumer_that_is_closed_in_the_middle_of_a_batch() -> None:
    cluster = cluster_with_topic()
    with garbage() as found:
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            await (await producer.send_many("t", [(None, VALUE)] * 10))
        async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
            await consumer.assign([("t", 0)])
            assert len(await consumer.poll(max_records=3)) == 3
        del consumer, producer
        assert found.with_records() == []


async def test_a_damaged_batch() -> None:
    cluster = cluster_with_topic()
    await produce(cluster)
    log = cluster.logs["t", 0]
    log.batches[0] = log.batches[0][:-1] + b"?"
    with garbage() as found:
        async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
            await consumer.assign([("t", 0)])
            for _ in range(2):
                with pytest.raises(CorruptRecordError):
                    await consumer.poll(timeout_ms=5_000)
        del consumer
        assert found.with_records() == []


async def test_a_damaged_batch_that_is_told_again_keeps_nobody_s_frames() -> None:
    cluster = cluster_with_topic()
    await produce(cluster)
    log = cluster.logs["t", 0]
    log.batches[0] = log.batches[0][:-1] + b"?"
    async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
        await consumer.assign([("t", 0)])
        for _ in range(3):
            with pytest.raises(CorruptRecordError):
                await consumer.poll(timeout_ms=5_000)
        kept = consumer._reader.states[next(iter(consumer._reader.states))].error
        assert kept is not None
        assert kept.__traceback__ is None


async def test_a_refused_record() -> None:
    cluster = cluster_with_topic()
    with garbage() as found:
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            for _ in range(3):
                cluster.nodes[1].script.append(lambda _partition, _batch: ErrorCode.MESSAGE_TOO_LARGE)
                await send_in_vain(producer, bytes(VALUE))
        del producer
        cluster.nodes[1].produced.clear()
        assert found.with_records() == []


async def send_in_vain(producer: Producer, value: bytes) -> None:
    delivery = await producer.send("t", value)
    with pytest.raises(RecordTooLargeError):
        await delivery


async def test_records_whose_source_fails() -> None:
    cluster = cluster_with_topic()

    def source() -> Iterator[tuple[None, bytes]]:
        yield None, VALUE + b"!"
        raise OSError("the source is gone")

    with garbage() as found:
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            with pytest.raises(OSError, match="the source is gone"):
                await producer.send_many("t", source())
        del producer
        assert found.with_records() == []
