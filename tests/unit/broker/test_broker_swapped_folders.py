"""Two partition folders of one topic, exchanged at a follower while it was stopped: each tells the topic alone."""

from __future__ import annotations

import logging
import random

import pytest

from replog.controller.messages import CreateTopics, CreateTopicsResponse, NewTopic
from replog.errors import ErrorCode
from replog.log import Log
from replog.records import encode_batch
from replog.rpc.messages import ProducePartition, ProduceRequest, client_hello
from replog.testing.simulated_cluster import LOG_DIRECTORY, SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.simulated_node import ObservedNode
from replog.testing.virtual_loop import VirtualLoop

BATCHES = {0: [3] * 10, 1: [4] * 4}
"""Records in each batch of a partition: their ends are at 30 and at 16, and few of their borders agree."""


def exchange(fs: SimulatedFileSystem) -> None:
    first, second, aside = (f"{LOG_DIRECTORY}/{name}" for name in ("t-0", "t-1", "aside"))
    fs.rename(first, aside)
    fs.rename(second, first)
    fs.rename(aside, second)


def log_of(node: ObservedNode, partition_id: int) -> Log | None:
    return node.logs.logs.get(("t", partition_id))


async def write(cluster: SimulatedCluster) -> None:
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
    settings = {"log.dir.reserve.bytes": 0, "replica.lag.time.max.ms": 2_000}
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1,), brokers=(1, 2), settings=settings)

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
        exchange(cluster.nodes[2].fs)
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
