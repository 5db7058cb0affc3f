"""`replog.scan` of topics: whole, bounded, and clear when something happens to the topic, the brokers or the reader."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cluster_kit import StartCluster

import replog
from replog.client import Producer, SyncAdmin, SyncProducer
from replog.client.ranges.transport import ReadTransport
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.tables import topic_scan

T0 = 1_700_000_000_000
LARGE = bytes(9 << 20)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a topic `rides` of two partitions with records and one without."""
    with replog.embedded() as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin, SyncProducer(broker.bootstrap_servers) as producer:
            admin.create_topic("rides", 3)
            for number in range(600):
                headers = [("n", b"%d" % number)] if number % 3 == 0 else []
                value = None if number % 7 == 0 else b"%d" % number
                producer.send("rides", value, b"k%d" % (number % 11), number % 2, T0 + number, headers)
            producer.flush()
        yield broker.bootstrap_servers


@pytest.fixture(params=["files", "stream"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the bytes come."""
    if request.param == "stream":
        options = partial(topic_scan._Options, transport=ReadTransport(direct_reads=False))
        monkeypatch.setattr(topic_scan, "_Options", options)
    return str(request.param)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_the_table_is_what_was_sent(servers: str, way: str) -> None:
    told: list[tuple[int, int]] = []
    columns = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    table = replog.scan(
        "rides", bootstrap_servers=servers, columns=columns, told=lambda *counts: told.append(counts)
    ).read_all()
    table.validate(full=True)
    assert told[-1] == (600, 600)
    numbers = [*range(0, 600, 2), *range(1, 600, 2)]
    assert table["partition"].to_pylist() == [number % 2 for number in numbers]
    assert table["offset"].to_pylist() == [number // 2 for number in numbers]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [T0 + number for number in numbers]
    assert table["value"].to_pylist() == [b"%d" % number if number % 7 else None for number in numbers]
    expected = [[{"key": "n", "value": b"%d" % number}] if number % 3 == 0 else [] for number in numbers]
    assert table["headers"].to_pylist() == expected
    assert set(table["topic"].to_pylist()) == {"rides"}


def test_times_offsets_and_chosen_partitions(servers: str, way: str) -> None:
    scan = partial(replog.scan, "rides", bootstrap_servers=servers, columns=["partition", "offset"])
    assert scan(start={1: 10}, end="latest-285", partitions=[1]).read_all()["offset"].to_pylist() == [
        10,
        11,
        12,
        13,
        14,
    ]
    assert scan(start="-1s").read_all().num_rows == 0, "the records are old"
    assert scan(start="latest-1").read_all()["partition"].to_pylist() == [0, 1]
    with pytest.raises(OffsetOutOfRangeError, match="offset 200 of rides-2 is outside of \\[0, 0\\]"):
        scan(start=200)
    with pytest.raises(
        UnknownTopicOrPartitionError, match="rides has no partition 3; its partitions here are: 0, 1, 2"
    ):
        scan(partitions=[0, 3])


def test_the_end_is_that_of_the_call(servers: str, way: str) -> None:
    with SyncAdmin(servers) as admin, SyncProducer(servers) as producer:
        admin.create_topic(f"later-{way}", 1)
        for number in range(10):
            producer.send(f"later-{way}", b"%d" % number)
        producer.flush()
        reader = replog.scan(f"later-{way}", bootstrap_servers=servers)
        producer.send(f"later-{way}", b"later").result()
        assert reader.read_all()["offset"].to_pylist() == list(range(10))


def test_a_large_value_among_tiny_ones(servers: str, way: str) -> None:
    name = f"sizes-{way}"
    with (
        SyncAdmin(servers) as admin,
        SyncProducer(servers, max_request_bytes=20 << 20, buffer_memory_bytes=64 << 20) as producer,
    ):
        admin.create_topic(name, 1, configs={"max.message.bytes": 20 << 20})
        producer.send_many(name, [b""] * 100_000)
        producer.send(name, LARGE)
        producer.flush()
    sizes: list[int] = []
    largest = 0
    for batch in replog.scan(name, bootstrap_servers=servers, columns=["value"]):
        sizes.append(batch.num_rows)
        largest = max(largest, pc.max(pc.binary_length(batch["value"])).as_py())
    assert (sum(sizes), largest) == (100_001, len(LARGE))
    assert len(sizes) < 100, "tiny records come together"


def test_what_happened_to_the_topic_is_told(servers: str, way: str) -> None:
    name = f"cut-{way}"
    with SyncAdmin(servers) as admin:
        with SyncProducer(servers) as producer:
            admin.create_topic(name, 1)
            producer.send_many(name, [b"x"] * 100).result()
        readers = [replog.scan(name, bootstrap_servers=servers) for _ in range(2)]
        admin.delete_records({(name, 0): 50})
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 0 does not exist any more.*Scan again") as caught:
            readers[0].read_all()
        assert caught.value.log_start_offset == 50
        admin.delete_topic(name)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted or created anew since the scan began"):
            readers[1].read_all()
        with pytest.raises(UnknownTopicOrPartitionError):
            replog.scan(name, bootstrap_servers=servers)
    with pytest.raises(ConfigError, match="can be reached from here"):
        replog.scan(name, bootstrap_servers="127.0.0.1:1")


def test_a_reader_that_is_dropped_leaves_nothing(servers: str, way: str) -> None:
    before = threads()
    reader = replog.scan("rides", bootstrap_servers=servers)
    reader.read_next_batch()
    assert "replog-read-ahead" in threads()
    del reader
    gc.collect()
    assert threads() <= before | {"replog-loop"}

    def fail(records: int, offsets: int) -> None:
        raise LookupError("the bar broke")

    with pytest.raises(LookupError, match="the bar broke"):
        replog.scan("rides", bootstrap_servers=servers, told=fail).read_all()
    assert threads() <= before | {"replog-loop"}


def test_a_forked_child_is_told(servers: str) -> None:
    reader = replog.scan("rides", bootstrap_servers=servers)
    reader.read_next_batch()
    child = os.fork()
    if not child:
        try:
            reader.read_all()
        except BrokerClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert reader.read_all().num_rows == 300


PROGRAM = """
import sys, replog
replog.scan("rides", bootstrap_servers=sys.argv[1]).read_all()  # imports are not what is interrupted here
try:
    print("begun", flush=True)
    while True:
        for batch in replog.scan("rides", bootstrap_servers=sys.argv[1]):
            pass
        replog.scan("rides", bootstrap_servers=sys.argv[1]).read_all()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.07, 0.3])
