"""What the simulation finds when a safeguard of the quorum is taken out: one substitution each, in the tests only.

The table in `docs/SAFEGUARDS.md` comes from here (from the root of the repository)::

    PYTHONPATH=quorum python -m tests.sim.quorum_ablations --write
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import msgspec

from replog_quorum import ElectionState, EpochEnd, PersistElectionState, arithmetic, handlers
from replog_quorum.context import Context
from replog_quorum.machine import RoleMachine
from replog_quorum.messages import LogView, QuorumError
from replog_quorum.roles.majority import CheckQuorum
from replog_quorum.roles.progress import FetchProgress, ProgressTable
from replog_quorum.roles.prospective import Prospective
from replog_quorum.roles.voter_changes import ChangeRefusal, VoterChanges
from replog_quorum.transitions import ToCandidate, Transition
from replog_quorum.voter_history import VoterHistory
from tests.sim.ablation_table import AblationTable, Found, Patches, taken_out
from tests.sim.quorum_sim_checker import Checker
from tests.sim.quorum_sim_log import SimLog
from tests.sim.quorum_simulation import SimNode, Simulation, Violation

SEEDS_MAX = 5_000


class ForgottenVotes(Simulation):
    """quorum-state is written without fsync: a crash may bring an older one back."""

    def persist(self, node: SimNode, state: ElectionState) -> None:
        self.older = getattr(self, "older", {})
        self.older[node.node_id] = node.disk.election
        super().persist(node, state)

    def crash(self, node: SimNode) -> None:
        if node.core is not None and node.node_id in getattr(self, "older", {}) and self.rng.random() < 0.5:
            node.disk.election = self.older[node.node_id]
        super().crash(node)


class ReplyBeforePersist(Simulation):
    """Sends what should wait for quorum-state, then writes it, unless a crash comes between."""

    def perform_persist(self, node: SimNode, effect: PersistElectionState) -> None:
        if self.perform_all(node, effect.then) and not self.chance(0.2):
            self.persist(node, effect.state)
        else:
            self.crash(node)


class FlushedAtOnce:
    """A view of a log that takes what is in memory for what is on disk."""

    def __init__(self, log: SimLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "log_end_offset" if name == "flushed_offset" else name)


class NoDivergence(FlushedAtOnce):
    """A view of a log that knows every epoch and never ends."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, 2**60)


class FetchBeforeFsync(Simulation):
    def log_view(self, node: SimNode) -> LogView:
        return FlushedAtOnce(node.log)  # type: ignore[return-value]  # it has the attributes by name


class NoTruncationByEpoch(Simulation):
    def log_view(self, node: SimNode) -> LogView:
        return NoDivergence(node.log)  # type: ignore[return-value]  # it has the attributes by name


class LeaderComesBackAsLeader(Simulation):
    """Forgets that the epoch was led, so a restarted leader may win it again."""

    def stored(self, node: SimNode) -> ElectionState | None:
        state = node.disk.election
        if state is not None and state.leader_id == node.node_id:
            return msgspec.structs.replace(state, leader_id=None)
        return state


class UncommittedSnapshots(Simulation):
    def snapshot_offset(self, node: SimNode) -> int:
        return node.log.log_end_offset


def stands_at_once(self: Prospective, now_ms: int) -> Transition | None:
    return ToCandidate()


def counts_any_epoch(current: int, end_offsets: Mapping[int, int], epoch_start_offset: int) -> int:
    return max(current, arithmetic.majority_end_offset(end_offsets.values()))


def busy_by_old_commits(self: VoterChanges, high_watermark: int) -> ChangeRefusal | None:
    """Only with the last change committed, but by what any leader had committed."""
    is_busy = self._pending is not None or self._context.history.offset >= max(self._context.high_watermark, 0)
    return ChangeRefusal(QuorumError.REQUEST_TIMED_OUT, "busy") if is_busy else None


def busy_by_own_commits(self: VoterChanges, high_watermark: int) -> ChangeRefusal | None:
    """Only after a commit of the own epoch, but whatever became of the last change."""
    return ChangeRefusal(QuorumError.REQUEST_TIMED_OUT, "busy") if high_watermark < 0 else None


def meant_by_id(machine: RoleMachine, voter_id: int, directory_id: object) -> bool:
    return voter_id == machine.context.node_id


def progress_by_id(self: ProgressTable, voter_id: int, directory_id: UUID | None) -> FetchProgress | None:
    return self._replicas.get((voter_id, self._latest.get(voter_id, UUID(int=0))))


