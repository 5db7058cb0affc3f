"""The budget of answers that nobody has read."""

from __future__ import annotations

from replog.waiting.unread_answers import UnreadAnswer, UnreadAnswers

LIMIT = 1_000


def held(budget: UnreadAnswers, size_bytes: int, now_ms: int = 0) -> UnreadAnswer:
    answer = budget.open()
    answer.hold(size_bytes, now_ms)
    return answer


def test_who_comes_first_does_not_take_all() -> None:
    budget = UnreadAnswers(LIMIT)
    sizes = []
    while share_bytes := budget.share_bytes():
        sizes.append(share_bytes)
        held(budget, share_bytes)
    assert sizes[:4] == [187, 140, 105, 79]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-LIMIT // 4 :] == [1] * (LIMIT // 4), "the last quarter is for single batches"
    assert budget.held_bytes == LIMIT


def test_one_batch_passes_the_limit_and_nothing_more() -> None:
    budget = UnreadAnswers(LIMIT)
    answer = held(budget, LIMIT - 1)
    assert budget.share_bytes() == 1
    large = held(budget, 5_000)
    assert budget.share_bytes() == 0
    answer.close()
    assert budget.share_bytes() == 0
    large.close()
    assert (budget.held_bytes, budget.share_bytes()) == (0, 187)


def test_what_is_given_back_is_told_and_given_back_once() -> None:
    told: list[int] = []
    budget = UnreadAnswers(LIMIT, lambda: told.append(budget.held_bytes))
    answer = held(budget, 500)
    answer.hold(300, 1)
    answer.shrink(400)  # it holds less already
    answer.shrink(100)
    answer.close()
    answer.close()
    assert told == [300, 100, 0]


def test_an_answer_that_comes_when_nobody_waits_for_it_holds_nothing() -> None:
    """Example: the disk brings records for a consumer that has gone."""
    budget = UnreadAnswers(LIMIT)
    answer = budget.open()
    answer.close()
    answer.hold(10, 0)
    assert budget.held_bytes == 0


def test_the_oldest_answer_on_its_way_is_given_up() -> None:
    budget = UnreadAnswers(LIMIT)
    ended: list[str] = []
    read, older, younger = held(budget, 1, 0), held(budget, 1, 10), held(budget, 1, 20)
    for name, answer in (("older", older), ("younger", younger)):
        answer.on_give_up = lambda name=name: ended.append(name)  # type: ignore[misc]
    budget.end_oldest(now_ms=109, unread_ms=100)
    assert ended == [], "the oldest is not written yet, and the next one not old"
    budget.end_oldest(now_ms=110, unread_ms=100)
    assert ended == ["older"]
    budget.end_oldest(now_ms=119, unread_ms=100)
    assert ended == ["older"], "each is given up once, though it takes a while to end"
    budget.end_oldest(now_ms=120, unread_ms=100)
    assert ended == ["older", "younger"]
    read.close()
    assert budget.held_bytes == 2


def test_an_answer_is_as_old_as_what_it_holds() -> None:
    budget = UnreadAnswers(LIMIT)
    ended: list[bool] = []
    answer = held(budget, 5, 0)
    answer.on_give_up = lambda: ended.append(True)
    answer.hold(0, 50)  # it was read, was too little to send, and waits for more
    answer.hold(5, 100)
    budget.end_oldest(now_ms=199, unread_ms=100)
    assert not ended
    budget.end_oldest(now_ms=200, unread_ms=100)
    assert ended
