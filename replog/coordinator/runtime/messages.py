"""Messages and effects of a shard: plain data, both ways.  Offsets are offsets of its partition's log."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from msgspec import Struct

from replog.coordinator.records import EncodedRecord
from replog.coordinator.runtime.transactions import EndMarker, LogEntry, TransactionWriter
from replog.errors import ReplogError

# ---- messages from the driver ---------------------------------------------------------------------------------------


class Lead(Struct, frozen=True):
    """This node leads the partition from now on; nothing is asked of the shard before it has read the log.

    Attributes:
        epoch: The leader epoch.
        start_offset: The start of the log.
        end_offset: The end of the log, before this leader has appended anything.
        high_watermark: The end of what has committed.
    """

    epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int


class LogRead(Struct, frozen=True):
    """Answers a `ReadLog`: a piece of the log, as long as may be handled in one step.

    Attributes:
        epoch: The leader epoch of the `ReadLog`.
        offset: Where it was to begin.
        records: The records with their offsets, and the markers of transactions, in order; of control records no other ones.
        next_offset: Where the next piece begins.
    """

    epoch: int
    offset: int
    records: tuple[LogEntry, ...]
    next_offset: int


class ReadFailed(Struct, frozen=True):
    """Answers a `ReadLog`: the log cannot be read; the shard serves nobody until it leads anew."""

    epoch: int
    error: ReplogError


class Resigned(Struct, frozen=True):
    """This node does not lead the partition any more: forget everything, fail everything that waits."""


class HighWatermarkMoved(Struct, frozen=True):
    """Everything below `offset` has committed."""

    offset: int


class AppendRefused(Struct, frozen=True):
    """The log does not take the records of an `AppendRecords`, or an `AppendMarker`, nor anything that was to go behind it.

    Attributes:
        epoch: The leader epoch of the `AppendRecords`.
        base_offset: The offset at which they were to go.
        error: Why; the requests that need them are answered with it, or told to ask again.
        request_id: The request that made them, where these records alone are the reason: an error that no repetition mends
            is its alone.
    """

    epoch: int
    base_offset: int
    error: ReplogError
    request_id: int | None = None


class Submit(Struct, frozen=True):
    """A request; answered by exactly one `Reply` or `ReplyError` with this `request_id`.

    Attributes:
        deadline_ms: The time at which it is given up; None for one that may wait as long as it takes, such as a join: its
            answer, once there is one, waits for a commit no longer than `ShardConfig.commit_timeout_ms`.
    """

    request_id: int
    request: Any
    deadline_ms: int | None


class Tick(Struct, frozen=True):
    """Time has passed; look at deadlines and timers."""


class Paused(Struct, frozen=True):
    """This node hands over no requests for now, so nobody can be heard: no timer runs, and what needs more steps fails.

    Attributes:
        since_ms: When it was last known to hand them over, in monotonic milliseconds; a process that stood still learns late
            that it may not serve.
    """

    since_ms: int


class Resumed(Struct, frozen=True):
    """Requests are handed over again: timers go on, each as much later as the pause was long."""


class Done(Struct, frozen=True):
    """Answers a `DoBeside`.

    Attributes:
        epoch: The leader epoch of the `DoBeside`.
        key: Its key.
        result: What the work has returned; None where it has failed.
        error: What it has raised; None where it has not.
    """

    epoch: int
    key: Hashable
    result: Any
    error: Exception | None = None


Message: TypeAlias = (
    Lead
    | LogRead
    | ReadFailed
    | Resigned
    | HighWatermarkMoved
    | AppendRefused
    | Submit
    | Tick
    | Paused
    | Resumed
    | Done
)

# ---- effects --------------------------------------------------------------------------------------------------------


class ReadLog(Struct, frozen=True):
    """Read a piece of the log from `offset` on, up to `end_offset`; answer with `LogRead` or `ReadFailed`."""

    epoch: int
    offset: int
    end_offset: int


class AppendRecords(Struct, frozen=True):
    """Append under leader epoch `epoch`; the records must land exactly at `base_offset`, all of them or none.

    What is made in one turn may go into the log as one batch.  Where they are refused, so are those that are in the same turn
    behind them, and one `AppendRefused` tells of all.

    Attributes:
        request_id: The request that made them; None where a timer did.
        writer: The producer of whose transaction they are a batch, alone; None: they are part of none.
    """

    epoch: int
    base_offset: int
    records: tuple[EncodedRecord, ...]
    request_id: int | None = None
    writer: TransactionWriter | None = None


class AppendMarker(Struct, frozen=True):
    """Append the marker of a transaction under leader epoch `epoch`, as `AppendRecords`; it takes one offset.

    Attributes:
        request_id: The request that made it.
    """

    epoch: int
    base_offset: int
    marker: EndMarker
    request_id: int | None = None


class Reply(Struct, frozen=True):
    """Answer a request."""

    request_id: int
    response: Any


class ReplyError(Struct, frozen=True):
    """Answer a request with an error."""

    request_id: int
    error: ReplogError


class DoBeside(Struct, frozen=True):
    """Call `work` in a thread, and tell a `Done`.  It needs nothing that changes; many may wait for their turn.

    Attributes:
        epoch: The leader epoch; nobody wants the result in another one.
        key: What the `Done` is to name.
        work: The function.
    """

    epoch: int
    key: Hashable
    work: Callable[[], Any]


Effect: TypeAlias = ReadLog | AppendRecords | AppendMarker | DoBeside | Reply | ReplyError
Answer: TypeAlias = Reply | ReplyError
