"""What a shard runs: a state machine whose state is what its records say, and the timers that it sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.messages import Answer
from replog.coordinator.runtime.transactions import EndMarker, TransactionWriter
from replog.waiting.deadlines import Deadlines

TimerKey: TypeAlias = Hashable
"""What a timer is for, such as a session of a member; the part that has set it knows it again."""


class Moment(NamedTuple):
    """The time by two clocks.

    Attributes:
        now_ms: The monotonic milliseconds, for everything that is waited for.
        wall_ms: The milliseconds since 1970, for what is written down.
    """

    now_ms: int
    wall_ms: int


class Beside(Struct, frozen=True):
    """Work that takes long, and needs nothing that changes: it is done in a thread.

    Attributes:
        key: The timer that wants it: set again if the work fails.
        work: The function; the machine takes in what it returns (`StateMachine.take_done`).
    """

    key: TimerKey
    work: Callable[[], Any]


class Outcome(Struct, frozen=True):
    """What one request, or one timer, leads to.

    Attributes:
        records: The records of one change, all of it or nothing, in order; empty when nothing changes.
        answers: The answers, to this request or to others that have waited for it; they leave once everything that was
            replayed before them has committed.
        beside: The work that is to be done beside the loop; only of a timer.
        writer: The producer of whose transaction the records are; None: they count at once.
        marker: The end of a transaction, in place of records.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    beside: tuple[Beside, ...] = ()
    writer: TransactionWriter | None = None
    marker: EndMarker | None = None


class WantedTimer(NamedTuple):
    """A timer that begins once what it is for has committed, and so has been told.

    Attributes:
        is_anew: Whether it takes the place of one that is set.
    """

    key: TimerKey
    delay_ms: int
    is_anew: bool


class Timers:
    """One deadline for each thing that is waited for.  They are no part of the log: each new leader sets its own."""

    def __init__(self) -> None:
        self._deadlines = Deadlines[TimerKey]()
        self._postponed_ms = 0  # by how much what is in there is earlier than it is due
        self._wanted: list[WantedTimer] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Sets a timer, in place of one that was set for the same."""
        self._deadlines.discard(key)
        self._deadlines.add(key, deadline_ms - self._postponed_ms)

    def set_if_none(self, key: TimerKey, deadline_ms: int) -> None:
        """Sets a timer unless there is one for the same."""
        if self._deadlines.get(key) is None:
            self._deadlines.add(key, deadline_ms - self._postponed_ms)

    def postpone(self, by_ms: int) -> None:
        """Puts off all timers that are set."""
        self._postponed_ms += by_ms

    def want(self, key: TimerKey, delay_ms: int, *, is_anew: bool) -> None:
        """Asks for a timer that is set once all that has been replayed by the end of this request or timer has committed.

        For members that are given time from when they hear of something; where that is refused, there is no timer.
        """
        self._wanted.append(WantedTimer(key, delay_ms, is_anew))

    def take_wanted(self) -> list[WantedTimer]:
        """Takes out and returns the timers that are wanted."""
        found, self._wanted = self._wanted, []
        return found

    def begin(self, wanted: WantedTimer, now_ms: int) -> None:
        """Sets a timer that was wanted."""
        (self.set if wanted.is_anew else self.set_if_none)(wanted.key, now_ms + wanted.delay_ms)

    def get(self, key: TimerKey) -> int | None:
        """Returns when a timer is due; None where there is none."""
        return self._due_ms(self._deadlines.get(key))

    def _due_ms(self, deadline_ms: int | None) -> int | None:
        return None if deadline_ms is None else deadline_ms + self._postponed_ms

    def cancel(self, key: TimerKey) -> None:
        """Forgets a timer; does nothing if there is none."""
        self._deadlines.discard(key)

    def clear(self) -> None:
        """Forgets all of them."""
        self._deadlines.clear()
        self._wanted.clear()

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Takes out and returns the one that is due first; None where none is."""
        due = self._deadlines.pop_expired(now_ms - self._postponed_ms, 1)
        return due[0] if due else None

    def next_deadline_ms(self) -> int | None:
        """Returns when the next one is due; None where none is set."""
        return self._due_ms(self._deadlines.next_deadline_ms())


class UnsureTimers:
    """The timers that have run on a state that may still be taken back, and up to which offset that was.

    What they made of it is taken back with it: records of theirs, or that there was nothing to do.
    """

    def __init__(self) -> None:
        self._end_offsets: dict[TimerKey, int] = {}  # rising

    def note(self, key: TimerKey, end_offset: int) -> None:
        """Notes a timer that has run on the state at `end_offset`, which is never less than before."""
        self._end_offsets.pop(key, None)
        self._end_offsets[key] = end_offset

    def settle_up_to(self, end_offset: int) -> None:
        """Forgets those that have run on what has committed."""
        for key in list(itertools.takewhile(lambda each: self._end_offsets[each] <= end_offset, self._end_offsets)):
            del self._end_offsets[key]

    def take_beyond(self, end_offset: int) -> list[TimerKey]:
        """Takes out and returns those that have run on what was replayed beyond an offset, in the order in which they ran."""
        found = [key for key, end in self._end_offsets.items() if end > end_offset]
        for key in found:
            del self._end_offsets[key]
        return found

    def clear(self) -> None:
        """Forgets all of them."""
        self._end_offsets.clear()


class StateMachine(Protocol):
    """A state in timeline structures of the shard's registry, changed by `replay` and by nothing else."""

    def replay(self, record: CoordinatorRecord, offset: int) -> None:
        """Takes in a record that stands, or is to stand, at an offset of the log."""
        ...

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        """Takes in a record from its bytes, where that is less work.

        Returns:
            Whether it has; False: nothing has changed, and the record is to be decoded and replayed.
        """
        ...

    def start(self, moment: Moment, epoch: int) -> None:
        """Begins to serve: the state is that of the whole log, and timers may be set.

        Args:
            moment: The time.
            epoch: The leader epoch under which this node leads the partition.
        """
        ...

    def was_taken_back(self, moment: Moment) -> None:
        """Hears that the state has gone back: what was looked at meanwhile may have been another one.

        Requests have failed by then, and timers that ran on that state are set again.
        """
        ...

    def were_lost(self, request_ids: tuple[int, ...], moment: Moment) -> None:
        """Hears that answers which it has given will never leave: each of these requests has ended in an error instead.

        For what is given to one request alone, and would be lost with its answer.  Where a leadership ends, nothing is told: the
        state goes away.
        """
        ...

    def pause(self) -> tuple[int, ...]:
        """Gives up what it makes for requests in steps, since no timer runs for now.

        Returns:
            The ids of these requests, which are told to ask again.
        """
        ...

    def stop(self) -> tuple[int, ...]:
        """Forgets what is no part of the log, since the state goes away.

        Returns:
            The ids of the requests that it has kept without an answer.
        """
        ...

    def handle(self, request_id: int, request: Any, moment: Moment) -> Outcome:
        """Makes records and answers of a request; changes no state but timers, and what is no part of the log.

        Raises:
            ReplogError: The request is refused.
        """
        ...

    def handle_timer(self, key: TimerKey, moment: Moment) -> Outcome:
        """Makes records and answers of a timer that is due."""
        ...

    def take_done(self, key: TimerKey, result: Any, moment: Moment) -> None:
        """Takes in what work beside the loop has given (`Outcome.beside`); None: it has failed."""
        ...
