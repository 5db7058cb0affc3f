"""The network between simulated quorum nodes: loss, delay, duplicates, cuts, refused connections."""

from __future__ import annotations

from replog_quorum import (
    FetchSnapshotRequest,
    QuorumError,
    QuorumFetchRequest,
    Received,
    Request,
    Response,
    SendFailed,
    VoteRequest,
    VoteResponse,
)
from tests.sim.quorum_sim_checker import Violation
from tests.sim.quorum_sim_faults import Faults
from tests.sim.quorum_sim_nodes import SimNode
from tests.sim.quorum_sim_swarm import Swarm


class Network(Faults):
    """Delivers, late, twice or not at all."""

    def __init__(self, seed: int, swarm: Swarm | None) -> None:
        super().__init__(seed, swarm)
        self._requests: dict[tuple[int, int, int], VoteRequest] = {}

    # ---- network --------------------------------------------------------------------------------------------

    def send(self, node: SimNode, destination: int, message: Request | Response) -> None:
        assert node.core is not None
        self.checker.sent(node.core._context.is_voter, node.log, message)
        is_request = isinstance(message, Request)
        if isinstance(message, VoteRequest):
            self._requests[node.node_id, destination, message.correlation_id] = message
        elif isinstance(message, VoteResponse):
            self.voted(node, destination, message)
        if is_request and destination not in node.links:
            raise Violation(f"node {node.node_id} was never told where node {destination} listens")
        is_wrong = is_request and node.links[destination] != self.nodes[destination].endpoint
        if is_wrong or self.cuts.get((node.node_id, destination), False) or self.chance(self.swarm.loss):
            self.fail(node, destination, message, node.life, nobody_listens=is_wrong)
            return
        life = node.life
        for _ in range(2 if self.chance(self.swarm.duplicate) else 1):
            straggles = self.chance(self.swarm.straggler)
            delay_ms = self.rng.randrange(1, 500 if straggles else 8)
            self.at(delay_ms, lambda: self.deliver(node, life, destination, message))

    def voted(self, node: SimNode, destination: int, message: VoteResponse) -> None:
        asked = self._requests[destination, node.node_id, message.correlation_id]
        self.seen["pre-vote refused"] += asked.pre_vote and not message.vote_granted
        self.seen["vote of another disk refused"] += message.error is QuorumError.INVALID_VOTER_KEY
        if message.vote_granted and not asked.pre_vote:
            candidate = (destination, asked.replica_directory_id)
            self.checker.granted_vote(node.key, candidate, asked.replica_epoch)

    def deliver(self, source: SimNode, life: int, destination: int, message: Request | Response) -> None:
        node = self.nodes[destination]
        if node.core is None:
            self.fail(source, destination, message, life, nobody_listens=True)
            return
        if (
            isinstance(message, QuorumFetchRequest | FetchSnapshotRequest)
            and message.leader_epoch == node.leading_epoch
        ):
            self.checker.fetched(destination, (message.replica_id, message.replica_directory_id), self.now_ms)
        self.step(node, node.life, Received(source.node_id, message))

    def fail(
        self, node: SimNode, destination: int, message: Request | Response, life: int, *, nobody_listens: bool = False
    ) -> None:
        """A request that will not arrive: half the time its sender hears of it, otherwise it times out."""
        if isinstance(message, Request) and self.rng.random() < 0.5:
            refused = nobody_listens and self.rng.random() < 0.7
            self.seen["refused"] += refused
            failed = SendFailed(destination, message.correlation_id, refused)
            self.at(self.rng.randrange(1, 20), lambda: self.step(node, life, failed))

    def connections_break(self, dead: SimNode) -> None:
        """A process died: half of those that wait for an answer of it hear of it."""
        for node in self.nodes.values():
            core = node.core
            waiting = None if core is None else core._machine.role.requests._peers.get(dead.node_id)
            if waiting is not None and waiting.correlation_id is not None and self.rng.random() < 0.5:
                self.fail_soon(node, SendFailed(dead.node_id, waiting.correlation_id))

    def fail_soon(self, node: SimNode, failed: SendFailed) -> None:
        life = node.life
        self.at(self.rng.randrange(1, 20), lambda: self.step(node, life, failed))
