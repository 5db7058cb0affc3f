"""Deadlines: as a dictionary that is searched from end to end, and bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.waiting.deadlines import Deadlines

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "expire", "expire some", "clear"]), st.integers(0, 9), st.integers(0, 30)
    )
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS)
def test_like_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines[int]()
    model: dict[int, int] = {}
    for verb, one, time_ms in steps:
        match verb:
            case "add" if one not in model:
                deadlines.add(one, time_ms)
                model[one] = time_ms
            case "discard":
                deadlines.discard(one)
                model.pop(one, None)
            case "expire" | "expire some":
                count_max = 2 if verb == "expire some" else 100
                due = sorted(
                    (at_ms, place, one) for place, (one, at_ms) in enumerate(model.items()) if at_ms <= time_ms
                )
                expired = deadlines.pop_expired(time_ms, count_max)
                assert expired == [one for _, _, one in due][:count_max]
                model = {one: at_ms for one, at_ms in model.items() if one not in expired}
            case "clear" if time_ms == 0:
                deadlines.clear()
                model.clear()
        assert deadlines.next_deadline_ms() == min(model.values(), default=None)
        assert (len(deadlines), [deadlines.get(one) for one in range(10)]) == (
            len(model),
            list(map(model.get, range(10))),
        )


def test_nor_do_those_that_were_beside_expired_ones() -> None:
    deadlines = Deadlines[int]()
    for one in range(1_000):
        deadlines.add(one, 1)
        deadlines.add(1_000 + one, 10 + one)
    for one in range(1_000, 1_999):
        deadlines.discard(one)
    assert len(deadlines.pop_expired(1)) == 1_000
    assert len(deadlines._due) == len(deadlines._buckets) < 100


def test_forgotten_ones_do_not_pile_up() -> None:
    deadlines = Deadlines[int]()
    deadlines.add(0, 1)
    for one in range(1, 1_000):
        deadlines.add(one, 30_000 + one)
        deadlines.discard(one)
    assert len(deadlines._due) == len(deadlines._buckets) < 100
