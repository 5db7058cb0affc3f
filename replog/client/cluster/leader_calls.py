"""Asking the leaders of partitions, each for what it leads: one call a leader, again where leadership moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from replog.client.backoff import Backoff, retry
from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.client.types import TopicPartition
from replog.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    ReplogError,
    RetriableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from replog.errors.from_code import error_from_code
from replog.waiting.asks import Asks

_STALE_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR})

_ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than max.message.bytes of the topic; raise that, or send smaller records or "
    "batches (batch_size_bytes)",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas of the topic asks for; start their brokers",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas of the topic asks for, since "
    "it was appended; start their brokers",
    ErrorCode.POLICY_VIOLATION: "the brokers forbid it; of a topic with cleanup.policy=compact no records are deleted by offset",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log, or above its high watermark",
}
"""Causes and next steps of errors for which a broker has told no text."""

NAMED_MAX = 5
"""Partitions that one error names."""


class LeaderResult(Protocol):
    """What the answers about one partition have in common."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_id(self) -> int: ...

    @property
    def error(self) -> ErrorCode: ...

    @property
    def message(self) -> str: ...


P = TypeVar("P")
R = TypeVar("R", bound=LeaderResult)
R_co = TypeVar("R_co", bound=LeaderResult, covariant=True)
Members = Sequence[tuple[TopicPartition, LeaderAddress]]


class LeaderResults(Protocol[R_co]):
    """An answer about several partitions."""

    @property
    def results(self) -> Sequence[R_co]: ...


class AttemptFailure(NamedTuple):
    """Why partitions have no result after an attempt.

    Attributes:
        partition: One of them.
        leader: Who was asked; None: nobody leads.
        error: What came of it.
    """

    partition: TopicPartition
    leader: LeaderAddress | None
    error: ReplogError


def partition_error(code: ErrorCode, message: str, partition: TopicPartition) -> ReplogError:
    """Makes the error for a partition's answer, with the partition named in its text.

    "Unknown partition" and a storage failure come from one replica: they may be different at the next leader, so they
    are retriable here.  Whether the topic is really gone is what newer metadata says.
    """
    if message in {"", code.name} and code in _ADVICE:  # Kafka's answers have no room for more
        message = f"{code.name}: {_ADVICE[code]}"
    text = message if str(partition) in message else f"{partition}: {message or code.name}"
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicIdError(text)
    if code in _STALE_CODES:
        return LeaderNotAvailableError(text)
    return error_from_code(code, text)


async def require_partitions(view: ClusterView, partitions: Iterable[TopicPartition]) -> None:
    """Raises UnknownTopicOrPartitionError for a partition that does not exist; waits for one that brokers may not know yet."""
    for topic, partition in partitions:
        info = await view.topic_or_raise(topic, partitions_count=partition + 1)
        if view.image.partition(topic, partition) is None:
            raise UnknownTopicOrPartitionError(
                f"{topic} has {len(info.partitions)} partitions, numbered from 0; there is no partition {partition}"
            )


