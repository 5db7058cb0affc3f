"""One value of 9 MB through every door: it passes where the limits are raised, and else one error names the limit to raise."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import Cluster, StartCluster

from replog.client import Consumer, Producer, SyncConsumer, SyncProducer
from replog.errors import ConfigError, RecordTooLargeError

pytestmark = pytest.mark.cluster

VALUE = random.Random(9).randbytes(9_000_000).replace(b"\n", b" ")
LARGE = 16 << 20
TOPIC = "large"


async def cluster_with_topic(start_cluster: StartCluster, nodes: int, **config: object) -> Cluster:
    cluster = await start_cluster(nodes)
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    await cluster.admin.create_topic(TOPIC, 1, nodes, dotted)
    return cluster


async def command(cluster: Cluster, *arguments: str, stdin: bytes | None = None) -> tuple[int, bytes, str]:
    """Exit status, stdout and stderr of `replog ...`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replog.cli", *arguments, "--bootstrap-servers", cluster.bootstrap_servers,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(stdin or b"")
    return process.returncode or 0, out, err.decode()


async def test_a_large_value_passes_where_the_limits_are_raised(start_cluster: StartCluster, tmp_path: Path) -> None:
    """Goal: the producer's and the topic's limit are all there is; whoever reads needs no setting."""
    cluster = await cluster_with_topic(start_cluster, 3, max_message_bytes=LARGE)
    async with Producer(cluster.bootstrap_servers, max_request_bytes=LARGE) as producer:
        await (await producer.send(TOPIC, VALUE))

    def send_in_a_thread() -> None:
        with SyncProducer(cluster.bootstrap_servers, max_request_bytes=LARGE) as sync:
            sync.send(TOPIC, VALUE).result(60)

    await asyncio.to_thread(send_in_a_thread)
    async with Consumer(cluster.bootstrap_servers) as consumer, asyncio.timeout(60):
        await consumer.assign_topic(TOPIC)
        found: list[Any] = []
        while len(found) < 2:
            found += await consumer.poll()
    assert [record.value for record in found] == [VALUE, VALUE]

    def read_in_a_thread() -> list[bytes | None]:
        with SyncConsumer(cluster.bootstrap_servers, max_partition_fetch_bytes=1, fetch_max_bytes=1) as sync:
            sync.assign_topic(TOPIC)
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in sync.poll(timeout_ms=30_000)]
            return values

    assert await asyncio.to_thread(read_in_a_thread) == [VALUE, VALUE]
    status, out, err = await command(cluster, "consume", TOPIC, "--max", "1")
    assert (status, out, err) == (0, VALUE + b"\n", "")


async def test_a_producer_with_the_usual_limit_names_both(start_cluster: StartCluster) -> None:
    cluster = await cluster_with_topic(start_cluster, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(
            RecordTooLargeError, match=r"raise max_request_bytes here and max\.message\.bytes of the topic"
        ):
            await producer.send(TOPIC, VALUE)
    async with Producer(cluster.bootstrap_servers, max_request_bytes=LARGE) as producer:
        delivery = await producer.send(TOPIC, VALUE)
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes is 1048588: .* raise the topic's limit"):
            await delivery


def test_a_message_that_no_broker_takes_is_refused_in_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"max\.request\.bytes is 134217728"):
        Producer("127.0.0.1:1", max_request_bytes=128 << 20)
