"""Messages of the quorum's state machine: plain data.

The driver turns what arrives from peers, clocks and disks into a message, calls ``Quorum.step(message, now_ms)`` and
performs the returned effects in order.  `peer_messages` has what travels between nodes, `effects` what the driver does;
both can be imported from here.  Offsets are half-open; a node id is a non-negative int.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

from replog_quorum.effects import (
    AppendBatches,
    AppendLeaderChange,
    AppendVoters,
    BecameLeader,
    Effect,
    Effects,
    ElectionState,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    OpenSnapshot,
    PeerLearned,
    PersistElectionState,
    Send,
    SendFetchedData,
    SendSnapshotChunk,
    TruncateTo,
    VoterChangeAnswered,
    VoterSetChanged,
    WriteSnapshotChunk,
)
from replog_quorum.peer_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochEnd,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from replog_quorum.voters import Voter, VoterSet

__all__ = [
    "AddVoter",
    "AppendBatches",
    "AppendLeaderChange",
    "AppendVoters",
    "Appended",
    "BecameLeader",
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "ChangeVoters",
    "Effect",
    "Effects",
    "ElectionState",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "EpochEnd",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "Flushed",
    "HighWatermarkAdvanced",
    "InstallSnapshot",
    "LeaderChanged",
    "LogView",
    "LostLeadership",
    "Message",
    "OpenSnapshot",
    "PeerLearned",
    "PersistElectionState",
    "QuorumError",
    "QuorumFetchRequest",
    "QuorumFetchResponse",
    "Received",
    "RemoveVoter",
    "Request",
    "Resign",
    "Response",
    "Send",
    "SendFailed",
    "SendFetchedData",
    "SendSnapshotChunk",
    "Shutdown",
    "SnapshotChunkWritten",
    "SnapshotDamaged",
    "SnapshotInstalled",
    "SnapshotOpened",
    "Tick",
    "TruncateTo",
    "Truncated",
    "UpdateVoterRequest",
    "UpdateVoterResponse",
    "VoteRequest",
    "VoteResponse",
    "VoterChangeAnswered",
    "VoterSetChanged",
    "WriteSnapshotChunk",
]


class LogView(Protocol):
    """The read-only side of the metadata log, with its snapshots, that the core decides by."""

    @property
    def log_start_offset(self) -> int:
        """First offset still there; above 0 it is the end offset of the earliest snapshot."""
        ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage; never above `log_end_offset`."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch; of the snapshot the log starts at when there is none; 0 without either."""
        ...

    @property
    def latest_snapshot_id(self) -> EpochEnd | None:
        """The newest complete snapshot; never above the high watermark."""
        ...

    @property
    def earliest_snapshot_id(self) -> EpochEnd | None:
        """The oldest snapshot still there."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Returns where `epoch` ends in this log (docs/KAFKA.md 5.4); the log end for its last epoch.

        An epoch older than every batch resolves to the snapshot the log starts at, or to (0, 0).
        """
        ...


# ---- messages from the driver -----------------------------------------------------------------------------------


class Tick(Struct, frozen=True):
    """Time has passed; look at the timers."""


class Received(Struct, frozen=True):
    """A request or response of another node."""

    source: int
    message: Request | Response


class SendFailed(Struct, frozen=True):
    """A request could not be delivered or timed out; its answer will not come.

    `refused`: nobody listens there, so the process is gone (a machine that does not answer at all is not this).
    """

    destination: int
    correlation_id: int
    refused: bool = False


class Appended(Struct, frozen=True):
    """The log now ends here (page cache), after an append of the leader or of a follower.

    `voter_sets`: (offset, set) of the voter sets in what was appended, ascending.
    """

    log_end_offset: int
    voter_sets: tuple[tuple[int, VoterSet], ...] = ()


class Flushed(Struct, frozen=True):
    """Everything below is on stable storage."""

    flushed_offset: int


class Truncated(Struct, frozen=True):
    """The log was cut, as `TruncateTo` asked."""

    log_end_offset: int


class SnapshotOpened(Struct, frozen=True):
    """A download may go on at `position`: so many bytes an interrupted one has left, 0 for a new one."""

    snapshot_id: EpochEnd
    position: int


class SnapshotChunkWritten(Struct, frozen=True):
    """The download now has everything below `position`."""

    snapshot_id: EpochEnd
    position: int


class SnapshotInstalled(Struct, frozen=True):
    """The log is empty from the snapshot's end on, durably; `voters` is the set in it, None for none."""

    snapshot_id: EpochEnd
    voters: VoterSet | None


class SnapshotDamaged(Struct, frozen=True):
    """A complete download failed its check; log and snapshots are as before."""

    snapshot_id: EpochEnd


class AddVoter(Struct, frozen=True):
    """Let an observer that has caught up vote.  Its directory must be known."""

    voter: Voter


class RemoveVoter(Struct, frozen=True):
    """Take a voter's vote away; `directory_id` None means whichever it has."""

    voter_id: int
    directory_id: UUID | None = None


class ChangeVoters(Struct, frozen=True):
    """An operator's wish, for the leader; answered by `VoterChangeAnswered` with the same id."""

    request_id: int
    change: AddVoter | RemoveVoter


class Resign(Struct, frozen=True):
    """Give up leadership now (controller failure); no effect on a node that does not lead."""

    epoch: int


class Shutdown(Struct, frozen=True):
    """The node stops: a leader resigns and tells the others."""


Message: TypeAlias = (
    Tick
    | Received
    | SendFailed
    | Appended
    | Flushed
    | Truncated
    | SnapshotOpened
    | SnapshotChunkWritten
    | SnapshotInstalled
    | SnapshotDamaged
    | ChangeVoters
    | Resign
    | Shutdown
)
