"""Brokers that come back with other log directories: what they acknowledged may be gone, or on a disk that does not work."""

from __future__ import annotations

from uuid import UUID

import pytest
from controller_kit import Quorum, directory
from msgspec.structs import replace

from replog.controller.config import ControllerConfig
from replog.errors import DuplicateBrokerRegistrationError

FIRST, SECOND, THIRD = directory(1, 0), directory(1, 1), directory(1, 2)


@pytest.fixture
def quorum() -> Quorum:
    """Broker 1 has two directories, and is eligible; broker 2 leads alone."""
    quorum = Quorum(1, config=ControllerConfig(min_insync_replicas=2))
    quorum.claim(1)
    quorum.commit()
    register(quorum, 1, FIRST, SECOND)
    quorum.heartbeat(1)
    quorum.start(2)
    for name, policy in (("flushed", "always"), ("unflushed", "auto")):
        quorum.create(name, 1, 2, **{"flush.policy": policy})
    quorum.heartbeat(1, want_fence=True)
    assert membership(quorum, "flushed") == membership(quorum, "unflushed") == ((2,), (1,), ())
    return quorum


def register(quorum: Quorum, incarnation: int, *log_dirs: UUID, unopened: int = 0) -> None:
    request = quorum.register_request(1, incarnation)
    quorum.ask(replace(request, log_dirs=log_dirs, unopened_log_dirs=unopened))


def membership(quorum: Quorum, name: str) -> tuple[tuple[int, ...], ...]:
    partition = quorum.partition(name)
    return partition.isr, partition.elr, partition.last_known_elr


def test_a_directory_that_cannot_be_opened_may_have_what_was_acknowledged(quorum: Quorum) -> None:
    """Nobody is elected instead of its broker where that might lose something."""
    register(quorum, 2, FIRST, unopened=1)
    assert membership(quorum, "flushed") == ((2,), (1,), ())
    assert membership(quorum, "unflushed") == ((2,), (), (1,)), "it ended uncleanly, and is waited for"
    assert set(quorum.image.brokers[1].log_dirs) == {FIRST, SECOND}
    register(quorum, 3, FIRST, SECOND)
    assert membership(quorum, "flushed") == ((2,), (1,), ())


def test_a_directory_that_is_there_no_more_is_lost(quorum: Quorum) -> None:
    register(quorum, 2, FIRST)
    assert membership(quorum, "flushed") == membership(quorum, "unflushed") == ((2,), (), ())
    assert quorum.image.brokers[1].log_dirs == (FIRST,)


def test_one_that_could_not_be_opened_before_may_be_lost_later(quorum: Quorum) -> None:
    register(quorum, 2, FIRST, unopened=1)
    register(quorum, 3, FIRST)
    assert membership(quorum, "flushed") == membership(quorum, "unflushed") == ((2,), (), ())


@pytest.mark.parametrize("unopened", [0, 1, 2])
def test_a_new_directory_may_be_in_the_place_of_one_that_is_missing(quorum: Quorum, unopened: int) -> None:
    register(quorum, 2, FIRST, THIRD, unopened=unopened)
    assert membership(quorum, "flushed") == membership(quorum, "unflushed") == ((2,), (), ())
    assert quorum.image.brokers[1].log_dirs == (FIRST, THIRD)


def test_one_more_directory_takes_nothing_away(quorum: Quorum) -> None:
    register(quorum, 2, FIRST, SECOND, THIRD)
    assert membership(quorum, "flushed") == ((2,), (1,), ())
    assert quorum.image.brokers[1].log_dirs == (FIRST, SECOND, THIRD)


def test_who_holds_one_of_the_old_directories_is_the_same_broker(quorum: Quorum) -> None:
    """Its lock admits one process; without any, the id may be in use by another machine."""
    quorum.heartbeat(1)
    register(quorum, 2, SECOND, unopened=1)
    with pytest.raises(DuplicateBrokerRegistrationError):
        register(quorum, 3, THIRD)
