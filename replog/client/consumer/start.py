"""Where a consumer begins to read a partition: a word for all, or an offset for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import index
from typing import Any, Literal, get_args

from replog.client.arguments import is_offset, partition_of
from replog.client.cluster.leader_calls import first_few
from replog.client.cluster.offsets import list_offsets
from replog.client.cluster.view import ClusterView
from replog.client.types import ConsumerRecord, FetchedBatches, TopicPartition
from replog.errors import InvalidRequestError
from replog.errors.choices import require_choice
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

Start = Literal["earliest", "latest"]


def check_start(start: object) -> None:
    """Refuses what names no place, before anybody is asked.

    Raises:
        ConfigError: Another word than `Start` has, or neither word nor mapping.
        InvalidRequestError: A mapping to something that is no offset.
        TypeError: A mapping from something that is no partition.
    """
    if not isinstance(start, Mapping):
        require_choice("start", start, get_args(Start))
        return
    for key, offset in start.items():
        partition = partition_of("a key of start", key)
        if is_offset(offset):
            continue
        why = f"{offset!r}, which is no offset from 0"
        if offset == -1:
            why = (
                "-1: list_offsets says so where no record is as late as asked for; use the offset of end_offsets there"
            )
        raise InvalidRequestError(f"start of {partition} is {why}")


async def start_positions(
    view: ClusterView,
    partitions: Collection[TopicPartition],
    start: Start | Mapping[tuple[str, int], int],
    timeout_ms: int,
) -> Mapping[TopicPartition, int]:
    """Returns where to begin; a partition that nobody leads is left out where its beginning is asked for.

    Args:
        view: The cluster to ask.
        partitions: The partitions that are read anew.
        start: What `check_start` has let through.
        timeout_ms: The longest wait for the leaders' answers.

    Raises:
        InvalidRequestError: A mapping lacks one of the partitions.
        RequestTimedOutError: A leader did not answer in time, or, for "latest", there was none.
    """
    if not isinstance(start, str):
        offsets = {TopicPartition(*partition): index(offset) for partition, offset in start.items()}
        if missing := [str(partition) for partition in partitions if partition not in offsets]:
            raise InvalidRequestError(f"start has no offset for {first_few(missing, ', ')}")
        return offsets
    if not partitions:
        return {}
    if start == "latest":
        return await offsets_at(view, partitions, LATEST_TIMESTAMP, timeout_ms)
    wanted = dict.fromkeys(partitions, EARLIEST_TIMESTAMP)
    found = await list_offsets(view, wanted, timeout_ms=timeout_ms, skips_leaderless=True)
    return {partition: answer.offset for partition, answer in found.items()}


async def offsets_at(
    view: ClusterView, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Asks the leaders for the offset of each partition at `timestamp`, which may be one of the special ones."""
    wanted = dict.fromkeys(partitions, timestamp)
    found = await list_offsets(view, wanted, timeout_ms=timeout_ms) if wanted else {}
    return {partition: answer.offset for partition, answer in found.items()}


def first_offsets(found: Iterable[ConsumerRecord[Any, Any] | FetchedBatches]) -> dict[TopicPartition, int]:
    """Returns the lowest offset of each partition: where to read on, had nothing of `found` been handed out."""
    offsets: dict[TopicPartition, int] = {}
    topic, number, lowest = "", -1, 0
    for one in found:
        offset = one[2]  # where it begins, of both kinds
        if one.partition != number or offset < lowest or one.topic != topic:  # seldom: of one partition offsets go up
            topic, number = one.topic, one.partition
            partition = TopicPartition(topic, number)
            offsets[partition] = lowest = min(offset, offsets.get(partition, offset))
    return offsets
