"""`Quorum`: the whole state machine of one node, without clock, disk or network.

The host's duties stand in `quorum/README.md`, numbered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import assert_never

from replog_quorum import handlers
from replog_quorum.config import QuorumConfig
from replog_quorum.context import Context
from replog_quorum.errors import QuorumConfigError, QuorumInvariantError
from replog_quorum.leader import Leader
from replog_quorum.machine import RoleMachine
from replog_quorum.messages import (
    Appended,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Flushed,
    LogView,
    Message,
    QuorumError,
    Received,
    Resign,
    Response,
    SendFailed,
    Shutdown,
    Tick,
    Truncated,
    VoteRequest,
    VoteResponse,
)
from replog_quorum.status import QuorumStatus
from replog_quorum.transitions import RoleName, ToProspective


class Quorum:
    """One member of the metadata quorum: a voter, or an observer that only follows.

    Driven by one task.  `step` is the only mutator; the effects of a step are performed, in order, before the next
    message is stepped (a log fsync may end later and is reported by `Flushed`).
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        log: LogView,
        election_state: ElectionState | None,
        config: QuorumConfig,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        """Take up what the disk holds; nothing happens before `start`.

        Args:
            node_id: this node; an observer if not in `voters`.
            voters: the static voter set, the same on every node; 1, 3 or 5 ids.
            log: the metadata log, already recovered and flushed to its end.
            election_state: content of quorum-state, None when the file does not exist.
            config: timers.
            rng: seeded by the host; draws timeouts and picks peers.
            now_ms: monotonic time, milliseconds.

        Raises:
            QuorumConfigError: empty, repeated or negative ids.
        """
        _check_ids(node_id, voters)
        self._election_on_disk = election_state or ElectionState()
        self._context = Context(
            node_id=node_id,
            voters=voters,
            log=log,
            election=_election_at_start(voters, self._election_on_disk, log),
            config=config,
            rng=rng,
        )
        self._machine = RoleMachine(self._context, now_ms)
        self._is_started = False

    def start(self, now_ms: int) -> tuple[Effect, ...]:
        """Begin.  A sole voter is leader when the returned effects are done.

        Raises:
            QuorumInvariantError: called twice.
        """
        if self._is_started:
            raise QuorumInvariantError("start was called twice")
        self._is_started = True
        if self._context.election != self._election_on_disk:
            self._context.rewrite_election_state()
        if self._context.is_sole_voter and self._machine.role.name is not RoleName.CANDIDATE:
            self._machine.become(ToProspective(), now_ms)  # nobody else can object: no election timeout to wait for
        self._machine.settle(now_ms)
        return self._context.drain()

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Take one message; returns what the host must do, in order.

        Raises:
            QuorumInvariantError: a rule of the protocol is broken (or `start` was not called); stop the node.
        """
        if not self._is_started:
            raise QuorumInvariantError("step before start")
        self._handle(message, now_ms)
        self._machine.settle(now_ms)
        return self._context.drain()

    def next_deadline_ms(self) -> int | None:
        """When to step `Tick` if nothing else happens; None when only a message can change anything."""
        return self._machine.role.next_deadline_ms()

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this node leads and a majority has answered it within the fetch timeout.

        A leader may answer from its state without a commit only while this is true: after a pause or a partition it
        takes up to the check-quorum timeout to find out that it has been replaced.
        """
        role = self._machine.role
        return isinstance(role, Leader) and role.holds_lease(now_ms)

    def status(self) -> QuorumStatus:
        """What this node believes now."""
        role = self._machine.role
        leader = role if isinstance(role, Leader) else None
        return QuorumStatus(
            role=role.name.value,
            epoch=self._context.epoch,
            leader_id=role.leader_id,
            high_watermark=self._context.high_watermark,
            voters=self._context.voters,
            voter_end_offsets=leader.progress.voter_end_offsets() if leader else {},
            observer_end_offsets=leader.progress.observer_end_offsets() if leader else {},
            epoch_start_offset=leader.epoch_start_offset if leader else None,
        )

    def _handle(self, message: Message, now_ms: int) -> None:
        role = self._machine.role
        match message:
            case Tick():
                pass  # `settle` looks at the timers after every message
            case Received():
                self._receive(message, now_ms)
            case SendFailed():
                if role.requests.complete(message.destination, message.correlation_id):
                    role.request_failed(message.destination, now_ms)
            case Appended() | Truncated():
                role.log_changed(now_ms)
            case Flushed():
                if isinstance(role, Leader):
                    role.log_flushed(message.flushed_offset, now_ms)
            case Resign():
                if isinstance(role, Leader) and role.epoch == message.epoch:
                    role.resign()
            case Shutdown():
                self._context.is_shutting_down = True
                if isinstance(role, Leader):
                    role.resign()
            case _ as unreachable:
                assert_never(unreachable)

    def _receive(self, received: Received, now_ms: int) -> None:
        source, machine = received.source, self._machine
        match received.message:
            case VoteRequest() as request:
                handlers.handle_vote(machine, source, request, now_ms)
            case BeginQuorumEpochRequest() as request:
                handlers.handle_begin_quorum_epoch(machine, source, request, now_ms)
            case EndQuorumEpochRequest() as request:
                handlers.handle_end_quorum_epoch(machine, source, request, now_ms)
            case FetchRequest() as request:
                handlers.handle_fetch(machine, source, request, now_ms)
            case (VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse() | FetchResponse()) as response:
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
        transition = machine.observe(response.leader_epoch, response.leader_id)
        if transition is None:
            transition = machine.role.handle_response(source, response, now_ms)
        if transition is not None:
            machine.become(transition, now_ms)


def _check_ids(node_id: int, voters: Sequence[int]) -> None:
    if node_id < 0:
        raise QuorumConfigError("node_id", node_id, "must not be negative")
    if not voters or len(set(voters)) != len(voters) or min(voters) < 0:
        raise QuorumConfigError("voters", tuple(voters), "must be distinct, not negative and at least one")


def _election_at_start(voters: Sequence[int], stored: ElectionState, log: LogView) -> ElectionState:
    """What to believe of quorum-state: a log from a later epoch outdates it, a foreign leader cannot be followed."""
    if stored.epoch < log.last_epoch:
        return ElectionState(log.last_epoch)
    if stored.leader_id is not None and stored.leader_id not in voters:
        return ElectionState(stored.epoch, None, stored.voted_id)
    return stored
