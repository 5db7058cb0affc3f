"""Questions to the metadata quorum at a node that does not lead: passed on over one connection, and never too many at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker_kit import FakeClock

from replog.broker.quorum.requests import PASSED_ON_MAX, QuorumRequests
from replog.errors import NotControllerError
from replog.rpc.node_messages import DescribeNodeConfigsRequest, DescribeQuorumRequest
from replog.rpc.transport import ConnectionLostError

LEADER, OTHER = "leader:1", "other:1"


class Network:
    """Connects to nodes that answer when they are told to; each connection is known by its address, open until closed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.answers: list[asyncio.Future[Any]] = []

    def connect(self, address: str, *, purpose: str, node_id: int) -> Any:
        assert purpose == "quorum-admin"
        self.opened.append(address)

        async def call(request: Any, *, forwarded: bool, **_: Any) -> Any:
            assert forwarded
            self.answers.append(asyncio.get_running_loop().create_future())
            return await self.answers[-1]

        async def close() -> None:
            self.closed.append(address)

        return SimpleNamespace(call=call, close=close)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def requests(network: Network) -> QuorumRequests:
    addresses = {2: LEADER, 3: OTHER}
    quorum = SimpleNamespace(status=lambda: SimpleNamespace(leader_id=2), address_of=addresses.get)
    return QuorumRequests(1, "cluster", cast("Any", quorum), cast("Any", network), FakeClock(), cast("Any", None))


def asked(requests: QuorumRequests, count: int) -> list[asyncio.Task[Any]]:
    question = DescribeQuorumRequest()
    return [asyncio.create_task(requests.handle(question, timeout_ms=1_000, forwarded=False)) for _ in range(count)]


async def test_requests_at_once_share_a_connection_that_ends_with_the_last_one(
    requests: QuorumRequests, network: Network
) -> None:
    tasks = asked(requests, 2)
    tasks.append(
        asyncio.create_task(
            requests.pass_on(DescribeNodeConfigsRequest(), 3, timeout_ms=1_000, forwarded=False),
        )
    )
    await asyncio.sleep(0)
    assert network.opened == [LEADER, OTHER]
    network.answers[0].set_result("first")
    assert await tasks[0] == "first"
    assert network.closed == []
    network.answers[1].set_exception(NotControllerError("it has just changed"))
    with pytest.raises(NotControllerError, match="just changed"):
        await tasks[1]
    assert network.closed == [LEADER]
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert network.closed == [LEADER, OTHER]
    (task,) = asked(requests, 1)
    await asyncio.sleep(0)
    assert network.opened == [LEADER, OTHER, LEADER]
    task.cancel()
    await asyncio.wait([task])


async def test_a_leader_that_does_not_answer_costs_no_more_than_so_many_requests(
    requests: QuorumRequests, network: Network
) -> None:
    waiting = asked(requests, PASSED_ON_MAX)
    await asyncio.sleep(0)
    refused = asked(requests, 1_000)
    await asyncio.sleep(0)
    assert all(task.done() for task in refused)
    for task in refused:
        with pytest.raises(
            NotControllerError, match=f"passes on {PASSED_ON_MAX} requests to {LEADER} already; try again"
        ):
            await task
    assert (len(network.answers), network.opened) == (PASSED_ON_MAX, [LEADER])
    other = asyncio.create_task(requests.pass_on(DescribeNodeConfigsRequest(), 3, timeout_ms=1_000, forwarded=False))
    await asyncio.sleep(0)
    network.answers.pop().set_result("a neighbour holds up nobody")
    assert await other == "a neighbour holds up nobody"
    for answer in network.answers:
        answer.set_result("it does")
    assert await asyncio.gather(*waiting) == ["it does"] * PASSED_ON_MAX
    assert network.closed == [OTHER, LEADER]
    (task,) = asked(requests, 1)
    await asyncio.sleep(0)
    network.answers[-1].set_result("again")
    assert await task == "again"


async def test_a_leader_that_is_gone_is_told_as_something_to_try_again(
    requests: QuorumRequests, network: Network
) -> None:
    (task,) = asked(requests, 1)
    await asyncio.sleep(0)
    network.answers[0].set_exception(ConnectionLostError("leader:1: connection refused"))
    with pytest.raises(NotControllerError, match=r"does not reach node 2, .*; try again: leader:1: connection refused"):
        await task


async def test_a_voter_that_is_gone_is_told_at_once(requests: QuorumRequests, network: Network) -> None:
    """Whoever asks for this one and no other would only wait."""
    task = asyncio.create_task(requests.pass_on(DescribeNodeConfigsRequest(), 3, timeout_ms=1_000, forwarded=False))
    await asyncio.sleep(0)
    network.answers[0].set_exception(ConnectionLostError("other:1: connection refused"))
    with pytest.raises(ConnectionLostError, match="other:1"):
        await task
