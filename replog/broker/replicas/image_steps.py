"""Applies a new metadata image to the replicas of this broker, in steps that stay short for an image of any size.

Why: one record deletes a topic of any size, and a broker that goes gives this one thousands of partitions to lead.  Every part
of a node shares its event loop.  A step of a second makes the node look dead, and moves the controller.

Each iterator changes one replica after the other, and yields in between; after a change that took as long as several, it yields
more than once.  `in_steps` joins as many as make a short step.  A small change, as almost every one is, is one step.
"""

from __future__ import annotations

import enum
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from uuid import UUID

from replog.broker.replicas.logs import is_new_replica, tell_set_aside
from replog.broker.replicas.replica import Replica
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import REPLICAS_TOGETHER, ReplicaStepper
from replog.broker.replicas.topic_settings import TopicSettings
from replog.broker.replicas.views import partition_state
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.persistent_map import difference
from replog.metadata.records import ResourceType
from replog.replication.leader import Leader
from replog.replication.messages import StateChanged


class FolderFate(enum.Enum):
    """What becomes of a folder."""

    DELETED = enum.auto()
    SET_ASIDE = enum.auto()
    QUARANTINED = enum.auto()


def fate_of(
    topic_id: UUID | None,
    topic: TopicImage | None,
    partition_id: int,
    broker_id: int,
    *,
    is_known: bool,
    was_deleted: bool,
    is_later: bool,
    was_clean: bool,
) -> FolderFate:
    """Decides on the folder of one replica.

    | the metadata                                                    | the folder                                          |
    |-----------------------------------------------------------------|-----------------------------------------------------|
    | give this broker no replica of its name                         | goes if they tell that its topic was deleted, else it is set aside |
    | do, of a topic that was created after this broker had stopped   | the same: it can only be that of a topic before it |
    | do, of a topic that this broker knew when it stopped            | stands where the replica was: damaged. Or the process was killed before it could put the folder away |
    | do, and the id is that of another topic that there is           | damaged                                             |

    An empty replica in the place of a damaged one would count as one that has everything: it could lead, and those that are whole
    would be cut to nothing.  So a damaged one is quarantined, and fetched anew from another replica.  Only the only replica of
    its partition, of a process that was killed, makes way without that: nobody else holds a record that could be lost by it.

    Args:
        topic_id: The topic id in it; None: it has none.
        topic: The topic of its name in the first image, with another id; None: there is none.
        partition_id: The partition in its name.
        broker_id: This broker.
        is_known: Whether the image has a topic with the id of the folder.
        was_deleted: Whether the metadata log tells that the topic with the id of the folder was deleted.
        is_later: Whether the topic of its name was created after the last process ended.
        was_clean: Whether that process stopped in order: then it had put away every folder that it knew to be gone.
    """
    registration = None if topic is None else topic.partitions.get(partition_id)
    replicas = () if registration is None else registration.replicas
    if topic_id is None:
        return FolderFate.SET_ASIDE
    if broker_id in replicas and (is_known or not is_later):
        may_make_way = not is_known and was_deleted and not was_clean and replicas == (broker_id,)
        return FolderFate.SET_ASIDE if may_make_way else FolderFate.QUARANTINED
    return FolderFate.DELETED if was_deleted and not is_known else FolderFate.SET_ASIDE


LEADERS_TOGETHER = 4
"""How many of `REPLICAS_TOGETHER` may begin an epoch: each first writes it to its disk, which takes some milliseconds."""

_log = logging.getLogger(__name__)


