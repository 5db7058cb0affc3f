"""Whether a partition's log is still the one whose offsets were pinned.

A range is pinned together with the leader epoch of its time.  Whatever lay below the high watermark then has that epoch or an
older one; what an unclean election puts in its place has a newer one.  So each batch that is read tells by itself, and where
nothing is left to be read, the leader says where the pinned epoch ends in its log (OffsetsForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable

from replog.client.cluster.offsets import epoch_ends, list_offsets
from replog.client.cluster.view import ClusterView
from replog.client.ranges.offset_range import OffsetRange, RangeWords
from replog.client.types import TopicPartition
from replog.records import BatchHeader
from replog.rpc.messages import LATEST_TIMESTAMP


def replaced_at(wanted: OffsetRange, headers: Iterable[BatchHeader]) -> int | None:
    """Returns the first offset that was replaced since the range was pinned; None: none of these batches was.

    Args:
        wanted: The range.
        headers: Headers of batches that were read, in order.
    """
    if wanted.leader_epoch < 0:
        return None
    for header in headers:
        if header.partition_leader_epoch > wanted.leader_epoch and header.base_offset < wanted.end_offset:
            return max(header.base_offset, wanted.start_offset)
    return None


async def truncated_at(view: ClusterView, wanted: OffsetRange, timeout_ms: int) -> int | None:
    """Asks the leader where the log that was pinned ends now; returns that if it lies in the range, else None.

    None, too, where the leader does not know the epoch: it is one that was replaced, and metadata will say so.

    Raises:
        RequestTimedOutError: No leader answered in time.
        ReplogError: Whatever else `epoch_ends` raises.
    """
    if wanted.leader_epoch < 0:
        return None
    partition = TopicPartition(wanted.topic, wanted.partition)
    end = (await epoch_ends(view, {partition: wanted.leader_epoch}, timeout_ms=timeout_ms))[partition]
    return None if end is None or end.end_offset >= wanted.end_offset else end.end_offset


async def visible_end(view: ClusterView, wanted: OffsetRange, timeout_ms: int) -> int:
    """Asks the leader for the high watermark of a range's partition.

    Raises:
        RequestTimedOutError: No leader answered in time.
        ReplogError: Whatever else `list_offsets` raises.
    """
    partition = TopicPartition(wanted.topic, wanted.partition)
    found = await list_offsets(view, {partition: LATEST_TIMESTAMP}, timeout_ms=timeout_ms)
    return found[partition].offset


def truncated_text(wanted: OffsetRange, offset: int, words: RangeWords) -> str:
    """Returns the words for records of a range that an unclean election took away."""
    return (
        f"{wanted}: from offset {offset} on the log is not the one that was there when {words.planned} (leader epoch "
        f"{wanted.leader_epoch}): a replica without these records was elected"
    )
