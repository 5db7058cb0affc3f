"""The history checker: every anomaly is found where it is, and only there."""

from __future__ import annotations

import pytest

from replog.testing.history import AnomaliesFoundError, Anomaly, AnomalyKind, History

T0 = ("t", 0)
T1 = ("t", 1)


def written(*values: bytes, history: History | None = None) -> History:
    """Values acknowledged at offsets 0, 1, ... of t-0 by producer p."""
    history = history or History()
    for offset, value in enumerate(values):
        history.send("p", value).acknowledged(T0, offset)
    return history


def read_at_the_end(history: History, *values: bytes) -> History:
    history.final_read(T0, 0, len(values), enumerate(values))
    return history


def kinds(history: History) -> list[tuple[AnomalyKind, int]]:
    return [(anomaly.kind, anomaly.offset) for anomaly in history.check()]


def test_an_empty_history_is_fine() -> None:
    assert History().check() == ()


def test_what_was_acknowledged_and_read_in_order_is_fine() -> None:
    history = written(b"a", b"b", b"c")
    history.poll("c", T0, [(0, b"a"), (1, b"b")])
    history.poll("c", T0, [(2, b"c")])
    assert read_at_the_end(history, b"a", b"b", b"c").check() == ()


def test_a_later_offset_was_read_and_this_one_never_is_a_lost_write() -> None:
    history = written(b"a", b"b")
    history.final_read(T0, 0, 2, [(1, b"b")])
    assert kinds(history) == [(AnomalyKind.LOST_WRITE, 0)]


def test_a_write_that_only_an_early_poll_saw_is_not_lost_but_a_stale_read() -> None:
    history = written(b"a", b"b")
    history.poll("c", T0, [(0, b"a")])
    history.final_read(T0, 0, 2, [(1, b"b")])
    assert kinds(history) == [(AnomalyKind.STALE_READ, 0)]


def test_an_acknowledged_tail_that_nobody_can_read_is_unseen() -> None:
    history = read_at_the_end(written(b"a", b"b"), b"a")
    assert kinds(history) == [(AnomalyKind.UNSEEN, 1)]


def test_everything_is_unseen_when_nothing_was_read() -> None:
    assert kinds(written(b"a")) == [(AnomalyKind.UNSEEN, 0)]


def test_an_unknown_outcome_may_be_in_the_log_or_not() -> None:
    history = History()
    history.send("p", b"in")
    history.send("p", b"out")
    assert read_at_the_end(history, b"in").check() == ()


def test_an_acknowledgement_and_a_poll_that_disagree_are_inconsistent_offsets() -> None:
    history = written(b"a")
    history.send("p", b"b")
    assert kinds(read_at_the_end(history, b"b")) == [(AnomalyKind.INCONSISTENT_OFFSETS, 0)]


def test_two_polls_that_disagree_are_inconsistent_offsets() -> None:
    history = History()
    history.poll("c", T0, [(0, b"a")])
    history.poll("d", T0, [(0, b"b")])
    assert kinds(history) == [(AnomalyKind.INCONSISTENT_OFFSETS, 0)]


def test_the_same_offset_of_two_partitions_is_two_places() -> None:
    history = written(b"a")
    history.send("p", b"b").acknowledged(T1, 0)
    history.final_read(T1, 0, 1, [(0, b"b")])
    assert read_at_the_end(history, b"a").check() == ()


def test_what_is_there_of_a_send_without_an_answer_must_be_in_order_too() -> None:
    history = History()
    first, second = history.send("p", b"a"), history.send("p", b"b")
    second.acknowledged(T0, 0)
    history.final_read(T0, 0, 2, [(0, b"b"), (1, b"a")])
    assert kinds(history) == [(AnomalyKind.NONMONOTONIC_SEND, 0)]
    assert first.place is None


def test_a_value_that_was_sent_again_by_its_caller_has_no_place_of_its_own() -> None:
    history = History()
    for value in (b"a", b"b", b"a"):
        history.send("p", value)
    history.final_read(T0, 0, 2, [(0, b"b"), (1, b"a")])
    assert history.check() == ()


def test_one_value_at_two_offsets_is_a_duplicate() -> None:
    history = written(b"a")
    assert kinds(read_at_the_end(history, b"a", b"a")) == [(AnomalyKind.DUPLICATE, 1)]


def test_one_value_in_two_partitions_is_a_duplicate() -> None:
    history = read_at_the_end(written(b"a"), b"a")
    history.final_read(T1, 0, 1, [(0, b"a")])
    assert [(a.kind, a.partition) for a in history.check()] == [(AnomalyKind.DUPLICATE, T1)]


def test_without_idempotence_a_duplicate_is_allowed() -> None:
    history = written(b"a", history=History(idempotent=False))
    assert read_at_the_end(history, b"a", b"a").check() == ()


def test_many_consumers_reading_one_record_is_no_duplicate() -> None:
    history = read_at_the_end(written(b"a"), b"a")
    for consumer in "cde":
        history.poll(consumer, T0, [(0, b"a")])
    assert history.check() == ()


