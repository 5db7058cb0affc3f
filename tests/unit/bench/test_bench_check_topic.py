"""What a measurement reads back is what was acknowledged, which consumers may see a little later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from bench.model import WrongResultError
from bench.scenarios import produce
from bench.systems.brokers import Digest


class Topic:
    """Shows its records one after the other."""

    name = "toy"

    def __init__(self, shown: list[Digest]) -> None:
        self._shown = shown

    @contextlib.contextmanager
    def consumer(self, _topic: str) -> Iterator[Any]:
        yield self

    def digest(self, _count: int) -> Digest:
        return self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]


def check(monkeypatch: pytest.MonkeyPatch, *shown: Digest) -> None:
    monkeypatch.setattr(produce, "POLL_S", 0.0)
    monkeypatch.setattr(produce, "VISIBLE_WITHIN_S", 0.05)
    system: Any = Topic(list(shown))
    produce.check_topic(system, "t", Digest(2, 7))


def test_records_that_come_late_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce.time, "monotonic", lambda: 0.0)
    check(monkeypatch, Digest(0, 0), Digest(1, 3), Digest(2, 7))


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (Digest(1, 3), "acknowledged 2 records and holds 1"),
        (Digest(3, 9), "and holds 3"),
        (Digest(2, 8), "holds other"),
    ],
)
def test_what_is_wrong_for_good_is_told(monkeypatch: pytest.MonkeyPatch, shown: Digest, reason: str) -> None:
    with pytest.raises(WrongResultError, match=reason):
        check(monkeypatch, shown)
