"""What is fixed when a DataFrame is made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from replog.client import ClusterView
from replog.errors import (
    ConfigError,
    ErrorCode,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.records import encode_batch
from replog.spark import snapshot
from replog.spark.options import parse_read_options
from replog.spark.snapshot import PinnedOffsets, resolve_snapshot
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import CLUSTER_ID, FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view

NOW_MS = 60
"""Records of `cluster` have their offset as timestamp."""


async def resolve(cluster: FakeCluster, **options: Any) -> PinnedOffsets:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    async with open_view(cluster) as view:
        return await resolve_snapshot(view, parse_read_options({"bootstrap.servers": "h:1", **texts}), NOW_MS)


def ranges(found: PinnedOffsets) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.start_offset, each.end_offset) for each in found.ranges]


@pytest.fixture
async def cluster() -> FakeCluster:
    """Topic t: 100, 0 and 50 records, the last with a log start of 20 and a high watermark of 40; topic u: 10."""
    made = FakeCluster(3)
    made.create_topic("t", 3)
    made.create_topic("u", 1)
    fill(made, "t", 100)
    fill(made, "t", 50, partition=2)
    fill(made, "u", 10)
    made.logs["t", 2].log_start_offset = 20
    made.logs["t", 2].high_watermark = 40
    return made


async def test_from_the_log_start_to_the_high_watermark(cluster: FakeCluster) -> None:
    found = await resolve(cluster, subscribe="u,t")
    assert found.cluster_id == CLUSTER_ID
    assert ranges(found) == [("u", 0, 0, 10), ("t", 0, 0, 100), ("t", 1, 0, 0), ("t", 2, 20, 40)]
    assert {each.topic_id for each in found.ranges if each.topic == "t"} == {cluster.logs["t", 0].topic_id}
    assert {each.metadata_offset for each in found.ranges} == {cluster.metadata_offset}


async def test_assigned_partitions_only(cluster: FakeCluster) -> None:
    assert ranges(await resolve(cluster, assign={"t": [2, 0]})) == [("t", 0, 0, 100), ("t", 2, 20, 40)]


async def test_a_broker_without_a_controller_is_not_believed(cluster: FakeCluster) -> None:
    """Goal: one that has just been started does not tell of all topics yet; a pattern would leave out the others in silence."""
    cluster.nodes[1].cut_off(knows_it=True)
    cluster.create_topic("tt")
    async with open_view(cluster) as view:
        found = await resolve_snapshot(
            view, parse_read_options({"bootstrap.servers": "h:1", "subscribePattern": "t.+"}), NOW_MS
        )
    assert ranges(found) == [("tt", 0, 0, 0)]


async def test_a_broker_that_has_just_been_started_is_waited_for() -> None:
    cluster = FakeCluster(1)
    cluster.nodes[1].cut_off(knows_it=True)
    cluster.create_topic("t")
    resolving = asyncio.create_task(resolve(cluster, subscribePattern="t"))
    await until(lambda: cluster.nodes[1].watchers)
    cluster.nodes[1].hear_again()
    assert ranges(await resolving) == [("t", 0, 0, 0)]


async def test_json_offsets(cluster: FakeCluster) -> None:
    found = await resolve(
        cluster,
        subscribe="t",
        startingOffsets={"t": {"0": 30, "1": -2, "2": 25}},
        endingOffsets={"t": {"0": 30, "1": 0, "2": -1}},
    )
    assert ranges(found) == [("t", 0, 30, 30), ("t", 1, 0, 0), ("t", 2, 25, 40)]


async def test_a_pattern_matches_whole_names(cluster: FakeCluster) -> None:
    cluster.create_topic("tt")
    assert ranges(await resolve(cluster, subscribePattern="[tu]")) == [
        ("t", 0, 0, 100), ("t", 1, 0, 0), ("t", 2, 20, 40), ("u", 0, 0, 10),
    ]  # fmt: skip


async def test_a_pattern_matches_none_of_the_clusters_own_topics(cluster: FakeCluster) -> None:
    cluster.create_topic("__consumer_offsets")
    assert {name for name, *_ in ranges(await resolve(cluster, subscribePattern=".*"))} == {"t", "u"}
    assert {name for name, *_ in ranges(await resolve(cluster, subscribe="__consumer_offsets"))} == {
        "__consumer_offsets"
    }


async def test_distances_count_from_either_end_and_stay_inside(cluster: FakeCluster) -> None:
    found = await resolve(cluster, subscribe="t", startingOffsets="latest-30", endingOffsets="latest-5")
    assert ranges(found) == [("t", 0, 70, 95), ("t", 1, 0, 0), ("t", 2, 20, 35)]
    first = await resolve(cluster, subscribe="t", endingOffsets="earliest+3")
    assert ranges(first) == [("t", 0, 0, 3), ("t", 1, 0, 0), ("t", 2, 20, 23)]


async def test_times_find_the_first_record_at_or_after_them(cluster: FakeCluster) -> None:
    found = await resolve(cluster, assign={"t": [0, 2]}, startingTimestamp=25, endingTimestamp="-29ms")
    assert ranges(found) == [("t", 0, 25, 31), ("t", 2, 25, 31)]
    each = await resolve(
        cluster,
        assign={"t": [0, 2]},
        startingOffsetsByTimestamp={"t": {"0": 99, "2": 0}},
        endingOffsetsByTimestamp={"t": {"0": 1000, "2": 30}},
    )
    assert ranges(each) == [("t", 0, 99, 100), ("t", 2, 20, 30)]


async def test_a_record_above_the_high_watermark_is_no_match(cluster: FakeCluster) -> None:
    """Goal: time look-ups stay inside what is pinned."""
    options: dict[str, Any] = {"assign": {"t": [0, 2]}, "startingTimestamp": 40}
    with pytest.raises(ConfigError) as caught:
        await resolve(cluster, **options)
    assert "startingTimestamp: t-2 has no record at or after that time" in str(caught.value)
    found = await resolve(cluster, **options, startingOffsetsByTimestampStrategy="latest")
    assert ranges(found) == [("t", 0, 40, 100), ("t", 2, 40, 40)]


async def test_large_partitions_come_cut_between_batches(cluster: FakeCluster) -> None:
    for first in range(100, 400, 100):
        log = cluster.logs["t", 0]
        log.append(encode_batch([(n, None, b"v" * 1000, ()) for n in range(first, first + 100)]))
    found = await resolve(cluster, assign={"t": [0, 1]}, targetBytesPerPartition=150_000)
    parts = [(each.range.start_offset, each.range.end_offset, each.size_bytes) for each in found.parts]
    sizes = [len(batch) for batch in cluster.logs["t", 0].batches]
    assert parts == [(0, 300, sum(sizes[:-1])), (300, 400, sizes[-1])]
    assert {each.range.leader_epoch for each in found.parts} == {0}


async def test_brokers_that_do_not_know_cuts_leave_ranges_whole(cluster: FakeCluster) -> None:
    """Goal: a cluster of an older version is read as before."""
    for node in cluster.nodes.values():
        node.knows_cuts = False
    found = await resolve(cluster, subscribe="t")
    assert [(str(each.range), each.size_bytes) for each in found.parts] == [
        ("t-0 [0, 100)", None),
        ("t-2 [20, 40)", None),
    ]


async def test_a_leader_that_does_not_know_its_high_watermark_yet_is_asked_again(cluster: FakeCluster) -> None:
    """KIP-207: right after a failover the latest offset could be below what was acknowledged."""
    cluster.nodes[1].list_offsets_script.extend([ErrorCode.OFFSET_NOT_AVAILABLE] * 3)
    assert ranges(await resolve(cluster, assign={"t": [0]})) == [("t", 0, 0, 100)]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "t,nowhere"}, UnknownTopicOrPartitionError, 'subscribe: topic "nowhere" does not exist'),
        ({"subscribePattern": "nothing.*"}, UnknownTopicOrPartitionError, "Topics are: t, u."),
        (
            {"subscribe": "u", "startingOffsetsByTimestamp": {"u": {"0": 1, "1": 1}}},
            ConfigError,
            "startingOffsetsByTimestamp names u-1",
        ),
        (
            {"subscribe": "u", "startingTimestamp": 5, "endingTimestamp": 4},
            ConfigError,
            "startingTimestamp starts u-0 at offset 5, and endingTimestamp ends it at 4",
        ),
        ({"assign": {"t": [3]}}, UnknownTopicOrPartitionError, "assign: t has 3 partitions"),
        ({"subscribe": "t", "startingOffsets": {"t": {"0": 1}}}, ConfigError, "startingOffsets does not name t-1"),
        ({"subscribe": "u", "endingOffsets": {"u": {"0": 1}, "t": {"0": 1}}}, ConfigError, "endingOffsets names t-0"),
        (
            {"subscribe": "u", "startingOffsets": {"u": {"0": 5}}, "endingOffsets": {"u": {"0": 4}}},
            ConfigError,
            "startingOffsets starts u-0 at offset 5, and endingOffsets ends it at 4",
        ),
        (
            {"assign": {"t": [2]}, "startingOffsets": {"t": {"2": 19}}},
            OffsetOutOfRangeError,
            "startingOffsets: offset 19 of t-2 is outside of [20, 40]",
        ),
        (
            {"assign": {"t": [2]}, "endingOffsets": {"t": {"2": 41}}},
            OffsetOutOfRangeError,
            'failOnDataLoss "false"',
        ),
    ],
)
async def test_refused(
    cluster: FakeCluster, options: dict[str, Any], error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = {"partitions_count": 0, "within_ms": 100}
    monkeypatch.setattr("replog.client.cluster.view.ClusterView.topic_or_raise.__kwdefaults__", soon)
    with pytest.raises(error) as caught:
        await resolve(cluster, **options)
    assert text in str(caught.value)


async def test_without_fail_on_data_loss_offsets_move_inside(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"startingOffsets": {"t": {"2": 3}}, "endingOffsets": {"t": {"2": 99}}, "failOnDataLoss": "false"}
    assert ranges(await resolve(cluster, assign={"t": [2]}, **options)) == [("t", 2, 20, 40)]
    assert "offset 3 of t-2" in caplog.text
    assert "offset 99 of t-2" in caplog.text


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CONNECT_TIMEOUT_MS", 200)
    cluster = FakeCluster()
    cluster.nodes[1].is_down = True
    view = ClusterView(cluster.bootstrap, transport=cluster.transport())
    try:
        with pytest.raises(RequestTimedOutError) as caught:
            await resolve_snapshot(view, parse_read_options({"bootstrap.servers": "h:1", "subscribe": "t"}), NOW_MS)
    finally:
        await view.close()
    assert "connection refused" in str(caught.value)
