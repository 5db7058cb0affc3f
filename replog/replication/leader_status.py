"""The state of a partition's leader, for `describe`, metrics and tests.  Plain data."""

from __future__ import annotations

from msgspec import Struct


class ReplicaStanding(Struct, frozen=True):
    """One replica as the leader sees it, the leader itself included.

    Attributes:
        log_end_offset: The end of its log, exclusive; -1 when it has not fetched yet.
        flushed_offset: The end of its flushed records, exclusive; -1 when it has not fetched yet.
        lag: The number of offsets it is behind the leader's log end; the whole log when it has not fetched yet.
        broker_epoch: The broker epoch of its last fetch; None before, and for the leader itself.
        last_caught_up_time_ms: The last time it was caught up (monotonic); None: never; the leader itself always is.
    """

    replica_id: int
    log_end_offset: int
    flushed_offset: int
    lag: int
    broker_epoch: int | None
    last_caught_up_time_ms: int | None

    def lag_ms(self, now_ms: int) -> int | None:
        """Returns how long it has been behind: 0 if nothing is missing, None if it is not known to have had everything.

        A follower that has everything waits for news, so its last time is from before it began to wait.
        """
        if self.lag == 0:
            return 0
        return None if self.last_caught_up_time_ms is None else max(0, now_ms - self.last_caught_up_time_ms)


class LeaderStatus(Struct, frozen=True):
    """A leader at one moment.  Offsets are exclusive.

    Attributes:
        epoch_start_offset: The log end when this leader epoch began.
        isr: The committed ISR.
        maximal_isr: The replicas that the high watermark waits for.
        elr: The eligible leader replicas, as the metadata says.
        min_insync_replicas: The effective min ISR: at most the number of replicas.
        replicas: The replicas in assignment order.
        lag: The largest lag of a member of the committed ISR, in offsets.
        waiting_produces: The number of `acks=all` requests that are not answered yet.
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
    replicas: tuple[ReplicaStanding, ...]
    lag: int
    waiting_produces: int
    recovering: bool
