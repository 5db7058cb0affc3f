"""The memory of a broker that is held by answers to consumers, until the consumers have read them.

A consumer may ask for tens of megabytes and not read them.  So answers share a budget, and get smaller as it fills:

| bytes held | the next answer has at most |
|---|---|
| less than three quarters | a quarter of what is left of these, so that the first consumer does not take all of it |
| less than the limit | one batch: all consumers go on, slowly |
| the limit | nothing: a consumer waits in a line, and the answer that is unread for longest is given up |

Followers have no part in it.  There are as many as brokers, each with few requests at a time.  An answer that a follower does
not read keeps acknowledgements waiting, so a follower must never stand in a line behind consumers.
"""

from __future__ import annotations

from collections.abc import Callable

RATIO = 4
"""One part in so many of the limit is kept for single batches; one answer may have the same part of the rest."""


def _ignore_room() -> None:
    """Ignores that there is room."""


class UnreadAnswers:
    """The budget.  Of one event loop.

    Args:
        limit_bytes: The bytes that answers hold together; the last of them passes it by a batch.
        on_room: The function that is called when bytes have been given back.

    Attributes:
        held_bytes: The bytes that are held now.
    """

    def __init__(self, limit_bytes: int, on_room: Callable[[], None] = _ignore_room) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._shared_bytes = limit_bytes - limit_bytes // RATIO
        self._on_room = on_room
        self._since_ms: dict[UnreadAnswer, int] = {}  # of those that hold something, the oldest first

    def open(self) -> UnreadAnswer:
        """Returns an answer that holds nothing yet; its sender closes it."""
        return UnreadAnswer(self)

    def share_bytes(self) -> int:
        """Returns the most bytes of the next answer, not counting the rest of its first batch; 0: it may have none."""
        if self.held_bytes >= self._limit_bytes:
            return 0
        return max(1, (self._shared_bytes - self.held_bytes) // RATIO)

    def end_oldest(self, now_ms: int, unread_ms: int) -> None:
        """Gives up the answer that is unread for longest, if that is `unread_ms` or more."""
        for answer, since_ms in self._since_ms.items():
            if now_ms - since_ms < unread_ms:
                return
            give_up, answer.on_give_up = answer.on_give_up, None  # its end may take a while
            if give_up is not None:
                give_up()
                return

    # ---- for the answers themselves --------------------------------------------------------------------------------------

    def hold(self, answer: UnreadAnswer, by_bytes: int, now_ms: int) -> None:
        """Counts more bytes of an answer."""
        self.held_bytes += by_bytes
        self._since_ms.setdefault(answer, now_ms)

    def give_back(self, answer: UnreadAnswer, by_bytes: int) -> None:
        """Counts fewer bytes of an answer."""
        self.held_bytes -= by_bytes
        if not answer.held_bytes:
            del self._since_ms[answer]
        self._on_room()


class UnreadAnswer:
    """The bytes that one answer holds, from the time at which it is read from a log.

    Attributes:
        held_bytes: The bytes of the answer.
        on_give_up: The function that ends the way to a client that does not read; None: the answer is not on its way.
    """

    __slots__ = ("_budget", "_is_closed", "held_bytes", "on_give_up")

    def __init__(self, budget: UnreadAnswers) -> None:
        self.held_bytes = 0
        self.on_give_up: Callable[[], None] | None = None
        self._budget = budget
        self._is_closed = False

    def hold(self, size_bytes: int, now_ms: int) -> None:
        """Holds `size_bytes` from now on, instead of what it held before; more than before only if it is not closed."""
        by_bytes = size_bytes - self.held_bytes
        if by_bytes <= 0:
            self.shrink(size_bytes)
        elif not self._is_closed:
            self.held_bytes = size_bytes
            self._budget.hold(self, by_bytes, now_ms)

    def shrink(self, size_bytes: int) -> None:
        """Gives back what is held beyond `size_bytes`."""
        given_back = self.held_bytes - size_bytes
        if given_back > 0:
            self.held_bytes = size_bytes
            self._budget.give_back(self, given_back)

    def close(self) -> None:
        """Gives everything back: the answer has left, or is not wanted any more."""
        self._is_closed = True
        self.on_give_up = None
        self.shrink(0)
