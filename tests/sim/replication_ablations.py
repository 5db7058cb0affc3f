"""What the data simulations find when a safeguard of replication is taken out: one substitution each, in the tests only.

The table in `docs/SAFEGUARDS.md` comes from here (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.replication_ablations --write --stale  # without --stale every row: an hour
    python -m tests.sim.replication_ablations --only "min ISR" --seeds 1000  # look for one
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.disk_trouble import DiskTrouble
from replog.broker.replicas.fetchers import LeaderFetcher
from replog.broker.replicas.moves import ReplicaMoves
from replog.broker.replicas.replica import Replica
from replog.broker.requests import fetch_reader
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.broker.requests.produce_path import ProducePath
from replog.client.producer.batch import ProducerBatch
from replog.client.producer.partition_queue import PartitionQueue
from replog.controller.managers import alter_partition as controller_alter_partition
from replog.controller.managers import replication as replication_control
from replog.controller.managers.alter_partition import IsrControl
from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Placement
from replog.log import Log, follower_append
from replog.log.directories import log_manager
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.homes import ReplicaHomes
from replog.log.directories.move import FolderCopy
from replog.log.follower_append import FollowerAppender
from replog.log.leader_append import LeaderAppender
from replog.log.recovery.loader import LogLoader
from replog.log.segments.reader import SegmentReader
from replog.log.truncator import Truncator
from replog.replication import high_watermark
from replog.replication.follower import Follower
from replog.replication.isr import InSyncReplicas
from replog.replication.leader import Leader
from replog.replication.remote_replicas import RemoteReplicas
from replog_checkpoints import atomic_file
from tests.sim.ablation_table import AblationTable, Found, Patches, taken_out
from tests.sim.blackout_simulation import BlackoutSimulation
from tests.sim.cluster_swarm import FAULTS_S, PATIENT_MS, SEND_INTERVAL_S
from tests.sim.committed_partition import CommittedPartition
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fresh_ends_simulation import FreshEndsSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.one_machine_simulation import OneMachineSimulation
from tests.sim.replication_substitutes import (
    accepts_at_once,
    answers_at_once,
    any_active_member,
    any_epoch,
    any_incarnation,
    any_partition_epoch,
    anywhere,
    as_if_clean,
    at_any_offset,
    at_once,
    begins_with_a_batch,
    checks_no_epoch,
    completed_at_once,
    copies_first,
    counts_isr,
    cuts_to_high_watermark,
    false,
    first_in_order,
    first_who_reports,
    follows_trusting,
    keeps_position,
    leads_trusting,
    never_forgets,
    no_error,
    nothing,
    promises_as_before,
    registered_epochs,
    send_late,
    stage_with_epoch,
    takes_another_id,
    true,
    trusts_checkpoint,
    unchecked,
    whatever_disk,
    whatever_was_cut,
    with_unclean_elections,
    without_log_starts,
    without_producers,
)
from tests.sim.shrinking import Case

SEEDS_MAX = 400


class Stragglers(OneMachineSimulation):
    """While there are faults, some messages take seconds: they arrive when who sent them is gone, and back."""

    async def _suffer(self) -> None:
        network = self.cluster.network
        before = network.conditions
        network.conditions = msgspec.structs.replace(before, straggler=0.1, straggler_max_ms=4_000.0, keepalive_s=10.0)
        await super()._suffer()
        network.conditions = before


@dataclass(frozen=True)
class Ablation:
    """One safeguard taken out.

    Attributes:
        safeguard: what is missing.
        finding: what the violation must say.
        patches: (owner, attribute, substitute).
        simulation: that finds it.
        swarm: rates that make the bad case likely; the rest is drawn.
        unfound_because: why a search found nothing; empty: it is found.
        seed: one at which the simulation gets to its end, of one that is not found.
    """

    safeguard: str
    finding: str
    patches: Patches
    simulation: type[DataSimulation] = DataSimulation
    swarm: Mapping[str, Any] = field(default_factory=dict)
    unfound_because: str = ""
    seed: int = 0


FULL_LOAD = {
    "faults_s": FAULTS_S,
    "send_interval_s": SEND_INTERVAL_S,
    "flush_policy": "always",
    "directories": 1,
    "move_replica": 0.0,
    "directory_error": 0.0,
    "late": 0.0,
    "delivery_timeout_ms": PATIENT_MS,
}
CUTS = {"cut": 0.5, "crash": 0.0, "pause": 0.0, "cut_in_write": 0.0, "mains": 0.0}
CUTS_AND_CRASHES = {"cut": 0.6, "crash": 0.4, "power_cut": 1.0, "cut_in_write": 0.0, "mains": 0.0}
USURPED = {
    "usurp": 0.2,
    "cut_metadata": 0.0,
    "min_isr": 2,
    "crash": 0.0,
    "cut": 0.0,
    "pause": 0.0,
    "mains": 0.0,
    "wipe": 0.0,
}
MIN_ISR_ALTERED = {"alter_min_isr": 0.5, "cut_metadata": 0.3, "cut_pair": 0.3, "crash": 0.0, "mains": 0.0, "usurp": 0.0}
DELETIONS = {
    "delete_records": 0.6,
    "burst_max": 10,
    "controllers": (1, 2, 3),
    "brokers": (1, 2, 3, 4, 5),
    "is_reassigned": True,
}
ROT = {"bit_rot": 0.8, "min_isr": 2, "wipe": 0.0}
DIRECTORIES = {"directories": 2, "bit_rot": 0.0}
MOVES = {**DIRECTORIES, "move_replica": 0.8}
FAILED_DIRECTORIES = {**DIRECTORIES, "directory_error": 0.4, "move_replica": 0.4, "mains": 0.0}
LATE_BYTES = {
    "late": 0.8,
    "stream_break": 0.02,
    "delivery_timeout_ms": 300,
    "burst_max": 3,
    "crash": 0.0,
    "mains": 0.0,
    "cut": 0.0,
    "pause": 0.0,
}
STOPS = {"stop": 0.8, "min_isr": 1, "crash": 0.0, "mains": 0.0, "alter_min_isr": 0.0}
CRASHES = {"crash": 0.8, "power_cut": 1.0, "cut": 0.0, "slow_thread": 0.0}
KILLS_BESIDE_A_CONTROLLER = {**CRASHES, "power_cut": 0.0, "controllers": (1,), "brokers": (2, 3, 4)}

ABLATIONS = (
    Ablation(
        "truncation by epoch (instead: to the high watermark)",
        "R[248]|stuck",
        ((Follower, "_start", cuts_to_high_watermark), (fetch_reader, "check_fetch", checks_no_epoch)),
    ),
    Ablation("truncation", "R[24]|stuck", ((fetch_reader, "check_fetch", checks_no_epoch),), swarm=CUTS),
    Ablation(
        "a high watermark from a checkpoint is no higher than the log",
        "R2",
        (
            (Replica, "high_watermark", property(trusts_checkpoint)),
            (Leader, "__init__", leads_trusting),
            (Follower, "__init__", follows_trusting),
        ),
        OneMachineSimulation,
        CRASHES,
    ),
    Ablation("an acknowledgement waits for the high watermark", "R1", ((ProducePath, "_await", answers_at_once),)),
    Ablation(
        "the high watermark waits for a member that is being added",
        "R[45]",
        ((InSyncReplicas, "maximal_isr", property(lambda self: self.committed_isr)),),
    ),
    Ablation(
        "the high watermark waits for the ELR",
        "R[34]",
        ((RemoteReplicas, "counting", counts_isr), (Leader, "_maybe_release", lambda *_: ())),
        swarm=STOPS,
    ),
    Ablation("min ISR for the high watermark", "R6", ((high_watermark, "effective_min_isr", lambda *_: 1),)),
    Ablation("joining the ISR at the high watermark only", "R[45]", ((Leader, "_maybe_expand", at_any_offset),)),
    Ablation(
        "broker epochs of new members, at the controller",
        "R[49]",
        ((IsrControl, "_is_eligible", any_active_member), (AlterPartitionSender, "_send", send_late)),
        OneMachineSimulation,
        KILLS_BESIDE_A_CONTROLLER,
    ),
    Ablation(
        "the partition epoch of a proposal",
        "R[459]",
        (
            (controller_alter_partition, "_epoch_error", any_partition_epoch),
            (AlterPartitionSender, "_send", send_late),
        ),
        swarm=CUTS,
    ),
    Ablation(
        "an unclean restart ends eligibility",
        "R10",
        ((ReplicationControl, "changes_without", as_if_clean),),
        OneMachineSimulation,
    ),
    Ablation(
        "the same, by what it leads to",
        "R[34]",
        ((ReplicationControl, "changes_without", as_if_clean), (CommittedPartition, "_check_restarted", nothing)),
        OneMachineSimulation,
        CRASHES,
    ),
    Ablation(
        "another disk ends eligibility",
        "R10",
        ((ReplicationControl, "changes_without", whatever_disk),),
        swarm={"wipe": 0.3, "min_isr": 2, "controllers": (1, 2, 3), "brokers": (4, 5, 6), "is_reassigned": False},
    ),
    Ablation(
        "elections are clean where nobody allows others",
        "unclean_election",
        ((ReplicationControl, "rules", with_unclean_elections),),
    ),
    Ablation(
        "a reassignment waits for those that come",
        "R13",
        ((Placement, "completed", completed_at_once),),
        swarm={"controllers": (1, 2, 3), "brokers": (1, 2, 3, 4, 5), "is_reassigned": True},
    ),
    Ablation(
        "a recovered election waits for all",
        "R[34]",
        ((ReplicationControl, "_recovered_or_none", first_who_reports),),
        BlackoutSimulation,
    ),
    Ablation(
        "a recovered election takes the longest log",
        "R[34]",
        ((replication_control, "recovered_change", first_in_order),),
        BlackoutSimulation,
    ),
    Ablation(
        "a broker is fenced early only if another of its ISR is there",
        "R[34]",
        ((ReplicationControl, "can_do_without", true),),
        BlackoutSimulation,
    ),
    Ablation(
        "a leader forgets its followers after an epoch it missed",
        "R[346]",
        ((Leader, "leads_on", true),),
        swarm=USURPED,
    ),
    Ablation(
        "a shrinking ISR counts when the metadata says so",
        "R[34]",
        ((InSyncReplicas, "_accept", accepts_at_once),),
        swarm=MIN_ISR_ALTERED,
    ),
    Ablation(
        "a failed batch raises the producer epoch (instead: another producer id)",
        r"\d+ anomal",
        ((PartitionQueue, "_open_gap", takes_another_id),),
        swarm=LATE_BYTES,
    ),
    Ablation(
        "what may still arrive is not sent under another epoch",
        r"\d+ anomal",
        ((ProducerBatch, "may_still_arrive", False),),
        swarm=LATE_BYTES,
        unfound_because="late bytes must come between a refusal and the next append; found by `test_client_late_bytes.py`",
    ),
    Ablation(
        "an empty log begins inside of a batch",
        "stuck",
        ((FollowerAppender, "_begin_of_straddling", nothing),),
        swarm=DELETIONS,
    ),
    Ablation("the lease", "stale_end", ((BrokerLifecycle, "refuses_because", nothing),), FreshEndsSimulation, CUTS),
    Ablation(
        "a follower's share counts when it is on disk",
        "R[46]",
        ((high_watermark, "follower_waits_for_flush", false), (Follower, "_waits_for_flush", false)),
    ),
    Ablation("a leader's share counts when it is on disk", "R6", ((high_watermark, "leader_waits_for_flush", false),)),
    Ablation("producers are known after a restart", ".*duplicate", ((LogLoader, "load", without_producers),)),
    Ablation(
        "log starts are read from their checkpoint",
        "S10",
        ((DirectoryCheckpoints, "_read_one", without_log_starts),),
        swarm={**DELETIONS, "stop": 0.6, "crash": 0.0},
    ),
    Ablation(
        "a leader looks at checksums when somebody asks again",
        "S3|stuck",
        ((SegmentReader, "checked", unchecked),),
        swarm=ROT,
    ),
    Ablation(
        "a damaged replica goes offline",
        "S3|stuck",
        ((DiskTrouble, "_failed", nothing),),
        swarm=ROT,
    ),
    Ablation(
        "who fetches looks at checksums",
        "S3|R14",
        ((SegmentReader, "checked", unchecked), (follower_append, "check_crc", nothing)),
        swarm=ROT,
    ),
    Ablation(
        "a damaged replica begins anew when nobody counts on it",
        "R[34]",
        ((DiskTrouble, "_is_counted_on", nothing), (DiskTrouble, "_can_be_fetched", at_once)),
        swarm=ROT,
    ),
    Ablation("fsync of the folder after a rename", "node . ended|R|M", ((atomic_file, "_keep_names", nothing),)),
    Ablation(
        "a copy begins anew when the log is cut",
        "R|stuck|node . ended",
        ((FolderCopy, "_take_over", whatever_was_cut),),
        swarm={**MOVES, **CUTS},
    ),
    Ablation(
        "a leader moves when its ISR is the committed one",
        "R[456]",
        ((ReplicaMoves, "_is_settled", true),),
        swarm={**MOVES, **CUTS},
    ),
    Ablation(
        "a role waits while a copy takes the place of its replica",
        "R|stuck|node . ended",
        ((ReplicaMoves, "is_swapping", false),),
        swarm={**MOVES, **CUTS},
        unfound_because="the role is refused, and the replica offline until its node starts again: it costs time",
    ),
    Ablation(
        "a replica that may be in a missing directory is not made anew",
        "R|stuck|node . ended",
        ((ReplicaHomes, "find_or_choose", anywhere),),
        swarm={**FAILED_DIRECTORIES, "crash": 0.5},
    ),
    Ablation(
        "a replica that is there is as new as its copy",
        "R|stuck|node . ended",
        ((log_manager, "finish_moves", copies_first),),
        swarm={**FAILED_DIRECTORIES, "cut_in_write": 0.5},
        unfound_because="a crash must come between two renames, and the next start be without the copy; shown by"
        " `test_log_replica_move.py`",
    ),
    Ablation(
        "broker epochs of fetches, at the leader",
        "R",
        (
            (RemoteReplicas, "is_eligible", any_incarnation),
            (RemoteReplicas, "is_stale", false),
            (RemoteReplicas, "broker_epochs", registered_epochs),
        ),
        Stragglers,
        CRASHES,
        unfound_because="a fetch must arrive when who sent it is dead and back, and its end must still be the high"
        " watermark; shown by `worked_leader_wrong_incarnation_cannot_join.txt`",
    ),
    Ablation(
        "leader epochs of produces and fetches",
        "R",
        ((Leader, "check_fetch_epoch", no_error),),
        swarm=CUTS,
        unfound_because="a fetch names its last epoch too, and an answer of another epoch is dropped",
    ),
    Ablation(
        "followers refuse batches of later epochs",
        "R",
        ((Log, "append_as_follower", any_epoch),),
        swarm=CUTS,
        unfound_because="a leader compares the epoch once more when it answers a fetch; nor without both, for a fetch"
        " names its last epoch",
    ),
    Ablation(
        "an epoch begins before its first batch",
        "R",
        (
            (LeaderAppender, "assign_epoch_start", begins_with_a_batch),
            (LeaderAppender, "_stage", stage_with_epoch),
        ),
        swarm=CUTS_AND_CRASHES,
        unfound_because="under load the first batch comes at once; shown by `worked_cluster_empty_lost_epoch.txt`",
    ),
    Ablation(
        "a recovery point is lowered before a cut",
        "node . ended|stuck|R",
        ((Truncator, "_promise_no_more_than", promises_as_before),),
        swarm=CUTS_AND_CRASHES,
        unfound_because="a power cut must come between a cut and the next checkpoint; found by `test_log_model.py`",
    ),
    Ablation(
        "a follower asks again after an error",
        "stuck",
        ((LeaderFetcher, "_handle", keeps_position),),
        swarm=CUTS,
        unfound_because="out of the ISR it repeats its position every replica.fetch.wait.max.ms: it costs time",
    ),
    Ablation(
        "a leader forgets a position after an error",
        "stuck|R",
        ((IncrementalFetch, "_is_new", never_forgets),),
        swarm=CUTS,
        unfound_because="a follower drops answers about positions that it has left",
    ),
    Ablation(
        "recovery points and high watermarks are read from their checkpoints",
        "R|stuck|node . ended",
        ((DirectoryCheckpoints, "_read_one", nothing),),
        unfound_because="0 means unknown: the whole log is checked, followers tell the high watermark: it costs time",
    ),
)


def find(ablation: Ablation, first: int, count: int) -> Found:
    """The first seed that shows the missing safeguard as it is expected to, and what it says; None if none does."""
    with taken_out(ablation.patches):
        for seed in range(first, first + count):
            drawn = Case.of_seed(seed, ablation.simulation).swarm
            simulation = ablation.simulation(seed, replace(drawn, **{**FULL_LOAD, **ablation.swarm}))
            try:
                simulation.run()
            except Violation as violation:
                if ablation.unfound_because or re.match(ablation.finding, str(violation), re.DOTALL):
                    return seed, str(violation)
            finally:
                del simulation
                gc.collect()
    return None


TABLE = AblationTable("replication", ABLATIONS, find, SEEDS_MAX)

if __name__ == "__main__":
    sys.exit(TABLE.main(__doc__))
