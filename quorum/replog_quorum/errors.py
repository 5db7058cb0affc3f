"""What this library raises; the one exception tree of the leaf.

::

    ReplogQuorumError
    ├── QuorumConfigError(field, value, reason)     the caller's mistake, raised by constructors
    ├── QuorumInvariantError                        a rule of the protocol is broken: stop the node
    └── AppendRefusedError                          an append that the accumulator does not take
        ├── StaleAppendError(epoch, open_epoch)     the caller's leadership is over
        ├── AppendTooLargeError(value_count, size_bytes, max_bytes)     split it
        └── AccumulatorFullError(max_batches)       try again after a drain

`QuorumError` (in `messages`) is something else: the error code inside a response.
"""

from __future__ import annotations


class ReplogQuorumError(Exception):
    """Base class of everything this library raises on purpose."""


class QuorumConfigError(ReplogQuorumError):
    """A configuration value is out of range.

    Attributes:
        field: The name of the field.
        value: The value that was given.
        reason: The values that are allowed, with the unit.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(f"{field} = {value!r}: {reason}")


class QuorumInvariantError(ReplogQuorumError):
    """Something happened that the protocol rules out: two leaders in one epoch, a cut below the high watermark.

    Continuing could lose committed records, so the host stops this node.  Usual causes: a wiped or restored
    log directory under a known node id, two nodes with one id, or a bug.
    """


class AppendRefusedError(ReplogQuorumError):
    """The accumulator does not take an append; nothing was changed."""


class StaleAppendError(AppendRefusedError):
    """The caller does not lead, or leads another epoch.

    Attributes:
        epoch: The epoch of the append.
        open_epoch: The epoch that the accumulator is open for; None when it is closed.
    """

    def __init__(self, epoch: int, open_epoch: int | None) -> None:
        self.epoch = epoch
        self.open_epoch = open_epoch
        now = "nobody leads here" if open_epoch is None else f"this node leads epoch {open_epoch}"
        super().__init__(f"append in epoch {epoch}, but {now}: give the request back to its client")


class AppendTooLargeError(AppendRefusedError):
    """The values of one append do not fit into one batch, or there are none.

    Attributes:
        value_count: The number of values.
        size_bytes: The size of all of them together.
        max_bytes: The largest size of a batch.
    """

    def __init__(self, value_count: int, size_bytes: int, max_bytes: int) -> None:
        self.value_count = value_count
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        super().__init__(f"{value_count} values of {size_bytes} bytes for one batch of 1 value to {max_bytes} bytes")


class AccumulatorFullError(AppendRefusedError):
    """As many batches wait as may.

    Attributes:
        max_batches: The most batches that may wait.
    """

    def __init__(self, max_batches: int) -> None:
        self.max_batches = max_batches
        super().__init__(f"{max_batches} batches wait to be written: try again when they are")
