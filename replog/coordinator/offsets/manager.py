"""Commits, fetches and deletions of offsets: a request becomes records and an answer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from replog.coordinator.config import OffsetsConfig
from replog.coordinator.messages import OffsetCommitValue
from replog.coordinator.offsets.owners import OffsetOwner, OffsetOwners, SimpleGroup
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitOffsetsResponse,
    CommittedOffset,
    DeleteOffsets,
    DeleteOffsetsResponse,
    FetchOffsets,
    FetchOffsetsResponse,
    OffsetToCommit,
    PartitionOutcome,
    TopicOffsets,
    TopicOutcome,
    TopicToCommit,
    TopicToFetch,
)
from replog.coordinator.offsets.state import OffsetState, TopicPartition, commit_record, removal_record
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Work
from replog.coordinator.runtime.machine import Moment, Outcome
from replog.coordinator.runtime.messages import Reply
from replog.coordinator.topic_view import TopicView
from replog.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    OffsetMetadataTooLargeError,
    RecordTooLargeError,
)

INT64_MAX: Final = 2**63 - 1
"""The last moment that a record can name: offsets that are to be kept beyond it are kept until then."""

_SIMPLE: Final = SimpleGroup()


class OffsetManager:
    """Decides on requests about offsets; the groups decide who may ask."""

    def __init__(self, state: OffsetState, owners: OffsetOwners, topics: TopicView, config: OffsetsConfig) -> None:
        self._state = state
        self._owners = owners
        self._topics = topics
        self._config = config
        self._taken_back_count = 0

    # ---- commit -----------------------------------------------------------------------------------------------------

    def commit(
        self, request: CommitOffsets, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], CommitOffsetsResponse]:
        """Keeps offsets.

        A group that nobody has joined begins with its first commit.

        Returns:
            The records, and the answer.

        Raises:
            InvalidGroupIdError: The group id is empty.
            RecordTooLargeError: These are more offsets than one request may commit.
            GroupIdNotFoundError: A member commits, and there is no such group.
            ReplogError: The group does not let it commit now.
        """
        self._check_size(request)
        owner = self._owner(request.group_id)
        if owner is None and request.member_epoch >= 0:
            raise GroupIdNotFoundError(f"there is no group {request.group_id!r}; its members have to join it again")
        (owner or _SIMPLE).check_commit(request.member_id, request.instance_id, request.member_epoch)
        expiry_ms = min(moment.wall_ms + request.retention_ms, INT64_MAX) if request.retention_ms >= 0 else -1
        return self._kept(request, moment, expiry_ms)

    def commit_in_transaction(
        self, request: CommitTransactionalOffsets, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], CommitOffsetsResponse]:
        """Keeps offsets until the end of a transaction; that it is open has been made sure of.

        Returns:
            The records, which are part of the transaction, and the answer.

        Raises:
            InvalidGroupIdError: The group id is empty.
            RecordTooLargeError: These are more offsets than one request, or one transaction, may commit.
            IllegalGenerationError: A member commits, and there is no such group, or it is of another generation.
            ReplogError: The group does not let it commit.
        """
        count = self._check_size(request)
        pending, most = self._state.pending.count(request.writer.producer_id), self._config.pending_per_producer
        if pending + count > most:
            raise RecordTooLargeError(
                f"the transaction has kept {pending} offsets, {count} more are sent, and may have {most}: end it first"
            )
        owner = self._owner(request.group_id)
        if owner is None and request.generation >= 0:
            raise IllegalGenerationError(f"there is no group {request.group_id!r}; its members have to join it again")
        (owner or _SIMPLE).check_transactional_commit(request.member_id, request.instance_id, request.generation)
        return self._kept(request, moment, -1)

    def _check_size(self, request: CommitOffsets | CommitTransactionalOffsets) -> int:
        """Checks that there is a group, and returns how many offsets there are for it.

        Raises:
            InvalidGroupIdError: The group id is empty.
            RecordTooLargeError: These are more offsets than one request may commit.
        """
        if not request.group_id:
            raise InvalidGroupIdError("the group id is empty; give the group a name")
        count, most = sum(len(topic.partitions) for topic in request.topics), self._config.offsets_per_commit
        if count > most:
            raise RecordTooLargeError(f"{count} offsets in one request, and may be {most}: commit them in several")
        return count

    def _kept(
        self, request: CommitOffsets | CommitTransactionalOffsets, moment: Moment, expiry_ms: int
    ) -> tuple[tuple[CoordinatorRecord, ...], CommitOffsetsResponse]:
        records: list[CoordinatorRecord] = []
        topics = tuple(
            self._commit_topic(request.group_id, topic, moment, expiry_ms, records) for topic in request.topics
        )
        return tuple(records), CommitOffsetsResponse(topics)

    def _commit_topic(
        self,
        group_id: str,
        topic: TopicToCommit,
        moment: Moment,
        expiry_ms: int,
        records: list[CoordinatorRecord],
    ) -> TopicOutcome:
        outcomes: list[PartitionOutcome] = []
        for each in topic.partitions:
            problem = self._metadata_problem(each)
            outcomes.append(PartitionOutcome(each.partition, problem))
            if problem is None:
                value = OffsetCommitValue(
                    each.offset, each.leader_epoch, each.metadata, moment.wall_ms, expiry_ms, topic.topic_id
                )
                records.append(commit_record(group_id, (topic.topic, each.partition), value))
        return TopicOutcome(topic.topic, topic.topic_id, tuple(outcomes))

    def _metadata_problem(self, each: OffsetToCommit) -> OffsetMetadataTooLargeError | None:
        length, most = len(each.metadata), self._config.metadata_max_chars
        if length <= most:
            return None
        return OffsetMetadataTooLargeError(f"the text beside the offset has {length} characters, and may have {most}")

    # ---- fetch ------------------------------------------------------------------------------------------------------

    def fetch(self, request: FetchOffsets) -> FetchOffsetsResponse:
        """Tells the offsets of the partitions that are named; of a group that does not exist there is none.

        Raises:
            ReplogError: The caller says that it is a member, and is not, or is of another epoch.
        """
        self._check_fetch(request)
        kept = self._state.of_group(request.group_id)
        unstable: Container[TopicPartition] = ()
        if request.wants_stable:
            unstable = self._state.pending.partitions(request.group_id)
        return FetchOffsetsResponse(tuple(_offsets_of(topic, kept.get, unstable) for topic in request.topics or ()))

    def _check_fetch(self, request: FetchOffsets) -> None:
        owner = self._owner(request.group_id)
        if owner is not None:
            owner.check_fetch(request.member_id, request.member_epoch)

    def fetch_all(self, request_id: int, request: FetchOffsets) -> Work:
        """Tells all committed offsets of a group as they are at one moment, in steps; those of earlier topics are left out.

        What the log takes back meanwhile is never told: all is read anew.

        Raises:
            ReplogError: The caller says that it is a member, and is not, or is of another epoch.
        """
        self._check_fetch(request)
        taken_back_count = -1
        topics: dict[TopicToFetch, list[CommittedOffset]] = {}
        while taken_back_count != self._taken_back_count:
            taken_back_count = self._taken_back_count
            topics.clear()
            unstable = frozenset(self._state.pending.partitions(request.group_id) if request.wants_stable else ())
            for number, ((name, partition), value) in enumerate(
                self._state.of_group(request.group_id).copy().items(), 1
            ):
                found = self._topics.find(name)
                if found is None or value.topic_id in {NO_TOPIC_ID, found[0]}:
                    told = _unstable(partition) if (name, partition) in unstable else _told_value(partition, value)
                    topics.setdefault(TopicToFetch(name, value.topic_id, ()), []).append(told)
                if not number % self._config.visits_per_step:
                    yield Outcome()
        told_topics = (
            TopicOffsets(each.topic, each.topic_id, _sorted(topics[each])) for each in sorted(topics, key=_name)
        )
        yield Outcome(answers=(Reply(request_id, FetchOffsetsResponse(tuple(told_topics))),))

    def note_taken_back(self) -> None:
        """Notes that the log has taken back changes, so that what has been read of them is not told."""
        self._taken_back_count += 1

    # ---- delete -----------------------------------------------------------------------------------------------------

    def delete(self, request: DeleteOffsets) -> tuple[tuple[CoordinatorRecord, ...], DeleteOffsetsResponse]:
        """Forgets offsets of topics that no member reads.

        Returns:
            The records, and the answer.

        Raises:
            GroupIdNotFoundError: There is no such group.
            ReplogError: The group does not let its offsets be deleted.
        """
        owner = self._owner(request.group_id)
        if owner is None:
            raise GroupIdNotFoundError(f"there is no group {request.group_id!r}")
        owner.check_delete_offsets()
        kept = self._state.partitions(request.group_id)
        subscribed = frozenset(owner.subscribed_among([each.topic for each in request.topics]))
        records: list[CoordinatorRecord] = []
        outcomes: list[TopicOutcome] = []
        for each in request.topics:
            topic, partitions = each.topic, each.partitions
            problem = None
            if topic in subscribed:
                problem = GroupSubscribedToTopicError(
                    f"members of {request.group_id!r} read {topic!r}: stop them first"
                )
            else:
                there = [(topic, each) for each in dict.fromkeys(partitions) if (topic, each) in kept]
                records += [removal_record(request.group_id, each) for each in there]
            results = tuple(PartitionOutcome(each, problem) for each in partitions)
            outcomes.append(TopicOutcome(topic, NO_TOPIC_ID, results))
        return tuple(records), DeleteOffsetsResponse(tuple(outcomes))

    def _owner(self, group_id: str) -> OffsetOwner | None:
        """Returns a group; one that is nothing but its offsets is a simple one, and None is no group at all."""
        owner = self._owners.find(group_id)
        return _SIMPLE if owner is None and self._state.has_group(group_id) else owner


def _offsets_of(
    topic: TopicToFetch,
    find: Callable[[TopicPartition], OffsetCommitValue | None],
    unstable: Container[TopicPartition],
) -> TopicOffsets:
    name = topic.topic
    found = tuple(
        _unstable(each) if (name, each) in unstable else _told(topic, each, find((name, each)))
        for each in topic.partitions
    )
    return TopicOffsets(topic.topic, topic.topic_id, found)


def _sorted(offsets: Iterable[CommittedOffset]) -> tuple[CommittedOffset, ...]:
    return tuple(sorted(offsets, key=lambda each: each.partition))


def _name(topic: TopicToFetch) -> str:
    return topic.topic


def _told(topic: TopicToFetch, partition: int, value: OffsetCommitValue | None) -> CommittedOffset:
    """Returns an offset; none where it is of an earlier topic of the same name."""
    if value is None or (value.topic_id != topic.topic_id and NO_TOPIC_ID not in {value.topic_id, topic.topic_id}):
        return CommittedOffset(partition)
    return _told_value(partition, value)


def _unstable(partition: int) -> CommittedOffset:
    return CommittedOffset(partition, is_unstable=True)


def _told_value(partition: int, value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(partition, value.offset, value.leader_epoch, value.metadata, value.commit_timestamp)
