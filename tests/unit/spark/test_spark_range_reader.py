"""Reading one range from scripted brokers: every record once, in order, whatever happens to leaders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from replog.client.ranges import range_reader
from replog.client.ranges.offset_range import OffsetRange
from replog.client.ranges.range_reader import FETCH_SETTINGS, FetchSettings, RangeReader
from replog.errors import (
    BrokerClosedError,
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.records import decode_records
from replog.spark.words import WORDS
from tests.quiet import quiet_for
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view, whole


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small replies, short waits."""
    monkeypatch.setattr(
        range_reader,
        "FETCH_SETTINGS",
        FetchSettings(max_wait_ms=20, max_bytes=400, max_partition_bytes=400, buffer_memory_bytes=1_200),
    )
    monkeypatch.setattr(range_reader, "VISIBLE_WITHIN_MS", 200)


@pytest.fixture
async def cluster() -> FakeCluster:
    made = FakeCluster(2)
    made.create_topic("t")
    fill(made, "t", 100)
    return made


@asynccontextmanager
async def open_reader(
    cluster: FakeCluster, wanted: OffsetRange, *, fail_on_data_loss: bool = True
) -> AsyncIterator[RangeReader]:
    async with open_view(cluster) as view:
        reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=fail_on_data_loss)
        view.add_listener(reader.handle_metadata)
        try:
            await reader.start()
            yield reader
        finally:
            await reader.close()


async def rest(reader: RangeReader, wanted: OffsetRange) -> list[int]:
    """Offsets of all records that are still to come."""
    found: list[int] = []
    async with asyncio.timeout(60):
        while (piece := await reader.next_piece()) is not None:
            start, end = piece.start_offset, wanted.end_offset
            found += [record.offset for record in decode_records(piece.data, start_offset=start, end_offset=end)]
    return found


async def read(cluster: FakeCluster, wanted: OffsetRange, *, fail_on_data_loss: bool = True) -> list[int]:
    async with open_reader(cluster, wanted, fail_on_data_loss=fail_on_data_loss) as reader:
        return await rest(reader, wanted)


async def test_the_whole_range_in_order(cluster: FakeCluster) -> None:
    assert await read(cluster, whole(cluster)) == list(range(100))


async def test_a_range_may_begin_and_end_inside_a_batch(cluster: FakeCluster) -> None:
    assert await read(cluster, whole(cluster, start=3, end=57)) == list(range(3, 57))


async def test_nothing_is_asked_for_beyond_the_end(cluster: FakeCluster) -> None:
    """Goal: a task that has its range does not go on fetching while Spark digests it."""
    wanted = whole(cluster, end=20)
    async with open_reader(cluster, wanted) as reader:
        assert await rest(reader, wanted) == list(range(20))
        await quiet_for(0.05)
    assert max(p.fetch_offset for r in cluster.nodes[1].fetched for p in r.partitions) < 20


async def test_what_is_fetched_ahead_is_bounded(cluster: FakeCluster) -> None:
    fill(cluster, "t", 900)
    async with open_reader(cluster, whole(cluster)) as reader:
        await reader.next_piece()
        await quiet_for(0.05)
        asked = max(p.fetch_offset for r in cluster.nodes[1].fetched for p in r.partitions)
        assert asked < 100


async def test_a_new_leader_takes_over_in_the_middle(cluster: FakeCluster) -> None:
    wanted = whole(cluster)
    async with open_reader(cluster, wanted) as reader:
        first = await reader.next_piece()
        assert first is not None
        cluster.nodes[1].is_down = True
        cluster.nodes[1].cut()
        cluster.move_leader("t", 0, 2)
        found = await rest(reader, wanted)
    assert found == list(range(found[0], 100))
    assert found[0] == decode_records(first.data)[-1].offset + 1


async def test_a_broken_stream_is_opened_again(cluster: FakeCluster) -> None:
    wanted = whole(cluster)
    async with open_reader(cluster, wanted) as reader:
        await reader.next_piece()
        cluster.nodes[1].cut()
        assert (await rest(reader, wanted))[-1] == 99


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
     ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE],
)  # fmt: skip
async def test_errors_that_pass_are_waited_out(cluster: FakeCluster, code: ErrorCode) -> None:
    cluster.nodes[1].fetch_script.extend([code, code])
    assert await read(cluster, whole(cluster)) == list(range(100))


async def test_a_leader_whose_high_watermark_is_behind_is_waited_for(cluster: FakeCluster) -> None:
    """Goal: the range was fixed below the high watermark, so a new leader must come to know it."""
    wanted = whole(cluster)
    cluster.logs["t", 0].high_watermark = 50
    async with open_reader(cluster, wanted) as reader:
        reading = asyncio.create_task(rest(reader, wanted))
        await quiet_for(0.05)
        assert not reading.done()
        cluster.logs["t", 0].high_watermark = None
        cluster.nodes[1].appended.set()
        assert await reading == list(range(100))


async def test_a_range_that_stands_still_fails_with_what_it_knows(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "STALL_TIMEOUT_MS", 100)
    monkeypatch.setattr(range_reader, "LOOK_S", 0.02)
    wanted = whole(cluster)
    cluster.logs["t", 0].high_watermark = 50
    with pytest.raises(RequestTimedOutError) as caught:
        await read(cluster, wanted)
    assert "t-0 [0, 100): at offset 50" in str(caught.value)
    assert "high watermark is 50" in str(caught.value)


