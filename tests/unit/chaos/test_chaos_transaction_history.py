"""The checker of transactions finds each anomaly by its name, and nothing where nothing is wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from replog.testing.history import AnomaliesFoundError
from replog_chaos.transaction_history import RecordedTransaction, TransactionHistory, TransactionOutcome, circles

X, Y = ("x", 0), ("y", 0)
INPUTS, OUTPUTS = ("inputs", 0), ("outputs", 0)


def kinds(history: TransactionHistory) -> list[str]:
    return [str(anomaly.kind) for anomaly in history.check()]


def ended(
    history: TransactionHistory,
    transactional_id: str,
    *writes: tuple[tuple[str, int], bytes],
    outcome: TransactionOutcome = TransactionOutcome.COMMITTED,
) -> RecordedTransaction:
    """Notes a whole transaction."""
    transaction = history.begin(transactional_id)
    for partition, value in writes:
        transaction.append(partition, value)
    history.ask_commit(transaction)
    transaction.outcome = outcome
    return transaction


def at_the_end(history: TransactionHistory, **values: bytes) -> None:
    """Notes what is read at the end: partitions by topic, a letter for each value."""
    for topic, letters in values.items():
        history.final_read((topic, 0), [(number, bytes([letter])) for number, letter in enumerate(letters)])


# ---- one anomaly each ------------------------------------------------------------------------------------------------


def test_a_clean_history_passes() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (Y, b"b"), (X, b"c"))
    ended(history, "q", (Y, b"d"), (X, b"e"))
    ended(history, "p", (X, b"f"), outcome=TransactionOutcome.ABORTED)
    ended(history, "p", (X, b"g"), (Y, b"h"), outcome=TransactionOutcome.UNKNOWN)
    ended(history, "q", (X, b"i"), (Y, b"j"), outcome=TransactionOutcome.UNKNOWN)
    history.poll("r", X, [(0, b"a"), (1, b"c")])
    history.poll("r", Y, [(0, b"d"), (1, b"b")])  # those of different ids may be mixed, in another order than in x
    history.poll("r", X, [(2, b"e"), (3, b"i")])
    history.place("r", X)
    history.poll("r", X, [(1, b"c")])
    at_the_end(history, x=b"acei", y=b"dbj")
    history.check_or_raise()
    assert history.count(TransactionOutcome.UNKNOWN) == 2


def test_g0_transactions_of_one_id_that_each_wrote_before_the_other() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (Y, b"b"))
    ended(history, "p", (X, b"c"), (Y, b"d"))
    at_the_end(history, x=b"ac", y=b"db")
    assert kinds(history) == ["write_cycle"]


def test_g0_transactions_of_one_id_that_are_mixed() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (X, b"c"))
    ended(history, "p", (X, b"b"))
    at_the_end(history, x=b"abc")
    assert kinds(history) == ["write_cycle"]


def test_g1a_a_read_of_an_aborted_transaction() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), outcome=TransactionOutcome.ABORTED)
    history.poll("r", X, [(0, b"a")])
    at_the_end(history, x=b"")
    assert kinds(history) == ["aborted_read", "stale_read"]


def test_g1a_an_aborted_transaction_is_there_at_the_end() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (Y, b"b"), outcome=TransactionOutcome.ABORTED)
    at_the_end(history, x=b"a", y=b"")
    assert kinds(history) == ["aborted_read"]


def test_g1b_a_read_before_the_commit_was_asked_for() -> None:
    history = TransactionHistory()
    transaction = history.begin("p")
    transaction.append(X, b"a")
    history.poll("r", X, [(0, b"a")])
    history.ask_commit(transaction)
    transaction.outcome = TransactionOutcome.COMMITTED
    at_the_end(history, x=b"a")
    assert kinds(history) == ["intermediate_read"]


def test_g1b_a_read_of_a_transaction_whose_commit_nobody_asked_for() -> None:
    history = TransactionHistory()
    history.begin("p").append(X, b"a")
    history.poll("r", X, [(0, b"a")])
    at_the_end(history, x=b"a")
    assert kinds(history) == ["intermediate_read"]


def test_g1c_two_transactions_that_took_input_from_each_other() -> None:
    history = TransactionHistory()
    first, second = history.begin("p"), history.begin("q")
    first.append(X, b"a", source=(Y, 0))
    second.append(Y, b"b", source=(X, 0))
    for each in (first, second):
        history.ask_commit(each)
        each.outcome = TransactionOutcome.COMMITTED
    at_the_end(history, x=b"a", y=b"b")
    assert kinds(history) == ["circular_flow"]


def test_g1c_a_transaction_that_took_input_from_a_later_one_of_its_id() -> None:
    history = TransactionHistory()
    first = history.begin("p")
    first.append(X, b"a", source=(Y, 0))
    history.ask_commit(first)
    first.outcome = TransactionOutcome.COMMITTED
    ended(history, "p", (Y, b"b"))
    at_the_end(history, x=b"a", y=b"b")
    assert kinds(history) == ["circular_flow"]


@pytest.mark.parametrize("outcome", [TransactionOutcome.COMMITTED, TransactionOutcome.UNKNOWN])
def test_a_torn_transaction(outcome: TransactionOutcome) -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (Y, b"b"), outcome=outcome)
    at_the_end(history, x=b"a", y=b"")
    assert kinds(history) == ["torn_transaction"]


def test_a_lost_write() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (Y, b"b"))
    at_the_end(history, x=b"", y=b"")
    assert kinds(history) == ["lost_write"]


def test_a_duplicate() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"))
    at_the_end(history, x=b"aa")
    assert kinds(history) == ["duplicate"]


def test_values_of_one_transaction_in_another_order() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (X, b"b"))
    at_the_end(history, x=b"ba")
    assert kinds(history) == ["nonmonotonic_send"]


def test_a_reader_that_goes_past_a_value_and_back() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), (X, b"b"), (X, b"c"))
    at_the_end(history, x=b"abc")
    history.poll("r", X, [(0, b"a"), (2, b"c"), (1, b"b")])
    assert kinds(history) == ["nonmonotonic_poll", "poll_skip"]


def test_a_read_that_is_gone_at_the_end() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"), outcome=TransactionOutcome.UNKNOWN)
    history.poll("r", X, [(0, b"a")])
    at_the_end(history, x=b"")
    assert kinds(history) == ["stale_read"]


# ---- inputs and outputs ----------------------------------------------------------------------------------------------


def chain(outputs: Sequence[tuple[int, bytes]], committed: int) -> TransactionHistory:
    """A history in which outputs were made from the inputs a, b and c."""
    history = TransactionHistory()
    ended(history, "source", (INPUTS, b"a"), (INPUTS, b"b"), (INPUTS, b"c"))
    for offset, value in outputs:
        transaction = history.begin("chain")
        transaction.append(OUTPUTS, value, source=(INPUTS, offset))
        history.ask_commit(transaction)
        transaction.outcome = TransactionOutcome.COMMITTED
    at_the_end(history, inputs=b"abc", outputs=b"".join(value for _, value in outputs))
    history.final_offset(INPUTS, committed)
    return history


def test_each_input_once() -> None:
    chain([(0, b"A"), (1, b"B")], committed=2).check_or_raise()


def test_an_input_that_was_taken_twice() -> None:
    assert kinds(chain([(0, b"A"), (1, b"B"), (1, b"C")], committed=2)) == ["input_twice"]


def test_offsets_without_records() -> None:
    assert kinds(chain([(0, b"A")], committed=2)) == ["input_lost"]


def test_records_without_offsets() -> None:
    assert kinds(chain([(0, b"A"), (1, b"B")], committed=1)) == ["input_early"]


def test_an_output_that_was_aborted_counts_for_nothing() -> None:
    history = chain([(0, b"A")], committed=1)
    transaction = history.begin("chain")
    transaction.append(OUTPUTS, b"Z", source=(INPUTS, 0))
    transaction.outcome = TransactionOutcome.ABORTED
    history.check_or_raise()


# ---- as a whole ------------------------------------------------------------------------------------------------------


def test_anomalies_are_raised_with_their_names() -> None:
    history = TransactionHistory()
    ended(history, "p", (X, b"a"))
    at_the_end(history, x=b"")
    with pytest.raises(AnomaliesFoundError, match="lost_write: x-0"):
        history.check_or_raise()


@pytest.mark.parametrize(
    ("later", "found"),
    [
        ([[1], [2], []], []),
        ([[1], [2], [0]], [[0, 1, 2]]),
        ([[0]], [[0]]),
        ([[1], [0], [3], [2], [0, 2]], [[0, 1], [2, 3]]),
        ([[1, 2], [3], [3], []], []),
        ([[step + 1] for step in range(50_000)] + [[0]], [list(range(50_001))]),
    ],
)
def test_circles(later: list[list[int]], found: list[list[int]]) -> None:
    assert sorted(circles(later)) == found


def test_many_transactions() -> None:
    """Records, orders and readers of many transactions; one wrong value among them is found."""
    draw = random.Random(1)
    history = TransactionHistory()
    places = [("t", number) for number in range(10)]
    logs: dict[tuple[str, int], list[tuple[int, bytes]]] = {place: [] for place in places}
    for number in range(10_000):
        transaction = history.begin(f"id-{draw.randrange(50)}")
        aborts = draw.random() < 0.1
        for part in range(2):
            place = draw.choice(places)
            value = b"%d-%d" % (number, part)
            transaction.append(place, value)
            if not aborts:
                logs[place].append((len(logs[place]), value))
        history.ask_commit(transaction)
        transaction.outcome = TransactionOutcome.ABORTED if aborts else TransactionOutcome.COMMITTED
    for place, records in logs.items():
        history.poll("r", place, records)
        history.final_read(place, records)
    assert history.check() == ()
    lost = logs[places[0]].pop()
    history.final_read(places[0], logs[places[0]])
    assert [anomaly.offset for anomaly in history.check() if anomaly.kind == "stale_read"] == [lost[0]]
