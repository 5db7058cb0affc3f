"""A controller that may have been replaced without knowing gives no broker permission to serve."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from broker_fakes import FakeNetwork

from replog.broker.controller.driver import ControllerDriver
from replog.broker.loop_lag import LoopLag
from replog.controller.messages import ChangeFailed, Effect, Message, Reply, Submit
from replog.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsResponse,
    ControllerRequest,
    Heartbeat,
    HeartbeatResponse,
    NamedPartition,
)
from replog.errors import NotControllerError
from replog.metadata.records import ElectionType
from replog.rpc.messages import Hello

HEARTBEAT = Heartbeat(broker_id=1, broker_epoch=5, metadata_offset=9)
PERMISSION = HeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=False, metadata_offset=9)
BLOCK = AllocateProducerIdsResponse(0, 1000)


class Core:
    """Answers every request at once, as the core does while nothing waits for a commit."""

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        if not isinstance(message, Submit):
            return ()
        return (Reply(message.request_id, PERMISSION if isinstance(message.request, Heartbeat) else BLOCK),)

    def next_deadline_ms(self) -> int | None:
        return None

    def elections_needed(self, election_type: ElectionType) -> tuple[NamedPartition, ...]:
        return ()


class FailingCore(Core):
    """Cannot make what its task of drains would change."""

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        return (ChangeFailed("drain", ZeroDivisionError("a bug")), *super().step(message, now_ms))


async def answer(request: ControllerRequest, *, holds_lease: bool, core: Core | None = None) -> object:
    failures: list[BaseException] = []
    clock = SimpleNamespace(now_ms=lambda: 0)
    hello = Hello("c", 1, UUID(int=1))
    driver = ControllerDriver(  # type: ignore[arg-type]  # fakes
        core or Core(), clock, FakeNetwork(), lambda: hello, LoopLag(clock), failures.append
    )
    driver.start(SimpleNamespace(holds_lease=lambda: holds_lease))  # type: ignore[arg-type]  # a fake
    try:
        return await driver.submit(request, timeout_ms=1_000)
    finally:
        await driver.stop()
        assert failures == []


async def test_with_the_lease_heartbeats_are_answered() -> None:
    assert await answer(HEARTBEAT, holds_lease=True) == PERMISSION


async def test_without_the_lease_a_heartbeat_is_refused() -> None:
    with pytest.raises(NotControllerError, match="another node may lead"):
        await answer(HEARTBEAT, holds_lease=False)


async def test_what_has_to_commit_needs_no_lease() -> None:
    assert await answer(AllocateProducerIds(1, 5), holds_lease=False) == BLOCK


async def test_a_bug_of_a_task_of_the_controller_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert await answer(HEARTBEAT, holds_lease=True, core=FailingCore()) == PERMISSION
    assert "the controller made nothing of drain: a bug" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
