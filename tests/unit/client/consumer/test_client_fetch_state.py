"""What a consumer knows of one partition."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.client.consumer.fetch_state import PartitionFetch
from replog.client.types import TopicPartition
from replog.errors import CorruptRecordError, ErrorCode
from replog.records import encode_batch
from replog.rpc.messages import FetchResult


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


@pytest.mark.parametrize("position", [23, 26, 57])
def test_what_comes_before_a_header_that_cannot_be_is_read(position: int) -> None:
    """Else each fetch is the same, and its broker never looks at the batch: it does where a read begins."""
    state = PartitionFetch(TopicPartition("t", 0), UUID(int=1), 0)
    batches = [bytearray(encode_batch([(1, None, b"v", ())], base_offset=offset)) for offset in range(4)]
    batches[2][position] ^= 0x80
    result = FetchResult(UUID(int=1), 0, ErrorCode.NONE, 0, high_watermark=4)
    chunk = state.accept(result, b"".join(batches), None)
    assert chunk is not None
    assert len(chunk.data) == chunk.headers[-1].end_position
    if state.fetch_offset == 2:  # the next read begins at it
        with pytest.raises(CorruptRecordError):
            state.accept(result, b"".join(batches[2:]), None)
    else:  # who decodes it looks at its checksum
        assert chunk.headers[-1].base_offset == 2
