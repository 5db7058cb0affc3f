"""Why groups are shared out anew; counted for people who look for what keeps a group from its work."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TypeAlias


class RebalanceReason(StrEnum):
    """What has set a rebalance off."""

    JOINED = "joined"
    """A member has come."""
    LEFT = "left"
    """A member has gone, and said so."""
    SILENT = "silent"
    """A member has said nothing for a session."""
    SLOW = "slow"
    """A member has not joined again, asked what it gets, or given back what it was to, within its time."""
    CHANGED = "changed"
    """What members want, or the topics that they read, are others; or a member of the classic protocol asks for it."""


RebalanceCounts: TypeAlias = Counter[RebalanceReason]