class ImageSteps:
    """Changes the replicas of one broker.  Runs on the replica driver.

    Args:
        manager: The replica manager.
    """

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._stepper: ReplicaStepper = manager.stepper

    def apply(self, before: MetadataImage, changes: LocalChanges, changed_brokers: Collection[int]) -> Iterator[None]:
        """Gives this broker's replicas their roles in the image in force, without deletions; yields after each replica.

        Args:
            before: The image before it.
            changes: The differences for this broker.
            changed_brokers: The brokers whose registration changed; leaders of their partitions must know.
        """
        yield from self.take_roles(before, changes)
        yield from self.tell_leaders(changed_brokers, changes)
        yield from self.refresh_settings(before)
        self._manager.image_applied()

    def retire_strays(self, was_deleted: Callable[[UUID], bool], is_later: Callable[[UUID], bool]) -> Iterator[None]:
        """Takes replicas out of the way that this broker no longer has: deleted, or moved, while it was down.

        They are set aside, not deleted, where nothing tells that they are to go: a broker whose metadata log was lost would
        otherwise delete everything it has.  See `fate_of`.

        Args:
            was_deleted: Whether the metadata log tells that a topic was deleted.  Such a replica is deleted: a stop has
                come in between.
            is_later: Whether a topic was created after the process before this one ended.
        """
        manager, image = self._manager, self._stepper.image
        logs, broker_id = manager.local_logs, self._stepper.config.node_id
        for place, topic_id in logs.strays(image):
            topic = image.topics_by_name.get(place[0])
            fate = fate_of(
                topic_id,
                topic,
                place[1],
                broker_id,
                is_known=topic_id in image.topics_by_id,
                was_deleted=topic_id is not None and was_deleted(topic_id),
                is_later=topic is not None and is_later(topic.topic_id),
                was_clean=logs.was_clean(place),
            )
            if fate is FolderFate.QUARANTINED:
                logs.quarantine_of_another(place, image)
                continue
            target = manager.retirements.add(place, is_kept=fate is FolderFate.SET_ASIDE)
            if fate is FolderFate.SET_ASIDE:
                tell_set_aside(place, target, topic_id)
            else:
                _log.info("%s-%d: deleted", *place)
            yield
        manager.retirements.begin()

    def delete(self, deleted: Iterable[LocalPartition]) -> Iterator[None]:
        """Closes the logs of deleted replicas; their folders go together, in a thread."""
        for local in deleted:
            self._delete_one(local)
            yield
        self._manager.retirements.begin()

    def _delete_one(self, local: LocalPartition) -> None:
        manager = self._manager
        if manager.moves.is_swapping(local):
            return
        key, place = (local.topic_id, local.partition_id), (local.topic_name, local.partition_id)
        was_offline = self._stepper.trouble.forget(key)
        replica = self._stepper.replicas.pop(key, None)
        if replica is not None:
            self._stepper.leave_role(replica)
        home = manager.local_logs.home_of(place)
        if was_offline and home is None:
            manager.local_logs.forget_given_up(place)
        if (replica or was_offline) and home and not home.failure and home.topic_id(*place) in {None, local.topic_id}:
            is_kept = home.topic_id(*place) is None  # a folder without a topic id may be of another topic
            target = manager.retirements.add(place, is_kept=is_kept)
            if is_kept:
                tell_set_aside(place, target)
            else:
                _log.info("%s-%d: deleted", *place)

    def take_roles(self, before: MetadataImage, changes: LocalChanges) -> Iterator[None]:
        """Leads and follows as the image in force says.

        Args:
            before: The image before it.
            changes: The differences for this broker.
        """
        broker_id = self._stepper.config.node_id
        for locals_ in (changes.leaders, changes.followers):
            for local in locals_:
                weight = REPLICAS_TOGETHER // LEADERS_TOGETHER if self._begins_epoch(local) else 1
                self._manager.take_role(local, is_new=is_new_replica(before, local, broker_id))
                yield from itertools.repeat(None, weight)

    def _begins_epoch(self, local: LocalPartition) -> bool:
        """Whether this broker will lead the replica in an epoch in which it does not lead it yet."""
        registration = local.registration
        if registration.leader != self._stepper.config.node_id:
            return False
        replica = self._stepper.replicas.get((local.topic_id, local.partition_id))
        role = None if replica is None else replica.role
        return not isinstance(role, Leader) or role.leader_epoch != registration.leader_epoch

    def tell_leaders(self, brokers: Collection[int], changes: LocalChanges) -> Iterator[None]:
        """Tells leaders that a broker with one of their replicas has changed, unless `changes` has told them already."""
        if not brokers:
            return
        changed = set(brokers)
        told = {(local.topic_id, local.partition_id) for local in changes.leaders}
        leading = [replica for replica in self._stepper.replicas.values() if isinstance(replica.role, Leader)]
        for replica in leading:
            if not changed.isdisjoint(replica.registration.replicas) and replica.key not in told:
                self._state_changed(replica)
                yield

    def refresh_settings(self, before: MetadataImage) -> Iterator[None]:
        """Puts settings in force that differ in the image before."""
        stepper = self._stepper
        if stepper.image.configs is before.configs:
            return
        self._manager.configure_throttles()
        changed = difference(before.configs, stepper.image.configs)
        topics = {name for resource_type, name in changed if resource_type is ResourceType.TOPIC}
        concerns_all = len(topics) < len(changed)
        for replica in list(stepper.replicas.values()):
            if concerns_all or replica.topic in topics:
                self._refresh_one(replica)
                yield

    def _refresh_one(self, replica: Replica) -> None:
        stepper = self._stepper
        settings = TopicSettings(replica.topic, stepper.image, stepper.config)
        if replica.flush_policy is not settings.flush_policy:
            replica.flush_policy = settings.flush_policy
            stepper.tell_flush_policy(replica)
        replica.max_message_bytes = settings.max_message_bytes
        replica.record_rules = settings.record_rules()
        replica.log.set_config(settings.log_config())
        self._state_changed(replica)

    def _state_changed(self, replica: Replica) -> None:
        stepper = self._stepper
        if isinstance(replica.role, Leader):
            stepper.step_leader(replica, StateChanged(partition_state(replica, stepper.image, stepper.config)))


def in_steps(changes: Iterator[None]) -> Iterator[None]:
    """Yields after every `REPLICAS_TOGETHER` items of `changes`."""
    for number, _ in enumerate(changes, 1):
        if number % REPLICAS_TOGETHER == 0:
            yield
