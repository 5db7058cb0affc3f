"""What our own clients ask about consumer groups, handed to the coordinators."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.describing.requests import ListGroups, ListGroupsResponse
from replog.rpc.client_messages import ClientResponse, GroupRequest
from replog.rpc.group_messages import FindCoordinator, FindCoordinatorResponse
from replog.rpc.transport import RequestContext


class GroupCoordinators(Protocol):
    """The coordinators of groups, as these requests see them: `replog.broker.coordinator.coordinators.Coordinators`."""

    async def find(self, group_id: str) -> int: ...

    async def submit(self, group_id: str, request: Any, timeout_ms: int | None) -> Any: ...

    async def submit_all(self, request: Any, timeout_ms: int) -> list[Any]: ...


async def answer_group_call(
    coordinators: GroupCoordinators,
    request: FindCoordinator | ListGroups | GroupRequest,
    context: RequestContext,
    timeout_ms: int,
) -> ClientResponse:
    """Answers who coordinates a group, what its coordinator says, or which groups this broker coordinates.

    Args:
        coordinators: The coordinators.
        request: The request as it came.
        context: Who asks: a heartbeat names where it comes from.
        timeout_ms: The time within which the coordinator has to answer.
    """
    if isinstance(request, FindCoordinator):
        return FindCoordinatorResponse(await coordinators.find(request.group_id))
    if isinstance(request, ListGroups):
        answers: list[ListGroupsResponse] = await coordinators.submit_all(request, timeout_ms)
        return ListGroupsResponse(tuple(group for answer in answers for group in answer.groups))
    if isinstance(request, ConsumerHeartbeat):
        request = replace(request, client_host=context.peer)
    response: ClientResponse = await coordinators.submit(request.group_id, request, timeout_ms)
    return response
