"""Which answers are tried again, and which reach the caller of `Admin` at once: each error code with each request."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from fake_cluster import FakeCluster

from replog.client import Admin, NewTopic
from replog.errors import BrokerIdNotRegisteredError, ErrorCode, RequestTimedOutError
from replog.errors.from_code import error_from_code
from replog.metadata.records import ResourceType
from replog.testing.virtual_loop import VirtualLoop

Use = Callable[[Admin, int], Awaitable[Any]]

TO_THE_CONTROLLER: dict[str, Use] = {
    "create_topics": lambda admin, ms: admin.create_topics([NewTopic("t", 1)], timeout_ms=ms),
    "create_topic": lambda admin, ms: admin.create_topic("t", 1, timeout_ms=ms),
    "delete_topic": lambda admin, ms: admin.delete_topic("t", timeout_ms=ms),
    "alter_configs": lambda admin, ms: admin.alter_configs((ResourceType.TOPIC, "t"), {"a": 1}, timeout_ms=ms),
    "create_partitions": lambda admin, ms: admin.create_partitions("t", 2, timeout_ms=ms),
    "elect_leaders": lambda admin, ms: admin.elect_leaders([("t", 0)], timeout_ms=ms),
    "reassign_partitions": lambda admin, ms: admin.reassign_partitions({("t", 0): [1]}, timeout_ms=ms),
    "drain_broker": lambda admin, ms: admin.drain_broker(9, timeout_ms=ms),
    "unregister_broker": lambda admin, ms: admin.unregister_broker(9, timeout_ms=ms),
    "update_features": lambda admin, ms: admin.update_features({"f": 1}, timeout_ms=ms),
}
TO_ANY_BROKER: dict[str, Use] = {
    "describe_configs": lambda admin, ms: admin.describe_configs((ResourceType.TOPIC, "t"), timeout_ms=ms),
    "describe_quorum": lambda admin, ms: admin.describe_quorum(timeout_ms=ms),
    "describe_features": lambda admin, ms: admin.describe_features(timeout_ms=ms),
    "add_voter": lambda admin, ms: admin.add_voter(9, UUID(int=9), "127.0.0.1:9", timeout_ms=ms),
    "remove_voter": lambda admin, ms: admin.remove_voter(9, timeout_ms=ms),
}

TRIED_AGAIN = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


@pytest_asyncio.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest_asyncio.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[Admin]:
    transport: Any = cluster.transport()
    async with Admin(cluster.bootstrap, transport=transport) as admin:
        await admin.list_topics()
        yield admin


@pytest.mark.parametrize("name", [*TO_THE_CONTROLLER, *TO_ANY_BROKER])
def test_every_error_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: on a busy machine nothing else would be heard before the time is over."""
    assert VirtualLoop(random.Random(1)).run(tried_again(name, monkeypatch)) == TRIED_AGAIN


async def tried_again(name: str, monkeypatch: pytest.MonkeyPatch) -> set[ErrorCode]:
    """The codes with which a request is sent again until its time is over; the others reach the caller as they are."""
    use = TO_THE_CONTROLLER.get(name) or TO_ANY_BROKER[name]
    cluster, found = FakeCluster(), set[ErrorCode]()
    transport: Any = cluster.transport()
    async with Admin(cluster.bootstrap, transport=transport) as admin:
        await admin.list_topics()
        for code in set(ErrorCode) - {ErrorCode.NONE}:
            answer = error_from_code(code, "the answer")

            async def refuse(*_: object, answer: Exception = answer) -> None:
                raise answer

            monkeypatch.setattr(cluster.nodes[1], "handle_controller_call", refuse)
            monkeypatch.setattr(cluster.nodes[1], "handle_client_call", refuse)
            with pytest.raises(Exception) as raised:
                await use(admin, 500)
            if raised.value is not answer:
                assert isinstance(raised.value, RequestTimedOutError)
                assert raised.value.__cause__ is answer
                found.add(code)
    return found


@pytest.mark.parametrize("name", ["drain_broker", "unregister_broker"])
async def test_a_broker_that_nobody_knows(name: str, cluster: FakeCluster, admin: Admin) -> None:
    cluster.controller_script.append(BrokerIdNotRegisteredError("broker 9 is not registered"))
    with pytest.raises(BrokerIdNotRegisteredError, match="broker 9"):
        await TO_THE_CONTROLLER[name](admin, 30_000)


async def test_a_broker_that_a_lost_attempt_has_unregistered(cluster: FakeCluster, admin: Admin) -> None:
    cluster.controller_script.append(RequestTimedOutError("no answer, and it was done"))
    cluster.controller_script.append(BrokerIdNotRegisteredError("broker 9 is not registered"))
    await admin.unregister_broker(9, timeout_ms=30_000)
