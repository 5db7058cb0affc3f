"""Changes of the in-sync replicas of the partitions that this broker leads: one line in the log each, and counters."""

from __future__ import annotations

import logging

from replog.replication.messages import IsrChanged

_log = logging.getLogger(__name__)


class IsrChanges:
    """Counts since the start; a change that does both counts in both.

    Attributes:
        shrinks: members were lost.
        expands: members were won.
    """

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0

    def note(self, name: str, change: IsrChanged) -> None:
        """A partition's committed ISR has other members.

        Args:
            name: of the partition, such as flights-0.
            change: what changed, and why.
        """
        before, after = set(change.before), set(change.isr)
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)
        _log.info("%s: ISR %s, was %s: %s", name, list(change.isr), list(change.before), change.reason)
