"""A log that an unclean election changed between plan and task, or in the middle of one, is never read as if it were the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from replog.client.ranges import range_reader
from replog.client.ranges.offset_range import OffsetRange
from replog.client.ranges.range_reader import FetchSettings, RangeReader
from replog.errors import ErrorCode, LogTruncatedError
from replog.records import decode_records
from replog.rpc.messages import DivergingEpoch
from replog.spark.options import parse_read_options
from replog.spark.snapshot import resolve_snapshot
from replog.spark.words import WORDS
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small replies, short waits."""
    settings = FetchSettings(max_wait_ms=20, max_bytes=400, max_partition_bytes=400, buffer_memory_bytes=1_200)
    monkeypatch.setattr(range_reader, "FETCH_SETTINGS", settings)
    monkeypatch.setattr(range_reader, "LOOK_S", 0.05)


@pytest.fixture
async def cluster() -> FakeCluster:
    """Topic t with 100 records of leader epoch 3."""
    made = FakeCluster(2)
    made.create_topic("t")
    made.logs["t", 0].leader_epoch = 3
    fill(made, "t", 100)
    made.publish()
    return made


async def pin(cluster: FakeCluster) -> OffsetRange:
    async with open_view(cluster) as view:
        options = parse_read_options({"bootstrap.servers": "h:1", "subscribe": "t"})
        return (await resolve_snapshot(view, options, now_ms=0)).ranges[0]


@asynccontextmanager
async def open_reader(cluster: FakeCluster, wanted: OffsetRange, *, strict: bool = True) -> AsyncIterator[RangeReader]:
    async with open_view(cluster) as view:
        reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=strict)
        view.add_listener(reader.handle_metadata)
        try:
            await reader.start()
            yield reader
        finally:
            await reader.close()


async def read_on(reader: RangeReader, wanted: OffsetRange, found: list[int]) -> None:
    """Adds the offsets of all records that are still to come."""
    while (piece := await reader.next_piece()) is not None:
        records = decode_records(piece.data, start_offset=piece.start_offset, end_offset=wanted.end_offset)
        found += [record.offset for record in records]


def elect_uncleanly(cluster: FakeCluster, end_offset: int, appended_count: int) -> None:
    cluster.logs["t", 0].truncate(end_offset)
    cluster.move_leader("t", 0, 2)
    fill(cluster, "t", appended_count)


async def test_the_epoch_of_the_leader_is_pinned(cluster: FakeCluster) -> None:
    assert (await pin(cluster)).leader_epoch == 3


async def test_a_clean_change_of_leaders_is_no_loss(cluster: FakeCluster) -> None:
    wanted = await pin(cluster)
    cluster.move_leader("t", 0, 2)
    fill(cluster, "t", 50)
    found: list[int] = []
    async with open_reader(cluster, wanted) as reader:
        await read_on(reader, wanted, found)
    assert found == list(range(100))


@pytest.mark.parametrize("appended_count", [0, 20, 80], ids=["nothing", "less", "more"])
async def test_records_that_were_cut_off_or_replaced_fail_the_task(cluster: FakeCluster, appended_count: int) -> None:
    """Goal: whatever was appended in their place, the error names the range and where the logs part."""
    wanted = await pin(cluster)
    elect_uncleanly(cluster, 50, appended_count)
    found: list[int] = []
    async with open_reader(cluster, wanted) as reader:
        with pytest.raises(LogTruncatedError) as caught:
            await read_on(reader, wanted, found)
    assert found == list(range(len(found)))
    assert len(found) <= 50
    assert "t-0 [0, 100): from offset 50 on the log is not the one that was there" in str(caught.value)
    assert "leader epoch 3" in str(caught.value)


@pytest.mark.parametrize(("appended_count", "end"), [(0, 50), (20, 70), (80, 100)])
async def test_without_fail_on_data_loss_what_is_there_is_read(
    cluster: FakeCluster, appended_count: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = await pin(cluster)
    elect_uncleanly(cluster, 50, appended_count)
    found: list[int] = []
    async with open_reader(cluster, wanted, strict=False) as reader:
        await read_on(reader, wanted, found)
    assert found == list(range(end))
    warnings = [record.getMessage() for record in caplog.records if "from offset 50 on" in record.getMessage()]
    assert [text.endswith("going on at offset 100 (failOnDataLoss is false)") for text in warnings] == (
        [True] if appended_count == 0 else [False, True] if end < 100 else [False]
    )


async def test_what_is_there_is_not_skipped_because_it_comes_late(cluster: FakeCluster) -> None:
    """Goal: where the log ends before the range, all that it has is read first, however long a leader takes to send it."""
    wanted = replace(await pin(cluster), start_offset=50)
    elect_uncleanly(cluster, 50, 20)
    cluster.nodes[2].fetch_script.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4)
    found: list[int] = []
    async with open_reader(cluster, wanted, strict=False) as reader:
        await read_on(reader, wanted, found)
    assert found == list(range(50, 70))


async def test_a_leader_that_says_where_the_logs_part_ends_the_task(cluster: FakeCluster) -> None:
    """Goal: what was read of it is in the task's result already, and nothing must be added to it."""
    wanted = await pin(cluster)
    async with open_reader(cluster, wanted) as reader:
        assert await reader.next_piece() is not None
        cluster.logs["t", 0].parted = DivergingEpoch(2, 10)
        with pytest.raises(LogTruncatedError) as caught:
            await read_on(reader, wanted, [])
    assert "from offset 0 on" in str(caught.value), (
        "all that was read is of a later epoch than what the log has up to 10"
    )


async def test_a_range_without_an_epoch_is_read_as_it_is(cluster: FakeCluster) -> None:
    wanted = replace(await pin(cluster), leader_epoch=-1)
    elect_uncleanly(cluster, 50, 80)
    found: list[int] = []
    async with open_reader(cluster, wanted) as reader:
        await read_on(reader, wanted, found)
    assert found == list(range(100))
