"""How many partitions clients may create and delete (`controller_mutation_rate`, KIP-599): the active controller counts for all brokers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from replog.controller.requests import MutatingClient
from replog.errors import ThrottledError
from replog.metadata.quotas import CONTROLLER_MUTATION_RATE, QuotaEntity, QuotaParts, nearest_quota, quota_entity_of
from replog.waiting.token_buckets import TokenBuckets
from replog_timeline import TimelineHashMap

BURST_S: Final = 11.0
"""How many seconds' worth a client may create and delete at once, as in Kafka."""


class MutationQuotas:
    """Counts the partitions that clients create and delete.  In memory: another controller begins with full buckets.

    Args:
        quotas: The quotas of all entities.
    """

    def __init__(self, quotas: TimelineHashMap[QuotaEntity, Mapping[str, float]]) -> None:
        self._quotas = quotas
        self._buckets: TokenBuckets[tuple[str | None, str | None]] = TokenBuckets(BURST_S)

    def of(self, client: MutatingClient | None, now_ms: int) -> MutationQuota:
        """Returns the quota that a request counts against.

        Args:
            client: The client that asks; None: a node of the cluster, which has none.
            now_ms: The time.
        """
        quota = None
        if client is not None:
            quota = nearest_quota(self._limits_of, CONTROLLER_MUTATION_RATE, client.user, client.client_id)
        if client is None or quota is None:
            return MutationQuota()
        return CountedMutations(self._buckets, quota.owner, quota.rate, now_ms / 1000, is_strict=client.is_strict)

    def _limits_of(self, parts: QuotaParts) -> Mapping[str, float] | None:
        return self._quotas.get(quota_entity_of(parts))


class MutationQuota:
    """The quota of one request whose client has none.

    Attributes:
        throttle_time_ms: The time that the client has to wait; 0: it need not.
    """

    throttle_time_ms: int = 0

    def take(self, partitions_count: int) -> None:
        """Counts partitions that are created or deleted.

        Raises:
            ThrottledError: The client has created and deleted too many before, and is told so.
        """


class CountedMutations(MutationQuota):
    """The quota of one request.

    Args:
        buckets: The buckets of all owners.
        owner: The owner of the quota.
        rate: The partitions a second.
        now_s: The time.
        is_strict: Whether what exceeds it is refused.
    """

    def __init__(
        self,
        buckets: TokenBuckets[tuple[str | None, str | None]],
        owner: tuple[str | None, str | None],
        rate: float,
        now_s: float,
        *,
        is_strict: bool,
    ) -> None:
        self._buckets = buckets
        self._owner = owner
        self._rate = rate
        self._now_s = now_s
        self._is_strict = is_strict

    def take(self, partitions_count: int) -> None:
        wait_s = self._taken(0) if self._is_strict else self._taken(partitions_count)
        self.throttle_time_ms = math.ceil(wait_s * 1000)
        if self._is_strict:
            if wait_s:
                raise ThrottledError(
                    f"the quota {CONTROLLER_MUTATION_RATE} of {self._rate:g} partitions a second is used up; "
                    f"ask again in {self.throttle_time_ms} ms"
                )
            self._taken(partitions_count)

    def _taken(self, partitions_count: int) -> float:
        return self._buckets.take(self._owner, partitions_count, self._rate, self._now_s)
