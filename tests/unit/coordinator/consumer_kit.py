"""Members of a group whose coordinator assigns, one request at a time."""

from __future__ import annotations

from typing import Any

from shard_kit import Host, topic_id

from replog.coordinator.assignors import Assignment, assignment_of
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    OffsetToCommit,
    TopicToCommit,
)
from replog.coordinator.runtime.messages import Tick

SESSION_MS, REBALANCE_MS = 1_000, 300
CONFIG = GroupsConfig(consumers=ConsumersConfig(SESSION_MS, 100, max_size=4))
T = topic_id("t")


def parts(*partitions: int) -> Assignment:
    return assignment_of((T, each) for each in partitions)


def joining(member_id: str, *names: str, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g", member_id, 0, rebalance_timeout_ms=REBALANCE_MS, subscribed_topics=names or ("t",), owned={}, **more
    )


def beat(member_id: str, epoch: int, owned: Assignment | None = None, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member_id, epoch, owned=owned, **more)


def told(host: Host, request: ConsumerHeartbeat) -> tuple[int, Assignment | None]:
    """Epoch and assignment of the answer."""
    answer: ConsumerHeartbeatResponse = host.ask(request)
    assert answer.heartbeat_interval_ms == CONFIG.consumers.heartbeat_interval_ms
    return answer.member_epoch, answer.assignment


def commit(member_id: str, epoch: int, offset: int = 1) -> CommitOffsets:
    topic = TopicToCommit("t", T, (OffsetToCommit(0, offset),))
    return CommitOffsets("g", (topic,), member_id, None, epoch)


def pass_time(host: Host, until_ms: int) -> None:
    while (due := host.shard.next_deadline_ms()) is not None and due <= until_ms:
        host.now_ms = max(host.now_ms, due)
        host.step(Tick())
    host.now_ms = until_ms
    host.commit()
