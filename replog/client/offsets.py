"""Asking partition leaders for offsets: earliest, latest, by time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from replog.client.addresses import Leader
from replog.client.backoff import Backoff, retry
from replog.client.cluster import ATTEMPT_TIMEOUT_MS, ClusterView, expect
from replog.client.types import OffsetAndTimestamp, TopicPartition
from replog.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    ReplogError,
    RetriableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from replog.rpc.error_codes import error_from_code
from replog.rpc.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)

_STALE_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR})


def partition_error(code: ErrorCode, message: str, partition: TopicPartition) -> ReplogError:
    """The error for a partition's answer, with the partition named in its text.

    "Unknown partition" and a storage failure come from one replica: they may be different at the next leader, so they
    are retriable here.  Whether the topic is really gone is what newer metadata says.
    """
    text = message if str(partition) in message else f"{partition}: {message or code.name}"
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicIdError(text)
    if code in _STALE_CODES:
        return LeaderNotAvailableError(text)
    return error_from_code(code, text)


async def list_offsets(
    view: ClusterView, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """One offset per partition, from the leaders; retried across leader changes.

    Args:
        view: an open cluster view.
        timestamps: what to look for: ms since 1970 (the first record at or after), LATEST_TIMESTAMP (the high
            watermark, exclusive) or EARLIEST_TIMESTAMP (the log start).
        timeout_ms: overall limit.

    Raises:
        UnknownTopicOrPartitionError: a partition does not exist.
        RequestTimedOutError: some leader did not answer in time; it names the last cause.
    """
    await require_partitions(view, timestamps)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt(remaining_ms: int) -> dict[TopicPartition, OffsetAndTimestamp]:
        missing = {partition: time for partition, time in timestamps.items() if partition not in found}
        failures = await _ask_leaders(view, missing, found, min(remaining_ms, ATTEMPT_TIMEOUT_MS))
        if failures:
            view.request_refresh()
            raise next((error for error in failures if not isinstance(error, RetriableError)), failures[0])
        return found

    return await retry(attempt, timeout_ms=timeout_ms, what="list offsets", backoff=Backoff(view.rng))


async def require_partitions(view: ClusterView, partitions: Iterable[TopicPartition]) -> None:
    """Raises UnknownTopicOrPartitionError for a partition that does not exist."""
    for topic, partition in partitions:
        info = await view.topic_or_raise(topic)
        if view.image.partition(topic, partition) is None:
            raise UnknownTopicOrPartitionError(
                f"{topic} has {len(info.partitions)} partitions, numbered from 0; there is no partition {partition}"
            )


async def _ask_leaders(
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, OffsetAndTimestamp],
    timeout_ms: int,
) -> list[ReplogError]:
    """Asks every leader at once; fills `found`, returns what went wrong."""
    failures: list[ReplogError] = []
    by_address: dict[str, list[tuple[TopicPartition, Leader]]] = {}
    for partition in wanted:
        leader = view.leader(*partition)
        if leader is None:
            failures.append(LeaderNotAvailableError(f"{partition} has no leader right now"))
        else:
            by_address.setdefault(leader.address, []).append((partition, leader))
    answers = await asyncio.gather(
        *(_ask_leader(view, address, members, wanted, timeout_ms) for address, members in by_address.items()),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, ReplogError):
            failures.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            failures += _collect(answer, found)
    return failures


_Answer = list[tuple[TopicPartition, ListOffsetsResult]]


async def _ask_leader(
    view: ClusterView,
    address: str,
    members: list[tuple[TopicPartition, Leader]],
    wanted: Mapping[TopicPartition, int],
    timeout_ms: int,
) -> _Answer:
    request = ListOffsetsRequest(
        tuple(
            ListOffsetsPartition(leader.topic_id, partition.partition, wanted[partition], leader.leader_epoch)
            for partition, leader in members
        )
    )
    response = expect(await view.call(address, request, timeout_ms=timeout_ms), ListOffsetsResponse)
    names = {(leader.topic_id, partition.partition): partition for partition, leader in members}
    return [
        (names[key], result) for result in response.results if (key := (result.topic_id, result.partition_id)) in names
    ]


def _collect(answer: _Answer, found: dict[TopicPartition, OffsetAndTimestamp]) -> list[ReplogError]:
    failures = []
    for partition, result in answer:
        if result.error is ErrorCode.NONE:
            found[partition] = OffsetAndTimestamp(result.offset, result.timestamp)
        else:
            failures.append(partition_error(result.error, result.message, partition))
    return failures
