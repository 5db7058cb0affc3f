"""What a consumer knows of one partition."""

from __future__ import annotations

from uuid import UUID

from replog.client.consumer.fetch_state import PartitionFetch
from replog.client.types import TopicPartition


def test_the_pause_after_refusals_in_a_row_grows_and_begins_anew_after_service() -> None:
    state = PartitionFetch(TopicPartition("t", 0), UUID(int=1), 0)
    pauses_s, now_s = [], 0.0
    for _ in range(8):
        pauses_s.append(state.avoid_replica(now_s, 0.5, 20.0))
        assert state.leader_only
        now_s += pauses_s[-1]
    assert pauses_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    assert state.avoid_replica(now_s + 20.0, 0.5, 20.0) == 20.0
    assert state.avoid_replica(now_s + 40.0 + 20.1, 0.5, 20.0) == 0.5
