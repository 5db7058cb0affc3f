"""Wishes of any size leave in requests that are one short step of the controller each."""

from __future__ import annotations

from typing import Any

from replog.client import Admin
from replog.client.admin.operations import RECORDS_TOGETHER, in_parts
from replog.controller.requests import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    CreateTopics,
    CreateTopicsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    NewTopic,
    PartitionResult,
    TopicResult,
)
from replog.errors import ErrorCode


class FakeView:
    """Takes requests to the controller."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def call_any(self, request: Any, **_: Any) -> Any:
        self.requests.append(request)
        match request:
            case CreateTopics():
                return CreateTopicsResponse(tuple(TopicResult(topic.name, ErrorCode.NONE) for topic in request.topics))
            case AlterPartitionReassignments():
                return AlterPartitionReassignmentsResponse(_refused(request.items))
            case _:
                return ElectLeadersResponse(_refused(request.partitions or ()))

    async def wait_for(self, *_: Any, **__: Any) -> None:
        return


def _refused(items: Any) -> tuple[PartitionResult, ...]:
    return tuple(PartitionResult(item.topic, item.partition_id, ErrorCode.INVALID_REQUEST) for item in items)


def admin() -> tuple[Admin, FakeView]:
    made = Admin("127.0.0.1:1")
    view = made._view = FakeView()  # type: ignore[assignment]
    return made, view


def test_parts_are_full_and_in_order() -> None:
    assert in_parts([]) == [()]
    numbers = list(range(2 * RECORDS_TOGETHER + 1))
    parts = in_parts(numbers)
    assert [len(part) for part in parts] == [RECORDS_TOGETHER, RECORDS_TOGETHER, 1]
    assert sum(parts, ()) == tuple(numbers)
    assert in_parts([900, 100, 1, 5_000, 2], lambda records: records) == [(900, 100), (1,), (5_000,), (2,)]


async def test_topics_leave_together_as_long_as_they_are_small() -> None:
    made, view = admin()
    topics = [NewTopic(f"t{number}", 400, 3) for number in range(5)]
    results = await made.create_topics(topics)
    assert [len(request.topics) for request in view.requests] == [2, 2, 1]
    assert [result.name for result in results] == [topic.name for topic in topics]


async def test_moves_and_elections_leave_in_parts() -> None:
    made, view = admin()
    partitions = [("t", number) for number in range(RECORDS_TOGETHER + 5)]
    moved = await made.reassign_partitions({key: [1, 2] for key in partitions})
    elected = await made.elect_leaders(partitions)
    for results in (moved, elected):
        assert [(result.topic, result.partition_id) for result in results] == partitions
    sizes = [len(request.items) for request in view.requests if isinstance(request, AlterPartitionReassignments)]
    assert sizes == [RECORDS_TOGETHER, 5]
    named = [request.partitions for request in view.requests if isinstance(request, ElectLeaders)]
    assert [len(each) for each in named] == [RECORDS_TOGETHER, 5]
    view.requests.clear()
    assert await made.elect_leaders() == ()
    assert view.requests == [ElectLeaders(view.requests[0].election_type, None)]
