"""What stands in for a safeguard of replication while it is taken out: one function each, for `replication_ablations`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from unittest import mock

from msgspec.structs import replace

from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.disk_trouble import DiskTrouble, UnusableReplica
from replog.broker.replicas.fetchers import LeaderFetcher
from replog.broker.replicas.replica import Replica
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.broker.requests.produce_path import ProducePath
from replog.client.producer.batch import ProducerIdentity
from replog.client.producer.partition_queue import PartitionQueue
from replog.controller.managers import alter_partition as controller_alter_partition
from replog.controller.managers import replication as replication_control
from replog.controller.managers.alter_partition import IsrControl
from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Placement
from replog.errors import ErrorCode
from replog.log import Log
from replog.log.directories import log_manager
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.directories.homes import ReplicaHomes
from replog.log.directories.move import FolderCopy
from replog.log.file_names import MOVED_DIR_SUFFIX
from replog.log.leader_append import LeaderAppender
from replog.log.recovery.loader import LogLoader
from replog.log.segments.reader import SegmentReader
from replog.log.truncator import Truncator
from replog.replication.fetch_check import check_fetch
from replog.replication.follower import Follower
from replog.replication.isr import InSyncReplicas
from replog.replication.leader import Leader
from replog.replication.remote_replicas import RemoteReplicas
from tests.sim.data_cluster_simulation import TOPIC

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
_FIND_OR_CHOOSE = ReplicaHomes.find_or_choose


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


def first_who_reports(self: ReplicationControl, key: Any, partition: Any, is_acceptable: Any) -> Any:
    """Does not wait for the others."""
    reports = self._reports.get(key[0], {}).get(key[1], {})
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


def anywhere(self: ReplicaHomes, key: Any, *, is_new: bool, directory: str | None) -> Any:
    return _FIND_OR_CHOOSE(self, key, is_new=True, directory=directory)


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
    position = self._positions.asked.get(key)
    is_new = _IS_NEW(self, asked, slot)
    if position is not None and slot.is_news:
        self._positions.ask(key, position)
    return is_new


_HANDLE = LeaderFetcher._handle
_IS_NEW = IncrementalFetch._is_new
