"""The follower's reactions to answers, errors and time (docs/KAFKA.md 4.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from replication_harness import ListLog

from replog.errors import ErrorCode
from replog.metadata.config_keys import FlushPolicy
from replog.replication.follower import Follower, FollowerState
from replog.replication.messages import (
    Appended,
    AppendFetched,
    EpochEnd,
    FetchAnswered,
    FetchedMisfits,
    FetchFailed,
    FetchPosition,
    Flushed,
    LogContradicted,
    RequestFlush,
    SetHighWatermark,
    SetLogStartOffset,
    Tick,
    TruncateFullyAndStartAt,
    TruncateTo,
)

# at offset 3 in leader epoch 4, the leader at 10 with high watermark 8
ANSWER = FetchAnswered(
    fetch_offset=3,
    leader_epoch=4,
    error=ErrorCode.NONE,
    high_watermark=8,
    log_start_offset=0,
    leader_end_offset=10,
    size_bytes=100,
)
EMPTY = replace(ANSWER, size_bytes=0)


def three_records() -> ListLog:
    return ListLog([(1, "a"), (1, "b"), (2, "c")])


def following(log: ListLog, high_watermark: int = 2, flush_policy: FlushPolicy = FlushPolicy.AUTO) -> Follower:
    follower = Follower(
        topic_partition="flights-0",
        broker_id=2,
        leader_id=1,
        leader_epoch=4,
        log=log,
        high_watermark=high_watermark,
        flush_policy=flush_policy,
        now_ms=0,
    )
    assert follower.next_deadline_ms() == 0
    assert follower.step(Tick(), 0) == ()
    return follower


def failing(error: ErrorCode) -> FetchAnswered:
    return replace(ANSWER, error=error, size_bytes=0)


def test_asks_from_its_log_end_with_its_last_epoch() -> None:
    assert following(three_records()).fetch_position(0) == FetchPosition(3, 3, 2, 4, 0)


def test_an_empty_log_asks_without_an_epoch() -> None:
    position = following(ListLog(), high_watermark=0).fetch_position(0)
    assert position == FetchPosition(0, 0, -1, 4, 0)


def test_no_fetch_before_the_answer_is_appended() -> None:
    log = three_records()
    follower = following(log)
    assert follower.step(ANSWER, 0) == (AppendFetched(4),)
    assert follower.fetch_position(0) is None
    assert follower.step(ANSWER, 0) == ()
    log.append(4, "d")
    assert follower.step(Appended(4), 0) == (SetHighWatermark(4),)
    assert follower.fetch_position(0) == FetchPosition(4, 3, 4, 4, 0)


def test_the_high_watermark_follows_the_leader_within_the_log() -> None:
    follower = following(three_records())
    assert follower.step(EMPTY, 0) == (SetHighWatermark(3),)
    assert follower.step(EMPTY, 0) == ()
    assert follower.step(replace(EMPTY, high_watermark=1), 0) == (SetHighWatermark(1),)
    assert follower.high_watermark == 1


def test_the_log_start_follows_the_leader_as_far_as_committed() -> None:
    effects = following(three_records()).step(replace(EMPTY, high_watermark=2, log_start_offset=1), 0)
    assert effects == (SetLogStartOffset(1),)
    effects = following(three_records()).step(replace(EMPTY, high_watermark=2, log_start_offset=5), 0)
    assert effects == (SetLogStartOffset(2),)


@pytest.mark.parametrize("stale", [replace(ANSWER, fetch_offset=2), replace(ANSWER, leader_epoch=3)])
def test_answers_to_another_position_are_dropped(stale: FetchAnswered) -> None:
    assert following(three_records()).step(stale, 0) == ()


@pytest.mark.parametrize(
    ("leader_end", "offset"),
    [
        pytest.param(EpochEnd(2, 2), 2, id="the epoch began here at its end there"),
        pytest.param(EpochEnd(1, 1), 1, id="ended earlier there"),
        pytest.param(EpochEnd(1, 9), 2, id="ended earlier here"),
        pytest.param(EpochEnd(0, 9), 0, id="before all epochs here"),
        pytest.param(EpochEnd(3, 1), 1, id="later than all epochs here"),
        pytest.param(EpochEnd(-1, -1), 2, id="the leader knows nothing: high watermark"),
    ],
)
def test_divergence_cuts(leader_end: EpochEnd, offset: int) -> None:
    effects = following(three_records()).step(replace(ANSWER, diverging=leader_end), 0)
    cut = effects[0]
    assert isinstance(cut, TruncateTo)
    assert cut.offset == offset
    assert effects[1:] == (() if offset >= 2 else (SetHighWatermark(offset),))


def test_an_epoch_the_follower_does_not_know_cuts_to_its_own_earlier_one() -> None:
    log = ListLog([(1, "a"), (1, "b"), (5, "c"), (5, "d")])
    effects = following(log).step(replace(ANSWER, fetch_offset=4, diverging=EpochEnd(3, 3)), 0)
    assert isinstance(effects[0], TruncateTo)
    assert effects[0].offset == 2


def test_no_fetch_and_no_answer_while_the_log_is_being_cut() -> None:
    log = three_records()
    follower = following(log)
    follower.step(replace(ANSWER, diverging=EpochEnd(1, 1)), 0)
    assert follower.fetch_position(0) is None
    assert follower.step(ANSWER, 0) == ()
    log.truncate_to(1)
    assert follower.fetch_position(0) == FetchPosition(1, 1, 1, 4, 0)
    assert follower.step(replace(ANSWER, fetch_offset=1), 0) == (AppendFetched(4),)
    log.append(3, "x")
    log.append(3, "y")
    follower.step(Appended(3), 0)
    position = follower.fetch_position(0)
    assert position is not None
    assert position.fetch_offset == 3


def test_out_of_range_beyond_the_leaders_end_cuts_to_it() -> None:
    effects = following(three_records()).step(replace(failing(ErrorCode.OFFSET_OUT_OF_RANGE), leader_end_offset=1), 0)
    assert isinstance(effects[0], TruncateTo)
    assert effects[0].offset == 1
    assert effects[1] == SetHighWatermark(1)


def test_out_of_range_below_the_leaders_start_begins_again_there() -> None:
    log = three_records()
    follower = following(log)
    effects = follower.step(replace(failing(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=7), 0)
    assert isinstance(effects[0], TruncateFullyAndStartAt)
    assert effects[0].offset == 7
    assert effects[1] == SetHighWatermark(7)
    assert follower.fetch_position(0) is None
    log.restart_at(7)
    assert follower.fetch_position(0) == FetchPosition(7, 7, -1, 4, 7)


def test_out_of_range_that_is_in_range_again_goes_on_after_a_pause() -> None:
    follower = following(three_records())
    assert follower.step(failing(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == ()
    assert follower.fetch_position(19) is None
    assert follower.fetch_position(20) == FetchPosition(3, 3, 2, 4, 0)


def test_a_cut_below_the_own_start_begins_again_there() -> None:
    log = ListLog([(2, "f"), (2, "g")], start=5)
    follower = following(log, high_watermark=6)
    effects = follower.step(
        replace(failing(ErrorCode.OFFSET_OUT_OF_RANGE), fetch_offset=7, leader_end_offset=2),
        0,
    )
    assert isinstance(effects[0], TruncateFullyAndStartAt)
    assert effects[0].offset == 2


def test_fenced_waits_for_new_metadata() -> None:
    follower = following(three_records())
    follower.step(failing(ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert follower.fetch_position(999_999) is None
    assert follower.next_deadline_ms() is None
    assert follower.status().state is FollowerState.FAILED
    assert follower.step(ANSWER, 0) == ()


@pytest.mark.parametrize(
    "error",
    [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE],
)
def test_other_errors_pause(error: ErrorCode) -> None:
    follower = following(three_records())
    assert follower.step(failing(error), 5_000) == ()
    assert follower.next_deadline_ms() == 5_020
    assert follower.fetch_position(5_019) is None
    assert follower.status().state is FollowerState.BACKING_OFF
    follower.step(Tick(), 5_020)
    assert follower.next_deadline_ms() is None
    assert follower.fetch_position(5_020) is not None


def test_answers_of_no_use_pause_longer_and_longer_until_one_is_of_use() -> None:
    follower = following(three_records())
    pauses = []
    for _ in range(8):
        follower.step(failing(ErrorCode.UNKNOWN_LEADER_EPOCH), 0)
        pauses.append(follower.next_deadline_ms())
    assert pauses == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    follower.step(EMPTY, 0)
    follower.step(failing(ErrorCode.UNKNOWN_LEADER_EPOCH), 0)
    assert follower.next_deadline_ms() == 20


def test_lost_connections_pause_longer_and_longer_until_an_answer() -> None:
    follower = following(three_records())
    pauses = []
    for _ in range(6):
        follower.step(FetchFailed(), 0)
        pauses.append(follower.next_deadline_ms())
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    follower.step(EMPTY, 0)
    assert follower.fetch_position(0) is not None
    follower.step(FetchFailed(), 0)
    assert follower.next_deadline_ms() == 100


def test_an_answer_of_a_later_epoch_only_does_not_spin() -> None:
    follower = following(three_records())
    follower.step(ANSWER, 0)
    follower.step(Appended(3), 0)
    assert follower.fetch_position(0) is None
    assert follower.next_deadline_ms() == 20


def test_a_batch_that_does_not_fit_again_and_again_means_that_the_log_is_another_ones() -> None:
    """Once may be the way; a batch that is appended meanwhile shows that it was."""
    log = three_records()
    follower = following(log)
    misfit = FetchedMisfits("it overlaps")
    for now_ms in (0, 1_000):
        assert follower.step(ANSWER, now_ms) == (AppendFetched(4),)
        assert follower.step(misfit, now_ms) == ()
        assert follower.fetch_position(now_ms) is None, "it pauses"
        assert follower.step(Tick(), now_ms + 500) == ()
    assert follower.step(ANSWER, 2_000) == (AppendFetched(4),)
    log.append(4, "d")
    assert follower.step(Appended(4), 2_000) == (SetHighWatermark(4),)
    contradicted: tuple[object, ...] = ()
    for now_ms in (3_000, 4_000, 5_000):
        assert contradicted == ()
        assert follower.step(replace(ANSWER, fetch_offset=4), now_ms) == (AppendFetched(4),)
        contradicted = follower.step(misfit, now_ms)
        follower.step(Tick(), now_ms + 500)
    assert contradicted == (LogContradicted("it overlaps: the two logs are not of one partition"),)
    assert follower.status().state is FollowerState.FAILED
    assert follower.fetch_position(9_000) is None


@pytest.mark.parametrize("leader_end_offset", [2, 10], ids=["before our end", "behind our end"])
def test_an_epoch_that_no_leader_had_means_that_the_log_is_another_ones(leader_end_offset: int) -> None:
    """The leader cannot place it, and no cut would help: the follower asked for ever."""
    follower = following(ListLog([(1, "a"), (1, "b"), (7, "c")]))
    answer = replace(failing(ErrorCode.OFFSET_OUT_OF_RANGE), leader_end_offset=leader_end_offset)
    (effect,) = follower.step(answer, 0)
    assert isinstance(effect, LogContradicted)
    assert "leader epoch 7, and leader 1 leads in epoch 4" in effect.reason


def test_without_epochs_the_first_step_cuts_to_the_high_watermark() -> None:
    log = three_records()
    log.epochs = []
    follower = Follower(
        topic_partition="flights-0",
        broker_id=2,
        leader_id=1,
        leader_epoch=4,
        log=log,
        high_watermark=2,
        now_ms=5,
    )
    assert follower.fetch_position(5) is None
    (cut,) = follower.step(Tick(), 5)
    assert isinstance(cut, TruncateTo)
    assert cut.offset == 2
    assert follower.fetch_position(5) is None
    log.truncate_to(2)
    assert follower.fetch_position(5) == FetchPosition(2, 2, -1, 4, 0)


def test_flush_always_fetches_only_with_what_is_on_disk() -> None:
    log = three_records()
    follower = following(log, flush_policy=FlushPolicy.ALWAYS)
    follower.step(ANSWER, 0)
    log.append(4, "d")
    assert follower.step(Appended(4), 0) == (SetHighWatermark(4), RequestFlush())
    assert follower.step(Tick(), 0) == ()
    assert follower.fetch_position(0) is None
    log.flushed_offset = 4
    assert follower.step(Flushed(4), 0) == ()
    assert follower.fetch_position(0) == FetchPosition(4, 4, 4, 4, 0)


def test_flush_always_flushes_what_comes_in_place_of_a_tail_that_was_on_disk() -> None:
    log = three_records()
    log.flushed_offset = 3
    follower = following(log, flush_policy=FlushPolicy.ALWAYS)
    (cut, *_) = follower.step(replace(EMPTY, diverging=EpochEnd(1, 2)), 0)
    assert isinstance(cut, TruncateTo)
    log.truncate_to(2)
    log.flushed_offset = 2
    follower.step(replace(ANSWER, fetch_offset=2), 0)
    log.append(4, "d")
    assert RequestFlush() in follower.step(Appended(3), 0)


def test_status() -> None:
    status = following(three_records()).status()
    assert (status.state, status.log_end_offset, status.high_watermark) == (FollowerState.FETCHING, 3, 2)
