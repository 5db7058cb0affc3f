"""Clients over a quota: what waits for its time at the broker is not lost, and what was refused is asked for when it may be."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from replog.client.backoff import Backoff, retry
from replog.client.cluster.session import BrokerSession, Unanswered
from replog.client.protocol.questions.answered import raise_if_unanswered
from replog.controller.requests import TopicResult
from replog.errors import ErrorCode, RequestTimedOutError, ThrottledError
from replog.rpc.transport import ConnectionLostError
from replog.testing.virtual_loop import VirtualLoop


class Session(BrokerSession[Any, Any]):
    """A session whose oldest request was sent 40 s ago, and may take 30 s."""

    def _oldest_request(self) -> Unanswered:
        now_s = self._loop.time()
        return Unanswered(now_s - 40, now_s - 10)

    async def _open(self, connection: object, hello: object) -> Any: ...
    def _has_work(self) -> bool: ...  # type: ignore[empty-body]
    def _next_message(self) -> None: ...
    def _handle_sent(self, message: object) -> None: ...
    def _handle_received(self, message: object) -> None: ...
    def _handle_lost(self, error: object) -> None: ...


@pytest.mark.parametrize(("rested_ago_s", "is_lost"), [(None, True), (29, False), (31, True), (-60, False), (50, True)])
async def test_a_request_behind_a_throttle_time_is_overdue_only_when_that_is_over(
    rested_ago_s: float | None, is_lost: bool
) -> None:
    refreshes: list[None] = []
    session = Session(SimpleNamespace(request_refresh=lambda: refreshes.append(None)), 1, "b")  # type: ignore[arg-type]
    session._broken = asyncio.get_running_loop().create_future()
    if rested_ago_s is not None:
        session._resting = SimpleNamespace(rests_until_s=session._loop.time() - rested_ago_s)
    session._look_at_replies()
    assert session._broken.done() == is_lost
    if is_lost:
        assert isinstance(session._broken.exception(), ConnectionLostError)
    assert len(refreshes) == (rested_ago_s == 29)
    await session.stop()


def refused(wait_ms: int) -> None:
    one = TopicResult("t", ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")
    raise_if_unanswered([one], wait_ms)


@pytest.mark.parametrize(("wait_ms", "attempts"), [(4_000, 3), (20_000, 1)])
def test_what_a_quota_refuses_is_asked_again_when_the_answer_says(wait_ms: int, attempts: int) -> None:
    times: list[float] = []

    async def attempt(_left_ms: int) -> None:
        times.append(asyncio.get_running_loop().time())
        refused(wait_ms)

    async def run() -> None:
        with pytest.raises(RequestTimedOutError, match="too many") as late:
            await retry(attempt, timeout_ms=10_000, what="x", backoff=Backoff(random.Random(1)))
        assert isinstance(late.value.__cause__, ThrottledError)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner:
        runner.run(run())
    assert [round(at - times[0], 3) for at in times] == [wait_ms / 1000 * number for number in range(attempts)]
