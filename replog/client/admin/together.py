"""Calls of an operator that consist of several questions: one time limit for all, coordinators, many things side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from replog.client.arguments import limit_ms
from replog.client.backoff import Backoff, retry
from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.client.groups.coordinator import Coordinator
from replog.errors import ReplogError, RetriableError
from replog.waiting.asks import Asks

T = TypeVar("T")
U = TypeVar("U")

TOGETHER: Final = 16
"""Groups, or transactional ids, that are asked about at the same time."""


class AdminPart:
    """A part of `Admin`: methods over its view of the cluster, with its time-out where they are given none."""

    _view: ClusterView
    _timeout_ms: int

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return limit_ms(timeout_ms, self._timeout_ms)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        return Deadline(self._limit_ms(timeout_ms))

    async def _ask(
        self,
        question: Asks[T],
        timeout_ms: int | None,
        what: str,
        on_retry: Callable[[ReplogError], None] | None = None,
    ) -> T:
        """Asks any broker until one has answered, within one time-out."""
        within_ms = self._limit_ms(timeout_ms)
        return await self._view.call_any(question, timeout_ms=within_ms, what=what, on_retry=on_retry)


class Deadline:
    """What is left of the time limit of a call that asks several times."""

    def __init__(self, within_ms: int) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._end_s = self._now_s() + within_ms / 1000

    @property
    def left_ms(self) -> int:
        return max(1, round((self._end_s - self._now_s()) * 1000))


async def side_by_side(items: Sequence[T], ask: Callable[[T], Coroutine[Any, Any, U]]) -> list[U]:
    """Asks about each item, `TOGETHER` at a time; returns the answers in order, or raises the first error."""
    answers: list[U] = []
    for start in range(0, len(items), TOGETHER):
        part = [ask(item) for item in items[start : start + TOGETHER]]
        answers += all_or_raise(await asyncio.gather(*part, return_exceptions=True))
    return answers


def all_or_raise(outcomes: Iterable[U | BaseException]) -> list[U]:
    """Returns what came out, or raises the first error among it."""
    found: list[U] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found


async def ask_coordinator(
    view: ClusterView,
    coordinator: Coordinator,
    request: Asks[T],
    deadline: Deadline,
    what: str,
    on_retry: Callable[[ReplogError], None] = lambda _: None,
) -> T:
    """Asks a coordinator until it has answered, for as long as there is time."""

    async def attempt(remaining_ms: int) -> T:
        try:
            return await coordinator.call(request, min(remaining_ms, ATTEMPT_TIMEOUT_MS))
        except RetriableError as error:
            on_retry(error)
            raise

    return await retry(attempt, timeout_ms=deadline.left_ms, what=what, backoff=Backoff(view.rng))


async def ask_every_broker(view: ClusterView, request: Asks[T], deadline: Deadline, what: str) -> dict[int, T]:
    """Asks every broker in service, and all of them again where one does not answer; returns the answers by the broker's id."""

    async def attempt(remaining_ms: int) -> dict[int, T]:
        view.request_refresh()  # by the time of another attempt other brokers may coordinate
        brokers = [broker for broker in view.metadata.brokers if not broker.fenced]
        within_ms = min(remaining_ms, ATTEMPT_TIMEOUT_MS)
        asked = [view.call(address_of(broker), request, timeout_ms=within_ms) for broker in brokers]
        answers = all_or_raise(await asyncio.gather(*asked, return_exceptions=True))
        return {broker.broker_id: answer for broker, answer in zip(brokers, answers, strict=True)}

    await view.describe(deadline.left_ms)
    return await retry(attempt, timeout_ms=deadline.left_ms, what=what, backoff=Backoff(view.rng))
