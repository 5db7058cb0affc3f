"""A broker's life: registration, the lease, fencing, coming back, leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from broker_kit import FakeClock, server_config, wait_until

from replog.broker.controller.broker_lifecycle import BrokerLifecycle, LifecycleState, untold_endpoints
from replog.controller.requests import (
    Heartbeat,
    HeartbeatResponse,
    OfflineReplica,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaEnd,
    ReportReplicas,
    ReportReplicasResponse,
)
from replog.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRequestError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import (
    CLIENT_LISTENER,
    BrokerEndpoint,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)

SESSION_MS = 9_000
INCARNATION, DIRECTORY_ID = UUID(int=11), UUID(int=12)
KAFKA = BrokerEndpoint(CLIENT_LISTENER, "h", 19)


def running(*, fenced: bool = False, stop: bool = False, offset: int = 0) -> HeartbeatResponse:
    return HeartbeatResponse(is_caught_up=True, is_fenced=fenced, should_shut_down=stop, metadata_offset=offset)


class FakeController:
    """Answers what a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.register: Callable[[RegisterBroker], Any] = lambda _: RegisterBrokerResponse(40)
        self.heartbeat: Callable[[Heartbeat], Any] = lambda _: running()
        self.silent = False
        self.answered_count = 0
        self.closed_count = 0

    async def close(self) -> None:
        self.closed_count += 1

    async def send(self, request: Any, answer: type, *, timeout_ms: int) -> Any:
        self.requests.append(request)
        while self.silent:
            await asyncio.sleep(0.001)
        self.answered_count += 1
        outcome = self._outcome(request)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, answer)
        return outcome

    def _outcome(self, request: Any) -> Any:
        match request:
            case RegisterBroker():
                return self.register(request)
            case Heartbeat():
                return self.heartbeat(request)
            case _:
                return ReportReplicasResponse()

    def sent(self, cls: type) -> list[Any]:
        return [request for request in self.requests if type(request) is cls]


class Life:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.controller = FakeController()
        self.failures: list[BaseException] = []
        self.applied = 0
        self.awaited: tuple[ReplicaEnd, ...] = ()
        self.offline: tuple[OfflineReplica, ...] = ()
        self.reported: list[tuple[tuple[OfflineReplica, ...], int]] = []
        self.leases: list[bool] = []
        self.untold: tuple[BrokerEndpoint, ...] = ()
        self.lifecycle = BrokerLifecycle(
            config=server_config(
                broker_session_timeout_ms=SESSION_MS, broker_heartbeat_interval_ms=2_000, broker_rack="r"
            ),
            cluster_id="c",
            incarnation_id=INCARNATION,
            log_dirs=(DIRECTORY_ID,),
            unopened_log_dirs=0,
            endpoints=(KAFKA,),
            untold_endpoints=lambda: self.untold,
            previous_broker_epoch=31,
            host="h",
            port=9,
            channel=self.controller,  # type: ignore[arg-type]
            clock=self.clock,
            metadata_offset=lambda: self.applied,
            awaited_ends=lambda: self.awaited,
            offline_replicas=lambda: self.offline,
            on_reported=lambda reported, offset: self.reported.append((reported, offset)),
            on_lease_changed=lambda: self.leases.append(self.lifecycle.refuses_because() is None),
            on_failure=self.failures.append,
        )

    async def beat(self) -> Heartbeat:
        """One more heartbeat."""
        before = len(self.controller.sent(Heartbeat))
        self.lifecycle.hurry()
        await wait_until(lambda: len(self.controller.sent(Heartbeat)) > before)
        await asyncio.sleep(0)
        request: Heartbeat = self.controller.sent(Heartbeat)[before]
        return request


@contextlib.asynccontextmanager
async def life(*, start: bool = True) -> AsyncIterator[Life]:
    it = Life()
    if start:
        it.lifecycle.start()
        await asyncio.wait_for(it.lifecycle.wait_until_running(), 60)
    yield it
    await it.lifecycle.stop()


# ---- registration --------------------------------------------------------------------------------------------------------


async def test_it_registers_is_unfenced_and_serves() -> None:
    async with life(start=False) as it:
        assert it.lifecycle.state is LifecycleState.STARTING
        assert it.lifecycle.refuses_because() == "the broker is starting"
        it.lifecycle.start()
        await asyncio.wait_for(it.lifecycle.wait_until_running(), 60)
        assert it.lifecycle.broker_epoch == 40
        assert it.lifecycle.refuses_because() is None
        assert it.controller.sent(RegisterBroker) == [
            RegisterBroker(
                1,
                "c",
                INCARNATION,
                "h",
                9,
                (DIRECTORY_ID,),
                "r",
                previous_broker_epoch=31,
                supported_features=SUPPORTED_FEATURES,
                endpoints=(KAFKA,),
            )
        ]
        assert it.controller.sent(Heartbeat)[0] == Heartbeat(1, 40, 0)


