"""Large requests to the controller in parts: each thing has its result in its place, whatever becomes of the others."""

from __future__ import annotations

import pytest

from replog.controller import request_parts
from replog.controller.request_parts import DividedRequest, divided
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    ControllerRequest,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    ElectLeaders,
    ElectLeadersResponse,
    NamedPartition,
    NewTopic,
    PartitionResult,
    Reassignment,
    TopicResult,
)
from replog.errors import ErrorCode, NotControllerError
from replog.metadata.records import ElectionType, ResourceType


def in_parts(request: ControllerRequest, needed: tuple[NamedPartition, ...] = ()) -> DividedRequest:
    found = divided(request, lambda _: needed)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_parts, "PART", 3)


def moving(*numbers: int) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(tuple(Reassignment("t", number, (1,)) for number in numbers))


def test_results_stand_where_their_things_do_and_repeated_things_stay_together() -> None:
    parts = in_parts(moving(0, 1, 2, 3, 0))
    assert parts.requests == [moving(0, 0, 1), moving(2, 3)]
    answers = [
        AlterPartitionReassignmentsResponse(
            tuple(PartitionResult("t", one.partition_id, ErrorCode.NONE) for one in asked.items)
        )
        for asked in parts.requests
        if isinstance(asked, AlterPartitionReassignments)
    ]
    told = parts.answer(answers)
    assert isinstance(told, AlterPartitionReassignmentsResponse)
    assert [result.partition_id for result in told.partitions] == [0, 1, 2, 3, 0]


def test_what_was_done_before_an_error_is_told_as_done() -> None:
    parts = in_parts(CreateTopics(tuple(NewTopic(name, 1, 1) for name in "abc")))
    done = CreateTopicsResponse((TopicResult("a", ErrorCode.NONE),))
    told = parts.answer([done, NotControllerError("another one leads")])
    assert isinstance(told, CreateTopicsResponse)
    assert [(topic.name, topic.error, topic.message) for topic in told.topics] == [
        ("a", ErrorCode.NONE, ""),
        ("b", ErrorCode.NOT_CONTROLLER, "another one leads"),
        ("c", ErrorCode.NOT_CONTROLLER, "another one leads"),
    ]


def test_an_election_of_all_names_those_that_need_one_and_leaves_out_those_that_do_not() -> None:
    partitions = tuple(NamedPartition("t", number) for number in range(4))
    parts = in_parts(ElectLeaders(ElectionType.PREFERRED), partitions)
    assert [each.partitions for each in parts.requests if isinstance(each, ElectLeaders)] == [
        partitions[:3],
        partitions[3:],
    ]
    first = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    results = [PartitionResult("t", number, code) for number, code in enumerate((*first, ErrorCode.NONE))]
    told = parts.answer([ElectLeadersResponse(tuple(results[:3])), ElectLeadersResponse(tuple(results[3:]))])
    assert told == ElectLeadersResponse((results[0], *results[2:]))


def test_what_each_thing_makes_counts() -> None:
    def sizes(request: ControllerRequest, field: str) -> list[int]:
        return [len(getattr(part, field)) for part in in_parts(request).requests]

    resource = AlterConfigsResource(ResourceType.TOPIC, "a", tuple(AlterableConfig(name) for name in "xy"))
    other = AlterConfigsResource(ResourceType.TOPIC, "b", (AlterableConfig("x"),))
    assert sizes(AlterConfigs((other, resource, other)), "resources") == [2, 1]
    assert sizes(DeleteTopics(tuple("abcd")), "names") == [3, 1]
    assert sizes(CreateTopics((NewTopic("a", 9, 1), NewTopic("b", 1, 1))), "topics") == [1, 1]


@pytest.mark.parametrize(
    "request_",
    [moving(0, 1, 2), moving(*range(10_001)), CreateTopics((NewTopic("a", 9_999, 3),)), ElectLeaders(ElectionType.UNCLEAN)],
)  # fmt: skip
def test_what_is_small_or_refused_or_one_thing_stays_whole(request_: ControllerRequest) -> None:
    assert divided(request_, lambda _: ()) is None
