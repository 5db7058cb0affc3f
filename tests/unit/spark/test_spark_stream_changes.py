"""What happened to partitions since a stream stood somewhere."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.client.types import TopicPartition
from replog.errors import OffsetOutOfRangeError
from replog.spark.stream.changes import Known, LogBounds, LossKey, Resumption, epochs_to_check, resume, tell_losses
from replog.spark.stream.offset import Place

OLD, NEW = UUID(int=1), UUID(int=2)
P = TopicPartition("t", 0)


def known(bounds: LogBounds | None, *, is_untold: bool = False) -> Known:
    return Known("c", {} if bounds is None else {P: bounds}, frozenset({P} if is_untold else ()))


def after(place: Place | None, now: Known, epoch_end: int | None = None) -> tuple[Place | None, str]:
    """Where P goes on, and what is lost."""
    before = {} if place is None else {P: place}
    found = resume(before, now, {} if epoch_end is None else {P: epoch_end})
    return found.begin.get(P), "; ".join(loss.text for loss in found.losses)


def test_nothing_happened() -> None:
    assert after(Place(OLD, 50, 3), known(LogBounds(OLD, 0, 80, 3))) == (Place(OLD, 50, 3), "")


def test_a_clean_election_changes_the_epoch_only() -> None:
    now = known(LogBounds(OLD, 0, 80, 5))
    assert epochs_to_check({P: Place(OLD, 50, 3)}, now) == {P: 3}
    assert after(Place(OLD, 50, 3), now, 60) == (Place(OLD, 50, 5), "")


def test_a_new_partition_starts_at_its_first_record() -> None:
    assert after(None, known(LogBounds(OLD, 0, 80, 3))) == (Place(OLD, 0, 3), "")


def test_a_new_partition_that_was_cut_already_lost_something() -> None:
    begin, lost = after(None, known(LogBounds(OLD, 20, 80, 3)))
    assert begin == Place(OLD, 20, 3)
    assert "t-0: is new to the stream, and its offsets [0, 20) were deleted before they were read" in lost


def test_a_deleted_topic() -> None:
    begin, lost = after(Place(OLD, 50, 3), known(None))
    assert begin is None
    assert f"t-0: offsets from 50 on cannot be read: the topic (id {OLD}) was deleted" in lost


def test_a_partition_nobody_has_told_about_is_no_loss() -> None:
    """Goal: metadata name it, its leader has not answered yet."""
    assert after(Place(OLD, 50, 3), known(None, is_untold=True)) == (Place(OLD, 50, 3), "")


def test_a_topic_created_anew_is_read_from_its_first_record() -> None:
    now = known(LogBounds(NEW, 0, 7, 0))
    assert epochs_to_check({P: Place(OLD, 50, 3)}, now) == {}
    begin, lost = after(Place(OLD, 50, 3), now)
    assert begin == Place(NEW, 0, 0)
    assert f"another one of its name (id {NEW}) has [0, 7)" in lost


def test_retention_passed_the_checkpoint() -> None:
    begin, lost = after(Place(OLD, 50, 3), known(LogBounds(OLD, 60, 80, 3)))
    assert begin == Place(OLD, 60, 3)
    assert "t-0: offsets [50, 60) were deleted before they were read; the log is [60, 80) now" in lost


def test_records_deleted_up_to_where_the_stream_stands_are_no_loss() -> None:
    assert after(Place(OLD, 50, 3), known(LogBounds(OLD, 50, 50, 4)), 30) == (Place(OLD, 50, 4), "")


@pytest.mark.parametrize("high_watermark", [40, 50, 70])
def test_an_unclean_election_replaced_what_was_read(high_watermark: int) -> None:
    """Goal: found by the epoch also where the new log is longer than the old one; the new records are read from its fork."""
    begin, lost = after(Place(OLD, 50, 3), known(LogBounds(OLD, 0, high_watermark, 5)), 40)
    assert begin == Place(OLD, 40, 5)
    assert "t-0: offsets [40, 50) were read and are not in the log any more" in lost
    assert f"it is [0, {high_watermark}) in leader epoch 5, the stream stood at 50 in epoch 3" in lost


def test_a_high_watermark_below_the_checkpoint_is_a_loss_without_epochs_too() -> None:
    begin, lost = after(Place(OLD, 50, 3), known(LogBounds(OLD, 0, 40, 5)))
    assert begin == Place(OLD, 40, 5)
    assert "offsets [40, 50)" in lost


def test_what_an_earlier_leader_says_is_no_news() -> None:
    """Goal: its high watermark lags behind that of the leader after it."""
    now = known(LogBounds(OLD, 0, 40, 2))
    assert after(Place(OLD, 50, 3), now, 40) == (Place(OLD, 50, 3), "")


places = st.builds(Place, st.sampled_from([OLD, NEW]), st.integers(0, 60), st.integers(0, 5))


@st.composite
def logs(draw: st.DrawFn) -> LogBounds:
    start = draw(st.integers(0, 60))
    return LogBounds(OLD, start, start + draw(st.integers(0, 60)), draw(st.integers(0, 5)))


@given(places, logs(), st.none() | st.integers(0, 80))
def test_a_stream_goes_on_inside_of_the_log_and_tells_every_gap(
    place: Place, bounds: LogBounds, epoch_end: int | None
) -> None:
    begin, lost = after(place, known(bounds), epoch_end)
    assert begin is not None
    if bounds.topic_id == place.topic_id and bounds.leader_epoch < place.leader_epoch:
        assert (begin, lost) == (place, "")
        return
    assert bounds.log_start_offset <= begin.offset <= bounds.high_watermark
    assert begin.leader_epoch == bounds.leader_epoch
    is_same = begin.offset == place.offset and begin.topic_id == place.topic_id
    assert is_same == (not lost)


def test_losses_fail_the_query_with_every_range() -> None:
    before = {P: Place(OLD, 5, 1), TopicPartition("t", 1): Place(OLD, 6, 1)}
    now = Known("c", {P: LogBounds(OLD, 10, 20, 1), TopicPartition("t", 1): LogBounds(OLD, 30, 40, 1)})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        tell_losses(resume(before, now, {}).losses, fail=True, told=set())
    assert "t-0: offsets [5, 10)" in str(caught.value)
    assert "t-1: offsets [6, 30)" in str(caught.value)
    assert 'Set failOnDataLoss to "false"' in str(caught.value)


def test_losses_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: an idle query looks 80 times a second."""
    told: set[LossKey] = set()
    losses = resume({P: Place(OLD, 5, 1)}, known(LogBounds(OLD, 10, 20, 1)), {}).losses
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tell_losses(losses, fail=False, told=told)
    assert caplog.text.count("offsets [5, 10)") == 1


def test_no_loss_is_no_error() -> None:
    tell_losses(Resumption({}, ()).losses, fail=True, told=set())
