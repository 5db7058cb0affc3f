"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, over a node's port.

Beside the node there is a broker 2 that has registered and never comes up: what moves to it does not arrive.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka_node_kit import Served, serving
from registered_broker import register

from replog.errors import ErrorCode
from replog.protocol.handlers import reassignments
from replog.protocol.handlers.node import Failure
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Elected = ElectLeadersRequest.TopicPartitions
Moved = AlterPartitionReassignmentsRequest.ReassignableTopic
To = AlterPartitionReassignmentsRequest.ReassignablePartition
Asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
TIMEOUT_MS = 5000
PREFERRED, UNCLEAN = 0, 1


# ---- elect -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ElectLeadersRequest.VERSIONS)
async def test_each_election_has_its_own_answer(version: int) -> None:
    async with serving() as it:
        await register(it, 2)
        await it.create("t")
        await it.create("waiting", partitions=2)
        await move(it, {("waiting", 0): [2, 1]})
        asked = ElectLeadersRequest(PREFERRED, [Elected("t", [0, 9]), Elected("waiting", [0, 1])], TIMEOUT_MS)
        answer = await it.ask(asked, version, ElectLeadersResponse)
        assert answer.error_code == 0
        told = {
            (topic.topic, one.partition_id): one
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }
        assert {name: one.error_code for name, one in told.items()} == {
            ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("waiting", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ("waiting", 1): ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert all(one.error_message for one in told.values())
        everything = await it.ask(ElectLeadersRequest(PREFERRED, None, TIMEOUT_MS), version, ElectLeadersResponse)
        assert [one.topic for one in everything.replica_election_results] == ["waiting"], "who needs none is left out"


async def test_elections_are_preferred_or_unclean() -> None:
    async with serving() as it:
        await it.create()
        unclean = await it.ask(ElectLeadersRequest(UNCLEAN, [Elected("t", [0])], TIMEOUT_MS), 2, ElectLeadersResponse)
        (told,) = unclean.replica_election_results[0].partition_result
        assert told.error_code == ErrorCode.ELECTION_NOT_NEEDED
        wrong = await it.ask(ElectLeadersRequest(7, [Elected("t", [0])], TIMEOUT_MS), 2, ElectLeadersResponse)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        (told,) = wrong.replica_election_results[0].partition_result
        assert "type 7" in told.error_message


# ---- move ------------------------------------------------------------------------------------------------------------


async def move(
    it: Served, replicas: dict[tuple[str, int], list[int] | None], version: int = 1, *, may_change_factor: bool = True
) -> dict[tuple[str, int], int]:
    """Asks for a reassignment; returns the codes."""
    topics = [Moved(topic, [To(number, wanted)]) for (topic, number), wanted in replicas.items()]
    request = AlterPartitionReassignmentsRequest(TIMEOUT_MS, may_change_factor, topics)
    answer = await it.ask(request, version, AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0
    for topic in answer.responses:
        assert all(bool(one.error_code) == bool(one.error_message) for one in topic.partitions)
    return {(topic.name, one.partition_index): one.error_code for topic in answer.responses for one in topic.partitions}


async def moving(it: Served, topics: list[Any] | None = None) -> dict[tuple[str, int], tuple[list[int], ...]]:
    answer = await it.ask(ListPartitionReassignmentsRequest(TIMEOUT_MS, topics), 0, ListPartitionReassignmentsResponse)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", AlterPartitionReassignmentsRequest.VERSIONS)
async def test_partitions_move_until_it_is_cancelled(version: int) -> None:
    async with serving() as it:
        await register(it, 2)
        await it.create("t", partitions=3)
        assert await moving(it) == {}
        wanted = {("t", 0): [1, 2], ("t", 1): [2], ("t", 2): [9], ("t", 9): [1], ("none", 0): [1]}
        assert await move(it, wanted, version) == {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await moving(it) == {("t", 0): ([1, 2], [2], []), ("t", 1): ([2, 1], [2], [1])}
        assert await moving(it, [Asked("t", [1, 2, 9]), Asked("none", [0])]) == {("t", 1): ([2, 1], [2], [1])}
        assert await move(it, {("t", 0): None, ("t", 1): None, ("t", 2): None}, version) == {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        }
        assert await moving(it) == {}


async def test_the_number_of_replicas_changes_only_where_it_may() -> None:
    async with serving() as it:
        await register(it, 2)
        await it.create()
        refused = {("t", 0): ErrorCode.INVALID_REPLICATION_FACTOR}
        assert await move(it, {("t", 0): [1, 2]}, may_change_factor=False) == refused


def test_what_fails_as_a_whole_is_told_of_each() -> None:
    failure = Failure(ErrorCode.NOT_CONTROLLER, "moved")
    elected = reassignments.refuse_elect_leaders(ElectLeadersRequest(PREFERRED, [Elected("t", [0])]), failure)
    assert elected.error_code == failure.code
    assert [one.error_code for one in elected.replica_election_results[0].partition_result] == [failure.code]
    assert reassignments.refuse_elect_leaders(ElectLeadersRequest(PREFERRED, None), failure).error_code == failure.code
    moved = reassignments.refuse_alter(AlterPartitionReassignmentsRequest(topics=[Moved("t", [To(0, [1])])]), failure)
    assert (moved.error_code, moved.error_message) == (failure.code, "moved")
    assert [one.error_code for one in moved.responses[0].partitions] == [failure.code]
