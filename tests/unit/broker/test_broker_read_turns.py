"""Logs of shards are read a piece at a time, one log to its end before the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from replog.broker.coordinator.shard_host import ReadTurns

Work = Callable[[], None]


class Logs:
    """Logs of some pieces each, read in turns; a driver that has rounds, like ours."""

    def __init__(self) -> None:
        self.inbox: deque[Work] = deque()
        self.turns = ReadTurns(self.inbox.append)
        self.read: list[str] = []

    def add(self, name: str, pieces: int, *, goes_on: bool = False) -> None:
        if pieces:
            self.turns.add(partial(self._read, name, pieces), goes_on=goes_on)

    def round(self) -> list[str]:
        """Runs what waits; returns what was read."""
        before = len(self.read)
        for _ in range(len(self.inbox)):
            self.inbox.popleft()()
        return self.read[before:]

    def _read(self, name: str, pieces: int) -> None:
        self.read.append(name)
        self.add(name, pieces - 1, goes_on=True)


def test_a_round_of_the_driver_reads_one_piece_whatever_waits() -> None:
    logs = Logs()
    for name in "abc":
        logs.add(name, 2)
    assert [logs.round() for _ in range(7)] == [["a"], ["a"], ["b"], ["b"], ["c"], ["c"], []]
    assert not logs.inbox


def test_a_log_that_waits_for_the_disk_lets_others_go_on() -> None:
    logs = Logs()
    logs.add("cold", 1)
    assert logs.round() == ["cold"]
    logs.add("warm", 3)
    assert logs.round() == ["warm"]
    logs.add("cold", 2, goes_on=True)  # the disk has brought it
    assert [logs.round() for _ in range(5)] == [["cold"], ["cold"], ["warm"], ["warm"], []]
