"""What a caller of the timeline can do wrong, as one tree; replog wraps it at its boundary.

::

    TimelineError
    ├── UnknownEpochError(epoch, known_epochs)     there is no snapshot at this epoch (any more)
    └── EpochOrderError(epoch, latest_epoch)       snapshots are only made with rising epochs
"""

from __future__ import annotations

from collections.abc import Sequence


class TimelineError(Exception):
    """Base of everything this library raises on purpose."""


class UnknownEpochError(TimelineError, LookupError):
    """A read, revert or deletion at an epoch that has no snapshot; nothing was changed.

    Attributes:
        epoch: The epoch asked for.
        known_epochs: The epochs that have a snapshot, ascending.
    """

    def __init__(self, epoch: int, known_epochs: Sequence[int]) -> None:
        known = f"known are {known_epochs[0]} to {known_epochs[-1]}" if known_epochs else "there are none"
        super().__init__(f"no snapshot at epoch {epoch}: {known} ({len(known_epochs)} in all)")
        self.epoch = epoch
        self.known_epochs = tuple(known_epochs)


class EpochOrderError(TimelineError, ValueError):
    """A snapshot was to be made at an epoch that is not above the latest one; nothing was changed.

    Attributes:
        epoch: The epoch asked for.
        latest_epoch: The epoch of the latest snapshot.
    """

    def __init__(self, epoch: int, latest_epoch: int) -> None:
        super().__init__(f"a snapshot at epoch {epoch} cannot follow the one at {latest_epoch}")
        self.epoch = epoch
        self.latest_epoch = latest_epoch
