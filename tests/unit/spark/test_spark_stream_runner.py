"""What the driver's process of a stream knows of its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from replog.client import ClusterView
from replog.client.types import TopicPartition
from replog.errors import RequestTimedOutError, UnknownTopicOrPartitionError
from replog.spark import worker_client
from replog.spark.options import parse_stream_options
from replog.spark.stream import runner as runner_module
from replog.spark.stream.runner import StreamRunner
from replog.spark.worker_client import loop_thread
from tests.unit.client.fake_cluster import FakeCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster without topics, in the loop's thread."""

    async def make() -> FakeCluster:
        return FakeCluster(1)

    made = loop_thread().run(make)
    monkeypatch.setattr(runner_module, "ClusterView", partial(ClusterView, transport=made.transport()))
    yield made
    worker_client.close_clients()


def create_topic(cluster: FakeCluster, name: str) -> None:
    async def create() -> None:
        cluster.create_topic(name)

    loop_thread().run(create)


def opened(cluster: FakeCluster, **options: str) -> StreamRunner:
    return StreamRunner(parse_stream_options({"bootstrap.servers": ",".join(cluster.bootstrap), **options}))


def test_the_cluster_is_known_before_any_topic_is_there(cluster: FakeCluster) -> None:
    """Goal: a checkpoint that names no cluster is refused as one of another cluster, as soon as there are topics."""
    made = opened(cluster, subscribePattern="t.*")
    try:
        assert made.known().cluster_id == cluster.cluster_id
        assert made.first_places() == {}
    finally:
        made.close()


def test_metadata_that_the_checkpoint_has_seen_are_waited_for(cluster: FakeCluster) -> None:
    made = opened(cluster, subscribePattern="t.*", **{"kafkaConsumer.pollTimeoutMs": "1"})
    try:
        seen = made.known().metadata_offset
        assert seen == cluster.metadata_offset
        assert made.known(seen) is made.known()
        with pytest.raises(RequestTimedOutError, match="the checkpoint was written by metadata up to offset 99"):
            made.known(99)
    finally:
        made.close()


def test_a_topic_that_is_deleted_meanwhile_starts_no_other_one_at_its_beginning(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: only where nothing matches a pattern a query starts with nothing, and reads what comes from its first record."""

    async def resolve(*_: Any) -> Any:
        raise UnknownTopicOrPartitionError("topic t2 is gone")

    monkeypatch.setattr(runner_module, "resolve_ranges", resolve)
    create_topic(cluster, "t1")
    made = opened(cluster, subscribePattern="t.*", startingOffsets="latest")
    try:
        assert list(made.known().bounds) == [TopicPartition("t1", 0)]
        with pytest.raises(UnknownTopicOrPartitionError, match="topic t2 is gone"):
            made.first_places()
    finally:
        made.close()
