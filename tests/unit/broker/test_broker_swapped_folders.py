"""Partition folders that were exchanged while their node was stopped, or say that they are another topic's."""

from __future__ import annotations

import logging
import random
from uuid import UUID

import pytest

import replog_checkpoints as checkpoints
from replog.controller.requests import CreateTopics, CreateTopicsResponse, DeleteTopics, NewTopic
from replog.errors import ErrorCode
from replog.log import Log
from replog.records import encode_batch
from replog.rpc.messages import ProducePartition, ProduceRequest, client_hello
from replog.testing.simulated_cluster import LOG_DIRECTORY, SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.simulated_node import ObservedNode
from replog.testing.virtual_loop import VirtualLoop
from replog_checkpoints.atomic_file import replace_file

SETTINGS = {"log.dir.reserve.bytes": 0, "replica.lag.time.max.ms": 2_000}
BATCHES = {0: [3] * 10, 1: [4] * 4}
"""Records in each batch of a partition: their ends are at 30 and at 16, and few of their borders agree."""


def exchange(fs: SimulatedFileSystem, first: str, second: str) -> None:
    for source, target in ((first, "aside"), (second, first), ("aside", second)):
        fs.rename(f"{LOG_DIRECTORY}/{source}", f"{LOG_DIRECTORY}/{target}")


def forget_names(fs: SimulatedFileSystem) -> None:
    """Makes the folders those of an older replog: each tells the topic alone."""
    for name in ("t-0", "t-1"):
        path = f"{LOG_DIRECTORY}/{name}/{checkpoints.PARTITION_METADATA_FILE}"
        metadata = checkpoints.read_partition_metadata(fs, path)
        assert metadata is not None
        checkpoints.write_partition_metadata(fs, path, checkpoints.PartitionMetadata(metadata.topic_id))


def log_of(node: ObservedNode, partition_id: int) -> Log | None:
    return node.logs.logs.get(("t", partition_id))


async def write(cluster: SimulatedCluster) -> UUID:
    client = cluster.client("app")
    answer = await client.ask(1, CreateTopics((NewTopic("t", assignments=((1, 2), (1, 2))),)))
    assert isinstance(answer, CreateTopicsResponse)
    topic_id = answer.topics[0].topic_id
    assert topic_id is not None
    await cluster.wait_until(lambda: all(log_of(node, n) for node in cluster.running for n in BATCHES))
    stream = await client.connection(1).open_produce(client_hello("", "app"))
    for partition_id, counts in BATCHES.items():
        for count in counts:
            batch = encode_batch([(1, None, b"partition %d" % partition_id, ())] * count)
            place = ProducePartition(topic_id, partition_id)
            await stream.send(ProduceRequest(1, 60_000, -1, (place,), (batch,)))
            ((response,),) = (await stream.receive(),)
            assert response.results[0].error is ErrorCode.NONE, response
    await stream.close()
    return topic_id


def in_sync(cluster: SimulatedCluster) -> bool:
    """Whether broker 2 is in both ISRs, with the bytes of broker 1."""
    if not cluster.is_settled():
        return False
    partitions = cluster.running[0].image.topics_by_name["t"].partitions
    return all(sorted(partition.isr) == [1, 2] for partition in partitions.values())


def content(node: ObservedNode, partition_id: int) -> bytes:
    log = log_of(node, partition_id)
    assert log is not None
    return log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_follower_with_the_folders_of_two_partitions_exchanged_gets_both_anew(
    caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    """Killed, it asked for the same offset for ever, and nothing said why."""
    loop = VirtualLoop(random.Random(1), steps_max=5_000_000)
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1,), brokers=(1, 2), settings=SETTINGS)

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await write(cluster)
        await cluster.wait_until(lambda: in_sync(cluster))
        if is_killed:
            cluster.crash(2, power_cut=False)
        else:
            await cluster.stop(2)
        forget_names(cluster.nodes[2].fs)
        exchange(cluster.nodes[2].fs, "t-0", "t-1")
        cluster.start(2)
        await cluster.wait_until(lambda: in_sync(cluster))
        leader, follower = cluster.running
        for partition_id in BATCHES:
            assert content(follower, partition_id) == content(leader, partition_id)

    with caplog.at_level(logging.WARNING):
        loop.run(main())
    for name in ("t-0", "t-1"):
        assert f"{name} is offline: {LOG_DIRECTORY}/{name}" in caplog.text
    if is_killed:  # what was flushed says it after an orderly stop, when the logs are opened
        assert "this log ends at 16, inside of the leader's batch of offsets 15 to 17" in caplog.text
        assert "The folder of another partition may stand there" in caplog.text


def test_a_leader_whose_folder_says_that_it_is_another_topics_is_not_empty(caplog: pytest.LogCaptureFixture) -> None:
    """One character of the topic id, and it was set aside for a deleted topic's: an empty log led, and emptied the others."""
    loop = VirtualLoop(random.Random(1), steps_max=5_000_000)
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1,), brokers=(1, 2), settings=SETTINGS)

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        topic_id = checkpoints.uuid_to_text(await write(cluster))
        await cluster.wait_until(lambda: in_sync(cluster))
        for node_id in (2, 1):
            await cluster.stop(node_id)
        path, fs = f"{LOG_DIRECTORY}/t-0/partition.metadata", cluster.nodes[1].fs
        other = ("B" if topic_id[0] == "A" else "A") + topic_id[1:]
        replace_file(fs, path, fs.image()[path].replace(topic_id.encode(), other.encode()))
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(lambda: in_sync(cluster))
        for node in cluster.running:
            assert content(node, 0).count(b"partition 0") == sum(BATCHES[0])

    with caplog.at_level(logging.WARNING):
        loop.run(main())
    assert "t-0 is offline" in caplog.text
    assert "the checksum is wrong" in caplog.text


def test_a_folder_in_the_place_of_another_topics_outlives_that_topic(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop(random.Random(1), steps_max=5_000_000)
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1,), brokers=(1, 2), settings=SETTINGS)

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        topic_id = await write(cluster)
        client = cluster.client("admin")
        await client.ask(1, CreateTopics((NewTopic("u", assignments=((1,), (1,), (1,))),)))
        await cluster.wait_until(lambda: ("u", 2) in cluster.running[0].logs.logs)
        for node_id in (2, 1):
            await cluster.stop(node_id)
        fs = cluster.nodes[1].fs
        exchange(fs, "t-0", "u-2")  # no partition 2 of the topic is known
        cluster.start(1)
        await cluster.wait_until(lambda: "u-2 is offline" in caplog.text)
        await client.ask(1, DeleteTopics(names=("u",)))
        await cluster.wait_until(lambda: any(name.startswith("u-2.") for name in fs.list_dir(LOG_DIRECTORY)))
        (kept,) = (name for name in fs.list_dir(LOG_DIRECTORY) if name.startswith("u-2."))
        assert kept.endswith("-stray")
        found = checkpoints.read_partition_metadata(fs, f"{LOG_DIRECTORY}/{kept}/partition.metadata")
        assert found == checkpoints.PartitionMetadata(topic_id, "t-0")

    loop.run(main())
