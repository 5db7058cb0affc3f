"""A follower of one partition: what to fetch next, what to do with the answer, where to cut.

Duties of the driver:

1. Make a new `Follower` for every leader epoch; step `Tick` right after construction and when `next_deadline_ms()` has
   come (the first step may cut a log that has no epochs).
2. Perform effects in order.  After `AppendFetched` always step `Appended` with the log's end, even if nothing was
   appended, or `FetchedMisfits`; after an fsync step `Flushed`.
3. Ask `fetch_position()` for every request; hand each partition's answer back with the position it was asked for.

Truncation follows leader epochs, not the high watermark (KIP-101): a high watermark reaches a follower one round trip
late, so cutting there loses acknowledged records, and two replicas that never compare epochs can keep different
records at one offset.  Rules: docs/KAFKA.md 4.5.

Epochs can agree although the logs have nothing in common: the folder of another partition was put in the place of this one's.
Then a batch of the leader does not fit behind our last one, or no leader of this partition has had our last epoch.  No cut
and no further fetch would help, so the replica counts as damaged.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, assert_never

from msgspec import Struct

from replog.errors import ErrorCode
from replog.metadata.config_keys import FlushPolicy
from replog.replication.messages import (
    Appended,
    AppendFetched,
    EpochEnd,
    FetchAnswered,
    FetchedMisfits,
    FetchFailed,
    FetchPosition,
    Flushed,
    FlushPolicyChanged,
    FollowerEffect,
    FollowerMessage,
    LogContradicted,
    ReplicaLogView,
    RequestFlush,
    SetHighWatermark,
    SetLogStartOffset,
    Tick,
    TruncateFullyAndStartAt,
    TruncateTo,
)

ANSWER_BACKOFF_MIN_MS: Final = 20
CONNECTION_BACKOFF_MIN_MS: Final = 100
MISFITS_MAX: Final = 3
"""How often a batch of the leader may not fit: after that it is no passing error."""


class FollowerState(Enum):
    """The state of a follower."""

    FETCHING = "fetching"
    WRITING = "writing"
    """An answer is being appended, or the log is being cut or flushed."""
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    """Nothing until the metadata names a later leader epoch."""


class FollowerStatus(Struct, frozen=True):
    """A follower at one moment.  End offsets and the high watermark are exclusive.

    Attributes:
        failed_reason: The reason in one line for people; empty unless failed.
    """

    topic_partition: str
    leader_id: int
    leader_epoch: int
    state: FollowerState
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    failed_reason: str


class Follower:
    """Decides for one partition this broker follows, in one leader epoch.  Driven by one task; owns no clock.

    Invariants:
        - the fetch offset is the local log end offset;
        - no fetch while an answer is being appended, the log is being cut, or (`flush.policy=always`) flushed: the
          fetch itself is the acknowledgement of all records below its offset;
        - `log start <= high watermark <= log end`.
    """

    def __init__(
        self,
        *,
        topic_partition: str,
        broker_id: int,
        leader_id: int,
        leader_epoch: int,
        log: ReplicaLogView,
        high_watermark: int,
        fetch_backoff_ms: int = 1_000,
        flush_policy: FlushPolicy = FlushPolicy.AUTO,
        now_ms: int,
    ) -> None:
        """Starts to follow.

        Args:
            topic_partition: The partition, for messages to people.
            broker_id: The id of this broker.
            leader_id: The broker to fetch from.
            leader_epoch: The epoch of that leadership; answers of another one are dropped.
            log: A read-only view of the local log, live: it shows each effect once performed.
            high_watermark: The last one known here, from the former role or the checkpoint.
            fetch_backoff_ms: The longest pause after an answer that cannot be used now, or a lost connection; the first
                is short, because a follower often hears of a new epoch some milliseconds before its leader.
            flush_policy: The policy of the topic.
            now_ms: The monotonic time.
        """
        self._topic_partition = topic_partition
        self._broker_id = broker_id
        self._leader_id = leader_id
        self._leader_epoch = leader_epoch
        self._log = log
        self._high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self._fetch_backoff_ms = fetch_backoff_ms
        self._flush_policy = flush_policy
        self._started = False
        self._start_at_ms = now_ms
        self._appending: FetchAnswered | None = None
        self._cut: TruncateTo | TruncateFullyAndStartAt | None = None
        self._flush_requested_to = log.flushed_offset
        self._backoff_until_ms: int | None = None
        self._failures = 0
        self._misfits_count = 0
        self._failed_reason = ""

    # ---- queries ----------------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        return self._leader_id

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def high_watermark(self) -> int:
        """The high watermark (exclusive) that this replica knows: one fetch behind the leader's."""
        return self._high_watermark

    def check_fetch_epoch(self, current_leader_epoch: int | None) -> ErrorCode:
        """Compares the leader epoch that a consumer's fetch was made for with this one's; None is not checked."""
        if current_leader_epoch is None or current_leader_epoch == self._leader_epoch:
            return ErrorCode.NONE
        older = current_leader_epoch < self._leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH

    def fetch_position(self, now_ms: int) -> FetchPosition | None:
        """Returns the position to fetch from; None while there is nothing to ask (see the invariants) or in a pause."""
        if self._backoff_until_ms is not None and now_ms < self._backoff_until_ms:
            return None
        if self._failed_reason or self._is_writing():
            return None
        last_epoch = self._log.last_epoch
        return FetchPosition(
            fetch_offset=self._log.log_end_offset,
            flushed_offset=self._log.flushed_offset,
            last_fetched_epoch=-1 if last_epoch is None else last_epoch,
            leader_epoch=self._leader_epoch,
            log_start_offset=self._log.log_start_offset,
        )

    def next_deadline_ms(self) -> int | None:
        """Returns when a pause of `fetch_position` ends; None when only a message can change anything."""
        if not self._started:
            return self._start_at_ms
        return self._backoff_until_ms

    def status(self) -> FollowerStatus:
        """Returns the follower at this moment."""
        return FollowerStatus(
            topic_partition=self._topic_partition,
            leader_id=self._leader_id,
            leader_epoch=self._leader_epoch,
            state=self._state(),
            log_start_offset=self._log.log_start_offset,
            log_end_offset=self._log.log_end_offset,
            flushed_offset=self._log.flushed_offset,
            high_watermark=self._high_watermark,
            failed_reason=self._failed_reason,
        )

    def _state(self) -> FollowerState:
        if self._failed_reason:
            return FollowerState.FAILED
        if self._backoff_until_ms is not None:
            return FollowerState.BACKING_OFF
        return FollowerState.WRITING if self._is_writing() else FollowerState.FETCHING

    def _is_writing(self) -> bool:
        return not self._started or self._appending is not None or self._is_cutting() or self._waits_for_flush()

    def _is_cutting(self) -> bool:
        """Whether the last cut is still to be performed, by what the log shows."""
        match self._cut:
            case None:
                return False
            case TruncateTo():
                return self._log.log_end_offset > self._cut.offset
            case TruncateFullyAndStartAt():
                return self._log.log_start_offset != self._cut.offset

    def _waits_for_flush(self) -> bool:
        return self._flush_policy is FlushPolicy.ALWAYS and self._log.flushed_offset < self._log.log_end_offset

    # ---- messages ---------------------------------------------------------------------------------------------------

    def step(self, message: FollowerMessage, now_ms: int) -> tuple[FollowerEffect, ...]:
        """Takes in one message; the effects are to be performed in order."""
        effects = self._start()
        match message:
            case Tick():
                if self._backoff_until_ms is not None and now_ms >= self._backoff_until_ms:
                    self._backoff_until_ms = None
            case Flushed():
                pass  # the log view shows it
            case FlushPolicyChanged():
                self._flush_policy = message.flush_policy
            case Appended():
                effects = (*effects, *self._handle_appended(message, now_ms))
            case FetchedMisfits():
                effects = (*effects, *self._handle_misfit(message, now_ms))
            case FetchAnswered():
                effects = (*effects, *self._handle_answer(message, now_ms))
            case FetchFailed():
                self._back_off_connection(now_ms)
            case _ as unreachable:
                assert_never(unreachable)
        return (*effects, *self._maybe_request_flush())

    def _start(self) -> tuple[FollowerEffect, ...]:
        """Cuts a log without epochs to its committed records: there is nothing to compare with the leader."""
        if self._started:
            return ()
        self._started = True
        if self._log.last_epoch is None and self._log.log_end_offset > self._high_watermark:
            return self._truncate_to(self._high_watermark, "the log has no leader epochs: cut to the high watermark")
        return ()

    def _handle_appended(self, message: Appended, now_ms: int) -> tuple[FollowerEffect, ...]:
        answer, self._appending = self._appending, None
        if answer is None:
            return ()
        if message.log_end_offset <= answer.fetch_offset:
            self._back_off(now_ms)  # all of it is from a later epoch: wait for the metadata that tells of it
        else:
            self._failures = 0
            self._misfits_count = 0
        return self._adopt(answer, message.log_end_offset)

    def _handle_misfit(self, misfit: FetchedMisfits, now_ms: int) -> tuple[FollowerEffect, ...]:
        """Asks for the same again.  If the batch does not fit `MISFITS_MAX` times, our log is wrong.

        The rest of the answer is not looked at: it is about another log than ours.
        """
        self._appending = None
        self._misfits_count += 1
        if self._misfits_count >= MISFITS_MAX:
            return self._contradicted(misfit.reason)
        self._back_off(now_ms)
        return ()

    def _contradicted(self, reason: str) -> tuple[FollowerEffect, ...]:
        self._failed_reason = f"{reason}: the two logs are not of one partition"
        return (LogContradicted(self._failed_reason),)

    def _handle_answer(self, answer: FetchAnswered, now_ms: int) -> tuple[FollowerEffect, ...]:
        if not self._is_current(answer):
            return ()
        self._backoff_until_ms = None
        self._cut = None  # performed, or this answer would not be current
        match answer.error:
            case ErrorCode.NONE:
                return self._handle_fetched(answer)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._handle_out_of_range(answer, now_ms)
            case ErrorCode.FENCED_LEADER_EPOCH:
                self._failed_reason = (
                    f"broker {self._leader_id} knows a later leader epoch than {self._leader_epoch}: "
                    "waiting for the metadata that tells of it"
                )
            case _:
                self._back_off(now_ms)
        return ()

    def _is_current(self, answer: FetchAnswered) -> bool:
        return (
            not self._failed_reason
            and self._appending is None
            and not self._is_cutting()
            and answer.leader_epoch == self._leader_epoch
            and answer.fetch_offset == self._log.log_end_offset
        )

    def _handle_fetched(self, answer: FetchAnswered) -> tuple[FollowerEffect, ...]:
        if answer.diverging is not None:  # its data and offsets are about another log than ours: not looked at
            return self._cut_divergence(answer.diverging)
        if answer.size_bytes > 0:
            self._appending = answer
            return (AppendFetched(self._leader_epoch),)
        self._failures = 0
        return self._adopt(answer, self._log.log_end_offset)

    def _adopt(self, answer: FetchAnswered, log_end_offset: int) -> tuple[FollowerEffect, ...]:
        """Adopts the leader's high watermark as far as our log goes, then its log start as far as that is committed."""
        log_start_offset = self._log.log_start_offset
        effects = self._set_high_watermark(max(log_start_offset, min(answer.high_watermark, log_end_offset)))
        new_start_offset = min(answer.log_start_offset, self._high_watermark)
        if new_start_offset > log_start_offset:
            effects = (*effects, SetLogStartOffset(new_start_offset))
        return effects

    # ---- cutting ----------------------------------------------------------------------------------------------------

    def _cut_divergence(self, leader_end: EpochEnd) -> tuple[FollowerEffect, ...]:
        """Cuts to the end of the latest epoch both logs share, or one step nearer to it.

        Where this log does not know the epoch the leader named, its own latest earlier epoch is kept and the next
        fetch compares again.
        """
        log_end_offset = self._log.log_end_offset
        facts = f"epoch {leader_end.epoch} ends at {leader_end.end_offset} on leader {self._leader_id}"
        if leader_end.end_offset < 0:
            return self._truncate_to(min(self._high_watermark, log_end_offset), "the leader knows none of our epochs")
        local_end = self._log.end_offset_for_epoch(leader_end.epoch)
        if local_end is None:
            return self._truncate_to(min(leader_end.end_offset, log_end_offset), facts)
        if local_end.epoch != leader_end.epoch:
            reason = f"{facts}, which is unknown here: cut to the end of epoch {local_end.epoch}"
            return self._truncate_to(min(local_end.end_offset, log_end_offset), reason)
        offset = min(local_end.end_offset, leader_end.end_offset, log_end_offset)
        return self._truncate_to(offset, f"{facts}, at {local_end.end_offset} here")

    def _handle_out_of_range(self, answer: FetchAnswered, now_ms: int) -> tuple[FollowerEffect, ...]:
        log_end_offset, last_epoch = self._log.log_end_offset, self._log.last_epoch
        if last_epoch is not None and last_epoch > self._leader_epoch:
            return self._contradicted(
                f"this log has records of leader epoch {last_epoch}, and leader {self._leader_id} leads in epoch {self._leader_epoch}"
            )
        if 0 <= answer.leader_end_offset < log_end_offset:
            reason = f"leader {self._leader_id} ends at {answer.leader_end_offset}, before our {log_end_offset}"
            return self._truncate_to(answer.leader_end_offset, reason)
        if answer.log_start_offset > log_end_offset:
            reason = f"leader {self._leader_id} starts at {answer.log_start_offset}, after our end {log_end_offset}"
            return self._restart_at(answer.log_start_offset, reason)
        self._back_off(now_ms)  # in range after all: go on from here, but not in a tight circle
        return ()

    def _truncate_to(self, offset: int, reason: str) -> tuple[FollowerEffect, ...]:
        """Cuts the log, even if no records go: an epoch without records at its end must leave the epoch cache."""
        if offset < self._log.log_start_offset:
            return self._restart_at(offset, reason)
        self._cut = TruncateTo(offset, reason)
        self._flush_requested_to = min(self._flush_requested_to, offset)  # records that follow are not on disk
        return (self._cut, *self._set_high_watermark(min(self._high_watermark, offset)))

    def _restart_at(self, offset: int, reason: str) -> tuple[FollowerEffect, ...]:
        self._cut = TruncateFullyAndStartAt(offset, reason)
        self._flush_requested_to = offset
        return (self._cut, *self._set_high_watermark(offset))

    # ---- small things -----------------------------------------------------------------------------------------------

    def _set_high_watermark(self, high_watermark: int) -> tuple[FollowerEffect, ...]:
        if high_watermark == self._high_watermark:
            return ()
        self._high_watermark = high_watermark
        return (SetHighWatermark(high_watermark),)

    def _maybe_request_flush(self) -> tuple[FollowerEffect, ...]:
        if not self._waits_for_flush() or self._log.flushed_offset < self._flush_requested_to:
            return ()
        self._flush_requested_to = self._log.log_end_offset
        return (RequestFlush(),)

    def _back_off(self, now_ms: int) -> None:
        """Pauses after an answer that cannot be used now: most often the leader has not heard of its epoch yet."""
        self._pause(ANSWER_BACKOFF_MIN_MS, now_ms)

    def _back_off_connection(self, now_ms: int) -> None:
        """Pauses after a lost connection: a restarting leader is back soon."""
        self._pause(CONNECTION_BACKOFF_MIN_MS, now_ms)

    def _pause(self, first_ms: int, now_ms: int) -> None:
        """Pauses: shortly at first, then twice as long each time up to the full pause, until an answer is of use."""
        self._backoff_until_ms = now_ms + min(first_ms << min(self._failures, 16), self._fetch_backoff_ms)
        self._failures += 1
