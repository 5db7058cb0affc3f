"""The way to the active controller, and the way of ISR proposals over it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from broker_fakes import FakeNetwork
from broker_kit import FakeClock, wait_until

from replog.broker.controller import channel as controller_channel
from replog.broker.controller.channel import ControllerChannel
from replog.broker.replicas import alter_partition
from replog.broker.replicas.alter_partition import PROPOSALS_TOGETHER, AlterPartitionSender
from replog.broker.replicas.replica import ReplicaKey
from replog.controller.requests import (
    AlterPartition,
    AlterPartitionResponse,
    CreateTopics,
    CreateTopicsResponse,
    Heartbeat,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from replog.errors import (
    ErrorCode,
    NotControllerError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    StaleBrokerEpochError,
)
from replog.replication.messages import ProposeIsr
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from tests.envelopes import in_envelope

VOTERS = {1: "one:1", 2: "two:2", 3: "three:3"}
REQUEST = in_envelope(CreateTopics(()))
ANSWER = CreateTopicsResponse(())


class MovingClock(FakeClock):
    """Each look at it takes a while."""

    def now_ms(self) -> int:
        self.monotonic_ms += 10
        return self.monotonic_ms


class LocalController:
    """Stands for this process's `ControllerDriver`."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.outcome: Any = ANSWER

    async def submit(self, request: Any, *, timeout_ms: int) -> Any:
        self.requests.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Channeled:
    def __init__(self, *, local: LocalController | None = None) -> None:
        self.network = FakeNetwork()
        self.leader_id: int | None = 2
        self.channel = ControllerChannel(
            hello=Hello("c", 1, UUID(int=1)),
            address_of=VOTERS.get,
            leader_id=lambda: self.leader_id,
            local=local,  # type: ignore[arg-type]
            transport=self.network,  # type: ignore[arg-type]
            clock=MovingClock(),
        )

    async def send(self, timeout_ms: int = 5_000) -> CreateTopicsResponse:
        return await self.channel.send(REQUEST, CreateTopicsResponse, timeout_ms=timeout_ms)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "RETRY_DELAY_S", 0)


async def test_the_leader_of_the_quorum_is_asked() -> None:
    it = Channeled()
    it.network.answer = lambda _, __: ANSWER
    assert await it.send() == ANSWER
    assert await it.send() == ANSWER
    ((address, request, timeout_ms, cluster_id), _) = it.network.calls
    assert (address, request, cluster_id) == ("two:2", REQUEST, "c")
    assert 0 < timeout_ms <= controller_channel.ATTEMPT_TIMEOUT_MS
    assert len(it.network.connections) == 1, "a connection is kept"
    await it.channel.close()
    assert it.network.connections[0].closed
    assert await it.send() == ANSWER
    assert len(it.network.connections) == 2, "it connects anew"


async def test_it_follows_the_leader() -> None:
    it = Channeled()

    def answer(address: str, _: Any) -> Any:
        if address == "two:2":
            it.leader_id = 3
            return NotControllerError("not any more")
        return ANSWER

    it.network.answer = answer
    assert await it.send() == ANSWER
    assert [call[0] for call in it.network.calls] == ["two:2", "three:3"]


async def test_it_waits_for_a_leader() -> None:
    it = Channeled()
    it.leader_id = None
    it.network.answer = lambda _, __: ANSWER
    sending = asyncio.create_task(it.send())
    for _ in range(20):
        await asyncio.sleep(0)
    assert it.network.calls == []
    it.leader_id = 2
    assert await sending == ANSWER


async def test_the_controller_of_this_process_is_asked_without_a_connection() -> None:
    local = LocalController()
    it = Channeled(local=local)
    it.leader_id = 1
    assert await it.send() == ANSWER
    assert local.requests == [REQUEST]
    assert it.network.connections == []


@pytest.mark.parametrize(
    "error",
    [NotControllerError("not I"), ConnectionLostError("gone"), RequestTimedOutError("slow")],
)
async def test_it_gives_up_with_the_last_cause(error: ReplogError) -> None:
    it = Channeled()
    it.network.answer = lambda _, __: error
    with pytest.raises(RequestTimedOutError, match=f"no controller answered CreateTopics in 300 ms; .*: {error}"):
        await it.send(300)
    assert len(it.network.calls) > 1


async def test_it_gives_up_without_a_leader() -> None:
    it = Channeled()
    it.leader_id = None
    with pytest.raises(RequestTimedOutError, match="has no leader"):
        await it.send(300)


async def test_an_answer_that_is_an_error_is_the_answer() -> None:
    it = Channeled()
    it.network.answer = lambda _, __: StaleBrokerEpochError("another incarnation")
    with pytest.raises(StaleBrokerEpochError):
        await it.send()
    assert len(it.network.calls) == 1


async def test_an_answer_to_something_else_is_refused() -> None:
    it = Channeled()
    it.network.answer = lambda _, __: ANSWER
    with pytest.raises(RetriableError, match="answered with CreateTopicsResponse"):
        await it.channel.send(Heartbeat(1, 1, 1), AlterPartitionResponse, timeout_ms=1000)


