"""The leader of one partition: when records become visible, which replicas are in sync, when produces are answered.

Duties of the driver:

1. Before the first step of a leader epoch, write the epoch's start into the log (`assign_epoch_start`), even if nothing
   is appended in it; do it again before a `StateChanged` with a higher leader epoch.
2. Step `Tick` right after construction and whenever `next_deadline_ms()` has come.
3. Append first, then step `Appended`; fsync on `RequestFlush`, then step `Flushed`.
4. Before an append ask `check_produce`; before a fetch `check_fetch_epoch` and `check_follower`, then `check_fetch`;
   step `FollowerFetched` only for a fetch that is ok.
5. Answer every `ProposeIsr` with one `AlterPartitionAnswered`; step `Resigned` when the metadata names another leader.

Rules: docs/KAFKA.md 4.2 to 4.6, KIP-966 (min ISR, eligibility), KIP-207 (latest offset).

A member of the ELR may be elected while the leader is gone.  So the high watermark does not pass an offset that a member is not
known to have.  When records wait for one, the leader proposes its ISR as it is (`PendingRelease`), and the controller empties
the ELR; as soon as the metadata says so, only the ISR counts.  After all brokers but one have stopped in order, the first
record costs one AlterPartition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import assert_never

from replog.errors import ErrorCode, InvariantViolationError
from replog.metadata.config_keys import FlushPolicy
from replog.replication import high_watermark as arithmetic
from replog.replication.isr import (
    InSyncReplicas,
    PendingExpand,
    PendingIsr,
    PendingRecovery,
    PendingRelease,
    PendingShrink,
)
from replog.replication.leader_status import LeaderStatus, ReplicaStanding
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    Flushed,
    FlushPolicyChanged,
    FollowerFetched,
    HighWatermarkAdvanced,
    LeaderEffect,
    LeaderMessage,
    PartitionState,
    ProduceCompleted,
    ProposeIsr,
    RequestFlush,
    Resigned,
    StateChanged,
    Tick,
)
from replog.replication.remote_replicas import RemoteReplicas, ReplicaState
from replog.replication.waiting_produces import WaitingProduces

_ACKS_ALL = -1

ELR_GRACE_MS = 500
"""How long a new leader that has appended nothing waits for members of the ELR.  The leader before it, which is stopping in
order, still fetches: if it has all records, none waits for it, and it stays eligible."""


class Leader:
    """Decides for one partition this broker leads.  Driven by one task; owns no clock and no log.

    Invariants:
        - the high watermark never falls within one leader epoch and never passes the log end;
        - it waits for every member of the maximal ISR and of the ELR, and does not move below min ISR;
        - at most one ISR proposal in flight;
        - every `AwaitProduce` of an `Appended` is answered by exactly one `ProduceCompleted`.
    """

    def __init__(
        self,
        *,
        topic_partition: str,
        broker_id: int,
        state: PartitionState,
        log_end_offset: int,
        flushed_offset: int,
        high_watermark: int,
        replica_lag_time_max_ms: int = 10_000,
        flush_policy: FlushPolicy,
        now_ms: int,
        proposal_ids: Iterator[int] | None = None,
    ) -> None:
        """Takes over leadership.

        Args:
            topic_partition: The partition, for messages to people.
            broker_id: The id of this broker, the leader in `state`.
            state: The partition as the metadata log has it.
            log_end_offset: The end of the local log, exclusive; the start of this leader epoch.
            flushed_offset: The flushed offset of the local log, exclusive.
            high_watermark: The last one known here, as a follower or from the checkpoint.
            replica_lag_time_max_ms: The time that a member of the ISR may go without having caught up.
            flush_policy: The policy of the topic.
            now_ms: The monotonic time.
            proposal_ids: The source of ids, shared by all leaders that a late answer might reach; None: from 1.

        Raises:
            InvariantViolationError: `state` names another leader.
        """
        self._topic_partition = topic_partition
        self._broker_id = broker_id
        self._metadata = self._own_state_or_raise(state)
        self._log_end_offset = log_end_offset
        self._flushed_offset = flushed_offset
        self._epoch_start_offset = log_end_offset
        self._high_watermark = min(high_watermark, log_end_offset)
        self._flush_policy = flush_policy
        self._flush_requested_to = flushed_offset
        self._isr = InSyncReplicas(state, itertools.count(1) if proposal_ids is None else proposal_ids)
        self._replicas = RemoteReplicas(broker_id, state, replica_lag_time_max_ms, now_ms)
        self._produces = WaitingProduces()
        self._shrink_check_interval_ms = max(1, replica_lag_time_max_ms // 2)
        self._next_check_ms = now_ms
        self._grace_until_ms = now_ms + ELR_GRACE_MS if state.elr else now_ms
        self._release_refused = False  # by facts that are not known here: until there is news, or the next check
        self._recovering = state.recovering
        self._resigned = False

    # ---- queries ----------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Exclusive: consumers may read below it."""
        return self._high_watermark

    @property
    def leader_epoch(self) -> int:
        return self._metadata.leader_epoch

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that the high watermark waits for: the ISR, and a member that the controller may just have added."""
        return self._isr.maximal_isr

    @property
    def isr_change_pending(self) -> bool:
        """Whether a change of the ISR is proposed and not answered."""
        return self._isr.change_pending

    @property
    def partition_epoch(self) -> int:
        """The epoch of the newest ISR known here: from the metadata, or from the controller's answer, which may come first."""
        return self._isr.partition_epoch

    def leads_on(self, leader_epoch: int) -> bool:
        """Whether no other broker can have led between this epoch and `leader_epoch`, in which this broker leads too.

        Several epochs may arrive at once.  After a missed epoch all that was known of the followers is void: they may have cut
        their logs for the leader of that epoch.  A new `Leader` knows nothing of them.
        """
        return leader_epoch <= self.leader_epoch + 1

    def latest_offset_available(self) -> bool:
        """Whether the high watermark may be told to clients as the end of the partition (KIP-207).

        A new leader's high watermark may be lower than its predecessor's for a moment: records that were acknowledged
        and visible would seem to be gone.
        """
        return self._high_watermark >= self._epoch_start_offset

    def low_watermark(self, log_start_offset: int) -> int:
        """Returns the offset below which all is gone: the lowest log start here and of the replicas on live brokers."""
        return min((log_start_offset, *self._replicas.live_log_starts()))

    def is_held(self, replica_id: int, offset: int) -> bool:
        """Whether another replica's log is known to reach `offset`, and to start at or below it."""
        if replica_id not in self._replicas:
            return False
        replica = self._replicas[replica_id]
        return 0 <= replica.log_start_offset <= offset <= replica.log_end_offset

    def check_produce(self, acks: int) -> ErrorCode:
        """Whether a produce may be appended (docs/KAFKA.md 4.6)."""
        if acks not in {-1, 0, 1}:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if self._resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == _ACKS_ALL and len(self._isr.committed_isr) < self._min_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def check_fetch_epoch(self, current_leader_epoch: int | None) -> ErrorCode:
        """Compares the leader epoch a request was made for with this one's; None is not checked."""
        if self._resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch is None or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_follower(self, replica_id: int, broker_epoch: int) -> ErrorCode:
        """Whether a fetch comes from a replica of this partition, in its latest incarnation."""
        if self._resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id not in self._replicas:
            return ErrorCode.UNKNOWN_LEADER_EPOCH  # retried: the assignment may not have arrived here yet
        if self._replicas.is_stale(replica_id, broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due; None after `Resigned`."""
        if self._resigned:
            return None
        deadlines = (self._next_check_ms, self._isr.next_deadline_ms(), self._produces.next_deadline_ms())
        return min(deadline for deadline in deadlines if deadline is not None)

    def status(self) -> LeaderStatus:
        """Returns the leader at this moment."""
        replicas = tuple(self._replica_status(replica_id) for replica_id in self._metadata.replicas)
        return LeaderStatus(
            topic_partition=self._topic_partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self._isr.partition_epoch,
            epoch_start_offset=self._epoch_start_offset,
            high_watermark=self._high_watermark,
            log_end_offset=self._log_end_offset,
            flushed_offset=self._flushed_offset,
            isr=self._isr.committed_isr,
            maximal_isr=self._isr.maximal_isr,
            elr=self._metadata.elr,
            min_insync_replicas=self._min_isr(),
            replicas=replicas,
            lag=max((r.lag for r in replicas if r.replica_id in self._isr.committed_isr), default=0),
            waiting_produces=len(self._produces),
            recovering=self._recovering,
        )

    # ---- messages ---------------------------------------------------------------------------------------------------

    def step(self, message: LeaderMessage, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Takes in one message; the effects are to be performed in order."""
        if self._resigned:
            return self._refuse(message)
        proposals: tuple[LeaderEffect, ...] = ()
        match message:
            case Tick():
                proposals = self._handle_tick(now_ms)
            case Appended():
                self._replicas.leader_appends(self._log_end_offset, now_ms)
                self._log_end_offset = message.log_end_offset
                for waiting in message.waiting:
                    self._produces.add(waiting.request_id, waiting.end_offset, waiting.deadline_ms)
            case Flushed():
                self._flushed_offset = max(self._flushed_offset, message.flushed_offset)
            case FlushPolicyChanged():
                self._flush_policy = message.flush_policy
            case FollowerFetched():
                proposals = self._handle_fetch(message, now_ms)
            case StateChanged():
                proposals = self._handle_state(message.state, now_ms)
            case AlterPartitionAnswered():
                proposals = self._handle_answer(message, now_ms)
            case Resigned():
                return self._resign()
            case _ as unreachable:
                assert_never(unreachable)
        return (*proposals, *self._advance(now_ms))

    def _handle_tick(self, now_ms: int) -> tuple[ProposeIsr, ...]:
        retry = self._isr.retry_if_due(now_ms)
        if retry is not None:
            return (retry,)
        if now_ms < self._next_check_ms:
            return ()
        self._next_check_ms = now_ms + self._shrink_check_interval_ms
        if now_ms < self._grace_until_ms:  # the check after it comes when it ends
            self._next_check_ms = min(self._next_check_ms, self._grace_until_ms)
        self._release_refused = False
        return self._maybe_propose_recovery() or self._maybe_shrink(now_ms)

    def _handle_fetch(self, fetch: FollowerFetched, now_ms: int) -> tuple[ProposeIsr, ...]:
        if self.check_follower(fetch.replica_id, fetch.broker_epoch) is not ErrorCode.NONE:
            return ()
        self._replicas.record_fetch(fetch, now_ms)
        return self._maybe_expand(self._replicas[fetch.replica_id])

    def _handle_state(self, state: PartitionState, now_ms: int) -> tuple[LeaderEffect, ...]:
        if (state.leader_epoch, state.partition_epoch) < (self.leader_epoch, self._isr.partition_epoch):
            return ()
        if not self.leads_on(state.leader_epoch):
            raise InvariantViolationError(
                f"{self._topic_partition}: the leader of epoch {self.leader_epoch} cannot lead on in {state.leader_epoch}"
            )
        if state.leader_epoch > self.leader_epoch:  # elected again: this epoch starts at our log end
            self._epoch_start_offset = self._log_end_offset
        self._metadata = self._own_state_or_raise(state)
        self._release_refused = False
        self._replicas.update(state, leader_end_offset=self._log_end_offset, now_ms=now_ms)
        self._isr.handle_metadata(state)
        self._recovering = state.recovering
        return (*self._isr.take_change(), *self._maybe_propose_recovery())

    def _handle_answer(self, answer: AlterPartitionAnswered, now_ms: int) -> tuple[LeaderEffect, ...]:
        is_release = isinstance(self._isr.state, PendingRelease)
        if self._isr.handle_answer(answer, now_ms):
            self._recovering = False  # every proposal says that recovery is done
        has_changed = self._isr.partition_epoch != self._metadata.partition_epoch
        if is_release and not self._isr.change_pending and not has_changed:
            self._release_refused = True
        return self._isr.take_change()

    def _resign(self) -> tuple[LeaderEffect, ...]:
        self._resigned = True
        return self._complete(self._produces.pop_all(), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refuse(self, message: LeaderMessage) -> tuple[LeaderEffect, ...]:
        waiting = message.waiting if isinstance(message, Appended) else ()
        return self._complete([one.request_id for one in waiting], ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- ISR --------------------------------------------------------------------------------------------------------

    def _maybe_propose_recovery(self) -> tuple[ProposeIsr, ...]:
        if not self._recovering or not self._isr.may_propose:
            return ()
        return self._propose(PendingRecovery(self._isr.committed_isr), "recovered after an unclean election")

    def _maybe_shrink(self, now_ms: int) -> tuple[ProposeIsr, ...]:
        if not self._isr.may_propose:
            return ()
        isr = self._isr.committed_isr
        behind = self._replicas.fallen_behind(isr, self._log_end_offset, now_ms)
        if not behind:
            return ()
        return self._propose(PendingShrink(isr, behind), f"replicas {list(behind)} have not caught up in time")

    def _maybe_expand(self, replica: ReplicaState) -> tuple[ProposeIsr, ...]:
        """Proposes to let a replica join that holds everything acknowledged, of this epoch too (docs/KAFKA.md 4.2)."""
        if not self._isr.may_propose or replica.replica_id in self._isr.committed_isr:
            return ()
        end_offset = self._counted_end(replica)
        if end_offset < max(self._high_watermark, self._epoch_start_offset) or not self._replicas.is_eligible(replica):
            return ()
        pending = PendingExpand(self._isr.committed_isr, replica.replica_id)
        return self._propose(pending, f"replica {replica.replica_id} caught up at offset {end_offset}")

    def _maybe_release(self, now_ms: int) -> tuple[ProposeIsr, ...]:
        """Asks for an empty ELR when records wait that a member of it is not known to have."""
        is_known = self._isr.partition_epoch == self._metadata.partition_epoch  # else news of the ELR is on its way
        if not self._isr.may_propose or not is_known or self._release_refused:
            return ()
        if self._high_watermark >= self._log_end_offset:
            return ()
        isr = self._isr.committed_isr
        if len(isr) < self._min_isr():
            return ()  # nothing can be committed without them either
        if now_ms < self._grace_until_ms and self._log_end_offset == self._epoch_start_offset:
            return ()
        members = (replica for replica in self._replicas if replica.replica_id in self._metadata.elr)
        lacking = [member.replica_id for member in members if self._counted_end(member) < self._log_end_offset]
        if not lacking:
            return ()
        return self._propose(PendingRelease(isr), f"records wait that replicas {lacking} of the ELR may lack")

    def _propose(self, pending: PendingIsr, reason: str) -> tuple[ProposeIsr, ...]:
        epochs = self._replicas.broker_epochs(pending.proposed_isr)
        return (self._isr.propose(pending, epochs, reason),)

    # ---- high watermark and what waits for it -----------------------------------------------------------------------

    def _advance(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Takes the steps that follow from any change: the high watermark, then the answers, then the next flush."""
        before = self._high_watermark
        self._high_watermark = self._compute_high_watermark(now_ms)
        advanced = (HighWatermarkAdvanced(self._high_watermark),) if self._high_watermark > before else ()
        reached = self._complete(self._produces.pop_reached(self._high_watermark), self._error_when_reached())
        expired = self._complete(self._produces.pop_expired(now_ms), ErrorCode.REQUEST_TIMED_OUT)
        effects = (*advanced, *reached, *expired, *self._maybe_request_flush())
        return (*effects, *self._maybe_release(now_ms)) if self._metadata.elr else effects

    def _compute_high_watermark(self, now_ms: int) -> int:
        isr_size = len(self._isr.committed_isr)
        own_end = arithmetic.counted_end_offset(
            log_end_offset=self._log_end_offset,
            flushed_offset=self._flushed_offset,
            waits_for_flush=arithmetic.leader_waits_for_flush(self._flush_policy, self._isr.least_size),
        )
        elr = self._metadata.elr
        waited_for = (*self._isr.maximal_isr, *elr) if elr else self._isr.maximal_isr
        counting = self._replicas.counting(waited_for, self._log_end_offset, now_ms)
        ends = [own_end, *(self._counted_end(replica) for replica in counting)]
        return arithmetic.high_watermark(
            self._high_watermark, ends, committed_isr_size=isr_size, min_isr=self._min_isr()
        )

    def _counted_end(self, replica: ReplicaState) -> int:
        return arithmetic.counted_end_offset(
            log_end_offset=replica.log_end_offset,
            flushed_offset=replica.flushed_offset,
            waits_for_flush=arithmetic.follower_waits_for_flush(self._flush_policy),
        )

    def _error_when_reached(self) -> ErrorCode:
        if len(self._isr.maximal_isr) < self._min_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _maybe_request_flush(self) -> tuple[RequestFlush, ...]:
        """Asks for one fsync at a time: records that are appended while it runs are covered by the next (group commit)."""
        waits = arithmetic.leader_waits_for_flush(self._flush_policy, self._isr.least_size)
        if not waits or len(self._isr.committed_isr) < self._min_isr():
            return ()
        if self._flushed_offset >= self._log_end_offset or self._flushed_offset < self._flush_requested_to:
            return ()
        self._flush_requested_to = self._log_end_offset
        return (RequestFlush(),)

    @staticmethod
    def _complete(request_ids: list[int], error: ErrorCode) -> tuple[ProduceCompleted, ...]:
        return tuple(ProduceCompleted(request_id, error) for request_id in request_ids)

    # ---- small things -----------------------------------------------------------------------------------------------

    def _min_isr(self) -> int:
        return arithmetic.effective_min_isr(self._metadata.min_insync_replicas, len(self._metadata.replicas))

    def _own_state_or_raise(self, state: PartitionState) -> PartitionState:
        if state.leader != self._broker_id:
            raise InvariantViolationError(
                f"{self._topic_partition}: broker {self._broker_id} was told to lead a partition of leader {state.leader}"
            )
        return state

    def _replica_status(self, replica_id: int) -> ReplicaStanding:
        if replica_id not in self._replicas:
            return ReplicaStanding(replica_id, self._log_end_offset, self._flushed_offset, 0, None, None)
        replica = self._replicas[replica_id]
        return ReplicaStanding(
            replica_id=replica_id,
            log_end_offset=replica.log_end_offset,
            flushed_offset=replica.flushed_offset,
            lag=self._log_end_offset - max(0, replica.log_end_offset),
            broker_epoch=replica.broker_epoch,
            last_caught_up_time_ms=replica.last_caught_up_time_ms,
        )
