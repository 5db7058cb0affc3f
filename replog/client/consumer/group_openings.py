"""Where a member begins to read partitions that it has been given: at the committed offset, or where the settings say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from replog.client.cluster.view import ClusterView
from replog.client.consumer.group_settings import GroupSettings
from replog.client.consumer.start import start_positions
from replog.client.groups.commits import Offset, errors_of, topics_to_commit
from replog.client.groups.coordinator import Coordinator
from replog.client.groups.messages import IdPartitions
from replog.client.types import TopicPartition
from replog.coordinator.offsets.requests import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    TopicToFetch,
)
from replog.errors import NoOffsetError, RecreatedTopicError, ReplogError

RESET_TIMEOUT_MS = 5_000


class Opened(NamedTuple):
    """Where a partition begins.

    Attributes:
        position: The first offset to hand out; None: the log start, which no leader could tell.
        error: Why nobody knows where to begin; None where it is known.
        epoch: The leader epoch of the record before that, which was committed beside the offset; -1 where it is not known.
    """

    partition: TopicPartition
    topic_id: UUID
    position: int | None
    error: ReplogError | None = None
    epoch: int = NO_LEADER_EPOCH


class Openings:
    """Finds out where partitions begin.

    Args:
        view: The open cluster view.
        coordinator: The way to the group's coordinator.
        settings: The settings of the member.
    """

    def __init__(self, view: ClusterView, coordinator: Coordinator, settings: GroupSettings) -> None:
        self._view = view
        self._coordinator = coordinator
        self._settings = settings
        self._known_ids: dict[str, UUID] = {}  # of the topics that were read before
        self._first_counts: dict[UUID, int] = {}  # the partitions of a topic when it was subscribed to

    def subscribe(self, topics: Iterable[str]) -> None:
        """Notes which partitions there are of topics that are read from now on; the others have come since they were subscribed to.

        Of topics that were subscribed to before, that is as it was then.
        """
        self._note(topics, are_new=False)

    def follow(self, topics: Iterable[str]) -> None:
        """Takes in which topics match a pattern now: all partitions of those that did not before have come since then."""
        self._note(topics, are_new=True)

    def _note(self, topics: Iterable[str], *, are_new: bool) -> None:
        known = self._view.image.topics
        counts = {
            known[name].topic_id: 0 if are_new else len(known[name].partitions) for name in topics if name in known
        }
        self._first_counts = {each: self._first_counts.get(each, count) for each, count in counts.items()}

    def names(self, partitions: IdPartitions) -> dict[TopicPartition, UUID]:
        """Returns the partitions by name; those of topics that the metadata does not have yet are left out."""
        names = {info.topic_id: name for name, info in self._view.image.topics.items()}
        return {
            TopicPartition(names[topic_id], partition): topic_id
            for topic_id, partition in sorted(partitions)
            if topic_id in names
        }

    async def committed(
        self, ids: Mapping[TopicPartition, UUID], member_id: str | None = None, member_epoch: int = -1
    ) -> dict[TopicPartition, CommittedOffset]:
        """Returns the committed offset of each partition that has one.  What an open transaction commits may be further on, and who asks
        goes on from there: so there is no answer before that has ended (KIP-447).

        Args:
            ids: The partitions, each with its topic's id; an id of zero stands for any topic of that name.
            member_id: The member that asks; None for anybody.
            member_epoch: Its epoch.

        Raises:
            UnstableOffsetCommitError: A transaction that has not ended has committed an offset of one of them; ask again.
        """
        by_topic: dict[tuple[str, UUID], list[int]] = {}
        for each, topic_id in ids.items():
            by_topic.setdefault((each.topic, topic_id), []).append(each.partition)
        topics = tuple(TopicToFetch(*topic, tuple(partitions)) for topic, partitions in by_topic.items())
        request = FetchOffsets(self._settings.group_id, topics, member_id, member_epoch, wants_stable=True)
        answer = await self._coordinator.call(request)
        return {
            TopicPartition(topic.topic, each.partition): each
            for topic in answer.topics
            for each in topic.partitions
            if each.offset != NO_OFFSET
        }

    async def open(
        self, ids: Mapping[TopicPartition, UUID], member_id: str, member_epoch: int
    ) -> tuple[list[Opened], dict[TopicPartition, UUID]]:
        """Returns where partitions begin that have a committed offset, or an error, and those that have none: see `reset`.

        Raises:
            ReplogError: The coordinator did not tell.
        """
        found = await self.committed(ids, member_id, member_epoch)
        opened = [
            Opened(each, ids[each], kept.offset, epoch=kept.leader_epoch) for each, kept in found.items() if each in ids
        ]
        missing = {each: ids[each] for each in ids if each not in found}
        fresh: dict[TopicPartition, UUID] = {}
        if missing:
            former = await self.committed(dict.fromkeys(missing, NO_TOPIC_ID), member_id, member_epoch)
            for each, topic_id in missing.items():
                if self._is_recreated(each, topic_id, former):
                    opened.append(Opened(each, topic_id, 0, self._recreated_error(each, former.get(each))))
                else:
                    fresh[each] = topic_id
        self._known_ids.update({each.topic: topic_id for each, topic_id in ids.items()})
        return opened, fresh

    async def reset(self, ids: Mapping[TopicPartition, UUID]) -> list[Opened]:
        """Returns where partitions without a committed offset begin, by the settings.

        "latest" is said of what there was when the member subscribed: what is in a partition that came since was written since, and
        is read from its beginning.

        Raises:
            RequestTimedOutError: A leader did not tell, or there is none.
        """
        word = self._settings.reset
        if word == "raise":
            return [Opened(each, topic_id, 0, self._no_offset_error(each)) for each, topic_id in ids.items()]
        first = [each for each, topic_id in ids.items() if word == "earliest" or self._has_come_since(each, topic_id)]
        found = dict(await start_positions(self._view, first, "earliest", RESET_TIMEOUT_MS))
        found |= await start_positions(self._view, ids.keys() - first, "latest", RESET_TIMEOUT_MS)
        return [Opened(each, topic_id, found.get(each)) for each, topic_id in ids.items()]

    async def keep(self, opened: Iterable[Opened], member_id: str, member_epoch: int) -> None:
        """Commits the places that the settings have chosen, if they say so: whoever reads on later must not choose others.

        Args:
            opened: Where partitions begin.
            member_id: The member.
            member_epoch: The epoch in which it had the partitions when it asked for their offsets; it has another one if they
                have been somebody else's since.

        Raises:
            ReplogError: They may not have been committed.
        """
        known = [each for each in opened if each.error is None]
        offsets = {each.partition: Offset(each.position) for each in known if each.position is not None}
        if not (offsets and self._settings.auto_commit):
            return
        ids = {each.partition: each.topic_id for each in known}
        request = self._request(offsets, ids, member_id, member_epoch)
        answer = await self._coordinator.call(request)
        for error in errors_of(answer).values():
            if error is not None:
                raise error

    def _request(
        self,
        offsets: Mapping[TopicPartition, Offset],
        ids: Mapping[TopicPartition, UUID],
        member_id: str,
        member_epoch: int,
    ) -> CommitOffsets:
        settings = self._settings
        topics = topics_to_commit(offsets, ids)
        return CommitOffsets(settings.group_id, topics, member_id, settings.instance_id, member_epoch)

    def _has_come_since(self, partition: TopicPartition, topic_id: UUID) -> bool:
        return partition.partition >= self._first_counts.get(topic_id, 0)

    def _is_recreated(
        self, partition: TopicPartition, topic_id: UUID, former: Mapping[TopicPartition, CommittedOffset]
    ) -> bool:
        return partition in former or self._known_ids.get(partition.topic, topic_id) != topic_id

    def _recreated_error(self, partition: TopicPartition, former: CommittedOffset | None) -> RecreatedTopicError:
        kept = "" if former is None else f", and the committed offset {former.offset} is of the earlier one"
        return RecreatedTopicError(
            f"{partition}: topic {partition.topic} was deleted and made anew since group {self._settings.group_id!r} read "
            f"it{kept}. Seek to where to go on: seek_to_beginning({tuple(partition)}) reads all that is in it now."
        )

    def _no_offset_error(self, partition: TopicPartition) -> NoOffsetError:
        return NoOffsetError(
            f"{partition}: group {self._settings.group_id!r} has no committed offset of it. Set auto_offset_reset to "
            f'"earliest" or "latest", or seek to where to begin: seek_to_beginning({tuple(partition)}), seek_to_end, or seek to '
            "an offset."
        )