async def ask_leaders(
    view: ClusterView,
    partitions: Iterable[TopicPartition],
    asked: Callable[[TopicPartition, LeaderAddress], P],
    request: Callable[[tuple[P, ...]], Asks[LeaderResults[R]]],
    *,
    timeout_ms: int,
    what: str,
    skips_leaderless: bool = False,
    give_up: Callable[[Sequence[AttemptFailure]], ReplogError | None] | None = None,
) -> dict[TopicPartition, R]:
    """Asks the leaders for one result for each partition; retries across leader changes, so it must be safe to repeat.

    Args:
        view: An open cluster view.
        partitions: The partitions to ask about.
        asked: What makes of a partition and its leader what is asked about it.
        request: What makes the request to one leader of what is asked about some of the partitions.
        timeout_ms: Overall limit.
        what: The name of the operation in errors.
        skips_leaderless: Whether the result may lack partitions that have no leader; else a leader is waited for.
        give_up: What looks at the failures of each attempt; an error that it returns ends the call.

    Raises:
        UnknownTopicOrPartitionError: A partition does not exist.
        RequestTimedOutError: Some leader did not answer in time; it names the last cause.
        ReplogError: What a leader answered that is not worth a retry, or what `give_up` returned.
    """
    wanted = tuple(dict.fromkeys(partitions))
    await require_partitions(view, wanted)
    found: dict[TopicPartition, R] = {}

    def request_for(members: Members) -> Asks[LeaderResults[R]]:
        return request(tuple(asked(partition, leader) for partition, leader in members))

    async def attempt(remaining_ms: int) -> dict[TopicPartition, R] | ReplogError:
        missing = [
            partition
            for partition in wanted
            if partition not in found and not (skips_leaderless and view.leader(*partition) is None)
        ]
        limit_ms = min(remaining_ms, ATTEMPT_TIMEOUT_MS)
        failures = await _ask_each(view, missing, request_for, found, limit_ms)
        if failures:
            view.request_refresh()
            errors = [failure.error for failure in failures]
            final = [error for error in errors if not isinstance(error, RetriableError)]
            if not final and give_up is not None and (verdict := give_up(failures)) is not None:
                return verdict
            raise (final or errors)[0]
        return found

    outcome = await retry(attempt, timeout_ms=timeout_ms, what=what, backoff=Backoff(view.rng))
    if isinstance(outcome, ReplogError):
        raise outcome
    return outcome


async def _ask_each(
    view: ClusterView,
    wanted: Iterable[TopicPartition],
    request_for: Callable[[Members], Asks[LeaderResults[R]]],
    found: dict[TopicPartition, R],
    timeout_ms: int,
) -> list[AttemptFailure]:
    """Asks every leader at once; fills `found`, returns what went wrong."""
    failures: list[AttemptFailure] = []
    by_address: dict[str, list[tuple[TopicPartition, LeaderAddress]]] = {}
    leaderless: list[TopicPartition] = []
    for partition in wanted:
        leader = view.leader(*partition)
        if leader is None:
            leaderless.append(partition)
        else:
            by_address.setdefault(leader.address, []).append((partition, leader))
    if leaderless:
        reasons = first_few([view.image.why_leaderless(*partition) for partition in leaderless])
        failures.append(AttemptFailure(leaderless[0], None, LeaderNotAvailableError(reasons)))

    async def ask(address: str, members: Members) -> Mapping[TopicPartition, R]:
        results = (await view.call(address, request_for(members), timeout_ms=timeout_ms)).results
        names = {(leader.topic_id, partition.partition): partition for partition, leader in members}
        return {names[key]: result for result in results if (key := (result.topic_id, result.partition_id)) in names}

    answers = await asyncio.gather(
        *(ask(address, members) for address, members in by_address.items()), return_exceptions=True
    )
    for members, answer in zip(by_address.values(), answers, strict=True):
        if isinstance(answer, ReplogError):
            failures.append(AttemptFailure(*members[0], answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            failures += _collect(members, answer, found)
    return failures


def first_few(texts: Sequence[str], separator: str = "; ") -> str:
    """Joins the first `NAMED_MAX` of the texts, and says how many there are more."""
    named = separator.join(texts[:NAMED_MAX])
    return named if len(texts) <= NAMED_MAX else f"{named}{separator}and {len(texts) - NAMED_MAX:,} more"


def _collect(
    members: Members, answer: Mapping[TopicPartition, R], found: dict[TopicPartition, R]
) -> list[AttemptFailure]:
    failures = []
    leaders = dict(members)
    for partition, result in answer.items():
        if result.error is ErrorCode.NONE:
            found[partition] = result
        else:
            error = partition_error(result.error, result.message, partition)
            failures.append(AttemptFailure(partition, leaders[partition], error))
    return failures
