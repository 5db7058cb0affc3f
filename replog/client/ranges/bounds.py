"""Where partitions begin and end for readers, as their leaders say it: what the offsets of a range are taken from."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from msgspec import Struct

from replog.client.cluster.offsets import list_offset_results
from replog.client.cluster.view import ClusterView
from replog.client.ranges.patience import PlanningPatience
from replog.client.types import TopicPartition
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsResult


class Bounds(Struct, frozen=True):
    """What one partition holds for readers, as the leader of an epoch says it."""

    log_start_offset: int
    high_watermark: int
    leader_epoch: int

    def __contains__(self, offset: int) -> bool:
        return self.log_start_offset <= offset <= self.high_watermark

    def clip(self, offset: int) -> int:
        return min(max(offset, self.log_start_offset), self.high_watermark)


async def look_up_bounds(
    view: ClusterView, partitions: Collection[TopicPartition], patience: PlanningPatience
) -> dict[TopicPartition, Bounds]:
    """Asks the leaders where each partition begins and ends.

    The two are asked for side by side: a log start above the high watermark, which was moved up meanwhile, is cut down to it.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some partition has nobody that tells its offsets in time.
    """
    starts, ends = await asyncio.gather(
        *(
            look_up_times(view, dict.fromkeys(partitions, which), patience)
            for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        )
    )
    return {p: Bounds(min(starts[p].offset, ends[p].offset), ends[p].offset, ends[p].leader_epoch) for p in partitions}


async def look_up_times(
    view: ClusterView, timestamps: Mapping[TopicPartition, int], patience: PlanningPatience
) -> dict[TopicPartition, ListOffsetsResult]:
    """Asks the leaders for the first record at or after a time of each partition; errors are those of `look_up_bounds`."""
    if not timestamps:
        return {}
    return await list_offset_results(view, timestamps, timeout_ms=patience.timeout_ms, give_up=patience.give_up)
