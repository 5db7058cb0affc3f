"""What this library raises; the one exception tree of the leaf.

::

    ReplogQuorumError
    ├── QuorumConfigError(field, value, reason)     the caller's mistake, raised by constructors
    └── QuorumInvariantError                        a rule of the protocol is broken: stop the node

`QuorumError` (in `messages`) is something else: the error code inside a response.
"""

from __future__ import annotations


class ReplogQuorumError(Exception):
    """Base class of everything this library raises on purpose."""


class QuorumConfigError(ReplogQuorumError):
    """A configuration value is out of range.

    Attributes:
        field: name of the field.
        value: what was given.
        reason: what is allowed, with the unit.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(f"{field} = {value!r}: {reason}")


class QuorumInvariantError(ReplogQuorumError):
    """Something happened that the protocol rules out: two leaders in one epoch, a cut below the high watermark.

    Continuing could lose committed records, so the host stops this node.  Usual causes: a wiped or restored
    data directory under a known node id, two nodes with one id, or a bug.
    """
