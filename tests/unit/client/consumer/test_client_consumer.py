"""`Consumer` against scripted brokers: every record once and in order, whatever happens to leaders and streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import Consumer
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.records import Codec, TimestampType, decode_records, encode_batch, encode_leader_change
from replog.records._crc32c import crc32c
from replog.records.header import ATTRIBUTES_POSITION, CRC_POSITION
from replog.rpc.messages import DivergingEpoch
from tests.quiet import quiet_for


def make(cluster: FakeCluster, **settings: Any) -> Consumer:
    return Consumer(cluster.bootstrap, transport=cluster.transport(), **{"fetch_max_wait_ms": 50, **settings})


def fill(cluster: FakeCluster, topic: str, partition: int, count: int, *, per_batch: int = 7) -> None:
    log = cluster.logs[topic, partition]
    first = log.end_offset
    while log.end_offset < first + count:
        n = min(per_batch, first + count - log.end_offset)
        log.append(encode_batch([(1000 + i, b"k", b"%d" % (log.end_offset + i), ()) for i in range(n)]))
    for node in cluster.nodes.values():
        node.appended.set()


async def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found.append(await anext(consumer))
    return found


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


async def test_records_come_in_order_with_all_their_fields() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 20)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        records = await read(consumer, 20)
        assert offsets(records) == list(range(20))
        assert records[9] == ("t", 0, 9, 1002, TimestampType.CREATE_TIME, b"k", b"9", ())
        assert consumer.position(("t", 0)) == 20
    assert not cluster.nodes[1].streams


async def test_many_partitions_on_many_leaders() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 6)
    for partition in range(6):
        fill(cluster, "t", partition, 50)
    async with make(cluster) as consumer:
        assert len(await consumer.assign_topic("t")) == 6
        records = await read(consumer, 300)
    for partition in range(6):
        assert offsets([r for r in records if r.partition == partition]) == list(range(50))


async def test_a_partition_that_was_just_added_is_waited_for() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assigning = asyncio.create_task(consumer.assign([("t", 1)]))
        for _ in range(10):
            await asyncio.sleep(0)
        cluster.add_partition("t")
        await assigning
        assert consumer.assignment() == [("t", 1)]


class CountedNumber(int):
    """A partition's number that counts how often it is compared."""

    compared_count = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        CountedNumber.compared_count += 1
        return int(self) == other


async def test_no_partition_of_an_assignment_is_looked_for_among_all_others() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 1_000)
    async with make(cluster) as consumer:
        for half in (0, 0, 500):
            partitions = [("t", CountedNumber(half + number)) for number in range(500)]
            CountedNumber.compared_count = 0
            await consumer.assign(partitions, start=dict.fromkeys(partitions, 0))
            assert CountedNumber.compared_count < 20 * len(partitions)
            assert consumer.assignment() == partitions


async def test_few_of_many_missing_offsets_are_named() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 1_000)
    async with make(cluster) as consumer:
        with pytest.raises(InvalidRequestError, match=r"no offset for t-1, t-2, t-3, t-4, t-5, and 994 more$"):
            await consumer.assign([("t", number) for number in range(1_000)], start={("t", 0): 7})


async def test_a_position_inside_a_batch_skips_the_records_before_it() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 20)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)], start={("t", 0): 10})
        assert offsets(await read(consumer, 3)) == [10, 11, 12]
        consumer.seek(("t", 0), 3)
        assert offsets(await read(consumer, 2)) == [3, 4]
        await consumer.seek_to_end()
        assert consumer.position(("t", 0)) == 20
        await consumer.seek_to_beginning(("t", 0))
        assert offsets(await read(consumer, 1)) == [0]


async def test_poll_is_bounded_by_records_and_time() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 20)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await consumer.poll(5)) == [0, 1, 2, 3, 4]
        assert consumer.position(("t", 0)) == 5
        assert offsets(await consumer.poll(100)) == list(range(5, 20))
        assert await consumer.poll(timeout_ms=20) == []


async def test_raw_batches_continue_where_records_stopped() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 20)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        await read(consumer, 3)
        (piece,) = await consumer.fetch_batches()
        assert (piece.topic, piece.partition, piece.start_offset, piece.next_offset) == ("t", 0, 3, 20)
        assert piece.high_watermark == 20
        decoded = decode_records(piece.data, start_offset=piece.start_offset)
        assert [record.offset for record in decoded] == list(range(3, 20))
        fill(cluster, "t", 0, 5)
        assert offsets(await read(consumer, 5)) == list(range(20, 25))


async def test_a_reader_waits_for_what_is_not_there_yet() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, fetch_max_wait_ms=5_000) as consumer:
        await consumer.assign([("t", 0)], start="latest")
        reading = asyncio.create_task(read(consumer, 3))
        await quiet_for(0.02)
        assert not reading.done()
        fill(cluster, "t", 0, 3)
        assert offsets(await reading) == [0, 1, 2]


