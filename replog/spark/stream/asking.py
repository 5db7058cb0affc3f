"""Asking the leaders of partitions for log starts and high watermarks, with the patience of a batch read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from replog.client.cluster.leader_calls import Members, ask_leaders
from replog.client.cluster.offsets import epoch_ends
from replog.client.cluster.view import ClusterView, expect
from replog.client.types import TopicPartition
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from replog.spark.patience import PlanningPatience
from replog.spark.stream.changes import LogBounds


async def ask_bounds(
    view: ClusterView, partitions: Iterable[TopicPartition], poll_timeout_ms: int | None
) -> dict[TopicPartition, LogBounds]:
    """Asks the leaders for the bounds of partitions; retries across leader changes.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some partition has nobody that tells its bounds in time (`PlanningPatience`).
    """
    wanted = tuple(partitions)
    patience = PlanningPatience(view, poll_timeout_ms)
    starts, ends = await asyncio.gather(
        *(_ask(view, wanted, which, patience) for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    )
    return {
        partition: LogBounds(
            ends[partition].topic_id,
            min(starts[partition].offset, ends[partition].offset),  # two answers: the log start may have moved since
            ends[partition].offset,
            ends[partition].leader_epoch,
        )
        for partition in wanted
    }


async def ask_epoch_ends(
    view: ClusterView, epochs: Mapping[TopicPartition, int], poll_timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Asks the leaders where leader epochs end in their logs; without those that do not know.  Raises: As `ask_bounds`."""
    timeout_ms = PlanningPatience(view, poll_timeout_ms).timeout_ms
    found = await epoch_ends(view, epochs, timeout_ms=timeout_ms)
    return {partition: end.end_offset for partition, end in found.items() if end is not None}


async def _ask(
    view: ClusterView, partitions: tuple[TopicPartition, ...], which: int, patience: PlanningPatience
) -> dict[TopicPartition, ListOffsetsResult]:
    def request_for(members: Members) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            tuple(
                ListOffsetsPartition(leader.topic_id, partition.partition, which, leader.leader_epoch)
                for partition, leader in members
            )
        )

    return await ask_leaders(
        view,
        partitions,
        request_for,
        lambda response: expect(response, ListOffsetsResponse).results,
        timeout_ms=patience.timeout_ms,
        what="list offsets",
        give_up=patience.give_up,
    )
