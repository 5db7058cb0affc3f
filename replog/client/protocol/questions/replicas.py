"""Replicas lead, and move between brokers and disks.

ElectLeaders and AlterPartitionReassignments are for the active controller, and any broker passes them on.  DescribeLogDirs
and AlterReplicaLogDirs are about the disks of the broker that is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import in_order, raise_if_refused, raise_if_unanswered, told
from replog.controller.requests import AlterPartitionReassignments, ElectLeaders, PartitionResult, Reassignment
from replog.controller.requests import AlterPartitionReassignmentsResponse as ReassignmentsAltered
from replog.controller.requests import ElectLeadersResponse as LeadersElected
from replog.errors import (
    ErrorCode,
    InvalidRequestError,
    LogDirNotFoundError,
    MalformedFrameError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from replog.metadata.records import ElectionType
from replog.rpc.node_messages import DescribeLogDirsRequest as DirectoriesAsked
from replog.rpc.node_messages import DescribeLogDirsResponse as DirectoriesTold
from replog.rpc.node_messages import LogDir, LogDirReplica, MoveReplicaRequest, MoveReplicaResponse, ReplicaMoveStatus
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

_ELECTIONS: Final = {ElectionType.PREFERRED: 0, ElectionType.UNCLEAN: 1}
"""Kafka's numbers of elections (KIP-460)."""

TYPES_FROM: Final = 1
"""The first version of ElectLeaders that names the type of the election."""

SAME_FACTOR_FROM: Final = 1
"""The first version of AlterPartitionReassignments that can refuse another number of replicas."""

Directory = DescribeLogDirsResponse.DescribeLogDirsResult


# ---- elect -----------------------------------------------------------------------------------------------------------


async def elect_leaders(broker: Broker, question: ElectLeaders, timeout_ms: int) -> LeadersElected:
    """Elects the leaders of the partitions that are named, or of all that need it.

    Raises:
        RetriableError: Nobody has answered; another broker, or the same one later, may.
        UnsupportedVersionError: The election is unclean, and the broker knows preferred leaders only.
    """
    version = await broker.version(ElectLeadersRequest)
    if version < TYPES_FROM and question.election_type is not ElectionType.PREFERRED:
        raise UnsupportedVersionError(
            f"{broker.address} serves version {version} of ElectLeaders, which has no unclean elections ({TYPES_FROM} has)"
        )
    named = None if question.partitions is None else [(one.topic, one.partition_id) for one in question.partitions]
    topics = ElectLeadersRequest.TopicPartitions
    wanted = None if named is None else [topics(name, numbers) for name, numbers in _by_topic(named).items()]
    request = ElectLeadersRequest(_ELECTIONS[question.election_type], wanted, timeout_ms)
    answer = await broker.ask(request, ElectLeadersResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    results = {
        (topic.topic, one.partition_id): PartitionResult(
            topic.topic, one.partition_id, *told(one.error_code, one.error_message)
        )
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }
    raise_if_unanswered(results.values())
    if named is not None:
        return LeadersElected(in_order(broker, named, results))
    needed = (one for one in results.values() if one.error is not ErrorCode.ELECTION_NOT_NEEDED)
    return LeadersElected(tuple(needed))


# ---- between brokers -------------------------------------------------------------------------------------------------


async def alter_reassignments(
    broker: Broker, question: AlterPartitionReassignments, timeout_ms: int
) -> ReassignmentsAltered:
    """Begins, alters and cancels reassignments.

    Raises:
        RetriableError: Nobody has answered; another broker, or the same one later, may.
        UnsupportedVersionError: The number of replicas may not change, and the broker cannot be told so.
    """
    version = await broker.version(AlterPartitionReassignmentsRequest)
    if version < SAME_FACTOR_FROM and not question.allow_replication_factor_change:
        raise UnsupportedVersionError(
            f"{broker.address} serves version {version} of AlterPartitionReassignments, which cannot refuse to change the "
            f"number of replicas ({SAME_FACTOR_FROM} can): allow it, and name as many replicas as there are"
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms, question.allow_replication_factor_change, _reassignable(question.items)
    )
    answer = await broker.ask(request, AlterPartitionReassignmentsResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    results = {
        (topic.name, one.partition_index): PartitionResult(
            topic.name, one.partition_index, *told(one.error_code, one.error_message)
        )
        for topic in answer.responses
        for one in topic.partitions
    }
    raise_if_unanswered(results.values())
    return ReassignmentsAltered(in_order(broker, [(one.topic, one.partition_id) for one in question.items], results))


def _reassignable(items: Iterable[Reassignment]) -> list[AlterPartitionReassignmentsRequest.ReassignableTopic]:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for one in items:
        replicas = None if one.replicas is None else list(one.replicas)
        topics.setdefault(one.topic, []).append(partition(one.partition_id, replicas))
    return [AlterPartitionReassignmentsRequest.ReassignableTopic(name, moves) for name, moves in topics.items()]


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


# ---- between disks ---------------------------------------------------------------------------------------------------


async def move_replica(broker: Broker, question: MoveReplicaRequest, timeout_ms: int) -> MoveReplicaResponse:
    """Asks the broker to move one of its replicas to another of its log directories.

    Raises:
        ReplogError: The broker refuses; Kafka's tells no more than the code.
    """
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(question.topic, [question.partition_id])
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequest.AlterReplicaLogDir(question.path, [topic])])
    answer = await broker.ask(request, AlterReplicaLogDirsResponse, timeout_ms=timeout_ms)
    results = [one for topic_result in answer.results for one in topic_result.partitions]
    if len(results) != 1:
        raise MalformedFrameError(f"{broker.address} tells of {len(results)} moves instead of 1; ask for the log dirs")
    (result,) = results
    if result.error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
        name = f"{question.topic}-{question.partition_id}"
        raise UnknownTopicOrPartitionError(result.error_message or f"{broker.address} has no replica of {name}")
    if result.error_code == ErrorCode.LOG_DIR_NOT_FOUND:
        raise LogDirNotFoundError(result.error_message or f"{broker.address} has no log directory {question.path}")
    raise_if_refused(result.error_code, result.error_message)
    if result.error_message:  # to Kafka's clients it is no error that the replica is there already
        raise InvalidRequestError(result.error_message)
    return MoveReplicaResponse()


