"""Transactions on whole clusters under simulated faults, and what the checks of them notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import TRANSACTION as KIND
from tests.sim.transaction_checks import StableOffsets


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_transactions_are_whole_or_not_at_all(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_they_are_for_fresh_seeds() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)


# ---- what replicas say is stable -----------------------------------------------------------------------------------------


def said(*pairs: tuple[int, int]) -> list[str]:
    """Returns what is reported of (high watermark, last stable offset), said one after another."""
    found: list[str] = []
    stable = StableOffsets()
    for high_watermark, offset in pairs:
        stable.take(high_watermark, offset, "t-0 on node 1", found.append)
    return found


def test_more_that_is_committed_makes_more_stable() -> None:
    assert said((0, 0), (7, 4), (10, 10)) == []


def test_who_knew_more_before_may_say_more() -> None:
    assert said((10, 10), (7, 4), (7, 7)) == []


@pytest.mark.parametrize("pairs", [((7, 7), (10, 4)), ((7, 7), (7, 4)), ((10, 4), (7, 7)), ((7, 4), (7, 7))])
def test_what_was_stable_stays_so_and_nothing_is_before_its_end(pairs: tuple[tuple[int, int], ...]) -> None:
    (report,) = said(*pairs)
    assert report.startswith("X4 t-0 on node 1 says")