# ---- ISR proposals -------------------------------------------------------------------------------------------------------

KEYS = [(UUID(int=7), partition_id) for partition_id in range(4)]


def proposal(proposal_id: int, isr: tuple[int, ...] = (1, 2)) -> ProposeIsr:
    return ProposeIsr(proposal_id, 5, 9, tuple((broker_id, 100 + broker_id) for broker_id in isr), "because")


class Sending(Channeled):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[ReplicaKey, int, ErrorCode]] = []
        self.failures: list[BaseException] = []
        self.sender = AlterPartitionSender(
            broker_id=1,
            broker_epoch=lambda: 77,
            channel=self.channel,
            on_answer=lambda key, proposal_id, result: self.answers.append((key, proposal_id, result.error)),
            on_failure=self.failures.append,
        )
        self.network.answer = lambda _, request: self.accept(request)

    def accept(self, request: AlterPartition) -> AlterPartitionResponse:
        return AlterPartitionResponse(
            tuple(PartitionIsrResult(p.topic_id, p.partition_id, ErrorCode.NONE) for p in request.partitions)
        )

    @property
    def requests(self) -> list[AlterPartition]:
        return [call[1] for call in self.network.calls]


@contextlib.asynccontextmanager
async def sending() -> AsyncIterator[Sending]:
    it = Sending()
    it.sender.start()
    yield it
    await it.sender.stop()


async def test_proposals_that_wait_leave_in_one_request() -> None:
    async with sending() as it:
        for number, key in enumerate(KEYS[:3]):
            it.sender.propose(key, proposal(number))
        await wait_until(lambda: len(it.answers) == 3)
        (request,) = it.requests
        assert (request.broker_id, request.broker_epoch) == (1, 77)
        assert request.partitions[0] == PartitionIsrChange(*KEYS[0], 5, 9, (IsrMember(1, 101), IsrMember(2, 102)))
        assert it.answers == [(key, number, ErrorCode.NONE) for number, key in enumerate(KEYS[:3])]


async def test_a_newer_proposal_replaces_one_that_has_not_left() -> None:
    async with sending() as it:
        it.sender.propose(KEYS[0], proposal(1))
        it.sender.propose(KEYS[0], proposal(2))
        await wait_until(lambda: it.answers)
        assert it.answers == [(KEYS[0], 2, ErrorCode.NONE)]


async def test_every_proposal_is_answered_even_if_the_controller_is_not_heard() -> None:
    async with sending() as it:
        it.network.answer = lambda _, __: StaleBrokerEpochError("another incarnation")
        it.sender.propose(KEYS[0], proposal(1))
        await wait_until(lambda: it.answers == [(KEYS[0], 1, ErrorCode.STALE_BROKER_EPOCH)])
        it.network.answer = lambda _, request: it.accept(request)
        it.sender.propose(KEYS[0], proposal(2))
        await wait_until(lambda: it.answers[1:] == [(KEYS[0], 2, ErrorCode.NONE)])


async def test_a_partition_the_controller_forgot_is_answered_with_an_error() -> None:
    async with sending() as it:
        it.network.answer = lambda _, __: AlterPartitionResponse(())
        it.sender.propose(KEYS[0], proposal(1))
        await wait_until(lambda: it.answers == [(KEYS[0], 1, ErrorCode.UNKNOWN_SERVER_ERROR)])


async def test_a_bug_is_not_swallowed() -> None:
    """A sender that died unheard would leave every partition with the ISR it has, for ever."""
    async with sending() as it:
        it.network.answer = lambda *_: KeyError("a bug")
        it.sender.propose(KEYS[0], proposal(1))
        await wait_until(lambda: it.failures)
        assert isinstance(it.failures[0], KeyError)


async def test_a_thousand_proposals_leave_in_one_request_and_the_others_in_the_next() -> None:
    async with sending() as it:
        keys = [(UUID(int=number), 0) for number in range(PROPOSALS_TOGETHER + 1)]
        for number, key in enumerate(keys):
            it.sender.propose(key, proposal(number))
        await wait_until(lambda: len(it.answers) == len(keys))
        assert [len(request.partitions) for request in it.requests] == [PROPOSALS_TOGETHER, 1]
        assert [answer[0] for answer in it.answers] == keys


async def test_proposals_that_are_refused_again_and_again_leave_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader may propose again at once; so may all others of its broker."""
    monkeypatch.setattr(alter_partition, "LONGEST_PAUSE_MS", 30)
    errors = [*[ErrorCode.INELIGIBLE_REPLICA] * 4, ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA]
    pauses_ms: list[int] = []
    async with sending() as it:
        it.network.answer = lambda _, request: AlterPartitionResponse(
            tuple(PartitionIsrResult(p.topic_id, p.partition_id, errors[len(pauses_ms)]) for p in request.partitions)
        )
        for count in range(1, len(errors) + 1):
            it.sender.propose(KEYS[0], proposal(count))
            await wait_until(lambda count=count: len(it.answers) == count)
            pauses_ms.append(it.sender._pause_ms)
    assert pauses_ms == [10, 20, 30, 30, 0, 10]
