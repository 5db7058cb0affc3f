"""Changes of the in-sync replicas of the partitions that this broker leads: told, and counted."""

from __future__ import annotations

from replog.broker.replicas import partition_events
from replog.replication.messages import IsrChanged


class IsrChanges:
    """Counts since the start; a change that does both counts in both.

    Attributes:
        shrinks: The number of changes in which members were lost.
        expands: The number of changes in which members were won.
    """

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0

    def note(self, name: str, change: IsrChanged) -> None:
        """Counts and logs that a partition's committed ISR has other members.

        Args:
            name: The partition's name, such as flights-0.
            change: The members before and now, and the reason.
        """
        before, after = set(change.before), set(change.isr)
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)
        partition_events.isr_changed(name, change)
