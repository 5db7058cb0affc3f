"""Which broker coordinates a group or a transactional id, and the way to its coordinator where that is this one.

Each belongs to a partition of an internal topic, by its name; the leader of the partition coordinates it, as in Kafka.  The
topic is made when a coordinator is looked for and there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from replog.broker.coordinator.internal_topic import InternalTopic, partition_of
from replog.broker.coordinator.kinds import CoordinatorKind
from replog.broker.coordinator.shards import Shards
from replog.broker.replicas.replica import ReplicaKey
from replog.broker.tasks import finished
from replog.coordinator.offsets.requests import ForgetTopics
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ReplogError,
)
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.persistent_map import difference
from replog.metadata.records import NO_LEADER
from replog.metadata.registrations import PartitionRegistration

CHARACTERS_AT_ONCE: Final = 50_000
"""Characters of names whose places are looked up before others have their turn: each is counted in the hash."""

NAME_CHARACTERS: Final = 50
"""What a name costs beside its characters."""

_Place: TypeAlias = tuple[ReplicaKey, PartitionRegistration]


class Coordinators:
    """The coordinators of one kind in the cluster, as this node sees them.

    Args:
        kind: What they coordinate; here, a *name* is that of a group, or a transactional id.
        node_id: The id of this node.
        image: The function that returns the metadata as this node knows them.
        topic: What makes their topic.
        shards: The shards of this broker.

    Attributes:
        shards: The shards of this broker.
    """

    def __init__(
        self,
        kind: CoordinatorKind,
        node_id: int,
        image: Callable[[], MetadataImage],
        topic: InternalTopic,
        shards: Shards,
    ) -> None:
        self.shards = shards
        self._kind = kind
        self._node_id = node_id
        self._image = image
        self._topic = topic
        self._topics: Mapping[str, TopicImage] = {}  # of the image that was applied last
        self._turn = asyncio.Lock()

    async def find(self, name: str) -> int:
        """Returns the id of the broker that coordinates a name.

        Raises:
            InvalidGroupIdError: The group id is empty, or too long.
            InvalidRequestError: The transactional id is.
            CoordinatorNotAvailableError: There is none just now; ask again a little later.
        """
        (found,) = await self.find_all((name,))
        if isinstance(found, ReplogError):
            raise found
        return found

    async def find_all(self, names: Sequence[str]) -> list[int | ReplogError]:
        """Returns for each name the broker that coordinates it, or one of the errors of `find`."""
        if self._kind.topic not in self._image().topics_by_name and any(names):
            try:
                await self._topic.make()
            except CoordinatorNotAvailableError as error:
                return [error] * len(names)
        found: list[int | ReplogError] = []
        characters = 0
        for name in names:
            found.append(self.known(name))
            characters += NAME_CHARACTERS + len(name)
            if characters >= CHARACTERS_AT_ONCE:
                characters = 0
                await asyncio.sleep(0)
        return found

    def known(self, name: str) -> int | ReplogError:
        """Returns the broker that coordinates a name, or one of the errors of `find`; makes no topic."""
        if (problem := self._kind.problem_of(name)) is not None:
            return problem
        place = self._place(name)
        if place is None or place[1].leader == NO_LEADER:
            return CoordinatorNotAvailableError(
                f"{self._kind.noun} {name!r} has no coordinator yet; ask again a little later"
            )
        return place[1].leader

    async def submit(self, name: str, request: Any, timeout_ms: int | None) -> Any:
        """Returns the answer of the coordinator of a name, which has to be this broker, to a request.

        The answer comes once everything that it was made of has committed.  Whether topics exist that the request names is
        not looked at here.

        Args:
            name: The name.
            request: The request: one of those that the machine of the topic handles.
            timeout_ms: The time within which an answer is wanted; None: it may take as long as it takes, such as that of a
                member which waits for others to join.

        Returns:
            The answer to the request, of the class that belongs to it.

        Raises:
            InvalidGroupIdError: The group id is empty, or too long.
            InvalidRequestError: The transactional id is.
            NotCoordinatorError: Another broker coordinates the name (now): `find` says which.
            CoordinatorNotAvailableError: Nobody does just now, or the change could not be written; it may be asked again.
            CoordinatorLoadInProgressError: The coordinator has not read its partition yet, or has too much to do.
            RequestTimedOutError: The change was not committed in time; it may still be.
            BrokerClosedError: The node is stopping.
            ReplogError: The coordinator refuses, see `replog.errors`.
        """
        if (problem := self._kind.problem_of(name)) is not None:
            raise problem
        return await self.shards.submit(self._own_key(name), request, timeout_ms)

    async def submit_to(self, partition_id: int, request: Any, timeout_ms: int | None) -> Any:
        """Returns the answer of the coordinator over a partition of the topic; arguments and errors as of `submit`."""
        key = self._led_key(self._numbered(partition_id), f"{self._kind.topic}-{partition_id}")
        return await self.shards.submit(key, request, timeout_ms)

    async def submit_all(self, request: Any, timeout_ms: int) -> list[Any]:
        """Returns the answers of all coordinators of this broker to a request for everything that they have.

        One such request at a time: each copies names in its shard, and holds what it has found.  One whose client has gone is
        over when its shard has answered.

        Args:
            request: The request.
            timeout_ms: The time within which each coordinator has to answer, and those before this request.

        Raises:
            CoordinatorLoadInProgressError: Those before it take too long.
            ReplogError: A coordinator refuses, as of `submit`.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise CoordinatorLoadInProgressError(
                f"broker {self._node_id} makes other lists of all that it coordinates; ask again a little later"
            ) from None
        try:
            answers: list[Any] = []
            for key in sorted(self.shards.hosts_of(self._kind.topic)):
                asked = asyncio.ensure_future(self.shards.submit(key, request, timeout_ms))
                with contextlib.suppress(NotCoordinatorError):  # they have moved meanwhile
                    answers.append(await finished(asked))
            return answers
        finally:
            self._turn.release()

    async def place_of(self, name: str) -> tuple[str, int]:
        """Returns the topic and the partition that a name belongs to, whoever leads it; errors as of `find`."""
        if (problem := self._kind.problem_of(name)) is not None:
            raise problem
        if self._kind.topic not in self._image().topics_by_name:
            await self._topic.make()
        return self._kind.topic, self.partition_id(name)

    def partition_id(self, name: str) -> int:
        """Returns the number of the partition that a name belongs to.

        Raises:
            CoordinatorNotAvailableError: There is no topic yet.
        """
        place = self._place(name)
        if place is None:
            raise CoordinatorNotAvailableError(f"there is no topic {self._kind.topic} yet; ask again a little later")
        return place[0][1]

    def _own_key(self, name: str) -> ReplicaKey:
        """Returns the partition that a name belongs to; errors as of `_led_key`."""
        return self._led_key(self._place(name), f"{self._kind.noun} {name!r}")

    def _led_key(self, place: _Place | None, what: str) -> ReplicaKey:
        """Returns the partition at a place, which has to be led by this broker.

        Raises:
            NotCoordinatorError: This broker does not lead it.
            CoordinatorNotAvailableError: Nobody does.
        """
        if place is None:
            raise CoordinatorNotAvailableError(
                f"there is no such partition of {self._kind.topic} yet; look for the coordinator first"
            )
        key, registration = place
        if registration.leader == NO_LEADER:
            raise CoordinatorNotAvailableError(f"{self._kind.topic}-{key[1]} has no leader; ask again a little later")
        if registration.leader != self._node_id:
            raise NotCoordinatorError(f"broker {registration.leader} coordinates {what}, not {self._node_id}")
        return key

    def _place(self, name: str) -> _Place | None:
        topic = self._image().topics_by_name.get(self._kind.topic)
        return None if topic is None else self._numbered(partition_of(name, len(topic.partitions)))

    def _numbered(self, number: int) -> _Place | None:
        topic = self._image().topics_by_name.get(self._kind.topic)
        registration = None if topic is None else topic.partitions.get(number)
        return None if topic is None or registration is None else ((topic.topic_id, number), registration)

    def image_applied(self, image: MetadataImage) -> None:
        """Lets coordinators of groups forget the offsets of deleted topics; called on the replica driver after each image.

        A coordinator that is just being read is not told: it keeps them until they are old, and they belong to no topic that
        has the name then.
        """
        before, self._topics = self._topics, image.topics_by_name
        if before is image.topics_by_name or not self.shards.hosts_of(self._kind.topic):
            return
        deleted = frozenset(name for name, now in difference(before, image.topics_by_name).items() if now is None)
        if deleted:
            self.shards.tell_all(self._kind.topic, ForgetTopics(deleted))

    async def stop(self) -> None:
        """Fails what waits."""
        await self._topic.stop()


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
