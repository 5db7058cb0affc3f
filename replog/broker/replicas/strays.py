"""The fate of a partition folder whose topic id is not that of a replica of this broker: decided once, at the first image.

| the metadata                                                    | the folder                                          |
|-----------------------------------------------------------------|-----------------------------------------------------|
| give this broker no replica of its name                         | goes if they tell that its topic was deleted, else it is set aside |
| do, of a topic that was created after this broker had stopped   | the same: it can only be that of a topic before it |
| do, of a topic that this broker knew when it stopped            | stands where the replica was: damaged. Or the process was killed before it could put the folder away |
| do, and the id is that of another topic that there is           | damaged                                             |

An empty replica in the place of a damaged one would count as one that has everything: it could lead, and those that are whole
would be cut to nothing.  So a damaged one is quarantined, and fetched anew from another replica.  Only the only replica of
its partition, of a process that was killed, makes way without that: nobody else holds a record that could be lost by it.
"""

from __future__ import annotations

import enum
from uuid import UUID

from replog.metadata.image import TopicImage


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
