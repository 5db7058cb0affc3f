"""The metadata quorum: DescribeQuorum, AddRaftVoter, RemoveRaftVoter (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replog.errors import ErrorCode, InconsistentClusterIdError, InvalidRequestError
from replog.log import METADATA_TOPIC
from replog.protocol.handlers.node import NO_TIMEOUT, NO_TOPIC_ID, Call, Failure, KafkaNode, beside
from replog.rpc.node_messages import AddVoterRequest, QuorumMember, RemoveVoterRequest
from replog.rpc.node_messages import DescribeQuorumRequest as MembersAsked
from replog.rpc.node_messages import DescribeQuorumResponse as MembersTold
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

NO_DIRECTORY = NO_TOPIC_ID
"""The directory of a voter of which only the id is known."""

LISTENER = "CONTROLLER"
"""The listener of a voter; there is one."""

TopicAnswer = DescribeQuorumResponse.TopicData
PartitionAnswer = DescribeQuorumResponse.PartitionData


async def describe_quorum(node: KafkaNode, request: DescribeQuorumRequest, _call: Call) -> DescribeQuorumResponse:
    """Returns voters and observers as the leader of the quorum knows them; there is one such partition.

    A partition that is named several times is answered once: otherwise a short request could have a giant answer.
    """
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    wanted = await beside(count, _wanted, request.topics)
    told = None
    if 0 in wanted.get(METADATA_TOPIC, ()):
        told = await node.call(MembersAsked(), NO_TIMEOUT)
    return DescribeQuorumResponse(
        error_message="",
        nodes=[] if told is None else [_node(member) for member in told.members if member.endpoint],
        topics=await beside(count, _answers, wanted, told, node.wall_ms()),
    )


def _wanted(topics: Iterable[DescribeQuorumRequest.TopicData]) -> dict[str, dict[int, None]]:
    """Returns the partitions of each topic, once and in order."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.topic_name, {}).update(dict.fromkeys(one.partition_index for one in topic.partitions))
    return wanted


def _answers(wanted: Mapping[str, Iterable[int]], told: MembersTold | None, now_ms: int) -> list[TopicAnswer]:
    return [
        TopicAnswer(
            name,
            [
                _unknown(number) if told is None or (name, number) != (METADATA_TOPIC, 0) else _described(told, now_ms)
                for number in numbers
            ],
        )
        for name, numbers in wanted.items()
    ]


def refuse_describe_quorum(request: DescribeQuorumRequest, failure: Failure) -> DescribeQuorumResponse:
    """Returns the answer to a request that failed as a whole."""
    return DescribeQuorumResponse(
        error_code=failure.code,
        error_message=failure.message,
        topics=[
            TopicAnswer(
                topic.topic_name,
                [PartitionAnswer(one.partition_index, failure.code, failure.message) for one in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _unknown(partition_index: int) -> PartitionAnswer:
    message = f"only partition 0 of {METADATA_TOPIC} has a quorum; ask for that"
    return PartitionAnswer(partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _described(told: MembersTold, now_ms: int) -> PartitionAnswer:
    return PartitionAnswer(
        0,
        leader_id=told.leader_id,
        leader_epoch=told.leader_epoch,
        high_watermark=told.high_watermark,
        current_voters=[_replica(member, now_ms) for member in told.members if member.is_voter],
        observers=[_replica(member, now_ms) for member in told.members if not member.is_voter],
    )


def _replica(member: QuorumMember, now_ms: int) -> DescribeQuorumResponse.ReplicaState:
    return DescribeQuorumResponse.ReplicaState(
        member.node_id,
        member.directory_id or NO_DIRECTORY,
        member.log_end_offset,
        _time_ms(member.last_fetch_age_ms, now_ms),
        _time_ms(member.last_caught_up_age_ms, now_ms),
    )


def _time_ms(age_ms: int, now_ms: int) -> int:
    return -1 if age_ms < 0 else now_ms - age_ms


def _node(member: QuorumMember) -> DescribeQuorumResponse.Node:
    host, _, port = member.endpoint.rpartition(":")
    return DescribeQuorumResponse.Node(
        member.node_id, [DescribeQuorumResponse.Listener(LISTENER, host.strip("[]"), int(port))]
    )


async def add_raft_voter(node: KafkaNode, request: AddRaftVoterRequest, call: Call) -> AddRaftVoterResponse:
    """Makes an observer a voter."""
    _check_cluster(node, request.cluster_id)
    voter = AddVoterRequest(request.voter_id, request.voter_directory_id, _endpoint(request.listeners))
    await node.change(voter, request.timeout_ms, call.rights)
    return AddRaftVoterResponse(error_message=None)


async def remove_raft_voter(node: KafkaNode, request: RemoveRaftVoterRequest, call: Call) -> RemoveRaftVoterResponse:
    """Removes a voter."""
    _check_cluster(node, request.cluster_id)
    directory_id = request.voter_directory_id
    voter = RemoveVoterRequest(request.voter_id, None if directory_id == NO_DIRECTORY else directory_id)
    await node.change(voter, request.timeout_ms, call.rights)
    return RemoveRaftVoterResponse(error_message=None)


def _check_cluster(node: KafkaNode, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != node.cluster_id:
        raise InconsistentClusterIdError(
            f"this is the cluster {node.cluster_id}, not the one that is meant; check the address, or leave the id out"
        )


def _endpoint(listeners: Iterable[AddRaftVoterRequest.Listener]) -> str:
    listener = next(iter(listeners), None)
    if listener is None:
        raise InvalidRequestError("a voter listens somewhere: name its listener with host and port")
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"
