"""What an operator asks and does about consumer groups.

A base class of `Admin`; every method retries what is worth retrying, for its time-out at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from replog.client.admin.group_descriptions import (
    GroupDescription,
    PartitionLag,
    classic_group,
    consumer_group,
    owners_of,
    partition_lags,
    uncommitted,
    with_ages,
)
from replog.client.admin.operations import Fate, in_parts
from replog.client.admin.together import (
    AdminPart,
    Deadline,
    all_or_raise,
    ask_coordinator,
    ask_every_broker,
    side_by_side,
)
from replog.client.arguments import numbers_by_partition, partitions_of, require_text, texts_of
from replog.client.cluster.leader_calls import require_partitions
from replog.client.cluster.offsets import first_records, list_offsets
from replog.client.groups.coordinator import Coordinator
from replog.client.types import TopicPartition
from replog.coordinator.consumers.requests import DeleteGroup
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribeGroup,
    GroupType,
    ListedGroup,
    ListGroups,
)
from replog.coordinator.offsets.requests import (
    NO_OFFSET,
    NO_TOPIC_ID,
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicOutcome,
    TopicToCommit,
    TopicToForget,
)
from replog.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    ReplogError,
    UnknownMemberIdError,
)
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.waiting.asks import Asks

T = TypeVar("T")

STATES: Final = (
    "Empty",
    "Assigning",
    "Reconciling",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
)
"""The states of groups of both protocols, as Kafka names them."""


class GroupOperations(AdminPart):
    """The methods about consumer groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> tuple[ListedGroup, ...]:
        """Returns the groups of the cluster, by id: every broker tells those that it coordinates.

        Args:
            states: The states that are asked for, such as "Stable", in any case; none for all.
            types: The types that are asked for, "consumer" or "classic", in any case; none for all.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: There is no such state or type.
            RequestTimedOutError: A broker did not tell its groups in time: a list that lacks some would be no answer.
        """
        known_types = [each.value for each in GroupType]
        request = ListGroups(_known("state", states, STATES), _known("type", types, known_types))

        deadline = self._deadline(timeout_ms)
        answers = await ask_every_broker(self._view, request, deadline, "list groups")
        found = {one.group_id: one for answer in answers.values() for one in answer.groups}
        return tuple(group for _, group in sorted(found.items()))

    async def describe_groups(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """Returns state, coordinator, epochs and members of groups, by name.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """
        wanted = list(dict.fromkeys(texts_of("names", names)))
        deadline = self._deadline(timeout_ms)
        metadata = await self._view.describe(deadline.left_ms)
        topics = {topic.topic_id: topic.name for topic in metadata.topics}
        found = await side_by_side(wanted, lambda name: self._describe_group(name, topics, deadline))
        return dict(zip(wanted, found, strict=True))

    async def group_offsets(self, group: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Returns the committed offset of each partition that the group has one of.

        What it has committed of an earlier topic of the same name, which was deleted, is left out, as members leave it.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """
        require_text("group", group)
        deadline = self._deadline(timeout_ms)
        return {each: found.offset for each, found in (await self._committed(group, deadline)).items()}

    async def _committed(self, group: str, deadline: Deadline) -> dict[TopicPartition, CommittedOffset]:
        ids = {topic.name: topic.topic_id for topic in (await self._view.describe(deadline.left_ms)).topics}
        what = f"fetch the offsets of group {group}"
        answer, _ = await self._ask_group(group, FetchOffsets(group), deadline, what)
        if not answer.topics:
            await self.describe_groups([group], timeout_ms=deadline.left_ms)
        return {
            TopicPartition(topic.topic, each.partition): each
            for topic in answer.topics
            if topic.topic_id in {NO_TOPIC_ID, ids.get(topic.topic, topic.topic_id)}
            for each in topic.partitions
            if each.offset != NO_OFFSET
        }

    async def group_lag(self, group: str, *, timeout_ms: int | None = None) -> tuple[PartitionLag, ...]:
        """Returns how far the group has come in every partition that it has committed an offset of, or that a member reads.

        Leaders are asked for the log ends, and, where the group lags, for the time of one record; one request each.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """
        require_text("group", group)
        deadline = self._deadline(timeout_ms)
        members = (await self.describe_groups([group], timeout_ms=deadline.left_ms))[group].members
        committed = await self._committed(group, deadline)
        owners = owners_of(members)
        there = [each for each in (*committed, *owners) if self._view.image.partition(*each) is not None]
        ends = await list_offsets(
            self._view,
            dict.fromkeys(there, LATEST_TIMESTAMP),
            timeout_ms=deadline.left_ms,
            skips_leaderless=True,
        )
        lags = partition_lags(committed, {each: end.offset for each, end in ends.items()}, owners)
        firsts = await first_records(self._view, uncommitted(lags), timeout_ms=deadline.left_ms)
        return with_ages(lags, firsts, time.time_ns() // 1_000_000)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> None:
        """Commits offsets for a group without members; one that there is not begins with them.

        They are taken as they are, wherever the logs begin and end.  More than `RECORDS_TOGETHER` are committed in several
        requests: an error that is raised may leave those of earlier ones committed.

        Args:
            group: The name of the group.
            offsets: The offset of the record to be read next, of each partition.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: A partition does not exist.
            InvalidRequestError: An offset is negative.
            NonEmptyGroupError: The group has members.
        """
        require_text("group", group)
        wanted = numbers_by_partition("offsets", offsets)
        for partition, offset in wanted.items():
            if offset < 0:
                raise InvalidRequestError(f"{partition}: {offset} is no offset; they begin at 0")
        deadline = self._deadline(timeout_ms)
        await require_partitions(self._view, wanted)
        ids = {name: self._view.image.topics[name].topic_id for name in {each.topic for each in wanted}}
        for part in in_parts(list(wanted.items())) if wanted else ():
            request = CommitOffsets(group, _to_commit(part, ids))
            try:
                what = f"commit offsets of group {group}"
                answer, _ = await self._ask_group(group, request, deadline, what)
            except UnknownMemberIdError as error:
                raise _has_members(group) from error
            all_or_raise(list(_outcomes(answer.topics).values()))

    async def delete_groups(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, ReplogError | None]:
        """Forgets groups without members, and their offsets, each for itself.

        Returns:
            Why a group was not deleted, by name; None where it was.
        """
        wanted = list(dict.fromkeys(texts_of("names", names)))
        deadline = self._deadline(timeout_ms)
        await self._view.ready(deadline.left_ms)
        return dict(await side_by_side(wanted, lambda name: self._delete_group(name, deadline)))

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ReplogError | None]:
        """Forgets what a group has committed of partitions of topics that no member reads.

        One that it has committed nothing of is no error, nor is one that does not exist any more.

        Returns:
            Why an offset was not forgotten, by partition; None where it was.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """
        require_text("group", group)
        wanted = list(dict.fromkeys(partitions_of("partitions", partitions)))
        deadline = self._deadline(timeout_ms)
        await self._view.ready(deadline.left_ms)
        found: dict[TopicPartition, ReplogError | None] = {}
        what = f"delete offsets of group {group}"
        for part in in_parts(wanted):
            request = DeleteOffsets(group, _to_forget(part))
            answer, _ = await self._ask_group(group, request, deadline, what)
            found |= _outcomes(answer.topics)
        return found

    # ---- one group -------------------------------------------------------------------------------------------------

    async def _ask_group(
        self,
        group: str,
        request: Asks[T],
        deadline: Deadline,
        what: str,
        on_retry: Callable[[ReplogError], None] = lambda _: None,
    ) -> tuple[T, int]:
        """Asks the coordinator of a group; returns its answer, and its id."""
        coordinator = Coordinator(self._view, group)
        answer = await ask_coordinator(self._view, coordinator, request, deadline, what, on_retry)
        return answer, coordinator.broker_id

    async def _describe_group(self, name: str, topics: Mapping[UUID, str], deadline: Deadline) -> GroupDescription:
        what = f"describe group {name}"
        try:
            found, broker_id = await self._ask_group(name, DescribeConsumerGroup(name), deadline, what)
        except GroupIdNotFoundError:
            return await self._describe_classic_group(name, deadline, what)
        return consumer_group(found, broker_id, topics)

    async def _describe_classic_group(self, name: str, deadline: Deadline, what: str) -> GroupDescription:
        try:
            found, broker_id = await self._ask_group(name, DescribeGroup(name), deadline, what)
        except GroupIdNotFoundError as error:
            raise _no_group(name) from error
        return classic_group(found, broker_id)

    async def _delete_group(self, name: str, deadline: Deadline) -> tuple[str, ReplogError | None]:
        """Deletes a group; returns its name, and why it was not deleted."""
        fate = Fate()
        what = f"delete group {name}"
        try:
            await self._ask_group(name, DeleteGroup(name), deadline, what, fate.note)
        except GroupIdNotFoundError:
            return name, None if fate.unknown else _no_group(name)
        except ReplogError as error:
            return name, error
        return name, None


def _known(noun: str, asked: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Refuses a word that no group fits: the list would be empty, and look like an answer."""
    by_lower = {each.lower(): each for each in known}
    names = texts_of(f"{noun}s", asked)
    for name in names:
        if name.strip().lower() not in by_lower:
            raise InvalidRequestError(f"no group has the {noun} {name!r}; there are: {', '.join(known)}")
    return tuple(by_lower[name.strip().lower()] for name in names)


def _to_commit(offsets: Iterable[tuple[TopicPartition, int]], ids: Mapping[str, UUID]) -> tuple[TopicToCommit, ...]:
    found: dict[str, list[OffsetToCommit]] = {}
    for partition, offset in offsets:
        found.setdefault(partition.topic, []).append(OffsetToCommit(partition.partition, offset))
    return tuple(TopicToCommit(topic, ids[topic], tuple(each)) for topic, each in found.items())


def _to_forget(partitions: Iterable[TopicPartition]) -> tuple[TopicToForget, ...]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return tuple(TopicToForget(topic, tuple(each)) for topic, each in found.items())


def _outcomes(topics: Iterable[TopicOutcome]) -> dict[TopicPartition, ReplogError | None]:
    return {TopicPartition(topic.topic, each.partition): each.error for topic in topics for each in topic.partitions}


def _no_group(name: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f'there is no group "{name}". `replog groups list` shows the groups.')


def _has_members(group: str) -> NonEmptyGroupError:
    return NonEmptyGroupError(
        f'group "{group}" has members, which go by their own offsets: stop them first. '
        f"`replog groups describe {group} --members` shows who they are."
    )
