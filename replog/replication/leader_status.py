"""What a partition's leader says about itself: for `describe`, metrics and tests.  Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica as the leader sees it, the leader itself included.

    Attributes:
        log_end_offset: exclusive; -1 when it has not fetched yet.
        flushed_offset: exclusive; -1 when it has not fetched yet.
        lag: offsets it is behind the leader's log end; the whole log when it has not fetched yet.
        broker_epoch: of its last fetch; None before, and for the leader itself.
        last_caught_up_time_ms: monotonic; None: never; the leader itself always is.
    """

    replica_id: int
    log_end_offset: int
    flushed_offset: int
    lag: int
    broker_epoch: int | None
    last_caught_up_time_ms: int | None

    def lag_ms(self, now_ms: int) -> int | None:
        """How long it has been behind: 0 with nothing missing; None when it is not known to have had everything.

        A follower that has everything waits for news, and its last time is from before it began to wait.
        """
        if self.lag == 0:
            return 0
        return None if self.last_caught_up_time_ms is None else max(0, now_ms - self.last_caught_up_time_ms)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """A leader at one moment.  Offsets are exclusive.

    Attributes:
        epoch_start_offset: log end when this leader epoch began.
        isr: committed.
        maximal_isr: what the high watermark waits for.
        elr: eligible leaders outside the ISR, as the metadata says.
        min_insync_replicas: in force, at most the number of replicas.
        replicas: in assignment order.
        lag: the largest lag of a member of the committed ISR, in offsets.
        waiting_produces: acks=all requests not answered yet.
    """

    topic_partition: str
    leader_epoch: int
    partition_epoch: int
    epoch_start_offset: int
    high_watermark: int
    log_end_offset: int
    flushed_offset: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_insync_replicas: int
    replicas: tuple[ReplicaStatus, ...]
    lag: int
    waiting_produces: int
    recovering: bool
