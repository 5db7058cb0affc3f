"""Quotas of clients in force: how long a client that took more than its share waits before its next request is taken up.

Each quota is a bucket: it fills at the rate of the quota up to what `BURST_S` bring, and what a client takes may leave it in debt.
Then the client waits until the debt is paid (KIP-13, KIP-219; KIP-599 describes the bucket).  A bucket is shared by all connections
whose quota has the same owner:

| quota of                                 | shared by                                  |
|------------------------------------------|--------------------------------------------|
| a user and a client id, named or default | connections of this user and client id     |
| a user, named or default                 | all of the user                            |
| a client id, named or default            | all of the client id, whoever the user is  |

The first that fits, in the order of `_LEVELS`, is the one that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from replog.metadata.quotas import CLIENT_ID, USER, QuotaEntity

BURST_S: Final = 10.0
"""How many seconds' worth a client may take at once, as Kafka's ten whole windows of a second allow."""

WAIT_MAX_S: Final = 600.0
"""The longest wait; a quota of one byte a second would else silence a client for years."""

BUCKETS_MAX: Final = 10_000
"""How many buckets are kept.  Above it those that are full again are dropped, which changes nothing, and if none is, the oldest."""

DROP_EVERY_S: Final = 1.0
"""How often full buckets are looked for at most: a client that changes its name all the time would have it done for each."""

NAME_CHARACTERS_MAX: Final = 256
"""How much of a name tells buckets apart: a client may give itself 32 KiB, and another name with each request."""

_ABSENT: Final = object()
"""Stands for a part that an entity does not have, where None is the default."""

_Parts: TypeAlias = tuple[object, object]

Quotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]
"""The quotas of each entity by their keys."""

NO_QUOTAS: Final[Quotas] = {}


class Quota(NamedTuple):
    """A quota of a client.

    Attributes:
        rate: How much a second.
        owner: The user and the client id whose connections share it; None: whatever it is.
    """

    rate: float
    owner: tuple[str | None, str | None]


class Bucket:
    """What a client may take still; below zero what it took too much.

    Args:
        rate: How much comes a second, above 0.
        now_s: The time.
    """

    __slots__ = ("_amount", "_rate", "_since_s")

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._amount = rate * BURST_S
        self._since_s = now_s

    def take(self, amount: float, rate: float, now_s: float) -> float:
        """Takes, and returns the seconds until the debt is paid; 0: there is none.

        Args:
            amount: How much is taken.
            rate: The rate as it is now; another one than before holds from now on, the debt stays.
            now_s: The time, not before that of the last call.
        """
        self._amount = self._filled(now_s) - amount
        self._since_s, self._rate = now_s, rate
        return min(WAIT_MAX_S, max(0.0, -self._amount / rate))

    def is_full(self, now_s: float) -> bool:
        """Whether it is as a new one."""
        return self._filled(now_s) >= self._rate * BURST_S

    def _filled(self, now_s: float) -> float:
        return min(self._rate * BURST_S, self._amount + self._rate * (now_s - self._since_s))


class ClientQuotas:
    """The quotas of a broker's clients.

    Args:
        quotas: The function that returns the quotas of the metadata as they are now, the same object until one changes.
        clock: The clock, in seconds.
    """

    def __init__(
        self,
        quotas: Callable[[], Quotas],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._known: Quotas = NO_QUOTAS
        self._by_parts: dict[_Parts, Mapping[str, float]] = {}
        self._buckets: dict[tuple[str, str | None, str | None], Bucket] = {}
        self._dropped_s = -DROP_EVERY_S

    def take(self, key: str, user: str, client_id: str, amount: float) -> float:
        """Counts what a client took, and returns the seconds that it has to wait.

        Args:
            key: The key of the quota.
            user: The name of the client's principal.
            client_id: The name that the client gives itself.
            amount: How much it took.
        """
        quota = self.quota(key, user, client_id)
        if quota is None:
            return 0.0
        now_s = self._clock()
        user_name, client_name = quota.owner
        owner = (key, _shortened(user_name), _shortened(client_name))
        bucket = self._buckets.get(owner)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._make_room(now_s)
            bucket = self._buckets[owner] = Bucket(quota.rate, now_s)
        return bucket.take(amount, quota.rate, now_s)

    def burst(self, key: str, user: str, client_id: str) -> float | None:
        """Returns the most that a client may take at once; None: it has no such quota."""
        quota = self.quota(key, user, client_id)
        return None if quota is None else quota.rate * BURST_S

    def quota(self, key: str, user: str, client_id: str) -> Quota | None:
        """Returns the quota that counts for a client; None: it has none of this kind."""
        quotas = self._quotas()
        if quotas is not self._known:
            self._known = quotas
            self._by_parts = {_parts(entity): limits for entity, limits in quotas.items()}
        if not quotas:
            return None
        for of_user, of_client, is_of_user, is_of_client in _LEVELS:
            parts = (user if of_user is USER else of_user, client_id if of_client is CLIENT_ID else of_client)
            rate = self._by_parts.get(parts, {}).get(key)
            if rate is not None:
                return Quota(rate, (user if is_of_user else None, client_id if is_of_client else None))
        return None

    def _make_room(self, now_s: float) -> None:
        if now_s - self._dropped_s >= DROP_EVERY_S:
            self._dropped_s = now_s
            self._buckets = {owner: bucket for owner, bucket in self._buckets.items() if not bucket.is_full(now_s)}
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]


_LEVELS: Final = (
    (USER, CLIENT_ID, True, True),
    (USER, None, True, True),
    (USER, _ABSENT, True, False),
    (None, CLIENT_ID, True, True),
    (None, None, True, True),
    (None, _ABSENT, True, False),
    (_ABSENT, CLIENT_ID, False, True),
    (_ABSENT, None, False, True),
)
"""Where a quota is looked for: the user, the client id, and whether each of them shares it."""


def _shortened(name: str | None) -> str | None:
    return None if name is None else name[:NAME_CHARACTERS_MAX]


def _parts(entity: QuotaEntity) -> _Parts:
    names = {part.kind: part.name for part in entity}
    return names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)
