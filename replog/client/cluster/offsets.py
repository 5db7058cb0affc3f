"""Asking partition leaders about offsets: by time, ends of leader epochs, where to cut; and deleting what is below one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.leader_calls import AttemptFailure, ask_leaders
from replog.client.cluster.view import ClusterView
from replog.client.types import EpochEndOffset, OffsetAndTimestamp, TopicPartition
from replog.errors import ReplogError, UnsupportedVersionError
from replog.rpc.messages import (
    FROM_OFFSET_TIMESTAMP,
    Cut,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    EpochEndPartition,
    EpochEndsRequest,
    FindCutsPartition,
    FindCutsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
)


async def list_offsets(
    view: ClusterView,
    timestamps: Mapping[TopicPartition, int],
    *,
    timeout_ms: int,
    skips_leaderless: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Asks the leaders for one offset per partition; retries across leader changes.

    Args:
        view: An open cluster view.
        timestamps: What to look for: ms since 1970 (the first record at or after), LATEST_TIMESTAMP (the high
            watermark, exclusive) or EARLIEST_TIMESTAMP (the log start).
        timeout_ms: Overall limit.
        skips_leaderless: Whether the result may lack partitions that have no leader; else a leader is waited for.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some leader did not answer in time; it names the last cause.
        ReplogError: What a leader answered that is not worth a retry.
    """

    found = await list_offset_results(view, timestamps, timeout_ms=timeout_ms, skips_leaderless=skips_leaderless)
    return {partition: OffsetAndTimestamp(result.offset, result.timestamp) for partition, result in found.items()}


async def list_offset_results(
    view: ClusterView,
    timestamps: Mapping[TopicPartition, int],
    *,
    timeout_ms: int,
    skips_leaderless: bool = False,
    give_up: Callable[[Sequence[AttemptFailure]], ReplogError | None] | None = None,
    read_uncommitted: bool = False,
) -> dict[TopicPartition, ListOffsetsResult]:
    """Asks as `list_offsets` does; returns the leaders' whole answers, which say in which epoch they lead.

    `give_up` looks at the failures of each attempt; an error that it returns ends the call.  With `read_uncommitted` the latest offset is
    the high watermark, else the last stable one.
    """

    def asked(partition: TopicPartition, leader: LeaderAddress) -> ListOffsetsPartition:
        timestamp, topic = timestamps[partition], partition.topic
        return ListOffsetsPartition(leader.topic_id, partition.partition, timestamp, leader.leader_epoch, topic=topic)

    return await ask_leaders(
        view,
        timestamps,
        asked,
        partial(ListOffsetsRequest, read_uncommitted=read_uncommitted),
        timeout_ms=timeout_ms,
        what="list offsets",
        skips_leaderless=skips_leaderless,
        give_up=give_up,
    )


async def first_records(
    view: ClusterView, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Asks the leaders for the first record at or after an offset of each partition; -1 twice where there is none.

    Left out are partitions without a leader, and those whose broker is older than this question; all of a cluster of Kafka's, which
    does not have it.

    Raises as `list_offsets` does.
    """

    def asked(partition: TopicPartition, leader: LeaderAddress) -> ListOffsetsPartition:
        return ListOffsetsPartition(
            leader.topic_id,
            partition.partition,
            FROM_OFFSET_TIMESTAMP,
            leader.leader_epoch,
            from_offset=offsets[partition],
            topic=partition.topic,
        )

    try:
        found = await ask_leaders(
            view,
            offsets,
            asked,
            ListOffsetsRequest,
            timeout_ms=timeout_ms,
            what="look up times of records",
            skips_leaderless=True,
        )
    except UnsupportedVersionError:
        return {}
    return {
        partition: OffsetAndTimestamp(result.offset, result.timestamp)
        for partition, result in found.items()
        if result.offset < 0 or result.offset >= offsets[partition]  # an older broker tells the first record of all
    }


async def delete_records(
    view: ClusterView, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Deletes what is below the offsets, and waits until all live replicas have; returns their low watermarks.

    Args:
        view: An open cluster view.
        offsets: The first offset to keep of each partition; -1: the high watermark, so that nothing committed is kept.
        timeout_ms: Overall limit.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        OffsetOutOfRangeError: An offset is above the high watermark.
        PolicyViolationError: Records of a compacted topic are not deleted.
        RequestTimedOutError: The records were not deleted everywhere in time; what was asked happens all the same.
    """

    def asked(partition: TopicPartition, leader: LeaderAddress) -> DeleteRecordsPartition:
        offset, topic = offsets[partition], partition.topic
        return DeleteRecordsPartition(leader.topic_id, partition.partition, offset, leader.leader_epoch, topic)

    found = await ask_leaders(
        view,
        offsets,
        asked,
        DeleteRecordsRequest,
        timeout_ms=timeout_ms,
        what="delete records",
    )
    return {partition: result.low_watermark for partition, result in found.items()}


async def epoch_ends(
    view: ClusterView,
    epochs: Mapping[TopicPartition, int],
    *,
    timeout_ms: int,
    give_up: Callable[[Sequence[AttemptFailure]], ReplogError | None] | None = None,
) -> dict[TopicPartition, EpochEndOffset | None]:
    """Asks the leaders where leader epochs end in their logs (OffsetsForLeaderEpoch).

    Args:
        view: An open cluster view.
        epochs: The leader epoch to look for in each partition.
        timeout_ms: Overall limit.
        give_up: The function that looks at the failures of each attempt; an error that it returns ends the look-up.

    Returns:
        The largest epoch not above the one asked for, and its end; None where the log knows none.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some leader did not answer in time; it names the last cause.
        ReplogError: The error that `give_up` returned.
    """

    def asked(partition: TopicPartition, leader: LeaderAddress) -> EpochEndPartition:
        epoch, topic = epochs[partition], partition.topic
        return EpochEndPartition(leader.topic_id, partition.partition, epoch, leader.leader_epoch, topic)

    found = await ask_leaders(
        view,
        epochs,
        asked,
        EpochEndsRequest,
        timeout_ms=timeout_ms,
        what="look up ends of leader epochs",
        give_up=give_up,
    )
    return {
        partition: EpochEndOffset(result.epoch, result.end_offset) if result.end_offset >= 0 else None
        for partition, result in found.items()
    }


async def find_cuts(
    view: ClusterView, bounds: Mapping[TopicPartition, tuple[int, int]], *, target_bytes: int, timeout_ms: int
) -> dict[TopicPartition, Sequence[Cut]]:
    """Asks the leaders where ranges of offsets may be cut into parts of about equal size.

    Args:
        view: An open cluster view.
        bounds: The first offset and the end, exclusive, of each partition.
        target_bytes: The wished size of a part.
        timeout_ms: Overall limit.

    Returns:
        The ends of the parts in order, each with about how many bytes its part has; the last is the end of the range.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        OffsetOutOfRangeError: A range is not between a log start and a high watermark.
        MalformedFrameError: A broker is older than this request.
        RequestTimedOutError: Some leader did not answer in time; it names the last cause.
    """

    def asked(partition: TopicPartition, leader: LeaderAddress) -> FindCutsPartition:
        return FindCutsPartition(leader.topic_id, partition.partition, *bounds[partition], leader.leader_epoch)

    found = await ask_leaders(
        view,
        bounds,
        asked,
        lambda partitions: FindCutsRequest(partitions, target_bytes),
        timeout_ms=timeout_ms,
        what="find cuts",
    )
    return {partition: result.cuts for partition, result in found.items()}
