"""Hands over the transactions that are decided, to whoever writes their markers, until all partitions have one.

Which partitions have their marker is no part of the log, as in Kafka: what is left of a leadership is written anew by the next
one.  Under one leadership each end is handed over once, and again only where the answer was lost: producers of older versions
have the same epoch in the next transaction, and a marker that comes late would end that.  Where the log takes back that a
transaction is complete, its markers are there all the same: that it is complete is written again a little later.

A hand-over is an answer that waits for the log, so no marker is written of a decision that may be taken back.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from msgspec import Struct

from replog.coordinator.runtime.background import PAUSE_MS
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.runtime.messages import Reply
from replog.coordinator.transactions.packed import Glance
from replog.coordinator.transactions.records import WrittenTransaction
from replog.coordinator.transactions.requests import (
    MarkedEnd,
    TransactionEnd,
    TransactionPartition,
    WaitForEndsResponse,
)
from replog.coordinator.transactions.state import IS_DECIDED, TransactionState
from replog.coordinator.transactions.transitions import (
    bumps_epochs,
    incarnation_of,
    is_commit,
    partitions_of,
    status_of,
)
from replog.errors import CoordinatorLoadInProgressError

ENDS_MAX: Final = 100
"""The ends that are handed over at once."""
PARTITIONS_MAX: Final = 10_000
"""The partitions of the ends that are handed over at once, unless one alone has more."""
RETRY_MS: Final = 500
"""After how long it is written again that transactions are complete, where the log has taken that back."""
WAITS_MAX: Final = 10
"""The requests that wait for ends; each is of one that writes markers."""


class EndsTimer(Struct, frozen=True):
    """Some transactions have been decided, or somebody waits for them."""


class CompletionTimer(Struct, frozen=True):
    """Some transactions have been decided, and may have no partitions."""


class ToldTimer(Struct, frozen=True):
    """An answer has left.

    Attributes:
        request_id: The request that has been answered.
    """

    request_id: int


class MarkedTimer(Struct, frozen=True):
    """It has committed that a transaction is complete.

    Attributes:
        transactional_id: The transactional id.
        number: The number of the end.
    """

    transactional_id: str
    number: int


class _Handed(Struct):
    """An end that somebody writes the markers of.

    Attributes:
        end: The end.
        left: The partitions that are not known to have their marker.
    """

    end: TransactionEnd
    left: set[TransactionPartition]


class Ends:
    """The ends of a shard's transactions.

    Invariants:
        - each transaction that the log says is decided is in `_pending`, in `_empty` or in `_handed`, from one step to the next.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._epoch = -1
        self._number = 0
        self._pending: dict[str, None] = {}
        self._empty: dict[str, None] = {}  # decided, and no partition lacks its marker
        self._marked: dict[str, int] = {}  # complete, which may be taken back; each with a number of its own
        self._handed: dict[str, _Handed] = {}
        self._untold: dict[int, tuple[TransactionEnd, ...]] = {}  # by the request whose answer waits for the log
        self._waiting: deque[int] = deque()

    def start(self, epoch: int, moment: Moment) -> None:
        """Begins to hand over what was decided under earlier leaderships.

        Args:
            epoch: The leader epoch, which markers name.
            moment: The time.
        """
        self._epoch = epoch
        self.look_soon(moment)

    def stop(self) -> list[int]:
        """Forgets everything; returns the ids of the requests that wait."""
        waiting = list(self._waiting)
        self._pending.clear()
        self._empty.clear()
        self._marked.clear()
        self._handed.clear()
        self._untold.clear()
        self._waiting.clear()
        return waiting

    def hear(self, transactional_id: str, glance: Glance | None) -> None:
        """Takes in what a record says of a transactional id; None: it is gone."""
        if glance is not None and glance.status.is_decided:
            (self._pending if glance.has_partitions else self._empty)[transactional_id] = None
        else:
            self._pending.pop(transactional_id, None)
            self._empty.pop(transactional_id, None)
            self._handed.pop(transactional_id, None)

    def look_soon(self, moment: Moment) -> None:
        """Sets the timers that go on with what is decided; they run behind what is being handled."""
        self._timers.set_if_none(CompletionTimer(), moment.now_ms)
        self._timers.set(EndsTimer(), moment.now_ms)

    def look_again(self, state: TransactionState, moment: Moment) -> None:
        """Takes up transactions that are decided again, since the log has taken back that they were complete.

        Only those can be: whatever else is decided is kept until it is written that it is complete.
        """
        deadlines = state.deadlines()
        again = [
            each
            for each in self._marked
            if deadlines.get(each) == IS_DECIDED and each not in self._handed and each not in self._pending
        ]
        for transactional_id in again:
            del self._marked[transactional_id]
            self._empty[transactional_id] = None
        if again:
            self._timers.set(CompletionTimer(), moment.now_ms + RETRY_MS)
        self._timers.set(EndsTimer(), moment.now_ms)

    def wait(self, request_id: int, moment: Moment) -> None:
        """Keeps a request until there is something to hand over.

        Raises:
            CoordinatorLoadInProgressError: Too many wait.
        """
        if len(self._waiting) >= WAITS_MAX:
            raise CoordinatorLoadInProgressError(f"{WAITS_MAX} requests wait for the ends of transactions already")
        self._waiting.append(request_id)
        self._timers.set(EndsTimer(), moment.now_ms)

    def without_partitions(self, state: TransactionState, moment: Moment) -> list[tuple[str, WrittenTransaction]]:
        """Returns decided transactions of which no partition lacks its marker, so that they are complete; a bounded number."""
        ids = list(islice(self._empty, ENDS_MAX))
        if len(self._empty) > len(ids):
            self._timers.set_if_none(CompletionTimer(), moment.now_ms + PAUSE_MS)
        found = [(each, value) for each in ids if (value := state.find(each)) and status_of(value).is_decided]
        for each in set(ids).difference(one for one, _ in found):
            del self._empty[each]  # the log has taken back that it is decided
        for each, _ in found:
            self._number += 1
            self._note_marked(each, self._number)
        return found

    def hand_over(self, state: TransactionState, moment: Moment) -> Outcome:
        """Answers a request that waits with what is decided; with nothing where nobody waits, or nothing is."""
        ends: list[TransactionEnd] = []
        partitions_count = 0
        for transactional_id in list(islice(self._pending, ENDS_MAX)) if self._waiting else ():
            if partitions_count >= PARTITIONS_MAX:
                break
            del self._pending[transactional_id]
            value = state.find(transactional_id)
            if value is None or not status_of(value).is_decided:
                continue  # the log has taken that back
            self._marked.pop(transactional_id, None)
            end = self._end(transactional_id, value)
            partitions_count += len(end.partitions)
            self._handed[transactional_id] = _Handed(end, set(end.partitions))
            ends.append(end)
        if not ends:
            if self._waiting and self._pending:
                self._timers.set(EndsTimer(), moment.now_ms + PAUSE_MS)
            return Outcome()
        request_id = self._waiting.popleft()
        self._untold[request_id] = tuple(ends)
        self._timers.want(ToldTimer(request_id), 0, is_anew=False)
        if self._waiting and self._pending:
            self._timers.set(EndsTimer(), moment.now_ms)
        return Outcome(answers=(Reply(request_id, WaitForEndsResponse(tuple(ends))),))

    def _end(self, transactional_id: str, value: WrittenTransaction) -> TransactionEnd:
        self._number += 1
        return TransactionEnd(
            transactional_id,
            incarnation_of(value),
            self._epoch,
            is_commit(value),
            bumps_epochs(value),
            partitions_of(value),
            self._number,
        )

    def note_told(self, timer: ToldTimer) -> None:
        """Notes that an answer has left."""
        self._untold.pop(timer.request_id, None)

    def were_lost(self, request_ids: tuple[int, ...], moment: Moment) -> None:
        """Takes up again what was handed over in answers that were lost."""
        for request_id in request_ids:
            for end in self._untold.pop(request_id, ()):
                if self._is_handed(end):
                    del self._handed[end.transactional_id]
                    self._pending[end.transactional_id] = None
        self.look_soon(moment)

    def note_markers(self, marked: MarkedEnd) -> bool:
        """Notes that partitions have their marker; what is late, of an end that is complete, changes nothing.

        Returns:
            Whether all partitions have it, and it is not known yet that the transaction is complete.
        """
        if not self._is_handed(marked.end):
            return False
        end, left = marked.end, self._handed[marked.end.transactional_id].left
        left.difference_update(marked.partitions)
        if left:
            return False
        self._note_marked(end.transactional_id, end.number)
        return True

    def _note_marked(self, transactional_id: str, number: int) -> None:
        """Notes that it is about to be written that a transaction is complete, which the log may take back."""
        self._marked[transactional_id] = number
        self._timers.want(MarkedTimer(transactional_id, number), 0, is_anew=False)

    def note_complete(self, timer: MarkedTimer) -> None:
        """Notes that it has committed that a transaction is complete."""
        if self._marked.get(timer.transactional_id) == timer.number:
            del self._marked[timer.transactional_id]

    def left_of(self, transactional_id: str, value: WrittenTransaction) -> tuple[TransactionPartition, ...]:
        """Returns the partitions of a transaction that are not known to have their marker; of one that is open, all."""
        handed = self._handed.get(transactional_id)
        partitions = partitions_of(value)
        return partitions if handed is None else tuple(each for each in partitions if each in handed.left)

    def _is_handed(self, end: TransactionEnd) -> bool:
        """Whether an end has been handed over under this leadership, and is not complete."""
        handed = self._handed.get(end.transactional_id)
        return handed is not None and (handed.end.number, handed.end.coordinator_epoch) == (
            end.number,
            end.coordinator_epoch,
        )
