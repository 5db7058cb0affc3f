"""What a partition's follower says about itself: for `describe`, metrics and tests.  Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FollowerState(Enum):
    """What a follower is doing."""

    FETCHING = "fetching"
    WRITING = "writing"
    """An answer is being appended, or the log is being cut or flushed."""
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    """Nothing until the metadata names a later leader epoch."""


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A follower at one moment.  End offsets and the high watermark are exclusive.

    Attributes:
        failed_reason: The reason in one line for people; empty unless failed.
    """

    topic_partition: str
    leader_id: int
    leader_epoch: int
    state: FollowerState
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    failed_reason: str
