"""A great many things are sorted in pieces, in the same order."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.broker.replicas.views import log_dir_replicas
from replog.waiting import sorting
from replog.waiting.sorting import sorted_in_pieces


@given(st.lists(st.tuples(st.integers(0, 9), st.integers())), st.integers(1, 7))
def test_the_order_is_that_of_one_sort(things: list[tuple[int, int]], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "SORTED_AT_ONCE", at_once)
        assert list(sorted_in_pieces(iter(things))) == sorted(things)


def test_no_call_sorts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: the sizes of 100,000 replicas were sorted in one call, which held the loop for a tenth of a second from a thread."""
    sizes: list[int] = []

    def noted(things: Iterable[Any], **how: Any) -> list[Any]:
        found = list(things)
        sizes.append(len(found))
        return sort(found, **how)

    sort = builtins.sorted
    monkeypatch.setattr(builtins, "sorted", noted)
    monkeypatch.setattr(sorting, "SORTED_AT_ONCE", 10)
    told = log_dir_replicas({(f"t{number}", 0): number for number in range(100, 0, -1)})
    assert [each.topic for each in told] == sort(f"t{number}" for number in range(1, 101))
    assert max(sizes) == 10
