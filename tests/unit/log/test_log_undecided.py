"""The first transaction that is undecided, found without looking at the others (docs/KAFKA.md 4.1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replog.log.producers.undecided import ENDED_MAX, UndecidedTransactions


def test_what_nobody_asks_about_stays_bounded_and_on_the_safe_side() -> None:
    undecided = UndecidedTransactions()
    end = 2 * ENDED_MAX
    for offset in range(end):
        undecided.begin(7, 10 * offset)
        undecided.end(7, 10 * offset + 5)
    assert len(undecided._ended) == ENDED_MAX
    assert undecided.first_unstable_offset(6) == 0, "some are one now, and count until the last of them is replicated"
    assert undecided.first_unstable_offset(10 * (end - 1)) == 10 * (end - 1)
    assert undecided.first_unstable_offset(10 * end) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 8))))
def test_the_answers_are_those_of_a_list_of_all(steps: list[tuple[int, bool, int]]) -> None:
    """A step: a producer begins (or ends) its transaction at the log end, and all but the last so many are replicated."""
    undecided = UndecidedTransactions()
    open_ones: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset, (producer_id, begins, behind) in enumerate(steps):
        if begins and producer_id not in open_ones:
            undecided.begin(producer_id, offset)
            open_ones[producer_id] = offset
        elif not begins:
            first = open_ones.pop(producer_id, None)
            assert undecided.end(producer_id, offset) == first
            if first is not None:
                ended.append((first, offset))
        high_watermark = max(high_watermark, offset + 1 - behind)
        firsts = [*open_ones.values(), *(first for first, at in ended if at >= high_watermark)]
        assert undecided.first_unstable_offset(high_watermark) == min(firsts, default=None)
        assert list(undecided.open_transactions.items()) == sorted(open_ones.items(), key=lambda one: one[1])


def test_what_is_put_back_is_in_its_place_again() -> None:
    undecided = UndecidedTransactions([(3, 30), (1, 10), (2, 20)])
    undecided.end(1, 40)
    undecided.begin(4, 41)
    undecided.put_back({1: 10, 4: None}, 40)
    assert list(undecided.open_transactions) == [1, 2, 3]
    assert undecided.first_open_offset == 10
