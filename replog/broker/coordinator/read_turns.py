"""Turns in which the shards of a broker read their logs: one piece of one log each time the driver comes by.

A broker that takes over fifty shards at once would hold everybody else up for fifty pieces if each took its own turn.  A log
that has begun is read to its end before the next one: half of the groups then have their coordinator in half of the time,
where in turns all of them would have to wait until the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from replog.broker.driver import Work


class ReadTurns:
    """Pieces that are to be read.  Runs on the replica driver.

    Args:
        submit: The function that hands work to the driver, behind what waits there.
    """

    def __init__(self, submit: Callable[[Work], None]) -> None:
        self._submit = submit
        self._waiting: deque[Work] = deque()
        self._is_due = False

    def add(self, read: Work, *, goes_on: bool) -> None:
        """Adds a piece.

        Args:
            read: The function that reads it, and adds the next one of the log when that is known.
            goes_on: Whether the log has been begun, and comes before those that have not.
        """
        if goes_on:
            self._waiting.appendleft(read)
        else:
            self._waiting.append(read)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._submit(self._read_one)

    def _read_one(self) -> None:
        self._is_due = False
        read = self._waiting.popleft()
        read()
        self._call()