async def test_nothing_at_or_above_the_high_watermark() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 14)
    cluster.logs["t", 0].high_watermark = 7
    async with make(cluster) as consumer:
        assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 7}
        await consumer.assign([("t", 0)])
        assert len(await consumer.poll(100)) == 7
        assert await consumer.poll(100, timeout_ms=100) == []
        cluster.logs["t", 0].high_watermark = 14
        assert offsets(await consumer.poll(100)) == list(range(7, 14))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_passing_errors_are_retried(code: ErrorCode) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 5)
    cluster.nodes[1].fetch_script.append(code)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 5)) == list(range(5))


async def test_it_follows_leaders_and_survives_lost_streams() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 3)
    async with make(cluster) as consumer:
        await consumer.assign_topic("t")
        records = []
        for turn in range(6):
            for partition in range(3):
                fill(cluster, "t", partition, 20, per_batch=3)
            records += await read(consumer, 25)
            cluster.nodes[turn % 3 + 1].cut()
            for partition in range(3):
                cluster.move_leader("t", partition, (partition + turn) % 3 + 1)
        records += await read(consumer, 360 - len(records))
    for partition in range(3):
        assert offsets([r for r in records if r.partition == partition]) == list(range(120))


async def test_a_replica_in_the_rack_that_was_not_ready_is_asked_again_without_news() -> None:
    cluster = FakeCluster(2)
    cluster.racks = {1: "a", 2: "b"}
    cluster.create_topic("t")
    follower = cluster.nodes[2]
    fill(cluster, "t", 0, 5)
    async with make(cluster, client_rack="b") as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 5)) == [0, 1, 2, 3, 4]
        refused_count = len(follower.fetched)
        assert refused_count >= 1
        follower.serves_consumers = True  # the image of the cluster stays as it is
        await until(lambda: len(follower.fetched) > refused_count)
        asked_count = len(cluster.nodes[1].fetched)
        fill(cluster, "t", 0, 5)
        assert offsets(await read(consumer, 5)) == [5, 6, 7, 8, 9]
        assert len(cluster.nodes[1].fetched) == asked_count


async def test_a_silent_leader_is_left_for_the_new_one() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    fill(cluster, "t", 0, 5)
    cluster.nodes[1].is_silent = True
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert await consumer.poll(timeout_ms=50) == []
        cluster.move_leader("t", 0, 2)
        assert offsets(await read(consumer, 5)) == list(range(5))


async def test_out_of_range_raises_and_names_both_ends() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    fill(cluster, "t", 0, 20)
    fill(cluster, "t", 1, 5)
    cluster.logs["t", 0].log_start_offset = 4
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)], start={("t", 0): 99})
        with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 99 does not exist; .* offsets 4 to 20") as caught:
            await anext(consumer)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (4, 20)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.poll()
        consumer.seek(("t", 0), 4)
        assert offsets(await read(consumer, 1)) == [4]


@pytest.mark.parametrize(("policy", "first"), [("earliest", 4), ("latest", 20)])
async def test_out_of_range_may_reset(policy: Any, first: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 20, per_batch=1)
    cluster.logs["t", 0].log_start_offset = 4
    async with make(cluster, auto_offset_reset=policy) as consumer:
        await consumer.assign([("t", 0)], start={("t", 0): 1})
        reading = asyncio.create_task(read(consumer, 1))
        await until(lambda: reading.done() or consumer.position(("t", 0)) == first)
        fill(cluster, "t", 0, 1)
        assert offsets(await reading) == [first]
    assert f"t-0: offset 1 does not exist, the log has offsets 4 to 20; reading on at {first}" in caplog.text


@pytest.mark.parametrize("policy", ["raise", "earliest", "latest"])
async def test_an_offset_that_only_a_former_leader_refused_is_read_from_its_successor(
    policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    fill(cluster, "t", 0, 6, per_batch=1)
    cluster.logs["t", 0].log_start_offset = 4
    async with make(cluster, auto_offset_reset=policy) as consumer:
        await consumer.assign([("t", 0)], start={("t", 0): 1})
        await until(lambda: bool(cluster.nodes[1].fetched))
        cluster.logs["t", 0].log_start_offset = 0  # the successor has not heard of the deletion
        cluster.move_leader("t", 0, 2)
        assert offsets(await read(consumer, 5)) == [1, 2, 3, 4, 5]
    assert "reading on" not in caplog.text


def with_records_of_an_epoch(count: int) -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic("t")
    for number in range(count):
        batch = encode_batch([(0, None, b"%d" % number, ())], partition_leader_epoch=3)
        cluster.logs["t", 0].append(batch)
    return cluster


async def test_records_that_were_read_and_lost_are_told() -> None:
    cluster = with_records_of_an_epoch(5)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 5)) == list(range(5))
        cluster.logs["t", 0].parted = DivergingEpoch(3, 2)
        for _ in range(2):
            with pytest.raises(LogTruncatedError, match="t-0: records from offset 2 to 5 that were read") as caught:
                await anext(consumer)
        assert caught.value.end_offset == 2
        consumer.seek(("t", 0), 2)
        assert offsets(await read(consumer, 3)) == [2, 3, 4]


