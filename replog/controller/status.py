"""The controller for people and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from replog.metadata.records import ElectionType


class ControllerStatus(Struct, frozen=True):
    """What an operator wants to know; counts are of the newest state, uncommitted changes included.

    Attributes:
        epoch: The leader epoch of the current term; -1 when not active.
        committed_end_offset: The end of what a majority has.
        stable_end_offset: The end of what counts: less than committed only while a transaction of the metadata log is
            open.
        next_write_offset: The offset of the next record that this controller appends; -1 when not active.
        queued_requests: The number of requests that wait for this controller to become active.
        parked_requests: The number of answers that wait for a commit.
        elections: The leader elections that this node has replayed, by how the leader was chosen.
        drained_brokers: The brokers that shall be emptied, and how many replicas each still has.
        failed_rounds: The rounds of periodic tasks that failed and are tried again, by task.
    """

    is_active: bool
    epoch: int
    committed_end_offset: int
    stable_end_offset: int
    next_write_offset: int
    queued_requests: int
    parked_requests: int
    registered_brokers: tuple[int, ...]
    unfenced_brokers: tuple[int, ...]
    topics_count: int
    partitions_count: int
    leaderless_partitions_count: int
    imbalanced_partitions_count: int
    reassigning_partitions_count: int
    elections: Mapping[ElectionType, int]
    drained_brokers: Mapping[int, int]
    failed_rounds: Mapping[str, int]
