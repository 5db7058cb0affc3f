"""Requests about consumer groups on their way to the coordinators."""

from __future__ import annotations

from typing import Any

from replog.broker.requests.group_calls import answer_group_call

from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.rpc.group_messages import FindCoordinator, FindCoordinatorResponse
from replog.rpc.transport import RequestContext

CONTEXT = RequestContext("anonymous", "", "CLIENTS", "10.0.0.7:4711", 0)
HEARTBEAT = ConsumerHeartbeat("g", "m", 3, client_id="app", client_host="elsewhere")
ANSWER = ConsumerHeartbeatResponse("m", 3, 5_000)


class Coordinators:
    """Remembers what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def find(self, group_id: str) -> int:
        self.asked.append(group_id)
        return 2

    async def submit(self, group_id: str, request: Any, timeout_ms: int | None) -> Any:
        self.asked.append((group_id, request, timeout_ms))
        return ANSWER


async def test_a_heartbeat_says_where_it_comes_from() -> None:
    """What the client says about its host counts for nothing: the connection knows."""
    coordinators = Coordinators()
    assert await answer_group_call(coordinators, HEARTBEAT, CONTEXT, 500) == ANSWER
    ((group_id, request, timeout_ms),) = coordinators.asked
    assert (group_id, timeout_ms) == ("g", 500)
    assert (request.client_id, request.client_host) == ("app", "10.0.0.7:4711")


async def test_who_coordinates_a_group_is_told() -> None:
    coordinators = Coordinators()
    found = await answer_group_call(coordinators, FindCoordinator("g"), CONTEXT, 500)
    assert (found, coordinators.asked) == (FindCoordinatorResponse(2), ["g"])
