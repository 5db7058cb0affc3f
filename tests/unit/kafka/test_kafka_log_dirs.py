"""DescribeLogDirs and AlterReplicaLogDirs, over the port of a node with two disks."""

from __future__ import annotations

import asyncio

import pytest
from kafka_node_kit import Served, batch, serving

from replog.errors import ErrorCode
from replog.protocol.handlers import log_dirs
from replog.protocol.handlers.node import Failure
from replog.rpc.node_messages import LogDir, LogDirReplica, ReplicaMoveStatus
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

Asked = DescribeLogDirsRequest.DescribableLogDirTopic
To = AlterReplicaLogDirsRequest.AlterReplicaLogDir
Moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
DISKS = ["/one", "/two"]


async def described(it: Served, *topics: tuple[str, list[int]], version: int = 4) -> DescribeLogDirsResponse:
    request = DescribeLogDirsRequest([Asked(*topic) for topic in topics] if topics else None)
    answer = await it.ask(request, version, DescribeLogDirsResponse)
    assert isinstance(answer, DescribeLogDirsResponse)
    return answer


def places(answer: DescribeLogDirsResponse) -> dict[tuple[str, int], str]:
    """Where each replica is that is no copy under way."""
    return {
        (topic.name, partition.partition_index): directory.log_dir
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


async def made(it: Served, *names: tuple[str, int]) -> None:
    """Waits until the replicas have their folders."""
    async with asyncio.timeout(60):
        while not set(names) <= set(places(await described(it))):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", DescribeLogDirsRequest.VERSIONS)
async def test_directories_are_described_with_their_replicas(version: int) -> None:
    async with serving(log_dirs=DISKS) as it:
        await it.create("t", partitions=2)
        await it.create("u")
        await it.produce(batch(b"x" * 500))
        await made(it, ("t", 0), ("t", 1), ("u", 0))
        answer = await described(it, version=version)
        assert answer.error_code == 0
        assert [directory.log_dir for directory in answer.results] == DISKS
        assert set(places(answer)) == {("t", 0), ("t", 1), ("u", 0)}, "the metadata log is none of them"
        sizes = {
            (topic.name, one.partition_index): one.partition_size
            for directory in answer.results
            for topic in directory.topics
            for one in topic.partitions
        }
        assert sizes["t", 0] > 500
        assert sizes["t", 1] == 0
        if version >= 4:
            assert all(one.total_bytes >= one.usable_bytes > 0 for one in answer.results)
        some = await described(it, ("t", [1, 9]), ("none", [0]), version=version)
        assert set(places(some)) == {("t", 1)}
        assert len(some.results) == 2, "a directory is told also if nothing of it was asked for"


async def move(it: Served, version: int, *wishes: tuple[str, str, list[int]]) -> dict[tuple[str, int], int]:
    request = AlterReplicaLogDirsRequest([To(path, [Moved(topic, numbers)]) for path, topic, numbers in wishes])
    answer = await it.ask(request, version, AlterReplicaLogDirsResponse)
    return {
        (topic.topic_name, one.partition_index): one.error_code for topic in answer.results for one in topic.partitions
    }


@pytest.mark.parametrize("version", AlterReplicaLogDirsRequest.VERSIONS)
async def test_replicas_move_to_another_disk(version: int) -> None:
    async with serving(log_dirs=DISKS) as it:
        await it.create("t")
        await it.produce(batch(b"kept"))
        await made(it, ("t", 0))
        here = places(await described(it))["t", 0]
        (there,) = set(DISKS) - {here}
        assert await move(it, version, (here, "t", [0])) == {("t", 0): 0}, "it is there already"
        assert await move(it, version, (there, "t", [0, 9]), (there, "none", [0])) == {
            ("t", 0): 0,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        async with asyncio.timeout(60):
            while places(await described(it)).get(("t", 0)) != there:
                await asyncio.sleep(0.01)
        assert await it.produce(batch(b"more")) == 1, "what was there has moved with it"
        async with asyncio.timeout(60):  # the last step of the move may be under way
            while (answer := await move(it, version, ("/no/such", "t", [0]))) == {("t", 0): ErrorCode.INVALID_REQUEST}:
                await asyncio.sleep(0.01)
        assert answer == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}


def test_what_is_under_way_and_what_is_broken_is_told_so() -> None:
    moves = (ReplicaMoveStatus("t", 1, "/one", 70, 30),)
    working = LogDir("/one", "", 5, (LogDirReplica("t", 0, 9), LogDirReplica("u", 0, -1)), moves)
    answer = log_dirs.describe_directory(working, None)
    told = [(one.partition_index, one.partition_size, one.is_future_key) for one in answer.topics[0].partitions]
    assert (len(answer.topics), told) == (1, [(0, 9, False), (1, 70, True)]), "u-0 cannot be used"
    assert (answer.total_bytes, answer.usable_bytes) == (-1, 5)
    broken = log_dirs.describe_directory(LogDir("/two", "burnt", -1, (), ()), None)
    assert (broken.error_code, broken.log_dir, broken.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/two", [])


async def test_a_replica_that_is_not_here_yet_may_be_moved_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(log_dirs=DISKS) as it:
        await it.create("t")
        await made(it, ("t", 0))
        here = places(await described(it))["t", 0]
        (there,) = set(DISKS) - {here}
        monkeypatch.setattr(it.node.parts.replicas.stepper, "replicas", {})
        assert await move(it, 2, (there, "t", [0])) == {("t", 0): ErrorCode.REPLICA_NOT_AVAILABLE}
        monkeypatch.undo()


def test_what_fails_as_a_whole_is_told() -> None:
    failure = Failure(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
    moved = log_dirs.refuse_alter_replica_log_dirs(AlterReplicaLogDirsRequest([To("/one", [Moved("t", [3])])]), failure)
    (partition,) = moved.results[0].partitions
    assert (moved.results[0].topic_name, partition.partition_index, partition.error_code) == ("t", 3, failure.code)


async def test_a_directory_that_is_named_again_and_again_is_looked_through_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a small request does not hold the loop for seconds, where a directory has thousands of replicas."""
    looked: list[str] = []
    held = log_dirs._held

    def noted(directory: LogDir) -> object:
        looked.append(directory.path)
        return held(directory)

    async with serving(log_dirs=DISKS) as it:
        await it.create("t")
        monkeypatch.setattr(log_dirs, "_held", noted)
        await it.ask(
            AlterReplicaLogDirsRequest(
                [To("/one", [Moved("u", [0])]), *[To("/one", [])] * 50, To("/one", [Moved("u", [1])])]
            ),
            2,
            AlterReplicaLogDirsResponse,
        )
    assert looked == ["/one"]
