"""Scripted brokers for the parts of the data source that talk to a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from replog.client import ClusterView
from replog.client.ranges.offset_range import OffsetRange
from replog.records import encode_batch
from tests.unit.client.fake_cluster import FakeCluster


def fill(cluster: FakeCluster, topic: str, count: int, *, partition: int = 0, per_batch: int = 5) -> None:
    """Appends records whose value is their offset; their timestamp too."""
    log = cluster.logs[topic, partition]
    for first in range(log.end_offset, log.end_offset + count, per_batch):
        log.append(encode_batch([(n, None, b"%d" % n, ()) for n in range(first, first + per_batch)]))
    for node in cluster.nodes.values():
        node.appended.set()


def whole(cluster: FakeCluster, topic: str = "t", start: int = 0, end: int | None = None) -> OffsetRange:
    """A range of partition 0."""
    log = cluster.logs[topic, 0]
    topic_id: UUID = log.topic_id
    return OffsetRange(topic, topic_id, 0, start, log.visible_offset if end is None else end)


@asynccontextmanager
async def open_view(cluster: FakeCluster, **settings: Any) -> AsyncIterator[ClusterView]:
    view = ClusterView(cluster.bootstrap, transport=cluster.transport(), **settings)
    try:
        await view.ready(5_000)
        yield view
    finally:
        await view.close()
