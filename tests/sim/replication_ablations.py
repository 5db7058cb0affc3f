"""What the data simulations find when a safeguard of replication is taken out: one substitution each, in the tests only.

The table in `docs/TESTING.md` comes from here (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.replication_ablations --write
    python -m tests.sim.replication_ablations --only "min ISR" --seeds 1000  # look for one
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.disk_trouble import DiskTrouble, UnusableReplica
from replog.broker.replicas.fetchers import LeaderFetcher
from replog.broker.replicas.moves import ReplicaMoves
from replog.broker.replicas.replica import Replica
from replog.broker.requests import fetch_reader
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.broker.requests.produce_path import ProducePath
from replog.client.producer.batch import ProducerBatch, ProducerIdentity
from replog.client.producer.partition_queue import PartitionQueue
from replog.controller.managers import alter_partition as controller_alter_partition
from replog.controller.managers import replication as replication_control
from replog.controller.managers.alter_partition import IsrControl
from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Placement
from replog.errors import ErrorCode
from replog.log import Log, LogManager, follower_append
from replog.log.directories import log_manager
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.move import FolderCopy
from replog.log.file_names import MOVED_DIR_SUFFIX
from replog.log.follower_append import FollowerAppender
from replog.log.leader_append import LeaderAppender
from replog.log.recovery.loader import LogLoader
from replog.log.segments.reader import SegmentReader
from replog.log.truncator import Truncator
from replog.replication import high_watermark
from replog.replication.fetch_check import check_fetch
from replog.replication.follower import Follower
from replog.replication.isr import InSyncReplicas
from replog.replication.leader import Leader
from replog.replication.remote_replicas import RemoteReplicas
from replog_checkpoints import atomic_file
from tests.sim.ablation_table import AblationTable, Found, Patches, taken_out
from tests.sim.blackout_simulation import BlackoutSimulation
from tests.sim.cluster_swarm import FAULTS_S, PATIENT_MS, SEND_INTERVAL_S, Swarm
from tests.sim.committed_partition import CommittedPartition
from tests.sim.data_cluster_simulation import TOPIC, DataSimulation
from tests.sim.fresh_ends_simulation import FreshEndsSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.one_machine_simulation import OneMachineSimulation
from tests.sim.shrinking import Case

SEEDS_MAX = 400
PROPOSALS_LATE_S = 1.2


# ---- truncation ----------------------------------------------------------------------------------------------------------


def cuts_to_high_watermark(self: Follower) -> Any:
    """As before KIP-101: whatever the high watermark does not cover goes when a leader is followed."""
    if self._started:
        return ()
    self._started = True
    if self._log.log_end_offset > self._high_watermark:
        return self._truncate_to(self._high_watermark, "to the high watermark")
    return ()


def checks_no_epoch(fetch_offset: int, last_fetched_epoch: int, log: Any) -> Any:
    return check_fetch(fetch_offset, -1, log)


def trusts_checkpoint(self: Replica) -> int:
    """The high watermark as it was known, whatever the log still holds."""
    known = self.checkpointed_high_watermark if self.role is None else self.role.high_watermark
    return max(self.log.log_start_offset, known)


def leads_trusting(self: Leader, **arguments: Any) -> None:
    _LEADER_INIT(self, **arguments)
    self._high_watermark = arguments["high_watermark"]


def follows_trusting(self: Follower, **arguments: Any) -> None:
    _FOLLOWER_INIT(self, **arguments)
    self._high_watermark = arguments["high_watermark"]


# ---- the ISR -------------------------------------------------------------------------------------------------------------


def any_incarnation(self: RemoteReplicas, replica: Any) -> bool:
    return replica.replica_id in self._metadata.eligible


def registered_epochs(self: RemoteReplicas, replica_ids: tuple[int, ...]) -> tuple[int, ...]:
    """What the metadata says, instead of what the fetches said."""
    return tuple(
        self._metadata.eligible.get(replica_id, -1) if replica_id in self else -1 for replica_id in replica_ids
    )


def any_active_member(self: IsrControl, member: Any, key: Any, partition: Any) -> bool:
    registration = self._brokers.get(member.broker_id)
    return registration is not None and registration.is_active


def any_partition_epoch(sender: int, change: Any, partition: Any) -> ErrorCode:
    return _EPOCH_ERROR(sender, replace(change, partition_epoch=partition.partition_epoch), partition)


_RECOVERED_CHANGE = replication_control.recovered_change
_EPOCH_ERROR = controller_alter_partition._epoch_error
_CHANGES_WITHOUT = ReplicationControl.changes_without
_RULES = ReplicationControl.rules
_COUNTING = RemoteReplicas.counting
_MAYBE_EXPAND = Leader._maybe_expand
_SEND = AlterPartitionSender._send
_LEADER_INIT = Leader.__init__
_FOLLOWER_INIT = Follower.__init__
_STAGE = LeaderAppender._stage
_ASSIGN_EPOCH_START = LeaderAppender.assign_epoch_start
_PROMISE_NO_MORE_THAN = Truncator._promise_no_more_than
_LOAD = LogLoader.load
_READ_CHECKPOINT = DirectoryCheckpoints._read_one
_APPEND_AS_FOLLOWER = Log.append_as_follower
_TAKE_OVER = FolderCopy._take_over
_FINISH_MOVES = log_manager.finish_moves
_HOME_OR_NEW = LogManager._home_or_new


def as_if_clean(self: ReplicationControl, broker_id: int, **_: Any) -> Any:
    return _CHANGES_WITHOUT(self, broker_id)


def whatever_disk(self: ReplicationControl, broker_id: int, *, keeps_log_dirs: bool = True, **how: Any) -> Any:
    return _CHANGES_WITHOUT(self, broker_id, **how)


def with_unclean_elections(self: ReplicationControl, *arguments: Any, **how: Any) -> Any:
    return replace(_RULES(self, *arguments, **how), unclean_allowed=True)


def completed_at_once(self: Placement, isr: tuple[int, ...]) -> Placement:
    """Those that go do not wait for those that come."""
    staying = tuple(replica for replica in self.replicas if replica not in self.removing)
    return Placement(staying) if self.removing else self


def at_any_offset(self: Leader, replica: Any) -> Any:
    """Who fetches may join."""
    with mock.patch.object(self, "_counted_end", return_value=1 << 60):
        return _MAYBE_EXPAND(self, replica)


async def send_late(self: AlterPartitionSender, batch: Any) -> Any:
    """Not a safeguard: a slow way to the controller makes it likely that much has happened meanwhile."""
    await asyncio.sleep(PROPOSALS_LATE_S)
    return await _SEND(self, batch)


def counts_isr(self: RemoteReplicas, waited_for: tuple[int, ...], end_offset: int, now_ms: int) -> Any:
    """As if nobody outside of the ISR could be elected."""
    isr = tuple(member for member in waited_for if member not in self._metadata.elr)
    return _COUNTING(self, isr, end_offset, now_ms)


def accepts_at_once(self: InSyncReplicas, answer: Any, _now_ms: int) -> bool:
    """A smaller ISR too, by the min.insync.replicas that is known here."""
    if answer.leader_epoch != self._leader_epoch or answer.partition_epoch < self._partition_epoch:
        return False
    self._commit(answer.isr, answer.partition_epoch)
    return True


class Stragglers(OneMachineSimulation):
    """Some messages take seconds: they arrive when who sent them is gone, and back."""

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm)
        network = self.cluster.network
        network.conditions = replace(network.conditions, straggler=0.1, straggler_max_ms=4_000.0, keepalive_s=10.0)


def first_who_reports(self: ReplicationControl, key: Any, partition: Any, is_acceptable: Any) -> Any:
    """Does not wait for the others."""
    reports = self._reports.get(key, {})
    known = tuple(member for member in partition.last_known_elr if member in reports and is_acceptable(member))
    if not partition.awaits_reports or not known:
        return None
    return _RECOVERED_CHANGE(*key, replace(partition, last_known_elr=known), reports)


def first_in_order(topic_id: Any, partition_id: int, partition: Any, reports: Any) -> Any:
    """Not the longest log."""
    first = next(replica for replica in partition.replicas if replica in partition.last_known_elr)
    return _RECOVERED_CHANGE(topic_id, partition_id, replace(partition, last_known_elr=(first,)), reports)


# ---- logs ----------------------------------------------------------------------------------------------------------------


def without_producers(self: LogLoader) -> Any:
    loaded = _LOAD(self)
    loaded.producers.load_snapshot([], self.now_ms)
    return loaded


def without_log_starts(self: DirectoryCheckpoints, checkpoint: Any) -> None:
    """A log begins where its first segment does."""
    if checkpoint is not self._log_start_offsets:
        _READ_CHECKPOINT(self, checkpoint)


def begins_with_a_batch(self: LeaderAppender, epoch: int) -> None:
    """A leader takes over and writes nothing."""
    if not self._state.topic_partition.startswith(TOPIC):
        _ASSIGN_EPOCH_START(self, epoch)


def stage_with_epoch(
    self: LeaderAppender, group: Any, number: int, batch: Any, header: Any, leader_epoch: int, now_ms: int
) -> Any:
    if leader_epoch != self._state.last_epoch:
        _ASSIGN_EPOCH_START(self, leader_epoch)
    return _STAGE(self, group, number, batch, header, leader_epoch, now_ms)


def promises_as_before(self: Truncator, end_offset: int, *, is_emptied: bool) -> None:
    """The checkpoint on the disk still says more than the log will hold."""
    checkpoint, self._state.checkpoint = self._state.checkpoint, None
    try:
        _PROMISE_NO_MORE_THAN(self, end_offset, is_emptied=is_emptied)
    finally:
        self._state.checkpoint = checkpoint


def any_epoch(self: Log, batches: Any, *, now_ms: int, leader_epoch: int | None = None) -> Any:
    return _APPEND_AS_FOLLOWER(self, batches, now_ms=now_ms)


def unchecked(_self: SegmentReader, _position: int, found: Any) -> Any:
    return found


def at_once(_self: DiskTrouble, offline: UnusableReplica, _registration: Any) -> bool:
    return offline.is_damaged


def whatever_was_cut(self: FolderCopy, files: Any) -> None:
    """As if the log had only grown since the first step."""
    if self._generation is not None:
        self._generation = files.generation
    _TAKE_OVER(self, files)


def copies_first(fs: Any, paths: Any, *, all_are_here: bool) -> Any:
    """A whole copy takes the place of the replica, whatever was written to that meanwhile."""
    for path in paths if all_are_here else ():
        for name in fs.list_dir(path):
            if name.endswith(MOVED_DIR_SUFFIX):
                replica = name.rpartition(".")[0]
                for other in paths:
                    with suppress(FileNotFoundError):
                        fs.remove_tree(f"{other}/{replica}")
    return _FINISH_MOVES(fs, paths, all_are_here=all_are_here)


def anywhere(self: LogManager, topic: str, partition: int, *, is_new: bool, directory: str | None) -> Any:
    return _HOME_OR_NEW(self, topic, partition, is_new=True, directory=directory)


def takes_another_id(self: PartitionQueue) -> None:
    """As before KIP-360: the old producer id is never fenced."""
    if self.identity is not None:
        self._has_gap = True
        self.set_identity(ProducerIdentity(self.identity.producer_id + 1_000_000, 0))


def nothing(*_: object, **__: object) -> None:
    """Instead of a safeguard."""


def no_error(*_: object, **__: object) -> ErrorCode:
    return ErrorCode.NONE


def false(*_: object, **__: object) -> bool:
    return False


def true(*_: object, **__: object) -> bool:
    return True


def answers_at_once(self: ProducePath, waiting: Any, *, end_offset: int) -> None:
    """As with acks=1."""
    waiting.open.decide(waiting.index, waiting.appended)


def keeps_position(self: LeaderFetcher, response: Any) -> None:
    """What was said counts as said after an error too."""
    said = dict(self._said)
    _HANDLE(self, response)
    for result in response.results:
        key = (result.topic_id, result.partition_id)
        if result.error is not ErrorCode.NONE and key in said:
            self._said[key] = said[key]


def never_forgets(self: IncrementalFetch, asked: Any, slot: Any) -> bool:
    """An error, or records, leave the position where it was."""
    key = (slot.result.topic_id, slot.result.partition_id)
    position = self._positions.get(key)
    is_new = _IS_NEW(self, asked, slot)
    if position is not None and slot.is_news:
        self._positions[key] = position
        self._interesting[key] = None
        self._owner.watch(key, self)
    return is_new


_HANDLE = LeaderFetcher._handle
_IS_NEW = IncrementalFetch._is_new


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
        CRASHES,
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
        ((DiskTrouble, "_is_given_up", at_once),),
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
        ((LogManager, "_home_or_new", anywhere),),
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
        seed=3,  # at the first ones the quorum has not settled in time, for messages go on being late
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
