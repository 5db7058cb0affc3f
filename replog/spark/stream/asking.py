"""Asking the leaders of partitions for bounds and ends of epochs, with the patience of a batch read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID

from replog.client.cluster.offsets import epoch_ends
from replog.client.cluster.view import ClusterView
from replog.client.ranges.bounds import look_up_bounds
from replog.client.ranges.patience import STALL_TIMEOUT_MS, PlanningPatience
from replog.client.types import EpochEndOffset, TopicPartition
from replog.errors import RequestTimedOutError, UnknownTopicOrPartitionError
from replog.spark.stream.changes import LogBounds
from replog.spark.words import WORDS

R = TypeVar("R")

METADATA_LOOK_S = 0.05
"""How often is looked whether newer metadata have come."""


async def ask_bounds(
    view: ClusterView, partitions: Collection[TopicPartition], poll_timeout_ms: int | None
) -> dict[TopicPartition, LogBounds]:
    """Asks the leaders for the bounds of partitions; without those whose topic was created anew meanwhile.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some partition has nobody that tells its bounds in time (`PlanningPatience`).
    """
    before = _topic_ids(view, partitions)
    found = await look_up_bounds(view, partitions, PlanningPatience(view, poll_timeout_ms, WORDS))
    after = _topic_ids(view, partitions)
    return {
        partition: LogBounds(after[partition], each.log_start_offset, each.high_watermark, each.leader_epoch)
        for partition, each in found.items()
        if partition in after and after[partition] == before.get(partition)
    }


def _topic_ids(view: ClusterView, partitions: Collection[TopicPartition]) -> dict[TopicPartition, UUID]:
    topics = view.image.topics
    return {each: topics[each.topic].topic_id for each in partitions if each.topic in topics}


async def await_metadata(view: ClusterView, metadata_offset: int, poll_timeout_ms: int | None) -> None:
    """Waits until the metadata are up to an offset: those of a broker that has just been started may be older.

    Those of Apache Kafka tell none, and are new enough.

    Raises:
        RequestTimedOutError: No broker told newer ones in time (`poll_timeout_ms`; None: STALL_TIMEOUT_MS).
    """
    timeout_ms = poll_timeout_ms or STALL_TIMEOUT_MS
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while view.image.shared_offset < metadata_offset and not view.image.is_counted:
                view.request_refresh()
                await asyncio.sleep(METADATA_LOOK_S)
    except TimeoutError:
        raise RequestTimedOutError(
            f"the checkpoint was written by metadata up to offset {metadata_offset}, and for {timeout_ms} ms no broker told newer "
            f"ones than up to {view.image.shared_offset}. Start the other brokers; where the cluster was set back on purpose, "
            "give another checkpointLocation"
        ) from None


async def ask_epoch_ends(
    view: ClusterView, epochs: Mapping[TopicPartition, int], poll_timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Asks the leaders where leader epochs end in their logs; without those that do not know, or do not exist any more.

    Raises:
        RequestTimedOutError: Some partition has nobody that tells the end in time (`PlanningPatience`).
    """
    patience = PlanningPatience(view, poll_timeout_ms, WORDS)

    async def ask(partitions: Collection[TopicPartition]) -> dict[TopicPartition, EpochEndOffset | None]:
        wanted = {partition: epochs[partition] for partition in partitions}
        return await epoch_ends(view, wanted, timeout_ms=patience.timeout_ms, give_up=patience.give_up)

    found = await of_those_that_exist(view, epochs.keys(), ask)
    return {partition: end.end_offset for partition, end in found.items() if end is not None}


async def of_those_that_exist(
    view: ClusterView,
    partitions: Collection[TopicPartition],
    ask: Callable[[Collection[TopicPartition]], Awaitable[dict[TopicPartition, R]]],
) -> dict[TopicPartition, R]:
    """Asks about partitions some of which may be deleted at any moment; then it asks again, about the others.

    Raises:
        UnknownTopicOrPartitionError: Somebody says so of partitions that the metadata still show.
    """
    while True:
        try:
            return await ask(partitions)
        except UnknownTopicOrPartitionError:
            left = [each for each in partitions if view.image.partition(*each) is not None]
            if len(left) == len(partitions):
                raise
            partitions = left