def test_the_value_of_a_failed_send_in_a_poll_is_an_aborted_read() -> None:
    history = History()
    history.send("p", b"a").failed()
    assert kinds(read_at_the_end(history, b"a")) == [(AnomalyKind.ABORTED_READ, 0)]


def test_a_failed_send_that_nobody_sees_is_fine() -> None:
    history = written(b"a")
    history.send("p", b"b").failed()
    assert read_at_the_end(history, b"a").check() == ()


def test_jumping_over_an_offset_that_exists_is_a_poll_skip() -> None:
    history = read_at_the_end(written(b"a", b"b", b"c"), b"a", b"b", b"c")
    history.poll("c", T0, [(0, b"a"), (2, b"c")])
    assert kinds(history) == [(AnomalyKind.POLL_SKIP, 1)]


def test_jumping_over_an_offset_that_only_another_consumer_saw_is_a_poll_skip() -> None:
    history = History()
    history.poll("d", T0, [(1, b"b")])
    history.poll("c", T0, [(0, b"a"), (2, b"c")])
    assert kinds(history) == [(AnomalyKind.POLL_SKIP, 1)]


def test_jumping_over_offsets_that_do_not_exist_is_fine() -> None:
    history = History()
    history.poll("c", T0, [(0, b"a"), (7, b"b")])
    assert history.check() == ()


def test_jumping_by_a_seek_is_fine() -> None:
    history = read_at_the_end(written(b"a", b"b", b"c"), b"a", b"b", b"c")
    history.poll("c", T0, [(0, b"a")])
    history.seek("c", T0)
    history.poll("c", T0, [(2, b"c")])
    assert history.check() == ()


def test_going_back_is_a_nonmonotonic_poll() -> None:
    history = read_at_the_end(written(b"a", b"b"), b"a", b"b")
    history.poll("c", T0, [(0, b"a"), (1, b"b")])
    history.poll("c", T0, [(0, b"a")])
    assert kinds(history) == [(AnomalyKind.NONMONOTONIC_POLL, 0)]


def test_going_back_by_a_seek_is_fine() -> None:
    history = read_at_the_end(written(b"a", b"b"), b"a", b"b")
    history.poll("c", T0, [(0, b"a"), (1, b"b")])
    history.seek("c", T0)
    history.poll("c", T0, [(0, b"a"), (1, b"b")])
    assert history.check() == ()


def test_a_seek_excuses_one_jump_only() -> None:
    history = read_at_the_end(written(b"a", b"b", b"c"), b"a", b"b", b"c")
    history.seek("c", T0)
    history.poll("c", T0, [(0, b"a"), (2, b"c")])
    assert kinds(history) == [(AnomalyKind.POLL_SKIP, 1)]


def test_a_later_send_with_a_smaller_offset_is_a_nonmonotonic_send() -> None:
    history = History()
    history.send("p", b"b").acknowledged(T0, 1)
    history.send("p", b"a").acknowledged(T0, 0)
    assert kinds(read_at_the_end(history, b"a", b"b")) == [(AnomalyKind.NONMONOTONIC_SEND, 0)]


def test_sends_of_two_producers_may_overtake_each_other() -> None:
    history = History()
    history.send("p", b"b").acknowledged(T0, 1)
    history.send("q", b"a").acknowledged(T0, 0)
    assert read_at_the_end(history, b"a", b"b").check() == ()


def test_the_order_of_acknowledgements_is_not_the_order_of_sends() -> None:
    history = History()
    first, second = history.send("p", b"a"), history.send("p", b"b")
    second.acknowledged(T0, 1)
    first.acknowledged(T0, 0)
    assert read_at_the_end(history, b"a", b"b").check() == ()


def test_a_record_that_was_read_and_is_gone_at_the_end_is_a_stale_read() -> None:
    history = read_at_the_end(written(b"a"), b"a")
    history.poll("c", T0, [(0, b"a"), (1, b"x")])
    assert kinds(history) == [(AnomalyKind.STALE_READ, 1)]


def test_a_record_below_the_start_of_the_final_read_was_deleted_by_retention() -> None:
    history = written(b"a", b"b")
    history.poll("c", T0, [(0, b"a")])
    history.final_read(T0, 1, 2, [(1, b"b")])
    assert history.check() == ()


def test_a_record_that_retention_deleted_before_anybody_read_it_is_not_lost() -> None:
    history = written(b"a", b"b")
    history.final_read(T0, 1, 2, [(1, b"b")])
    assert history.check() == ()


def test_acknowledged_sends_are_counted() -> None:
    history = written(b"a", b"b")
    history.send("p", b"c")
    assert history.acknowledged_count == 2


def test_the_error_names_what_was_found() -> None:
    history = read_at_the_end(written(b"a"), b"b")
    with pytest.raises(AnomaliesFoundError) as raised:
        history.check_or_raise()
    assert "inconsistent_offsets: t-0 offset 0: holds b'a' and b'b'" in str(raised.value)
    assert raised.value.anomalies[0] == Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, T0, 0, "holds b'a' and b'b'")


def test_a_long_list_is_cut() -> None:
    history = written(*(b"%d" % number for number in range(30)))
    with pytest.raises(AnomaliesFoundError, match=r"(?s)30 anomalies:.*\.\.\. and 10 more"):
        history.check_or_raise()