async def test_while_it_is_fenced_it_asks_often() -> None:
    async with life(start=False) as it:
        it.controller.heartbeat = lambda _: running(fenced=True)
        it.lifecycle.start()
        await wait_until(lambda: len(it.controller.sent(Heartbeat)) >= 3)
        assert it.lifecycle.state is LifecycleState.FENCED
        it.applied = 7
        it.controller.heartbeat = lambda request: running(fenced=request.metadata_offset < 7)
        await asyncio.wait_for(it.lifecycle.wait_until_running(), 60)


async def test_another_process_with_the_id_is_waited_for() -> None:
    """It may be about to die: its session ends, or the operator notices the warning."""
    outcomes = [DuplicateBrokerRegistrationError("alive"), RegisterBrokerResponse(41)]
    it = Life()
    it.lifecycle._config = server_config(broker_heartbeat_interval_ms=100, broker_session_timeout_ms=SESSION_MS)
    it.controller.register = lambda _: outcomes.pop(0)
    it.lifecycle.start()
    await asyncio.wait_for(it.lifecycle.wait_until_running(), 60)
    assert it.lifecycle.broker_epoch == 41
    await it.lifecycle.stop()


@pytest.mark.parametrize(
    "error",
    [
        InconsistentClusterIdError("another cluster"),
        InvalidRequestError("the directory was copied"),
        RequestTimedOutError("no controller"),
    ],
)
async def test_a_registration_that_is_refused_ends_the_node(error: Exception) -> None:
    async with life(start=False) as it:
        it.controller.register = lambda _: error
        it.lifecycle.start()
        await wait_until(lambda: it.failures)
        assert it.failures == [error]


@pytest.mark.parametrize("error", [StaleBrokerEpochError("another"), BrokerIdNotRegisteredError("who?")])
async def test_an_incarnation_that_was_forgotten_registers_again(error: Exception) -> None:
    async with life() as it:
        it.controller.register = lambda _: RegisterBrokerResponse(50)
        it.controller.heartbeat = lambda request: running() if request.broker_epoch == 50 else error
        await it.beat()
        await wait_until(lambda: it.lifecycle.broker_epoch == 50)
        await wait_until(lambda: it.controller.sent(Heartbeat)[-1].broker_epoch == 50)
        first, second = it.controller.sent(RegisterBroker)
        assert first == second, "the same incarnation: nothing was lost in between"


async def test_an_incarnation_that_was_forgotten_waits_for_a_controller() -> None:
    """At its first start a node ends that finds none; later its records are needed when the controllers are back."""
    answers: deque[Any] = deque([RequestTimedOutError("no controller"), RegisterBrokerResponse(50)])
    async with life() as it:
        it.controller.register = lambda _: answers.popleft()
        it.controller.heartbeat = lambda request: (
            running() if request.broker_epoch == 50 else StaleBrokerEpochError("?")
        )
        await it.beat()
        await wait_until(lambda: it.lifecycle.broker_epoch == 50)
        assert it.failures == []


async def test_a_bug_is_not_swallowed() -> None:
    async with life() as it:
        it.controller.heartbeat = lambda _: KeyError("bug")
        await it.beat()
        await wait_until(lambda: it.failures)
        assert isinstance(it.failures[0], KeyError)


# ---- the lease -----------------------------------------------------------------------------------------------------------


async def test_silence_ends_the_lease_and_an_answer_renews_it() -> None:
    async with life() as it:
        it.clock.monotonic_ms += SESSION_MS - 1
        assert it.lifecycle.refuses_because() is None
        it.clock.monotonic_ms += 1
        assert it.lifecycle.refuses_because() == "cut off from the controller for 9000 ms"
        await it.beat()
        assert it.lifecycle.refuses_because() is None


async def test_the_lease_counts_from_the_question() -> None:
    """The controller cannot have given it earlier, but much earlier than the answer arrived."""
    async with life() as it:
        it.controller.silent = True
        it.lifecycle.hurry()
        await wait_until(lambda: len(it.controller.sent(Heartbeat)) == 2)
        it.clock.monotonic_ms += 5_000
        answered_count = it.controller.answered_count
        it.controller.silent = False
        await wait_until(lambda: it.controller.answered_count > answered_count)
        it.clock.monotonic_ms += SESSION_MS - 5_000
        assert it.lifecycle.refuses_because() is not None


async def test_an_answer_counts_once_what_it_knew_is_applied() -> None:
    """What this broker missed may have taken its leaderships: it serves nothing before it knows."""
    async with life() as it:
        it.clock.monotonic_ms += SESSION_MS
        it.controller.heartbeat = lambda _: running(offset=17)
        await it.beat()
        assert it.lifecycle.refuses_because() == "catching up with the metadata after 9000 ms without the controller"
        it.applied = 16
        assert it.lifecycle.refuses_because() is not None
        it.applied = 17
        assert it.lifecycle.refuses_because() is None


