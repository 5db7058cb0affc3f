"""Counts and offsets without reading a record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import replog.spark
from replog.client import ClusterView
from replog.client.types import TopicPartition
from replog.errors import ConfigError, InvalidRequestError, UnknownTopicOrPartitionError
from replog.spark import counting
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with topic t of 100 and 0 records, the first with a log start of 10, and the compacted topic c of 50."""

    async def run(ask: Callable[[ClusterView], Awaitable[Any]]) -> Any:
        cluster = FakeCluster(2)
        cluster.create_topic("t", 2)
        cluster.create_topic("c")
        cluster.configs["c"] = {"cleanup.policy": "delete,compact"}
        cluster.configs["t"] = {"cleanup.policy": "delete"}
        fill(cluster, "t", 100)
        fill(cluster, "c", 50)
        cluster.logs["t", 0].log_start_offset = 10
        cluster.publish()
        async with open_view(cluster) as view:
            return await ask(view)

    monkeypatch.setattr(counting, "ask_cluster", lambda _servers, ask: asyncio.run(run(ask)))


def test_offsets_are_those_of_a_read_with_the_same_options() -> None:
    assert replog.spark.offsets("h:1", subscribe="t") == {
        TopicPartition("t", 0): range(10, 100),
        TopicPartition("t", 1): range(0),
    }
    each = {"t": {"0": 20}}
    assert replog.spark.offsets("h:1", assign={"t": [0]}, startingOffsets=each, endingOffsets="latest-10") == {
        TopicPartition("t", 0): range(20, 90)
    }


def test_a_count_is_the_number_of_offsets() -> None:
    assert replog.spark.count("h:1", subscribe="t") == 90
    assert replog.spark.count("h:1", subscribe="t", startingOffsets="latest-5") == 5


def test_a_compacted_topic_is_counted_only_as_an_upper_bound() -> None:
    """Goal: a number that looks exact and is not must be asked for."""
    with pytest.raises(InvalidRequestError) as caught:
        replog.spark.count("h:1", subscribe="t,c")
    assert "topic c is compacted" in str(caught.value)
    assert replog.spark.count("h:1", subscribe="t,c", allow_upper_bound=True) == 140


def test_errors_are_those_of_a_read() -> None:
    with pytest.raises(ConfigError) as caught:
        replog.spark.count("h:1", subscrib="t")
    assert 'Did you mean "subscribe"?' in str(caught.value)
    with pytest.raises(UnknownTopicOrPartitionError):
        replog.spark.offsets("h:1", subscribePattern="nothing")


def test_the_package_names_what_it_has() -> None:
    assert {"count", "offsets", "prepare"} <= set(replog.spark.__all__)
    with pytest.raises(AttributeError):
        _ = replog.spark.nothing
