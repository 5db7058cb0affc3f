"""How far an application has come: what is done with, at resets, seeks and what is taken back."""

from __future__ import annotations

import pytest

from replog.client import TopicPartition
from replog.client.groups.commits import Progress

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def progress() -> Progress:
    found = Progress()
    found.begin(A, 5)
    return found


def done(progress: Progress, **positions: int) -> dict[TopicPartition, int]:
    return progress.done({TopicPartition("t", int(name[1:])): offset for name, offset in positions.items()}.__getitem__)


def test_a_place_that_the_policy_has_chosen_is_due_at_once(progress: Progress) -> None:
    """Goal: a member that comes later does not begin at a later end, and skip what came between."""
    progress.begin_at_reset(B, 7)
    assert done(progress, p0=5, p1=7) == {B: 7}
    progress.hand_out(B, 7)
    assert done(progress, p0=5, p1=9) == {B: 7}
    progress.ask()
    assert done(progress, p0=5, p1=9) == {B: 9}


def test_a_place_that_somebody_has_sought_is_not_due(progress: Progress) -> None:
    progress.begin_at_reset(A, 7)
    progress.begin(A, 3)
    assert done(progress, p0=3) == {}


def test_of_what_was_taken_back_nothing_is_done_with(progress: Progress) -> None:
    progress.hand_out(A, 5)
    progress.ask()
    progress.hand_out(A, 9)
    assert done(progress, p0=12) == {A: 9}
    assert done(progress, p0=7) == {A: 7}  # it goes back below what is in hand


def test_what_a_loop_in_another_thread_holds_back_does_not_hold_what_was_sought(progress: Progress) -> None:
    progress.held_back = lambda: {A: 9}
    progress.hand_out(A, 5)
    assert done(progress, p0=12) == {A: 9}
    progress.begin(A, 2)
    assert done(progress, p0=2) == {}
