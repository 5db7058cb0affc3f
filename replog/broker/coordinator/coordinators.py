"""Which broker coordinates a group, and the way to its coordinator where that is this one.

A group belongs to a partition of the offsets topic, by its name; the leader of the partition coordinates it, as in Kafka.  The
topic is made when a group is looked for and there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from replog.broker.coordinator.offsets_topic import OffsetsTopic, partition_of
from replog.broker.coordinator.shards import Shards
from replog.broker.replicas.replica import ReplicaKey
from replog.coordinator.offsets.requests import ForgetTopics
from replog.errors import CoordinatorNotAvailableError, InvalidGroupIdError, NotCoordinatorError, ReplogError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.persistent_map import difference
from replog.metadata.records import NO_LEADER
from replog.metadata.registrations import PartitionRegistration
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.rpc.request_limits import MAX_TEXT_CHARACTERS

CHARACTERS_AT_ONCE: Final = 50_000
"""Characters of names whose places are looked up before others have their turn: each is counted in the hash."""

NAME_CHARACTERS: Final = 50
"""What a name costs beside its characters."""


class Coordinators:
    """The groups of the cluster, as this node sees them.

    Args:
        node_id: The id of this node.
        image: The function that returns the metadata as this node knows them.
        topic: What makes the offsets topic.
        shards: The shards of this broker.

    Attributes:
        shards: The shards of this broker.
    """

    def __init__(self, node_id: int, image: Callable[[], MetadataImage], topic: OffsetsTopic, shards: Shards) -> None:
        self.shards = shards
        self._node_id = node_id
        self._image = image
        self._topic = topic
        self._topics: Mapping[str, TopicImage] = {}  # of the image that was applied last

    async def find(self, group_id: str) -> int:
        """Returns the id of the broker that coordinates a group.

        Raises:
            InvalidGroupIdError: The group id is empty, or too long.
            CoordinatorNotAvailableError: There is none just now; ask again a little later.
        """
        (found,) = await self.find_all((group_id,))
        if isinstance(found, ReplogError):
            raise found
        return found

    async def find_all(self, group_ids: Sequence[str]) -> list[int | ReplogError]:
        """Returns for each group the broker that coordinates it, or one of the errors of `find`."""
        if OFFSETS_TOPIC not in self._image().topics_by_name and any(group_ids):
            try:
                await self._topic.make()
            except CoordinatorNotAvailableError as error:
                return [error] * len(group_ids)
        found: list[int | ReplogError] = []
        characters = 0
        for group_id in group_ids:
            found.append(self._found(group_id))
            characters += NAME_CHARACTERS + len(group_id)
            if characters >= CHARACTERS_AT_ONCE:
                characters = 0
                await asyncio.sleep(0)
        return found

    def _found(self, group_id: str) -> int | ReplogError:
        if (problem := _problem_of(group_id)) is not None:
            return problem
        place = self._place(group_id)
        if place is None or place[1].leader == NO_LEADER:
            return CoordinatorNotAvailableError(f"group {group_id!r} has no coordinator yet; ask again a little later")
        return place[1].leader

    async def submit(self, group_id: str, request: Any, timeout_ms: int | None) -> Any:
        """Returns the answer of the coordinator of a group, which has to be this broker, to a request.

        The answer comes once everything that it was made of has committed.  Whether topics exist that the request names is
        not looked at here.

        Args:
            group_id: The group.
            request: The request: one of those that `GroupMachine` handles.
            timeout_ms: The time within which an answer is wanted; None: it may take as long as it takes, such as that of a
                member which waits for others to join.

        Returns:
            The answer to the request, of the class that belongs to it.

        Raises:
            InvalidGroupIdError: The group id is empty, or too long.
            NotCoordinatorError: Another broker coordinates the group (now): `find` says which.
            CoordinatorNotAvailableError: Nobody does just now, or the change could not be written; it may be asked again.
            CoordinatorLoadInProgressError: The coordinator has not read its groups yet, or has too much to do.
            RequestTimedOutError: The change was not committed in time; it may still be.
            BrokerClosedError: The node is stopping.
            ReplogError: The coordinator refuses, see `replog.errors`.
        """
        if (problem := _problem_of(group_id)) is not None:
            raise problem
        return await self.shards.submit(self._own_key(group_id), request, timeout_ms)

    async def submit_all(self, request: Any, timeout_ms: int) -> list[Any]:
        """Returns the answers of all coordinators of this broker; arguments and errors as of `submit`."""
        answers: list[Any] = []
        for key in sorted(self.shards.hosts):
            with contextlib.suppress(NotCoordinatorError):  # its groups have moved meanwhile
                answers.append(await self.shards.submit(key, request, timeout_ms))
        return answers

    def _own_key(self, group_id: str) -> ReplicaKey:
        """Returns the partition that a group belongs to.

        Raises:
            NotCoordinatorError: This broker does not lead it.
            CoordinatorNotAvailableError: Nobody does.
        """
        place = self._place(group_id)
        if place is None:
            raise CoordinatorNotAvailableError(f"there is no topic {OFFSETS_TOPIC} yet; look for the coordinator first")
        key, registration = place
        if registration.leader == NO_LEADER:
            raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC}-{key[1]} has no leader; ask again a little later")
        if registration.leader != self._node_id:
            raise NotCoordinatorError(
                f"broker {registration.leader} coordinates group {group_id!r}, not {self._node_id}"
            )
        return key

    def _place(self, group_id: str) -> tuple[ReplicaKey, PartitionRegistration] | None:
        topic = self._image().topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        number = partition_of(group_id, len(topic.partitions))
        return (topic.topic_id, number), topic.partitions[number]

    def image_applied(self, image: MetadataImage) -> None:
        """Lets coordinators forget the offsets of deleted topics; called on the replica driver after each image.

        A coordinator that is just being read is not told: it keeps them until they are old, and they belong to no topic that
        has the name then.
        """
        before, self._topics = self._topics, image.topics_by_name
        if not self.shards.hosts or before is image.topics_by_name:
            return
        deleted = frozenset(name for name, now in difference(before, image.topics_by_name).items() if now is None)
        if deleted:
            self.shards.tell_all(ForgetTopics(deleted))

    async def stop(self) -> None:
        """Fails what waits."""
        await self._topic.stop()
        self.shards.stop()


def _problem_of(group_id: str) -> InvalidGroupIdError | None:
    """Returns what is wrong with the name of a group: whatever the protocol, all tools have to be able to name it."""
    if not group_id:
        return InvalidGroupIdError("the group id is empty; give the group a name")
    if len(group_id) > MAX_TEXT_CHARACTERS:
        return InvalidGroupIdError(
            f"the group id has {len(group_id):,} characters, and may have {MAX_TEXT_CHARACTERS:,}: shorten it"
        )
    return None


class ImageTopics:
    """See `replog.coordinator.topic_view.TopicView`.

    Args:
        image: The function that returns the metadata as this node knows them.
    """

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._seen: Mapping[str, TopicImage] | None = None
        self._version = 0

    @property
    def version(self) -> int:
        topics = self._image().topics_by_name
        if topics is not self._seen:
            self._seen = topics
            self._version += 1
        return self._version

    @property
    def by_name(self) -> Mapping[str, object]:
        return self._image().topics_by_name

    def find(self, name: str) -> tuple[UUID, int] | None:
        topic = self._image().topics_by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))
