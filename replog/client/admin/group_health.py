"""Consumer groups that somebody should look at: what the brokers say of them, put together and judged.

| trouble       | what it means                                                                                       |
|---------------|-----------------------------------------------------------------------------------------------------|
| stands still  | a member reads a partition, records have waited for `STILL_MS`, and as long nothing was committed   |
| has no members | the same, and nobody is there to read                                                              |
| rebalances    | it was seen without an assignment that holds, and `REBALANCE_MS` later still is                     |

A client that commits the same offset again and again is taken for one that gets on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.client.admin.group_descriptions import MemberDescription, PartitionLag
from replog.coordinator.describing.requests import ListedGroup
from replog.errors import CoordinatorLoadInProgressError, GroupIdNotFoundError, ReplogError, RetriableError

if TYPE_CHECKING:
    from replog.client.admin.admin import Admin

ASK_TIMEOUT_MS: Final = 3_000

STILL_MS: Final = 300_000
"""As long as a member may take for what it has in hand, by default (`max_poll_interval_ms`)."""

REBALANCE_MS: Final = 5_000

LOOKED_AT_MAX: Final = 100
"""Groups whose lags are asked for in one look; the others are only counted."""

TOGETHER: Final = 10

NAMED_MAX: Final = 10
"""Groups with trouble that are named."""

REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
EMPTY: Final = "Empty"


class GroupTrouble(StrEnum):
    """What is wrong with a group; see the module."""

    STILL = "stands still"
    NO_MEMBERS = "has no members"
    REBALANCES = "rebalances"


class TroubledGroup(Struct, frozen=True):
    """A group that somebody should look at.

    Attributes:
        state: The state as Kafka names it.
        partitions: The partitions in which it stands, as `flights-3`.
        lag: The records that wait in them.
        lag_ms: The time for which they have waited, the longest, in milliseconds; None where it is not known.
        readers: The members that read them.
    """

    group_id: str
    trouble: GroupTrouble
    state: str
    partitions: tuple[str, ...] = ()
    lag: int = 0
    lag_ms: int | None = None
    readers: tuple[MemberDescription, ...] = ()


class GroupsHealth(Struct, frozen=True):
    """The groups of a cluster at one moment.

    Attributes:
        groups_count: The number of groups; None where a broker did not tell.
        looked_at_count: The number of groups whose lags were told.
        rebalancing_count: The number of groups that rebalance just now, whose lags are not asked for.
        problem: The reason for which not all is known; "" where it is.
        is_loading: Whether that is a coordinator which still reads its groups.
        troubled: The first of the groups with trouble.
        troubled_count: The number of groups with trouble.
    """

    groups_count: int | None = None
    looked_at_count: int = 0
    rebalancing_count: int = 0
    problem: str = ""
    is_loading: bool = False
    troubled: tuple[TroubledGroup, ...] = ()
    troubled_count: int = 0


class GroupWatch:
    """Looks at the groups of a cluster, and remembers which of them rebalanced the last time.

    Args:
        admin: The client of the cluster.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._rebalancing_ms: dict[str, int] = {}  # when each was first seen so

    async def look(self, *, timeout_ms: int = ASK_TIMEOUT_MS) -> GroupsHealth:
        """Asks for the groups, then for the lags of some, and judges; never raises for what a broker answers.

        Args:
            timeout_ms: The limit of each question, in milliseconds.
        """
        try:
            listed = await self._admin.list_groups(timeout_ms=timeout_ms)
        except ReplogError as error:
            is_loading = isinstance(error.__cause__, CoordinatorLoadInProgressError)
            return GroupsHealth(problem=str(error.__cause__ if is_loading else error), is_loading=is_loading)
        lags, problem = await self._lags(
            [each.group_id for each in listed if each.state not in REBALANCING], timeout_ms
        )
        stuck = self._stuck(each.group_id for each in listed if each.state in REBALANCING)
        troubled = judged(listed, lags, stuck, time.time_ns() // 1_000_000)
        return GroupsHealth(
            groups_count=len(listed),
            looked_at_count=len(lags),
            rebalancing_count=len(self._rebalancing_ms),
            problem=problem,
            troubled=troubled[:NAMED_MAX],
            troubled_count=len(troubled),
        )

    def _stuck(self, group_ids: Iterable[str]) -> set[str]:
        """Takes in which groups rebalance; returns those that did so a while ago, too."""
        now_ms = time.monotonic_ns() // 1_000_000
        self._rebalancing_ms = {each: self._rebalancing_ms.get(each, now_ms) for each in group_ids}
        return {each for each, since_ms in self._rebalancing_ms.items() if now_ms - since_ms >= REBALANCE_MS}

    async def _lags(self, group_ids: Sequence[str], timeout_ms: int) -> tuple[dict[str, Sequence[PartitionLag]], str]:
        """Returns the lags of the first groups, and why there are not more; "" where that is only their number."""
        found: dict[str, Sequence[PartitionLag]] = {}
        problem = ""
        for start in range(0, min(len(group_ids), LOOKED_AT_MAX), TOGETHER):
            part = group_ids[start : start + TOGETHER]
            answers = await asyncio.gather(*(_lag(self._admin, group_id, timeout_ms) for group_id in part))
            found |= {name: answer for name, answer in zip(part, answers, strict=True) if isinstance(answer, tuple)}
            for name, answer in zip(part, answers, strict=True):
                if isinstance(answer, ReplogError):
                    problem = problem or f"group {name}: {answer}"
                if isinstance(answer, RetriableError):
                    return found, problem  # whoever does not answer does not answer for other groups either
        return found, problem


async def _lag(admin: Admin, group_id: str, timeout_ms: int) -> tuple[PartitionLag, ...] | ReplogError | None:
    """Returns the lags of a group, or why they are not told; None where it has just been deleted."""
    try:
        return await admin.group_lag(group_id, timeout_ms=timeout_ms)
    except GroupIdNotFoundError:
        return None
    except ReplogError as error:
        return error


def judged(
    listed: Sequence[ListedGroup], lags: Mapping[str, Sequence[PartitionLag]], stuck: set[str], now_ms: int
) -> tuple[TroubledGroup, ...]:
    """Returns the groups with trouble: those that stand still, by how long, before the others.  Pure.

    Args:
        listed: The groups.
        lags: The lags of those that were asked for.
        stuck: The ids of those that have rebalanced for too long.
        now_ms: The time in milliseconds since 1970.
    """
    found = [
        TroubledGroup(each.group_id, GroupTrouble.REBALANCES, each.state) for each in listed if each.group_id in stuck
    ]
    for group in listed:
        standing = [each for each in lags.get(group.group_id, ()) if _stands(each, now_ms)]
        if group.state != EMPTY:
            standing = [each for each in standing if each.owner is not None]
        if standing:
            found.append(_standing(group, standing))
    order = list(GroupTrouble)
    return tuple(sorted(found, key=lambda each: (order.index(each.trouble), -(each.lag_ms or 0), each.group_id)))


def _stands(lag: PartitionLag, now_ms: int) -> bool:
    """Whether records wait, and nothing was committed, for long; a record without a time counts as one that waits."""
    if not lag.lag or lag.committed_ms is None:
        return False
    return now_ms - lag.committed_ms >= STILL_MS and (lag.lag_ms is None or lag.lag_ms >= STILL_MS)


def _standing(group: ListedGroup, lags: Sequence[PartitionLag]) -> TroubledGroup:
    readers = {each.owner.member_id: each.owner for each in lags if each.owner is not None}
    return TroubledGroup(
        group.group_id,
        GroupTrouble.NO_MEMBERS if group.state == EMPTY else GroupTrouble.STILL,
        group.state,
        tuple(f"{each.topic}-{each.partition}" for each in lags),
        sum(each.lag or 0 for each in lags),
        max((each.lag_ms for each in lags if each.lag_ms is not None), default=None),
        tuple(readers.values()),
    )
