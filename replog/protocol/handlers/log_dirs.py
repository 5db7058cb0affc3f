"""The log directories of this broker: DescribeLogDirs, AlterReplicaLogDirs (KIP-113)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replog.errors import ErrorCode, ReplogError, UnknownTopicOrPartitionError
from replog.log import METADATA_TOPIC
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import NO_TIMEOUT, Call, Failure, KafkaNode, beside, fitting, require_few
from replog.rpc.node_messages import DescribeLogDirsRequest as DirectoriesAsked
from replog.rpc.node_messages import LogDir, MoveReplicaRequest
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

UNKNOWN = -1
"""Stands for an unknown lag, or an unknown number of bytes."""

Directory = DescribeLogDirsResponse.DescribeLogDirsResult
DirectoryTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
DirectoryPartition = DescribeLogDirsResponse.DescribeLogDirsPartition
MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


# ---- describe --------------------------------------------------------------------------------------------------------


async def describe_log_dirs(node: KafkaNode, request: DescribeLogDirsRequest, _call: Call) -> DescribeLogDirsResponse:
    """Returns all directories, with the replicas that are asked for, or with all of them."""
    wanted: Mapping[str, Collection[int]] | None = None
    if request.topics is not None:
        count = sum(1 + len(one.partitions) for one in request.topics)
        wanted = await beside(count, _wanted, request.topics)
    directories = await _directories(node)
    count = sum(len(one.replicas) for one in directories)
    return DescribeLogDirsResponse(results=await beside(count, _described, directories, wanted))


def _wanted(topics: Iterable[DescribeLogDirsRequest.DescribableLogDirTopic]) -> dict[str, set[int]]:
    return {one.topic: set(one.partitions) for one in topics}


def _described(directories: Iterable[LogDir], wanted: Mapping[str, Collection[int]] | None) -> list[Directory]:
    return [describe_directory(one, wanted) for one in directories]


async def _directories(node: KafkaNode) -> tuple[LogDir, ...]:
    return (await node.call(DirectoriesAsked(), NO_TIMEOUT)).directories


def describe_directory(directory: LogDir, wanted: Mapping[str, Collection[int]] | None) -> Directory:
    """Returns one directory, with the replicas that are wanted; None: all of them."""
    if directory.error:
        return Directory(ErrorCode.KAFKA_STORAGE_ERROR, directory.path)
    topics: dict[str, list[DirectoryPartition]] = {}
    for topic, partition in _partitions(directory):
        if wanted is None or partition.partition_index in wanted.get(topic, ()):
            topics.setdefault(topic, []).append(partition)
    return Directory(
        log_dir=directory.path,
        topics=[DirectoryTopic(topic, partitions) for topic, partitions in topics.items()],
        total_bytes=directory.total_bytes or UNKNOWN,
        usable_bytes=directory.free_bytes,
    )


def _partitions(directory: LogDir) -> Iterable[tuple[str, DirectoryPartition]]:
    """Yields the replicas of a directory that can be used, and the copies that are made there; no metadata log."""
    for replica in directory.replicas:
        if replica.size_bytes >= 0 and replica.topic != METADATA_TOPIC:
            yield replica.topic, DirectoryPartition(replica.partition_id, replica.size_bytes)
    for move in directory.moves:
        copy = DirectoryPartition(move.partition_id, move.copied_bytes, offset_lag=UNKNOWN, is_future_key=True)
        yield move.topic, copy


# ---- move ------------------------------------------------------------------------------------------------------------


async def alter_replica_log_dirs(
    node: KafkaNode, request: AlterReplicaLogDirsRequest, _call: Call
) -> AlterReplicaLogDirsResponse:
    """Moves replicas between directories; the answer comes when the request is noted, not when the data has moved."""
    require_few(sum(len(topic.partitions) for wanted in request.dirs for topic in wanted.topics), "partitions")
    directories = {directory.path: directory for directory in await _directories(node)}
    topics: dict[str, list[MovedPartition]] = {}
    held_in: dict[str, Collection[tuple[str, int]]] = {}
    for wanted in request.dirs:
        if wanted.topics and wanted.path not in held_in:
            directory = directories.get(wanted.path)
            held_in[wanted.path] = await beside(0 if directory is None else len(directory.replicas), _held, directory)
        held = held_in.get(wanted.path, ())
        for topic in wanted.topics:
            answers = topics.setdefault(topic.name, [])
            for number in topic.partitions:
                code, message = await _move(node, topic.name, number, wanted.path)
                if code is ErrorCode.INVALID_REQUEST and (topic.name, number) in held:
                    code = ErrorCode.NONE  # to Kafka's clients this is no error; ours are told the text
                answers.append(MovedPartition(number, code, fitting(message)))
    return AlterReplicaLogDirsResponse(results=[MovedTopic(topic, answers) for topic, answers in topics.items()])


def refuse_alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, failure: Failure) -> AlterReplicaLogDirsResponse:
    """Returns the answer to a request that failed as a whole."""
    return AlterReplicaLogDirsResponse(
        results=[
            MovedTopic(
                topic.name, [MovedPartition(number, failure.code, failure.message) for number in topic.partitions]
            )
            for wanted in request.dirs
            for topic in wanted.topics
        ]
    )


def _held(directory: LogDir | None) -> Collection[tuple[str, int]]:
    """Returns the replicas that are in a directory already."""
    return set() if directory is None else {(one.topic, one.partition_id) for one in directory.replicas}


async def _move(node: KafkaNode, topic: str, number: int, path: str) -> tuple[ErrorCode, str]:
    try:
        await node.call(MoveReplicaRequest(topic, number, path), NO_TIMEOUT)
    except UnknownTopicOrPartitionError as error:
        code = ErrorCode.REPLICA_NOT_AVAILABLE if _is_elsewhere(node.image, topic, number) else error.code
        return code, error.told
    except ReplogError as error:
        return error.code, error.told
    return ErrorCode.NONE, ""


def _is_elsewhere(image: MetadataImage, topic: str, number: int) -> bool:
    """Whether there is such a partition: then the client may try again once its replica is here."""
    found = image.topics_by_name.get(topic)
    return found is not None and number in found.partitions
