"""What all roles of one node share: identity, log view, election state, and the effects of the current step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.config import QuorumConfig
from replog_quorum.messages import (
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    LogView,
    PeerLearned,
    PersistElectionState,
    Request,
    Response,
    Send,
    VoterSetChanged,
)
from replog_quorum.requests import RequestTracker
from replog_quorum.voter_history import VoterHistory
from replog_quorum.voters import Voter, VoterSet


class Outbox:
    """Collects the effects of one step, with whatever follows a persist inside its `then`.

    Several changes of the election state within one step (a higher epoch, then a vote in it) become one write of the
    last one: everything that depends on any of them waits for it.
    """

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._state: ElectionState | None = None
        self._then: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        """Adds an effect; behind the barrier if this step has one."""
        (self._effects if self._state is None else self._then).append(effect)

    def persist(self, state: ElectionState) -> None:
        """Opens the barrier, or replaces the state that an open one writes."""
        self._state = state

    def drain(self) -> tuple[Effect, ...]:
        """Hands over everything and starts anew."""
        effects = list(self._effects)
        if self._state is not None:
            effects.append(PersistElectionState(self._state, tuple(self._then)))
        self._effects, self._state, self._then = [], None, []
        return tuple(effects)


class Context:
    """Shared state of one node.  Owned by its `RoleMachine`; roles read it and emit effects through it.

    Invariants:
        - `election` is what the disk holds once the effects so far are done, so it never differs from what was told;
        - `high_watermark` never decreases;
        - `voters` is the last set of the log.
    """

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: UUID,
        endpoint: str,
        history: VoterHistory,
        log: LogView,
        election: ElectionState,
        config: QuorumConfig,
        rng: random.Random,
    ) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.endpoint = endpoint
        self.history = history
        self.log = log
        self.config = config
        self.election = election
        self.high_watermark = UNKNOWN_OFFSET
        self.is_shutting_down = False
        self.is_installing = False  # the log is being replaced by a snapshot: no fetch, no election
        self._rng = rng
        self._outbox = Outbox()
        self._learned: dict[int, str] = {}
        # A restarted node must not take answers to its earlier life for its own: start somewhere else each time.
        self._last_correlation_id = int(rng.random() * 2**31)
        self._use_voters()

    def _use_voters(self) -> None:
        """Derives what is asked for all the time from the set in force."""
        self.voters: VoterSet = self.history.in_force
        self.is_voter = self.voters.contains(self.node_id, self.directory_id)
        previous = self.history.previous
        self._was_voter = (
            previous is not None and not previous.is_static and previous.contains(self.node_id, self.directory_id)
        )
        self.other_voters: tuple[Voter, ...] = tuple(v for v in self.voters if v.voter_id != self.node_id)
        ids = {voter.voter_id: None for voter in (*self.voters, *self.history.configured)}
        self.peer_ids = tuple(peer_id for peer_id in ids if peer_id != self.node_id)

    @property
    def epoch(self) -> int:
        """Current leader epoch."""
        return self.election.epoch

    @property
    def is_sole_voter(self) -> bool:
        """Whether this node is the whole quorum."""
        return self.is_voter and not self.other_voters

    @property
    def log_is_durable(self) -> bool:
        """Whether a crash now would take nothing from the end of the log."""
        return self.log.flushed_offset >= self.log.log_end_offset

    @property
    def may_elect(self) -> bool:
        """Whether this node may stand for election.

        A voter whose removal is not known to be committed may, although its own vote does not count any more: it can be
        the only one with the removal in its log, and then nobody else can win (Ongaro's thesis 4.2.2).
        """
        if self.is_shutting_down or self.is_installing:
            return False
        return self.is_voter or (self._was_voter and self.history.offset >= self.high_watermark)

    def endpoint_of(self, node_id: int) -> str | None:
        """Returns where a node listens, as far as known; "" for a voter configured without."""
        learned = self._learned.get(node_id)
        if learned is not None:
            return learned
        voter = self.voters.get(node_id) or self.history.configured.get(node_id)
        return None if voter is None else voter.endpoint

    def learn_peer(self, node_id: int, endpoint: str) -> None:
        """Notes where the leader listens, as a node said; "" says nothing."""
        if endpoint and node_id != self.node_id and endpoint != self.endpoint_of(node_id):
            self._learned[node_id] = endpoint
            self._outbox.emit(PeerLearned(node_id, endpoint))

    def voters_changed(self) -> bool:
        """Puts the last set of the history in force; returns False when it already was."""
        if self.history.in_force == self.voters:
            return False
        self._use_voters()
        self._learned = {i: endpoint for i, endpoint in self._learned.items() if i not in self.voters.ids}
        self._outbox.emit(VoterSetChanged(self.voters))
        return True

    def new_requests(self) -> RequestTracker:
        """Returns a tracker for a new role."""
        return RequestTracker(
            self._next_correlation_id,
            timeout_ms=self.config.request_timeout_ms,
            backoff_ms=self.config.retry_backoff_ms,
        )

    def election_deadline_ms(self, now_ms: int) -> int:
        """Returns a random election timeout from now: T + [0, T)."""
        timeout_ms = self.config.election_timeout_ms
        return now_ms + timeout_ms + int(self._rng.random() * timeout_ms)

    def failover_delay_ms(self) -> int:
        """Returns how long a voter waits before it asks for pre-votes when no leader can be there to be disturbed.

        Its leader is gone, or, at epoch 0, the quorum never had one.  The random part keeps voters from asking at one moment.
        """
        return int(self._rng.random() * self.config.election_timeout_ms / 4)

    def fetch_timeout_ms(self) -> int:
        """Returns how long a follower waits for a good fetch: the configured time and up to 1/4 of an election timeout.

        Kafka has no random part.  A leader answers waiting fetches at one moment, so without it all followers of a dead
        leader stand at once and split the vote, which costs another election timeout.
        """
        return self.config.fetch_timeout_ms + int(self._rng.random() * self.config.election_timeout_ms / 4)

    def pick(self, node_ids: Sequence[int]) -> int | None:
        """Returns one of `node_ids` at random; None when there is none."""
        return node_ids[int(self._rng.random() * len(node_ids))] if node_ids else None

    def emit(self, effect: Effect) -> None:
        """Adds an effect to this step."""
        self._outbox.emit(effect)

    def send(self, destination: int, message: Request | Response) -> None:
        """Adds a `Send`."""
        self._outbox.emit(Send(destination, message))

    def drain(self) -> tuple[Effect, ...]:
        """Hands over the effects of this step."""
        return self._outbox.drain()

    def persist(self, election: ElectionState) -> None:
        """Replaces the election state; what this step emits from here on waits for the disk."""
        if election != self.election:
            self.election = election
            self._outbox.persist(election)

    def rewrite_election_state(self) -> None:
        """Writes the election state although it did not change in memory: the disk holds something else."""
        self._outbox.persist(self.election)

    def vote_for(self, candidate_id: int, directory_id: UUID) -> None:
        """Gives this epoch's vote."""
        self.persist(replace(self.election, voted_id=candidate_id, voted_directory_id=directory_id))

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Announces a higher high watermark; anything else changes nothing."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._outbox.emit(HighWatermarkAdvanced(high_watermark))

    def _next_correlation_id(self) -> int:
        self._last_correlation_id += 1
        return self._last_correlation_id


def earliest(*deadlines_ms: int | None) -> int | None:
    """Returns the first of several deadlines; None when there is none."""
    known = [deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None]
    return min(known) if known else None