async def describe_log_dirs(broker: Broker, _question: DirectoriesAsked, timeout_ms: int) -> DirectoriesTold:
    """Returns the log directories of the broker, those that are offline last, as far as Kafka tells."""
    answer = await broker.ask(DescribeLogDirsRequest(None), DescribeLogDirsResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, None)
    found = answer.results
    sizes = {(topic, one.partition_index): one.partition_size for topic, one in _held(found) if not one.is_future_key}
    directories = [_directory(one, sizes) for one in found]
    return DirectoriesTold(tuple(sorted(directories, key=lambda one: bool(one.error))))


def _directory(directory: Directory, sizes: Mapping[tuple[str, int], int]) -> LogDir:
    code, message = told(directory.error_code, None)
    return LogDir(
        directory.log_dir,
        "" if code is ErrorCode.NONE else f"{message}: the broker's log says why",
        directory.usable_bytes,
        tuple(
            LogDirReplica(topic, one.partition_index, one.partition_size)
            for topic, one in _held([directory])
            if not one.is_future_key
        ),
        tuple(
            ReplicaMoveStatus(
                topic,
                one.partition_index,
                directory.log_dir,
                one.partition_size,
                _missing_bytes(one.partition_size, sizes.get((topic, one.partition_index))),
            )
            for topic, one in _held([directory])
            if one.is_future_key
        ),
        max(0, directory.total_bytes),
    )


def _held(directories: Sequence[Directory]) -> Iterator[tuple[str, DescribeLogDirsResponse.DescribeLogDirsPartition]]:
    return ((topic.name, one) for each in directories for topic in each.topics for one in topic.partitions)


def _missing_bytes(copied_bytes: int, whole_bytes: int | None) -> int:
    return -1 if whole_bytes is None else max(0, whole_bytes - copied_bytes)


QUESTIONS: Final[Mapping[type[Any], Question]] = {
    ElectLeaders: elect_leaders,
    AlterPartitionReassignments: alter_reassignments,
    MoveReplicaRequest: move_replica,
    DirectoriesAsked: describe_log_dirs,
}
"""By the class of the question."""
