"""`Quorum`: the whole state machine of one node, without clock, disk or network.

The host's duties stand in `quorum/README.md`, numbered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

from replog_quorum import handlers
from replog_quorum.config import QuorumConfig
from replog_quorum.context import Context
from replog_quorum.errors import QuorumConfigError, QuorumInvariantError
from replog_quorum.machine import RoleMachine
from replog_quorum.messages import (
    Appended,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoters,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    LogView,
    Message,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Received,
    Resign,
    Response,
    SendFailed,
    Shutdown,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotOpened,
    Tick,
    Truncated,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterChangeAnswered,
    VoteRequest,
    VoteResponse,
    VoterSetChanged,
)
from replog_quorum.roles.follower import Follower
from replog_quorum.roles.leader import Leader
from replog_quorum.status import QuorumStatus
from replog_quorum.transitions import RoleName, ToProspective
from replog_quorum.voter_history import VoterHistory
from replog_quorum.voters import VoterSet


class Quorum:
    """One member of the metadata quorum: a voter, or an observer that only follows.

    Driven by one task.  `step` is the only mutator; the effects of a step are performed, in order, before the next
    message is stepped (a log fsync may end later and is reported by `Flushed`).
    """

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: UUID,
        endpoint: str,
        voters: VoterSet,
        voter_history: Sequence[tuple[int, VoterSet]] = (),
        log: LogView,
        election_state: ElectionState | None,
        config: QuorumConfig,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        """Takes up what the disk holds; nothing happens before `start`.

        Args:
            node_id: The id of this node; an observer if it is not in the voter set with this directory.
            directory_id: The id of the metadata log's directory; a new disk has a new one.
            endpoint: The "host:port" where other nodes reach this one; "" if they need not.
            voters: The configured voter set, for a quorum that starts, and to find the leader of one that runs.
            voter_history: The (record offset, set) found in the latest snapshot (at its end offset - 1) and in the
                log, ascending; the last one is in force, committed or not.
            log: The metadata log, already recovered and flushed to its end.
            election_state: The content of quorum-state, None when the file does not exist.
            config: The timers and bounds.
            rng: A generator seeded by the host; draws timeouts and picks peers.
            now_ms: The monotonic time, milliseconds.

        Raises:
            QuorumConfigError: The node id is negative.
            QuorumInvariantError: Offsets of the voter history do not ascend.
        """
        if node_id < 0:
            raise QuorumConfigError("node_id", node_id, "must not be negative")
        self._election_on_disk = election_state or ElectionState()
        self._context = Context(
            node_id=node_id,
            directory_id=directory_id,
            endpoint=endpoint,
            history=VoterHistory(voters, voter_history),
            log=log,
            election=_election_at_start(self._election_on_disk, log),
            config=config,
            rng=rng,
        )
        self._machine = RoleMachine(self._context, now_ms)
        self._is_started = False

    def start(self, now_ms: int) -> tuple[Effect, ...]:
        """Begins.  A sole voter is leader when the returned effects are done.

        What a snapshot holds is committed, so the high watermark starts at its end.

        Raises:
            QuorumInvariantError: It was called twice.
        """
        if self._is_started:
            raise QuorumInvariantError("start was called twice")
        self._is_started = True
        context, snapshot_id = self._context, self._context.log.latest_snapshot_id
        if context.voters != context.history.configured:
            context.emit(VoterSetChanged(context.voters))
        if snapshot_id is not None:
            context.advance_high_watermark(snapshot_id.end_offset)
        if self._context.election != self._election_on_disk:
            self._context.rewrite_election_state()
        if self._context.is_sole_voter and self._machine.role.name is not RoleName.CANDIDATE:
            self._machine.become(ToProspective(), now_ms)  # nobody else can object: no election timeout to wait for
        self._machine.settle(now_ms)
        return self._context.drain()

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Takes one message; returns what the host must do, in order.

        Raises:
            QuorumInvariantError: A rule of the protocol is broken (or `start` was not called); stop the node.
        """
        if not self._is_started:
            raise QuorumInvariantError("step before start")
        self._handle(message, now_ms)
        self._machine.settle(now_ms)
        return self._context.drain()

    def next_deadline_ms(self) -> int | None:
        """Returns when to step `Tick` if nothing else happens; None when only a message can change anything."""
        return self._machine.role.next_deadline_ms()

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this node leads and a majority has answered it within the fetch timeout.

        A leader may answer from its state without a commit only while this is true: after a pause or a partition it
        takes up to the check-quorum timeout to find out that it has been replaced.
        """
        role = self._machine.role
        return isinstance(role, Leader) and role.holds_lease(now_ms)

    def status(self) -> QuorumStatus:
        """Returns what this node believes now."""
        role, context = self._machine.role, self._context
        leader = role if isinstance(role, Leader) else None
        return QuorumStatus(
            role=role.name.value,
            epoch=context.epoch,
            leader_id=role.leader_id,
            high_watermark=context.high_watermark,
            voters=context.voters.ids,
            voter_set=context.voters,
            voter_set_offset=context.history.offset,
            voter_end_offsets=leader.progress.voter_end_offsets(context.history) if leader else {},
            observer_end_offsets=leader.progress.observer_end_offsets(context.voters) if leader else {},
            replicas=leader.progress.statuses(context.voters) if leader else (),
            epoch_start_offset=leader.epoch_start_offset if leader else None,
        )

    def _handle(self, message: Message, now_ms: int) -> None:
        match message:
            case Tick():
                pass  # `settle` looks at the timers after every message
            case Received():
                self._receive(message, now_ms)
            case SendFailed():
                self._send_failed(message, now_ms)
            case Appended() | Truncated():
                self._log_changed(message, now_ms)
            case SnapshotOpened() | SnapshotChunkWritten() | SnapshotInstalled() | SnapshotDamaged():
                self._snapshot_went_on(message, now_ms)
            case ChangeVoters():
                self._change_voters(message, now_ms)
            case Flushed():
                self._flushed(message, now_ms)
            case Resign() | Shutdown():
                self._resign(message)
            case _ as unreachable:
                assert_never(unreachable)

    def _send_failed(self, message: SendFailed, now_ms: int) -> None:
        role = self._machine.role
        if role.requests.complete(message.destination, message.correlation_id):
            role.request_failed(message.destination, now_ms, refused=message.refused)

    def _flushed(self, message: Flushed, now_ms: int) -> None:
        role = self._machine.role
        if isinstance(role, Leader):
            role.log_flushed(message.flushed_offset, now_ms)

    def _resign(self, message: Resign | Shutdown) -> None:
        role = self._machine.role
        match message:
            case Shutdown():
                self._context.is_shutting_down = True
            case Resign():
                if isinstance(role, Leader) and role.epoch != message.epoch:
                    return
        if isinstance(role, Leader):
            role.resign()

    def _log_changed(self, message: Appended | Truncated, now_ms: int) -> None:
        history = self._context.history
        match message:
            case Appended():
                history.forget_before(self._context.log.log_start_offset)
                for offset, voters in message.voter_sets:
                    history.add(offset, voters)
            case Truncated():
                history.truncate(message.log_end_offset)
        self._machine.role.log_changed(now_ms)
        if self._context.voters_changed():
            self._machine.role.voters_changed(now_ms)

    def _snapshot_went_on(
        self, message: SnapshotOpened | SnapshotChunkWritten | SnapshotInstalled | SnapshotDamaged, now_ms: int
    ) -> None:
        role = self._machine.role
        if isinstance(message, SnapshotInstalled):
            self._installed(message, now_ms)
            return
        if isinstance(message, SnapshotDamaged):
            self._context.is_installing = False
        if isinstance(role, Follower):
            role.snapshot_went_on(message, now_ms)

    def _installed(self, message: SnapshotInstalled, now_ms: int) -> None:
        context, role = self._context, self._machine.role
        if isinstance(role, Leader):
            raise QuorumInvariantError(f"snapshot {message.snapshot_id} was installed while leading {role.epoch}")
        context.is_installing = False
        context.history.install(message.snapshot_id.end_offset, message.voters)
        context.advance_high_watermark(message.snapshot_id.end_offset)
        role.snapshot_installed(now_ms)
        if context.voters_changed():
            role.voters_changed(now_ms)

    def _change_voters(self, request: ChangeVoters, now_ms: int) -> None:
        role = self._machine.role
        if isinstance(role, Leader):
            role.change_voters(request, now_ms)
            return
        leader = "nobody it knows of does" if role.leader_id is None else f"node {role.leader_id} does: send it there"
        reason = f"node {self._context.node_id} does not lead the quorum; {leader}"
        self._context.emit(VoterChangeAnswered(request.request_id, QuorumError.NOT_LEADER_OR_FOLLOWER, reason))

    def _receive(self, received: Received, now_ms: int) -> None:
        source, machine = received.source, self._machine
        match received.message:
            case VoteRequest() as request:
                handlers.handle_vote(machine, source, request, now_ms)
            case BeginQuorumEpochRequest() as request:
                handlers.handle_begin_quorum_epoch(machine, source, request, now_ms)
            case EndQuorumEpochRequest() as request:
                handlers.handle_end_quorum_epoch(machine, source, request, now_ms)
            case QuorumFetchRequest() as request:
                handlers.handle_fetch(machine, source, request, now_ms)
            case FetchSnapshotRequest() as request:
                handlers.handle_fetch_snapshot(machine, source, request, now_ms)
            case UpdateVoterRequest() as request:
                handlers.handle_update_voter(machine, source, request)
            case (
                VoteResponse()
                | BeginQuorumEpochResponse()
                | EndQuorumEpochResponse()
                | QuorumFetchResponse()
                | FetchSnapshotResponse()
                | UpdateVoterResponse()
            ) as response:
                self._handle_response(source, response, now_ms)
            case _ as unreachable:
                assert_never(unreachable)

    def _handle_response(self, source: int, response: Response, now_ms: int) -> None:
        machine = self._machine
        if not machine.role.requests.complete(source, response.correlation_id):
            return
        if response.error is QuorumError.UNKNOWN_LEADER_EPOCH or response.leader_epoch < self._context.epoch:
            machine.role.request_failed(source, now_ms)
            return
        transition = machine.observe(response.leader_epoch, response.leader_id, response.leader_endpoint)
        if transition is None:
            transition = machine.role.handle_response(source, response, now_ms)
        if transition is not None:
            machine.become(transition, now_ms)


def _election_at_start(stored: ElectionState, log: LogView) -> ElectionState:
    """Returns what to believe of quorum-state: a log from a later epoch outdates it."""
    return ElectionState(log.last_epoch) if stored.epoch < log.last_epoch else stored