def note_nothing(self: VoterHistory) -> None:
    self.joined_offsets = dict.fromkeys(self.in_force.ids, -1)


def always(*, value: object) -> property:
    return property(lambda _: value)


def nothing(*_: object) -> None:
    """Instead of a safeguard, or of the direct check of it, so that the consequence shows."""


@dataclass(frozen=True)
class Ablation:
    """One safeguard taken out.

    Attributes:
        safeguard: what is missing.
        finding: what the violation must say.
        simulation: the simulation without it, or the plain one with `patches`.
        patches: (owner, attribute, substitute).
        swarm: rates that make the bad case likely; the rest is drawn.
        unfound_because: why a search found nothing; empty: it is found.
    """

    safeguard: str
    finding: str
    simulation: type[Simulation] = Simulation
    patches: Patches = ()
    swarm: Mapping[str, Any] = field(default_factory=dict)
    unfound_because: str = ""


FIGURE_8 = {
    "voter_count": 3,
    "observer_count": 0,
    "crash": 1.0,
    "cut": 1.0,
    "effect_crash": 0.01,
    "slow_flush": 0.3,
    "membership": 0.0,
    "snapshot": 0.0,
    "client_interval_ms": 20,
}

ABLATIONS = (
    Ablation("fsync of a vote", "M[15]|not elected", ForgottenVotes),
    Ablation("persist before reply", "M[15]|not elected", ReplyBeforePersist),
    Ablation("fsync before a fetch counts", "M6", FetchBeforeFsync),
    Ablation("a vote only for an up-to-date log", "M3", patches=((arithmetic, "log_is_up_to_date", lambda *_: True),)),
    Ablation("truncation by epoch", "M[246]|R6", NoTruncationByEpoch),
    Ablation("a restarted leader leads a new epoch", "M[12]|not elected", LeaderComesBackAsLeader),
    Ablation("pre-vote", "M9", patches=((Prospective, "poll", stands_at_once),)),
    Ablation("check-quorum", "M10", patches=((CheckQuorum, "deadline_ms", always(value=None)),)),
    Ablation(
        "commit only through the leader's own epoch",
        "M[346]",
        patches=((arithmetic, "high_watermark", counts_any_epoch), (Checker, "appends_voters", nothing)),
        swarm=FIGURE_8,
    ),
    Ablation("one voter change at a time", "M8", patches=((VoterChanges, "_busy", busy_by_own_commits),)),
    Ablation(
        "no voter change before a commit of the own epoch",
        "M8",
        patches=((VoterChanges, "_busy", busy_by_old_commits),),
    ),
    Ablation(
        "a new voter counts once it knows that it votes",
        "M6",
        patches=((VoterHistory, "_note_joined_offsets", note_nothing),),
        swarm={"slow_flush": 0.5, "membership": 1.0, "crash": 0.0, "cut": 0.0, "observer_count": 2, "stall": 0.0},
    ),
    Ablation(
        "directory id in votes",
        "M[1346]|two leaders",
        patches=((handlers, "_is_meant", meant_by_id),),
        swarm={"wipe": 1.0, "membership": 1.0, "voter_count": 3, "crash": 1.0, "cut": 1.0},
    ),
    Ablation(
        "directory id in fetches",
        "M[346]",
        patches=((ProgressTable, "_progress_of", progress_by_id),),
        swarm={"wipe": 1.0, "voter_count": 3, "crash": 1.0},
    ),
    Ablation(
        "truncation reverts the voter set",
        "M6|voter set at offset",
        patches=((VoterHistory, "truncate", lambda *_: None),),
    ),
    Ablation(
        "a removed voter may stand until its removal commits",
        "stuck",
        patches=((VoterHistory, "previous", always(value=None)),),
    ),
    Ablation("leaders say where they listen", "stuck|never told", patches=((Context, "learn_peer", lambda *_: None),)),
    Ablation("snapshots end at or below the high watermark", "M4|above the high watermark", UncommittedSnapshots),
)


def find(ablation: Ablation, first: int, count: int) -> Found:
    """The first seed that shows the missing safeguard, and what it says; None if none does."""
    with taken_out(ablation.patches):
        for seed in range(first, first + count):
            simulation = ablation.simulation(seed)
            if ablation.swarm:
                simulation = ablation.simulation(seed, replace(simulation.swarm, **ablation.swarm, isolate=False))
            try:
                simulation.run()
            except Violation as violation:
                return seed, str(violation)
    return None


TABLE = AblationTable("quorum", ABLATIONS, find, SEEDS_MAX)

if __name__ == "__main__":
    sys.exit(TABLE.main(__doc__))
