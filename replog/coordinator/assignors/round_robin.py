"""Gives the partitions of all topics to members in turn; a member that does not read a topic is passed over.

Where all members read the same topics, no two differ by more than one partition.
"""

from __future__ import annotations

from itertools import cycle

from replog.coordinator.assignors.model import (
    Assignment,
    Members,
    TopicPartition,
    Topics,
    assignment_of,
    in_order,
    readers_by_topic,
)


def assign_in_turns(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Assigns in turns.

    Args:
        members: The members of the group.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    turns = cycle(in_order(members))
    for topic_id in readers_by_topic(members, topics):
        for partition in range(topics[topic_id]):
            reader = next(each for each in turns if topic_id in members[each].topic_ids)
            given[reader].append((topic_id, partition))
    return {member_id: assignment_of(partitions) for member_id, partitions in given.items()}