def test_ctrl_c_ends_it(servers: str, delay_s: float) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, servers], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n")


async def test_it_goes_on_where_a_broker_was_restarted(start_cluster: StartCluster, way: str) -> None:
    cluster = await start_cluster(1)
    await cluster.admin.create_topic("rides", 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(40):
            await producer.send_many("rides", [bytes(1000)] * 1000, partition=0)
        await producer.flush()
    reader = replog.scan("rides", bootstrap_servers=cluster.bootstrap_servers, columns=["offset"])
    first = await asyncio.to_thread(reader.read_next_batch)
    await cluster.local.kill(1)
    rest = asyncio.create_task(asyncio.to_thread(reader.read_all))
    cluster.local.start_node(1)
    table = await rest
    found = [*first["offset"].to_pylist(), *table["offset"].to_pylist()]
    assert found == list(range(40_000))


async def test_brokers_that_stay_away_are_told(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await cluster.admin.create_topic("rides", 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send("rides", b"x"))
    reader = replog.scan("rides", bootstrap_servers=cluster.bootstrap_servers, timeout_ms=500)
    await cluster.local.kill(1)
    with pytest.raises((RequestTimedOutError, ConfigError)):
        await asyncio.to_thread(reader.read_all)


def test_the_folder_of_a_broker_while_it_runs_and_afterwards(tmp_path: Path) -> None:
    with replog.embedded(path=tmp_path / "b") as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin, SyncProducer(broker.bootstrap_servers) as producer:
            admin.create_topic("rides", 1)
            producer.send_many("rides", [b"x"] * 100).result()
        live = replog.scan("rides", bootstrap_servers=broker.bootstrap_servers).read_all()
        folder = next(tmp_path.rglob("rides-0")).parent
        early = replog.scan("rides", folder=folder).read_all()
        assert early == live.slice(0, early.num_rows), "what its checkpoint knows to be committed"
    assert replog.scan("rides", folder=folder).read_all() == live
