"""Performs the effects of a simulated node's core in order; a crash may come before each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from replog_quorum import (
    AppendBatches,
    AppendLeaderChange,
    AppendVoters,
    BecameLeader,
    Effect,
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
from tests.sim.quorum_sim_checker import Leadership, Violation
from tests.sim.quorum_sim_nodes import SimNode
from tests.sim.quorum_sim_storage import Storage


class EffectPerformer(Storage):
    """All effects.  `perform_persist` and `persist` may be replaced by a test to remove a safeguard."""

    # ---- effects ----------------------------------------------------------------------------------------------

    def perform_all(self, node: SimNode, effects: Iterable[Effect]) -> bool:
        """Perform in order; False when the node died on the way."""
        for effect in effects:
            if node.core is None:
                return False
            if self.chance(self.swarm.effect_crash):
                self.seen["crash between effects"] += 1
                self.crash(node)
                return False
            name = type(effect).__name__
            self.note(node.node_id, name, node.log.log_end_offset)
            self.seen[name] += 1
            self.perform(node, effect)
        return node.core is not None

    def perform(self, node: SimNode, effect: Effect) -> None:
        match effect:
            case Send():
                self.send(node, effect.destination, effect.message)
            case SendFetchedData():
                self.send_fetched(node, effect)
            case SendSnapshotChunk():
                self.send_chunk(node, effect)
            case PersistElectionState():
                self.perform_persist(node, effect)
            case AppendLeaderChange() | AppendVoters() | AppendBatches() | TruncateTo():
                self.write_log(node, effect)
            case OpenSnapshot() | WriteSnapshotChunk() | InstallSnapshot():
                self.download(node, effect)
            case _:
                self.learn(node, effect)

    def learn(
        self,
        node: SimNode,
        effect: HighWatermarkAdvanced
        | LeaderChanged
        | BecameLeader
        | LostLeadership
        | VoterSetChanged
        | PeerLearned
        | VoterChangeAnswered,
    ) -> None:
        """Effects that tell the host something."""
        match effect:
            case HighWatermarkAdvanced():
                self.advance(node, effect.high_watermark)
            case LeaderChanged():
                if node.reported == (effect.leader_id, effect.epoch):
                    raise Violation(f"node {node.node_id} reports {effect} twice")
                node.reported = (effect.leader_id, effect.epoch)
            case BecameLeader():
                voters = self.voters_of(node)
                led = Leadership(effect.epoch, effect.epoch_start_offset, voters, self.now_ms)
                self.checker.became_leader(node.node_id, node.life, node.log, led)
                node.leading_epoch = effect.epoch
                self.seen["removed voter leads"] += not voters.contains(*node.key)
            case LostLeadership():
                self.checker.lost_leadership(node.node_id, effect.epoch)
                node.leading_epoch = None
                is_voter = self.voters_of(node).contains(*node.key)
                self.seen["removed leader resigns"] += not is_voter
            case VoterSetChanged():
                node.links.update({voter.voter_id: voter.endpoint for voter in effect.voters})
                self.checker.uses_voters(node.node_id, effect.voters, self.now_ms)
            case PeerLearned():
                node.links[effect.node_id] = effect.endpoint
            case VoterChangeAnswered():
                self.change_answered(node, effect)
            case _ as unreachable:
                assert_never(unreachable)

    # ---- quorum-state -----------------------------------------------------------------------------------------

    def perform_persist(self, node: SimNode, effect: PersistElectionState) -> None:
        self.persist(node, effect.state)
        self.perform_all(node, effect.then)

    def persist(self, node: SimNode, state: ElectionState) -> None:
        self.checker.persisted(node.node_id, node.disk, state)
        node.disk.election = state