async def test_records_below_the_log_start_are_data_loss(cluster: FakeCluster) -> None:
    wanted = whole(cluster)
    cluster.logs["t", 0].log_start_offset = 30
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await read(cluster, wanted)
    assert caught.value.log_start_offset == 30
    assert "the log has 30 to 100 (exclusive)" in str(caught.value)
    assert await read(cluster, wanted, fail_on_data_loss=False) == list(range(30, 100))
    assert await read(cluster, whole(cluster, end=25), fail_on_data_loss=False) == []


async def test_a_log_that_ends_before_the_range_is_data_loss(cluster: FakeCluster) -> None:
    wanted = whole(cluster, start=120, end=130)
    with pytest.raises(OffsetOutOfRangeError):
        await read(cluster, wanted)
    assert await read(cluster, wanted, fail_on_data_loss=False) == []


async def test_metadata_from_before_the_plan_tell_of_no_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a task that asks a broker which has just been started neither fails nor, with failOnDataLoss=false, reads nothing."""
    monkeypatch.setattr(range_reader, "VISIBLE_WITHIN_MS", 1)
    cluster = FakeCluster(1)
    cluster.nodes[1].cut_off()
    cluster.create_topic("t")
    fill(cluster, "t", 20)
    wanted = replace(whole(cluster), metadata_offset=cluster.metadata_offset)
    async with open_reader(cluster, wanted, fail_on_data_loss=False) as reader:
        reading = asyncio.create_task(rest(reader, wanted))
        await asyncio.sleep(0)
        cluster.nodes[1].hear_again()
        assert await reading == list(range(20))


async def test_a_topic_that_is_deleted_or_created_anew_is_data_loss(cluster: FakeCluster) -> None:
    wanted = whole(cluster)
    async with open_reader(cluster, wanted) as reader:
        await reader.next_piece()
        cluster.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            await rest(reader, wanted)
    cluster.create_topic("t")
    fill(cluster, "t", 100)
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        await read(cluster, wanted)
    assert "deleted or created anew" in str(caught.value)
    assert await read(cluster, wanted, fail_on_data_loss=False) == []


async def test_a_topic_this_process_has_not_heard_of_yet_is_waited_for(cluster: FakeCluster) -> None:
    """Goal: the planning process may know of a topic before a worker's broker does."""
    wanted = whole(cluster)
    hidden = dict(cluster.logs)
    cluster.delete_topic("t")
    async with open_view(cluster) as view:
        reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=True)
        view.add_listener(reader.handle_metadata)
        starting = asyncio.create_task(reader.start())
        await quiet_for(0.02)
        assert not starting.done()
        cluster.logs = hidden
        cluster.publish()
        await starting
        assert await rest(reader, wanted) == list(range(100))
        await reader.close()


async def test_damaged_bytes_fail_after_what_was_good(cluster: FakeCluster) -> None:
    log = cluster.logs["t", 0]
    offsets_end = 27  # behind them: where the batch is stays known to the broker
    log.batches[10] = log.batches[10][:offsets_end] + b"\xff" * (len(log.batches[10]) - offsets_end)
    with pytest.raises(CorruptRecordError):
        await read(cluster, whole(cluster))


def test_the_real_settings_hold_two_replies() -> None:
    """Goal: one reply waits while the one before is decoded, and no more."""
    assert FETCH_SETTINGS.max_bytes <= FETCH_SETTINGS.buffer_memory_bytes <= 4 * FETCH_SETTINGS.max_bytes


async def test_a_new_leader_takes_over_while_enough_is_fetched_ahead(cluster: FakeCluster) -> None:
    """Goal: what the former leader brought is digested first, and then the new one must be asked."""
    fill(cluster, "t", 900)
    wanted = whole(cluster)
    async with open_reader(cluster, wanted) as reader:
        assert await reader.next_piece() is not None
        await quiet_for(0.05)  # until nothing more is fetched ahead
        cluster.nodes[1].is_down = True
        cluster.nodes[1].cut()
        cluster.move_leader("t", 0, 2)
        await quiet_for(0.3)
        assert not cluster.nodes[2].fetched
        assert (await rest(reader, wanted))[-1] == wanted.end_offset - 1


async def test_a_replica_in_the_rack_of_the_tasks_is_read(cluster: FakeCluster) -> None:
    """Goal: with `clientRack` the leader is asked for nothing; where the replica may not serve, it is."""
    cluster.racks = {1: "a", 2: "b"}
    wanted = whole(cluster)
    for serves in (True, False):
        cluster.nodes[2].serves_consumers = serves
        async with open_view(cluster) as view:
            reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=True, client_rack="b")
            try:
                await reader.start()
                assert await rest(reader, wanted) == list(range(100))
            finally:
                await reader.close()
        assert bool(cluster.nodes[1].fetched) is not serves


async def test_a_reader_that_is_given_up_waits_no_longer(cluster: FakeCluster) -> None:
    """Goal: a query that stops early does not wait for a broker that says nothing."""
    wanted = whole(cluster, start=100, end=105)
    async with open_reader(cluster, wanted) as reader:
        waiting = asyncio.create_task(reader.next_piece())
        await quiet_for(0.02)
        assert not waiting.done()
        reader.give_up()
        with pytest.raises(BrokerClosedError, match="not read any more"):
            await waiting
        with pytest.raises(BrokerClosedError):
            await reader.next_piece()
