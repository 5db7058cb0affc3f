"""Quotas of clients in force: how long a client that took more than its share waits before its next request is taken up.

Each quota is a bucket (`replog.waiting.token_buckets`), shared by all connections whose quota has the same owner
(`replog.metadata.quotas.nearest_quota`): KIP-13, KIP-124, KIP-219.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final, TypeAlias

from replog.metadata.quotas import (
    ADDRESS,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    REQUEST_PERCENTAGE,
    Quota,
    QuotaEntity,
    QuotaParts,
    nearest_quota,
    quota_parts,
)
from replog.waiting.token_buckets import TokenBuckets

BURST_S: Final = 10.0
"""How many seconds' worth a client may take at once, as Kafka's ten whole windows of a second allow."""

REQUEST_WAIT_MAX_S: Final = 1.0
"""The longest wait for `request_percentage`, as Kafka's: a client that holds a group together still gets its heartbeats through."""

Quotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]
"""The quotas of each entity by their keys."""

NO_QUOTAS: Final[Quotas] = {}


class ClientQuotas:
    """The quotas of a broker's clients.

    Args:
        quotas: The function that returns the quotas of the metadata as they are now, the same object until one changes.
        clock: The clock, in seconds.

    Attributes:
        throttled_s: The seconds that clients were told to wait, by the key of the quota.
    """

    def __init__(
        self,
        quotas: Callable[[], Quotas],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._known: Quotas = NO_QUOTAS
        self._by_parts: dict[QuotaParts, Mapping[str, float]] = {}
        self._by_address: dict[str | None, float] = {}
        self._set_keys: frozenset[str] = frozenset()
        self._buckets: dict[str, TokenBuckets[tuple[str | None, str | None]]] = {
            key: TokenBuckets(BURST_S, REQUEST_WAIT_MAX_S) if key == REQUEST_PERCENTAGE else TokenBuckets(BURST_S)
            for key in CLIENT_KEYS
        }
        self.throttled_s = dict.fromkeys(CLIENT_KEYS, 0.0)

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
        wait_s = self._buckets[key].take(quota.owner, amount, quota.rate, self._clock())
        self.throttled_s[key] += wait_s
        return wait_s

    def burst(self, key: str, user: str, client_id: str) -> float | None:
        """Returns the most that a client may take at once; None: it has no such quota."""
        quota = self.quota(key, user, client_id)
        return None if quota is None else quota.rate * BURST_S

    def is_set(self, key: str) -> bool:
        """Whether anybody has such a quota: else nothing needs to be measured."""
        self._look()
        return key in self._set_keys

    def quota(self, key: str, user: str, client_id: str) -> Quota | None:
        """Returns the quota that counts for a client; None: it has none of this kind."""
        return nearest_quota(self._by_parts.get, key, user, client_id) if self.is_set(key) else None

    def connection_rate(self, address: str) -> float | None:
        """Returns how many connections may come from an address in a second; None: any number.

        Args:
            address: The address in its shortest form.
        """
        if not self.is_set(CONNECTION_CREATION_RATE):
            return None
        return self._by_address.get(address, self._by_address.get(None))

    def _look(self) -> None:
        quotas = self._quotas()
        if quotas is not self._known:
            self._known = quotas
            self._by_parts = {quota_parts(entity): limits for entity, limits in quotas.items()}
            self._by_address = {
                entity[0].name and str(ip_address(entity[0].name)): limits[CONNECTION_CREATION_RATE]
                for entity, limits in quotas.items()
                if entity[0].kind == ADDRESS
            }
            self._set_keys = frozenset(key for limits in quotas.values() for key in limits)
