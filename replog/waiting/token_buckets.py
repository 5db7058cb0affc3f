"""Token buckets: how long one who took more than its share has to wait.

A bucket fills at a rate, up to what some seconds bring.  What is taken may leave it in debt, and whoever took it waits until the
debt is paid (KIP-599 describes it).

    rate 1000 a second, a burst of 10 s
        at 0.0 s  take 10000   no wait: the bucket begins full
        at 0.0 s  take  3000   3 s
        at 2.0 s  take     0   1 s
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

WAIT_MAX_S: Final = 600.0
"""The longest wait; a rate of one byte a second would else silence a client for years."""

BUCKETS_MAX: Final = 10_000
"""How many buckets are kept.  Above it those that are full again are dropped, which changes nothing, and if none is, the oldest."""

DROP_EVERY_S: Final = 1.0
"""How often full buckets are looked for at most: a client that changes its name all the time would have it done for each."""

Owner = TypeVar("Owner", bound=Hashable)


class TokenBucket:
    """What its owner may take still; below zero what it took too much.

    Args:
        rate: How much comes a second, above 0.
        burst_s: How many seconds' worth it holds.
        now_s: The time.
    """

    __slots__ = ("_amount", "_burst_s", "_rate", "_since_s")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self._rate = rate
        self._burst_s = burst_s
        self._amount = rate * burst_s
        self._since_s = now_s

    def take(self, amount: float, rate: float, now_s: float) -> float:
        """Takes, and returns the seconds until the debt is paid; 0: there is none.

        Args:
            amount: How much is taken; below 0: given back.
            rate: The rate as it is now; another one than before holds from now on, the debt stays.
            now_s: The time, not before that of the last call.
        """
        self._amount = min(self._rate * self._burst_s, self._filled(now_s) - amount)
        self._since_s, self._rate = now_s, rate
        return max(0.0, -self._amount / rate)

    def is_full(self, now_s: float) -> bool:
        """Whether it is as a new one."""
        return self._filled(now_s) >= self._rate * self._burst_s

    def _filled(self, now_s: float) -> float:
        return min(self._rate * self._burst_s, self._amount + self._rate * (now_s - self._since_s))


class TokenBuckets(Generic[Owner]):
    """One bucket for each owner that took something lately.

    Args:
        burst_s: How many seconds' worth an owner may take at once.
        wait_max_s: The longest wait that is told.
    """

    def __init__(self, burst_s: float, wait_max_s: float = WAIT_MAX_S) -> None:
        self._burst_s = burst_s
        self._wait_max_s = wait_max_s
        self._buckets: dict[Owner, TokenBucket] = {}
        self._dropped_s = -DROP_EVERY_S

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, owner: Owner, amount: float, rate: float, now_s: float) -> float:
        """Counts what an owner took, and returns the seconds that it has to wait; arguments as of `TokenBucket.take`."""
        bucket = self._buckets.get(owner)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._make_room(now_s)
            bucket = self._buckets[owner] = TokenBucket(rate, self._burst_s, now_s)
        return min(self._wait_max_s, bucket.take(amount, rate, now_s))

    def _make_room(self, now_s: float) -> None:
        if now_s - self._dropped_s >= DROP_EVERY_S:
            self._dropped_s = now_s
            self._buckets = {owner: bucket for owner, bucket in self._buckets.items() if not bucket.is_full(now_s)}
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