async def test_a_consumer_with_a_reset_policy_goes_back_to_where_the_logs_part() -> None:
    cluster = with_records_of_an_epoch(5)
    async with make(cluster, auto_offset_reset="latest") as consumer:
        await consumer.assign([("t", 0)], start="earliest")
        assert offsets(await read(consumer, 5)) == list(range(5))
        cluster.logs["t", 0].parted = DivergingEpoch(3, 2)
        assert offsets(await read(consumer, 3)) == [2, 3, 4]


async def test_memory_is_bounded_while_nobody_reads() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 4)
    for partition in range(4):
        for _ in range(50):
            cluster.logs["t", partition].append(encode_batch([(0, None, b"x" * 1000, ())]))
    async with make(cluster, buffer_memory_bytes=20_000, max_partition_fetch_bytes=8_000) as consumer:
        await consumer.assign_topic("t")
        await until(lambda: consumer._reader.backlog.held_bytes > 0)
        await quiet_for(0.1)
        assert consumer._reader.backlog.held_bytes < 4 * 8_000 + 20_000
        assert len(await read(consumer, 200)) == 200


async def test_control_batches_move_the_position_and_are_not_shown() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    log = cluster.logs["t", 0]
    fill(cluster, "t", 0, 2)
    log.append(
        encode_leader_change(
            base_offset=0, leader_epoch=1, timestamp_ms=5, leader_id=1, voters=(1,), granting_voters=(1,)
        )
    )
    fill(cluster, "t", 0, 2)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 4)) == [0, 1, 3, 4]


@pytest.mark.parametrize(("place", "bits"), [(-1, 0xFF), (22, 0x20)], ids=["a value", "a control batch by mistake"])
async def test_a_damaged_batch_is_told_after_what_came_before_it(place: int, bits: int) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 21)
    broken = bytearray(cluster.logs["t", 0].batches[1])
    broken[place] ^= bits
    cluster.logs["t", 0].batches[1] = bytes(broken)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 7)) == list(range(7))
        with pytest.raises(CorruptRecordError):
            await anext(consumer)
        assert consumer.position(("t", 0)) == 7


async def test_compressed_records_that_are_none_are_told_with_their_place_and_the_way_on() -> None:
    """A broker does not decompress: garbage with a right checksum is appended, and only its readers see it."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 3)
    batch = bytearray(encode_batch([(0, None, b"garbage", ())] * 2))
    batch[ATTRIBUTES_POSITION + 1] |= Codec.GZIP
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(batch[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    cluster.logs["t", 0].append(bytes(batch))
    fill(cluster, "t", 0, 1)
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
        with pytest.raises(InvalidRecordError, match=r"t-0: the records at offsets 3 to 4 .* seek\(\('t', 0\), 5\)"):
            await anext(consumer)
        consumer.seek(("t", 0), 5)
        assert offsets(await read(consumer, 1)) == [5]


async def test_a_deleted_topic_is_told() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        reading = asyncio.create_task(read(consumer, 1))
        await until(lambda: len(cluster.nodes[1].fetched) > 0)
        cluster.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            await reading
        cluster.create_topic("t")
        fill(cluster, "t", 0, 1)
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 1)) == [0]


async def test_misuse_is_told() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        make(cluster, auto_offset_reset="none")
    async with make(cluster) as consumer:
        with pytest.raises(InvalidRequestError, match="no partition is assigned"):
            await anext(consumer)
        with pytest.raises(UnknownTopicOrPartitionError, match="t has 1 partitions"):
            await consumer.assign([("t", 1)])
        with pytest.raises(InvalidRequestError, match="t-0 is not assigned"):
            consumer.seek(("t", 0), 1)
        await consumer.assign([("t", 0)])
        reading = asyncio.create_task(read(consumer, 1))
        await until(lambda: len(cluster.nodes[1].fetched) > 0)
        await consumer.close()
        with pytest.raises(BrokerClosedError):
            await reading


async def test_offsets_are_asked_again_until_the_time_is_up() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    fill(cluster, "t", 0, 3)
    cluster.nodes[1].list_offsets_script.append(ErrorCode.OFFSET_NOT_AVAILABLE)
    async with make(cluster) as consumer:
        assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 3}
        cluster.nodes[1].list_offsets_script.extend([ErrorCode.OFFSET_NOT_AVAILABLE] * 20)
        with pytest.raises(RequestTimedOutError, match=r"list offsets: .*OffsetNotAvailableError"):
            await consumer.end_offsets([("t", 0)], timeout_ms=250)


async def test_compressed_batches() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.logs["t", 0].append(encode_batch([(0, None, b"z" * 500, ())] * 3, codec=Codec.GZIP))
    async with make(cluster) as consumer:
        await consumer.assign([("t", 0)])
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
