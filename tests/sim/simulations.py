"""The simulations of the tests: what each must show, and how many seeds of it run.

Which seeds together show everything is in `covering_seeds.json`; `covering` reads it, and makes it anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from replog_quorum.transitions import TRANSITIONS
from tests.sim import campaign, controller_simulation, orderly_stops_simulation, quorum_simulation
from tests.sim.blackout_simulation import BlackoutSimulation
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fault_schedule import FaultKind
from tests.sim.fresh_ends_simulation import FreshEndsSimulation
from tests.sim.group_simulation import GroupSimulation
from tests.sim.group_transactions import GroupTransactionSimulation
from tests.sim.kafka_simulation import KafkaSimulation
from tests.sim.metadata_cluster_simulation import Simulation as MetadataSimulation
from tests.sim.one_machine_simulation import OneMachineSimulation
from tests.sim.transaction_simulation import TransactionSimulation

QUORUM_TRANSITIONS = frozenset(f"{old.value}>{new.value}" for old, row in TRANSITIONS.items() for new in row)


@dataclass(frozen=True, slots=True)
class SimulationKind:
    """One simulation.

    Attributes:
        name: Its module in tests/sim.
        run: Runs seeds and returns how often each thing was seen; raises at the first seed that breaks a rule.
        must_be_seen: What the fixed seeds must show, each at least once.
        seeds_max: How many fixed seeds run, from 0 on, where the covering ones have not shown everything.
        fresh_count: How many fresh seeds run with the tests: about as many as take 2 s of CPU; campaigns run thousands.
        is_likely: Tells of a seed and a thing whether what is drawn before a run speaks for it: such seeds run first. Cheap.
    """

    name: str
    run: Callable[[Iterable[int]], Counter[str]]
    must_be_seen: tuple[str, ...]
    seeds_max: int
    fresh_count: int
    is_likely: Callable[[int, str], bool] = lambda _seed, _name: True


SPEAKS_FOR: dict[str, Callable[[Any], object]] = {
    "damage met after healing": lambda run: run.swarm.bit_rot,
    "damage told to a consumer": lambda run: run.swarm.bit_rot,
    "damaged replica begun anew": lambda run: run.swarm.bit_rot,
    "delivered late": lambda run: run.swarm.late,
    "lost to an unclean election": lambda run: run.swarm.has_unclean_topic and run.swarm.min_isr == 1,
    "reassignment": lambda run: run.swarm.is_reassigned,
    "replica moved": lambda run: run.swarm.move_replica,
    "topic deleted under load": lambda run: run.swarm.has_recreated_topic,
    "unclean election": lambda run: run.swarm.has_unclean_topic,
    "transaction aborted": lambda run: run.shape.aborts,
    "transaction cancelled": lambda run: run.shape.cancels,
    "transaction.version raised": lambda run: len(run.shape.versions) > 1,
}
"""What is drawn for those runs of a cluster that are likely to show something; of a fault, that it is in the schedule."""


def is_likely_in_cluster(make: campaign.Make, seed: int, name: str) -> bool:
    """Tells whether a run of a cluster is likely to show something, by its swarm and its schedule."""
    if name not in SPEAKS_FOR and name not in {*FaultKind}:
        return True
    run = make(seed)
    try:
        return bool(SPEAKS_FOR[name](run)) if name in SPEAKS_FOR else any(fault.kind == name for fault in run.planned())
    finally:
        run.discard()


QUORUM = SimulationKind(
    "quorum_simulation",
    quorum_simulation.run_seeds,
    (
        *sorted(QUORUM_TRANSITIONS),
        "AddVoter DUPLICATE_VOTER",
        "AddVoter NONE",
        "AddVoter NOT_LEADER_OR_FOLLOWER",
        "AddVoter REQUEST_TIMED_OUT",
        "AddVoter UNSUPPORTED_VERSION",
        "LostLeadership",
        "PeerLearned",
        "RemoveVoter NONE",
        "RemoveVoter VOTER_NOT_FOUND",
        "check-quorum resigns",
        "clean",
        "cleaned before it was sent",
        "clock leap",
        "crash between effects",
        "crash inside install",
        "disk lost",
        "disk replaced",
        "download again",
        "download resumed",
        "graceful",
        "install",
        "isolated",
        "leader is gone",
        "leader removed",
        "lost tail",
        "moved",
        "one-way cut",
        "pause",
        "position out of range",
        "pre-vote refused",
        "removed leader resigns",
        "resign",
        "snapshot damaged",
        "snapshot not found",
        "truncate",
        "truncate voters",
        "upgrade",
        "vote of another disk refused",
        "voter updated",
    ),
    seeds_max=500,
    fresh_count=20,
)

CONTROLLER = SimulationKind(
    "controller_simulation",
    controller_simulation.run_seeds,
    (
        "several batches at once",
        "skip",
        "lost tail",
        "snapshot",
        "gone",
        "moving",
        "reassign",
        "drain",
        "pause inside a large change",
    ),
    seeds_max=150,
    fresh_count=12,
)

METADATA_CLUSTER = SimulationKind(
    "metadata_cluster_simulation",
    partial(campaign.run_seeds, MetadataSimulation),
    (
        "AddVoter done",
        "AlterConfigs done",
        "CreateTopics done",
        "CreateTopics not done",
        "CreateTopics unknown",
        "DeleteTopics done",
        "RemoveVoter done",
        "clock stall",
        "controller elected",
        "cut",
        "kill",
        "orderly stop",
        "pause",
        "power cut",
        "power cut in a write",
        "power cut of everything",
        "restart",
        "snapshot fetched",
        "snapshot loaded",
        "wall clock jump",
    ),
    seeds_max=100,
    fresh_count=4,
    is_likely=partial(is_likely_in_cluster, MetadataSimulation),
)

DATA_CLUSTER = SimulationKind(
    "data_cluster_simulation",
    partial(campaign.run_seeds, DataSimulation),
    (
        *FaultKind,
        "acknowledged",
        "controller elected",
        "damage met after healing",
        "damage told to a consumer",
        "damaged replica begun anew",
        "delivered late",
        "ended by a failed disk",
        "lost to an unclean election",
        "reassignment",
        "replica moved",
        "restart",
        "snapshot fetched",
        "snapshot loaded",
        "topic deleted under load",
        "unclean election",
    ),
    seeds_max=120,
    fresh_count=3,
    is_likely=partial(is_likely_in_cluster, DataSimulation),
)

ONE_MACHINE = SimulationKind(
    "one_machine_simulation",
    partial(campaign.run_seeds, OneMachineSimulation),
    ("acknowledged", "kill", "power cut", "power cut in a write"),
    seeds_max=10,
    fresh_count=3,
)

BLACKOUT = SimulationKind(
    "blackout_simulation",
    partial(campaign.run_seeds, BlackoutSimulation),
    ("acknowledged", "power cut of everything"),
    seeds_max=10,
    fresh_count=3,
)

FRESH_ENDS = SimulationKind(
    "fresh_ends_simulation",
    partial(campaign.run_seeds, FreshEndsSimulation),
    ("end told",),
    seeds_max=5,
    fresh_count=2,
)

KAFKA = SimulationKind(
    "kafka_simulation",
    partial(campaign.run_seeds, KafkaSimulation),
    (
        "kafka fetcher: read",
        "kafka fetcher: told by a session",
        "kafka producer: acknowledged",
        "kafka producer: connection lost",
        "kafka producer: NOT_LEADER_OR_FOLLOWER",
        "kafka producer: sent again",
        "delivered late",
        "kill",
        "pause",
    ),
    seeds_max=24,
    fresh_count=1,
)

GROUP = SimulationKind(
    "group_simulation",
    partial(campaign.run_seeds, GroupSimulation),
    (
        "classic: REBALANCE_IN_PROGRESS",
        "classic: UNKNOWN_MEMBER_ID",
        "commit acknowledged",
        "handled",
        "handled twice, a member was killed",
        "handled twice, a member was put out",
        "kill",
        "member killed",
        "member leaves",
        "member paused",
        "power cut",
        "topic grown",
    ),
    seeds_max=16,
    fresh_count=1,
)

GROUP_TRANSACTIONS = SimulationKind(
    "group_transactions",
    partial(campaign.run_seeds, GroupTransactionSimulation),
    (
        "plain commit beside a transaction",
        "refused, for it comes too late",
        "transaction aborted",
        "transaction committed",
    ),
    seeds_max=6,
    fresh_count=1,
)

TRANSACTION = SimulationKind(
    "transaction_simulation",
    partial(campaign.run_seeds, TransactionSimulation),
    (
        "client: kill",
        "client: pause",
        "client: successor",
        "kill",
        "outcome unknown",
        "power cut",
        "preferred election",
        "producer fenced",
        "read",
        "topic deleted under transactions",
        "transaction aborted",
        "transaction cancelled",
        "transaction committed",
        "transaction failed",
        "transaction prepared",
        "transaction.version raised",
    ),
    seeds_max=24,
    fresh_count=1,
    is_likely=partial(is_likely_in_cluster, TransactionSimulation),
)

ORDERLY_STOPS = SimulationKind(
    "orderly_stops_simulation",
    orderly_stops_simulation.run_seeds,
    (
        *(
            f"{story}, {what}"
            for story in ("quiet", "busy")
            for what in ("flush auto", "flush always", "roles apart", "roles together")
        ),
        *(f"quiet, {change}" for change in orderly_stops_simulation.CHANGES),
    ),
    seeds_max=20,
    fresh_count=2,
)

SIMULATIONS = (
    QUORUM,
    CONTROLLER,
    METADATA_CLUSTER,
    DATA_CLUSTER,
    ONE_MACHINE,
    BLACKOUT,
    FRESH_ENDS,
    KAFKA,
    GROUP,
    GROUP_TRANSACTIONS,
    TRANSACTION,
    ORDERLY_STOPS,
)
