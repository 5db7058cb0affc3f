"""Effects: what the driver does for the quorum's state machine, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog_quorum.peer_messages import (
    EpochEnd,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchResponse,
    Request,
    Response,
)
from replog_quorum.voters import VoterSet


class ElectionState(Struct, frozen=True):
    """What must survive a crash: docs/KAFKA.md 1.11, quorum-state."""

    epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: UUID | None = None


class Send(Struct, frozen=True):
    """Deliver to a node; a response goes back on the way its request came."""

    destination: int
    message: Request | Response


class SendFetchedData(Struct, frozen=True):
    """Read `[fetch_offset, log end)` (bounded by the driver's byte limit), put it into `response`, send that.

    If the log was cleaned past `fetch_offset` meanwhile: send the response with OFFSET_OUT_OF_RANGE.
    """

    destination: int
    response: QuorumFetchResponse
    fetch_offset: int


class SendSnapshotChunk(Struct, frozen=True):
    """Read `[response.position, + max_bytes)` of that snapshot, fill in `size` and `data`, send.

    At its end `data` is empty.  Not there (any more): send the response with SNAPSHOT_NOT_FOUND; a position past the
    end: with POSITION_OUT_OF_RANGE.
    """

    destination: int
    response: FetchSnapshotResponse
    max_bytes: int


class PersistElectionState(Struct, frozen=True):
    """Write and fsync quorum-state, then perform `then`.  A barrier: no later effect runs before it is done."""

    state: ElectionState
    then: tuple[Effect, ...] = ()


class AppendLeaderChange(Struct, frozen=True):
    """Append the LeaderChange control batch of a new epoch and answer with `Appended`, then `Flushed`."""

    leader_epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class AppendVoters(Struct, frozen=True):
    """Append the voter set as ONE control batch, behind KRaftVersion = 1 if `writes_version`.

    Answered with `Appended(..., voter_sets=((offset of the set's record, voters),))`, then `Flushed`.
    """

    leader_epoch: int
    voters: VoterSet
    writes_version: bool


class AppendBatches(Struct, frozen=True):
    """Append what a leader sent, fsync, answer with `Appended`, then `Flushed`.  Not a barrier.

    The driver skips batches whose epoch is above `leader_epoch`, with everything after them.
    """

    batches: bytes | memoryview
    leader_epoch: int


class TruncateTo(Struct, frozen=True):
    """Cut the log at `end_offset`, make that durable, answer with `Truncated`."""

    end_offset: int


class OpenSnapshot(Struct, frozen=True):
    """Open the file of a download, answer with `SnapshotOpened`; `restart` throws away what is there."""

    snapshot_id: EpochEnd
    restart: bool = False


class WriteSnapshotChunk(Struct, frozen=True):
    """Write `data` at `position` of the open download, answer with `SnapshotChunkWritten`."""

    snapshot_id: EpochEnd
    position: int
    data: bytes | memoryview


class InstallSnapshot(Struct, frozen=True):
    """The download is complete: check it, fsync, rename, cut the log fully to its end, load it.

    Answered with `SnapshotInstalled`, or `SnapshotDamaged` when the check fails and nothing was changed.
    """

    snapshot_id: EpochEnd


class HighWatermarkAdvanced(Struct, frozen=True):
    """Records below are committed and may be applied."""

    high_watermark: int


class LeaderChanged(Struct, frozen=True):
    """Who leads, as far as this node knows.  Comes once per change of (leader_id, epoch)."""

    leader_id: int | None
    epoch: int


class BecameLeader(Struct, frozen=True):
    """This node leads `epoch`; its own first record (the LeaderChange) is at `epoch_start_offset`."""

    epoch: int
    epoch_start_offset: int


class LostLeadership(Struct, frozen=True):
    """This node no longer leads `epoch`; nothing more may be appended in it."""

    epoch: int


class VoterSetChanged(Struct, frozen=True):
    """This set is in force now: be ready to reach all of its voters.  At start only if not the configured one."""

    voters: VoterSet


class PeerLearned(Struct, frozen=True):
    """A leader that no voter set here names with this endpoint: be ready to reach it there.

    A later `VoterSetChanged` that names the node outdates it.
    """

    node_id: int
    endpoint: str


class VoterChangeAnswered(Struct, frozen=True):
    """The end of a `ChangeVoters`; `reason` is empty for NONE, else it says the cause and the next step."""

    request_id: int
    error: QuorumError
    reason: str


Effect: TypeAlias = (
    Send
    | SendFetchedData
    | SendSnapshotChunk
    | PersistElectionState
    | AppendLeaderChange
    | AppendVoters
    | AppendBatches
    | TruncateTo
    | OpenSnapshot
    | WriteSnapshotChunk
    | InstallSnapshot
    | HighWatermarkAdvanced
    | LeaderChanged
    | BecameLeader
    | LostLeadership
    | VoterSetChanged
    | PeerLearned
    | VoterChangeAnswered
)
Effects: TypeAlias = Sequence[Effect]
