"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter, over a node's port."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka_node_kit import serving

from replog.errors import ErrorCode
from replog.protocol.handlers import quorum
from replog.protocol.handlers.node import Failure
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

Topic = DescribeQuorumRequest.TopicData
Partition = DescribeQuorumRequest.PartitionData
Listener = AddRaftVoterRequest.Listener
VOTER = UUID(int=5)


@pytest.mark.parametrize("version", DescribeQuorumRequest.VERSIONS)
async def test_the_quorum_tells_its_voters(version: int) -> None:
    async with serving() as it:
        asked = DescribeQuorumRequest(
            [Topic("__cluster_metadata", [Partition(0), Partition(1)]), Topic("t", [Partition(0)])]
        )
        answer = await it.ask(asked, version, DescribeQuorumResponse)
        assert answer.error_code == 0
        codes = {
            (topic.topic_name, one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {("__cluster_metadata", 0): 0, ("__cluster_metadata", 1): unknown, ("t", 0): unknown}
        told = answer.topics[0].partitions[0]
        assert (told.leader_id, told.observers) == (1, [])
        assert told.leader_epoch > 0
        (voter,) = told.current_voters
        assert voter.replica_id == 1
        assert voter.log_end_offset >= told.high_watermark > 0
        if version >= 1:
            assert 0 <= it.kafka.wall_ms() - voter.last_fetch_timestamp < 60_000
            assert 0 <= it.kafka.wall_ms() - voter.last_caught_up_timestamp < 60_000
        if version >= 2:
            assert voter.replica_directory_id.int
            (node,) = answer.nodes
            (listener,) = node.listeners
            assert (node.node_id, f"{listener.host}:{listener.port}") == (1, it.node.peer_address)


async def test_a_partition_that_is_named_several_times_is_answered_once() -> None:
    async with serving() as it:
        topics = [Topic("__cluster_metadata", [Partition(0), Partition(1), Partition(0)]), Topic("t", [Partition(3)])]
        answer = await it.ask(DescribeQuorumRequest(topics * 3), 2, DescribeQuorumResponse)
        named = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]
        assert named == [("__cluster_metadata", [0, 1]), ("t", [3])]


async def test_voters_are_changed_in_the_cluster_that_is_meant() -> None:
    async with serving() as it:
        here = [Listener("CONTROLLER", "127.0.0.1", 9)]
        codes = []
        for adding in (
            AddRaftVoterRequest("other", 5000, 2, VOTER, here),
            AddRaftVoterRequest("c", 5000, 2, VOTER, []),
            AddRaftVoterRequest(None, 5000, 1, VOTER, here),
        ):
            answer = await it.ask(adding, 0, AddRaftVoterResponse)
            assert answer.error_message
            codes.append(answer.error_code)
        for removing in (
            RemoveRaftVoterRequest("other", 1, VOTER),
            RemoveRaftVoterRequest("c", 7, VOTER),
            RemoveRaftVoterRequest(None, 1, UUID(int=0)),
        ):
            answer = await it.ask(removing, 0, RemoveRaftVoterResponse)
            assert answer.error_message
            codes.append(answer.error_code)
        other, nobody = ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.VOTER_NOT_FOUND
        assert codes == [other, ErrorCode.INVALID_REQUEST, ErrorCode.DUPLICATE_VOTER, other, nobody, nobody]


def test_what_fails_as_a_whole_is_told() -> None:
    failure = Failure(ErrorCode.NOT_CONTROLLER, "elections")
    told = quorum.refuse_describe_quorum(DescribeQuorumRequest([Topic("t", [Partition(3)])]), failure)
    (partition,) = told.topics[0].partitions
    assert (told.error_code, partition.partition_index, partition.error_code) == (failure.code, 3, failure.code)
