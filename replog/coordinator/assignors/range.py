"""Gives each member of a topic a range of its partitions, the first members one more where they do not divide.

Members that read several topics of as many partitions get the same partitions of each, so they can join them.  The price is
that one partition too many of each topic goes to the same first members, and that a new member moves many partitions.
"""

from __future__ import annotations

from uuid import UUID

from replog.coordinator.assignors.model import Assignment, Members, Topics, readers_by_topic


def assign_ranges(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Assigns ranges.

    Args:
        members: The members of the group.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    given: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, readers in readers_by_topic(members, topics).items():
        least, extra = divmod(topics[topic_id], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + least + (place < extra)
            if end > start:
                given[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(given)
