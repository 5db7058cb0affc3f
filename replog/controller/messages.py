"""Messages and effects of the controller: plain data, both ways.

A request becomes records plus a response; the records are replayed at once (speculatively), appended to the quorum
without waiting, and the response leaves when they have committed (docs/KAFKA.md 6.1).
The requests themselves are those of `replog.controller.requests`.  Offsets are offsets of the metadata log.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.access.rights import Denial
from replog.controller.requests import ControllerRequest, ControllerResponse
from replog.errors import ReplogError
from replog.metadata.records import MetadataRecord

# ---- messages from the driver -------------------------------------------------------------------------------------


class Tick(Struct, frozen=True):
    """Time has passed; look at sessions and deadlines."""


class Submit(Struct, frozen=True):
    """A request; answered by exactly one `Reply` or `ReplyError` with this `request_id`."""

    request_id: int
    request: ControllerRequest
    deadline_ms: int


class Claim(Struct, frozen=True):
    """The quorum made this node its leader; records it appends from now on start at `next_offset`."""

    epoch: int
    next_offset: int


class Renounce(Struct, frozen=True):
    """The quorum's leadership is lost: revert to the last committed offset, fail everything that waits."""


class Skip(Struct, frozen=True):
    """The quorum has appended control records of its own during the term: the next write offset is `next_offset` now."""

    next_offset: int


class CommittedRecords(Struct, frozen=True):
    """Committed records of the metadata log: `records` at `base_offset`, `base_offset + 1`, ...

    A standby replays them.  The active controller has replayed them already and only moves its committed offset; what was
    appended in several batches may arrive as one, as long as it ends where one of them ended.
    An empty `records` (a control batch) moves the offset to `end_offset`.
    """

    base_offset: int
    end_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...] = ()


class LoadSnapshot(Struct, frozen=True):
    """A standby is too far behind for the log: its state is that of `records` now, which hold all below `end_offset`.

    Never while the node leads the quorum.
    """

    end_offset: int
    records: tuple[MetadataRecord, ...]


class BrokerGone(Struct, frozen=True):
    """This incarnation of a broker does not run any more; told again while the broker is watched.

    Proofs are a refused connection and the answer of another incarnation.  Silence proves nothing.

    Attributes:
        reason: The proof, in words for people.
        present: The brokers whose registered incarnation is known to run.
    """

    broker_id: int
    broker_epoch: int
    reason: str
    present: frozenset[int]


class AppendRefused(Struct, frozen=True):
    """The log does not take the records of an `AppendRecords`, nor anything that was to go behind them.

    Attributes:
        base_offset: The offset at which they were to go.
        error: The error with which the requests that need them are answered.
    """

    base_offset: int
    error: ReplogError


Message: TypeAlias = (
    Tick | Submit | Claim | Renounce | Skip | CommittedRecords | LoadSnapshot | BrokerGone | AppendRefused
)

# ---- effects --------------------------------------------------------------------------------------------------------


class AppendRecords(Struct, frozen=True):
    """Append as one batch of leader epoch `epoch`; it must land exactly at `base_offset`."""

    epoch: int
    base_offset: int
    records: tuple[MetadataRecord, ...]


class WatchedBroker(Struct, frozen=True):
    """An incarnation of a broker, and where it listens."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    host: str
    port: int


class WatchBrokers(Struct, frozen=True):
    """From now on look after exactly these: at once, and whenever the connection to one of them breaks.

    What is found is told with `BrokerGone`.  So a broker that dies is not trusted for a whole session, nor one that died
    together with the last controller.
    """

    brokers: tuple[WatchedBroker, ...]


class Reply(Struct, frozen=True):
    request_id: int
    response: ControllerResponse


class ReplyError(Struct, frozen=True):
    request_id: int
    error: ReplogError


class ResignLeadership(Struct, frozen=True):
    """Something unexpected happened while handling `epoch`'s requests: another controller should take over."""

    epoch: int
    reason: str


class ChangeFailed(Struct, frozen=True):
    """The records of a change could not be made, for a bug: none of them counts.  A round of a periodic task is tried again.

    Attributes:
        name: The name of the task, or of the request.
        bug: What was raised.
    """

    name: str
    bug: Exception


Effect: TypeAlias = AppendRecords | WatchBrokers | Reply | ReplyError | ResignLeadership | Denial | ChangeFailed
"""A denial is told in the audit log."""
