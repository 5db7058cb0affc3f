"""Asking the leaders of partitions for bounds and ends of epochs, with the patience of a batch read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from replog.client.cluster.offsets import epoch_ends
from replog.client.cluster.view import ClusterView
from replog.client.types import TopicPartition
from replog.spark.patience import PlanningPatience
from replog.spark.snapshot import look_up_bounds
from replog.spark.stream.changes import LogBounds


async def ask_bounds(
    view: ClusterView, partitions: Collection[TopicPartition], poll_timeout_ms: int | None
) -> dict[TopicPartition, LogBounds]:
    """Asks the leaders for the bounds of partitions; without those whose topic was created anew meanwhile.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some partition has nobody that tells its bounds in time (`PlanningPatience`).
    """
    before = _topic_ids(view, partitions)
    found = await look_up_bounds(view, partitions, PlanningPatience(view, poll_timeout_ms))
    after = _topic_ids(view, partitions)
    return {
        partition: LogBounds(after[partition], each.log_start_offset, each.high_watermark, each.leader_epoch)
        for partition, each in found.items()
        if partition in after and after[partition] == before.get(partition)
    }


def _topic_ids(view: ClusterView, partitions: Collection[TopicPartition]) -> dict[TopicPartition, UUID]:
    topics = view.image.topics
    return {each: topics[each.topic].topic_id for each in partitions if each.topic in topics}


async def ask_epoch_ends(
    view: ClusterView, epochs: Mapping[TopicPartition, int], poll_timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Asks the leaders where leader epochs end in their logs; without those that do not know.  Raises: As `ask_bounds`."""
    timeout_ms = PlanningPatience(view, poll_timeout_ms).timeout_ms
    found = await epoch_ends(view, epochs, timeout_ms=timeout_ms)
    return {partition: end.end_offset for partition, end in found.items() if end is not None}