async def test_a_failed_heartbeat_is_repeated_and_renews_nothing() -> None:
    async with life() as it:
        it.controller.heartbeat = lambda _: RequestTimedOutError("no controller")
        it.clock.monotonic_ms += SESSION_MS
        before = len(it.controller.sent(Heartbeat))
        it.lifecycle.hurry()
        await wait_until(lambda: len(it.controller.sent(Heartbeat)) >= before + 2)
        assert it.lifecycle.refuses_because() is not None
        assert it.failures == []
        assert it.leases == [True, False]
        assert it.controller.closed_count >= 2, "a connection that carries one way only keeps the session alive"
        it.controller.heartbeat = lambda _: running()
        await wait_until(lambda: it.leases == [True, False, True])


# ---- reports, hurry --------------------------------------------------------------------------------------------------------


async def test_awaited_ends_are_told_with_every_heartbeat() -> None:
    async with life() as it:
        it.awaited = (ReplicaEnd(UUID(int=1), 0, 3, 10),)
        for _ in range(2):
            await it.beat()
        await wait_until(lambda: len(it.controller.sent(ReportReplicas)) >= 2)
        assert it.controller.sent(ReportReplicas)[0] == ReportReplicas(1, 40, it.awaited)


async def test_hurry_during_a_heartbeat_is_not_lost() -> None:
    async with life() as it:
        it.controller.silent = True
        it.lifecycle.hurry()
        await wait_until(lambda: len(it.controller.sent(Heartbeat)) == 2)
        it.lifecycle.hurry()  # this one has left already
        it.controller.silent = False
        await wait_until(lambda: len(it.controller.sent(Heartbeat)) > 2)
        assert len(it.controller.sent(Heartbeat)) == 3


# ---- leaving -------------------------------------------------------------------------------------------------------------


async def test_controlled_shutdown_waits_for_the_controller() -> None:
    async with life() as it:
        leaving = asyncio.create_task(it.lifecycle.controlled_shutdown(5))
        await wait_until(lambda: it.controller.sent(Heartbeat)[-1].want_shut_down)
        assert not leaving.done()
        it.controller.heartbeat = lambda _: running(fenced=True, stop=True)
        assert await leaving
        assert it.lifecycle.state is LifecycleState.SHUTTING_DOWN


async def test_controlled_shutdown_does_not_wait_for_ever() -> None:
    async with life() as it:
        assert not await it.lifecycle.controlled_shutdown(0.02)


async def test_a_broker_that_never_registered_has_nothing_to_hand_over() -> None:
    async with life(start=False) as it:
        assert not await it.lifecycle.controlled_shutdown(5)


async def test_a_broker_that_was_replaced_meanwhile_may_stop() -> None:
    async with life() as it:
        it.controller.heartbeat = lambda _: StaleBrokerEpochError("another incarnation")
        it.lifecycle.state = LifecycleState.SHUTTING_DOWN
        assert await it.lifecycle.controlled_shutdown(5)
        assert len(it.controller.sent(RegisterBroker)) == 1


async def test_more_replicas_than_a_request_may_name_are_told_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.controller.broker_lifecycle.REPLICAS_PER_REQUEST_MAX", 2)
    async with life() as it:
        it.offline = tuple(OfflineReplica(UUID(int=number), 0) for number in range(5))
        it.awaited = tuple(ReplicaEnd(UUID(int=number), 0, 0, 0) for number in range(3))
        it.controller.requests.clear()
        it.lifecycle.hurry()
        await wait_until(lambda: len(it.controller.sent(ReportReplicas)) == 2)
        told = it.controller.sent(Heartbeat)[:3]
        assert [(len(one.offline_replicas), one.more_offline) for one in told] == [(2, True), (2, True), (1, False)]
        assert sum((one.offline_replicas for one in told), ()) == it.offline
        assert sum((reported for reported, _ in it.reported[:3]), ()) == it.offline
        assert sum((one.replicas for one in it.controller.sent(ReportReplicas)), ()) == it.awaited


# ---- where Kafka's clients are served ------------------------------------------------------------------------------------


async def test_endpoints_that_the_metadata_lack_are_told_until_they_do_not() -> None:
    async with life() as it:
        assert (await it.beat()).endpoints == ()
        it.untold = (KAFKA,)
        for _ in range(2):
            assert (await it.beat()).endpoints == (KAFKA,)
        it.untold = ()
        assert (await it.beat()).endpoints == ()
        assert len(it.controller.sent(RegisterBroker)) == 1


@pytest.mark.parametrize(
    ("level", "known", "own", "untold"),
    [
        (2, (), (KAFKA,), ()),
        (3, (), (KAFKA,), (KAFKA,)),
        (3, (KAFKA,), (KAFKA,), ()),
        (3, (), (), ()),
    ],
)
def test_endpoints_are_untold_where_the_level_knows_them_and_the_registration_does_not(
    level: int, known: tuple[BrokerEndpoint, ...], own: tuple[BrokerEndpoint, ...], untold: tuple[BrokerEndpoint, ...]
) -> None:
    assert untold_endpoints(MetadataImage(), 1, own) == (), "it is not registered"
    records: list[MetadataRecord] = [
        FeatureLevelRecord("metadata.version", level),
        RegisterBrokerRecord(1, INCARNATION, 40, "h", 9, (DIRECTORY_ID,), endpoints=known),
    ]
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    assert untold_endpoints(delta.apply(2, 1), 1, own) == untold
