"""Which leader epoch the record before an offset was written in."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.client.consumer.epoch_spans import SPANS_MAX, EpochSpans
from replog.client.consumer.fetch_state import PartitionFetch
from replog.client.types import TopicPartition
from replog.records import BatchHeader, encode_batch, scan
from replog.rpc.messages import DivergingEpoch


def headers(*batches: tuple[int, int, int]) -> list[BatchHeader]:
    """Batches by epoch, first offset, and count of records."""
    found: list[BatchHeader] = []
    for epoch, base_offset, count in batches:
        records = [(0, None, b"", ())] * count
        found += scan(encode_batch(records, base_offset=base_offset, partition_leader_epoch=epoch))
    return found


def told(spans: EpochSpans, *offsets: int) -> list[int]:
    return [spans.before(each) for each in offsets]


def test_each_offset_has_the_epoch_of_the_record_before_it() -> None:
    spans = EpochSpans(10, 3)
    assert told(spans, 9, 10, 11) == [-1, 3, -1]
    spans.add(headers((3, 10, 5), (5, 15, 5), (5, 25, 5)))
    spans.add(headers((5, 30, 1)))
    assert told(spans, 10, 15, 16, 20, 23, 31, 32) == [3, 3, 5, 5, 5, 5, -1]


def test_a_gap_between_epochs_has_none() -> None:
    """What was removed by compaction may have been of either, or of another."""
    spans = EpochSpans(0)
    spans.add(headers((1, 0, 5), (4, 9, 1)))
    assert told(spans, 0, 5, 6, 9, 10) == [-1, 1, -1, -1, 4]


def test_what_is_read_again_after_a_cut_counts() -> None:
    spans = EpochSpans(0)
    spans.add(headers((1, 0, 5), (4, 5, 5)))
    spans.cut(3)
    assert told(spans, 3, 4, 7) == [1, -1, -1]
    spans.add(headers((1, 0, 5), (6, 5, 5)))
    assert told(spans, 3, 5, 7) == [1, 1, 6]


@pytest.mark.parametrize(("end_offset", "is_cut"), [(100, True), (119, True), (120, False), (130, False)])
def test_an_epoch_that_was_committed_may_have_had_no_record(end_offset: int, is_cut: bool) -> None:
    state = PartitionFetch(TopicPartition("t", 0), UUID(int=1), 120, epoch=3)
    state.part(DivergingEpoch(2, end_offset))
    assert (state.diverging is not None, state.last_epoch) == (is_cut, 3 if is_cut else -1)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "parting"),
    [(3, 20, 5), (3, 4, 4), (4, 20, 5), (5, 8, 8), (2, 20, 0)],
)
def test_what_was_read_of_later_epochs_is_not_in_the_log_wherever_that_ends(
    epoch: int, end_offset: int, parting: int
) -> None:
    """After two unclean elections the log may be longer than what was read, and another one all the same."""
    state = PartitionFetch(TopicPartition("t", 0), UUID(int=1), 0)
    state.fetch_offset = state.position = 10
    state.epochs.add(headers((3, 0, 5), (5, 5, 5)))
    state.part(DivergingEpoch(epoch, end_offset))
    assert state.diverging is not None
    assert state.diverging.end_offset == parting
    state.rewind(parting)
    assert state.last_epoch == {0: -1, 4: 3, 5: 3, 8: 5}[parting]


def test_an_epoch_that_was_committed_is_so_again_after_a_rewind() -> None:
    state = PartitionFetch(TopicPartition("t", 0), UUID(int=1), 10, epoch=3)
    state.epochs.add(headers((4, 10, 5)))
    state.position = state.fetch_offset = 15
    state.rewind(10)
    state.part(DivergingEpoch(2, 10))  # epoch 3 has had no record
    assert state.diverging is None


def test_nothing_parts_before_the_first_offset() -> None:
    spans = EpochSpans(0, 3)
    spans.add(headers((3, 0, 5)))
    assert spans.parting(1, 0) == 0


def test_no_more_epochs_are_remembered_than_some() -> None:
    spans = EpochSpans(0)
    spans.add(headers(*((epoch, epoch, 1) for epoch in range(SPANS_MAX + 1))))
    assert told(spans, 1, 2, SPANS_MAX + 1) == [-1, 1, SPANS_MAX]
