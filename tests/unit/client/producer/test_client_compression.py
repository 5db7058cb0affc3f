"""The producer's compression: what reaches the log, in which order, and what happens while a thread compresses."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import Producer
from replog.client.producer import compressor
from replog.client.producer.accumulator import Accumulator, AccumulatorSettings
from replog.client.producer.batch import ProducerIdentity
from replog.client.producer.partition_queue import PartitionQueue
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    ErrorCode,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    UnsupportedCompressionError,
)
from replog.records import Codec, CodecName, decode_batch, parse_header
from replog.records.compression import shrink_batch

NEEDS_LIBRARY = ("snappy", "lz4", "zstd")
UUID_ONE = UUID(int=1)
TEXT = b"the same words again and again, " * 40


def make(cluster: FakeCluster, compression: str = "gzip", **settings: Any) -> Producer:
    if compression in NEEDS_LIBRARY:
        pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")
    return Producer(cluster.bootstrap, transport=cluster.transport(), compression=compression, **settings)  # type: ignore[arg-type]


def codecs(cluster: FakeCluster) -> list[Codec]:
    return [parse_header(batch).codec for batch in cluster.logs["t", 0].batches]


class Gate:
    """Threads compress only while it is open; notes which threads did."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.sizes: list[int] = []
        self.threads: set[int] = set()

    def shrink(self, batch: bytes, codec: Codec, level: int | None) -> bytes:
        self.sizes.append(len(batch))
        self.threads.add(threading.get_ident())
        self.may_go.wait()
        return shrink_batch(batch, codec, level)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(compressor, "shrink_batch", made.shrink)
    yield made
    made.may_go.set()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("enable_idempotence", [True, False])
async def test_batches_arrive_compressed_and_in_order(compression: CodecName, enable_idempotence: bool) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    values = [b"%d " % i + TEXT for i in range(300)]
    settings = {"batch_size_bytes": 20_000, "enable_idempotence": enable_idempotence}
    async with make(cluster, compression, **settings) as producer:
        bulk = await producer.send_many("t", values)
        single = await producer.send("t", TEXT, b"k", headers=[("h", b"v")])
        assert (await single).offset == 300
        assert (await bulk)[0].base_offset == 0
    log = cluster.logs["t", 0]
    assert log.values() == [*values, TEXT]
    assert (log.records()[-1].key, log.records()[-1].headers) == (b"k", (("h", b"v"),))
    assert set(codecs(cluster)) == {Codec[compression.upper()]}
    assert sum(map(len, log.batches)) < len(b"".join(values)) / 3
    assert len(log.batches) >= len(b"".join(values)) / 20_000, "batch_size_bytes counts what is not compressed"


async def test_what_does_not_shrink_goes_as_it_is() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"x"))
        await (await producer.send("t", os.urandom(5000)))
        await (await producer.send("t", TEXT))
    assert codecs(cluster) == [Codec.NONE, Codec.NONE, Codec.GZIP]


async def test_a_record_counts_before_compression_and_a_message_after() -> None:
    """Goal: max_request_bytes bounds records as with Kafka's client, and messages by what is sent: beside the two that
    are on their way, the others wait and share the third."""
    cluster = FakeCluster()
    cluster.create_topic("t", 8)
    node = cluster.nodes[1]
    node.hold_replies = True
    async with make(cluster, max_request_bytes=20_000, batch_size_bytes=15_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.bytes"):
            await producer.send("t", bytes(30_000), partition=0)
        for partition in range(8):
            await producer.send_many("t", [TEXT] * 10, partition=partition)
        batches = producer._accumulator.unresolved()
        await until(lambda: all(batch.in_flight or batch.compressed for batch in batches))
        await node.release_held()
        await producer.flush()
    assert len(node.produced) <= 3
    assert max(len(request.partitions) for request in node.produced) >= 3, "of 12,800 bytes each before compression"


async def test_the_event_loop_goes_on_while_a_thread_compresses(gate: Gate) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, batch_size_bytes=10_000) as producer:
        first = await producer.send("t", TEXT)
        await until(lambda: len(gate.sizes) == 1)
        later = await producer.send("t", TEXT)  # into a batch of its own: the first one takes no more
        assert not first.done()
        gate.may_go.set()
        assert [(await each).offset for each in (first, later)] == [0, 1]
    assert threading.get_ident() not in gate.threads
    assert len(cluster.logs["t", 0].batches) == 2


async def test_the_next_batch_is_compressed_while_one_is_on_its_way(gate: Gate) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    gate.may_go.set()
    async with make(cluster, batch_size_bytes=2_000, enable_idempotence=False) as producer:
        node.hold_replies = True
        await producer.send_many("t", [TEXT] * 4)
        await until(lambda: len(node.held) == 1 and len(gate.sizes) == 2)
        assert len(node.produced) == 1, "without idempotence one batch at a time"
        await node.release_held()
        await producer.flush()
    assert cluster.logs["t", 0].values() == [TEXT] * 4


async def test_a_batch_that_expires_while_a_thread_has_it_leaves_the_others_alone(gate: Gate) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, delivery_timeout_ms=100) as producer:
        late = await producer.send("t", TEXT)
        with pytest.raises(RequestTimedOutError, match=r"never sent.*compression has not ended"):
            await late
        gate.may_go.set()
        assert (await (await producer.send("t", b"after"))).offset == 0
        assert producer._accumulator.memory.held_bytes == 0
    assert cluster.logs["t", 0].values() == [b"after"]


async def test_closing_does_not_wait_for_a_thread(gate: Gate) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    producer = make(cluster)
    await producer.start()
    delivery = await producer.send("t", TEXT)
    await until(lambda: len(gate.sizes) == 1)
    await producer.close(timeout_ms=0)
    with pytest.raises(BrokerClosedError):
        await delivery


async def test_a_failed_compression_fails_its_batch_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def shrink(batch: bytes, codec: Codec, level: int | None) -> bytes:
        if b"bad" in batch:
            raise MemoryError("no room")
        return shrink_batch(batch, codec, level)

    monkeypatch.setattr(compressor, "shrink_batch", shrink)
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        with pytest.raises(ReplogError, match=r"t-0: 1 records could not be compressed by gzip: MemoryError"):
            await (await producer.send("t", b"bad"))
        assert (await (await producer.send("t", b"good"))).offset == 0


async def test_without_a_thread_to_start_the_records_fail_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with make(cluster) as producer:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ReplogError, match="can't start new thread"):
            await (await producer.send("t", TEXT))
        monkeypatch.undo()
        assert (await (await producer.send("t", TEXT))).offset == 0


async def test_retries_send_the_same_bytes_and_lose_or_double_nothing() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    node.script.extend(
        [lambda _p, _b, code=code: code for code in ("append", ErrorCode.NOT_ENOUGH_REPLICAS, "append", "lose")]  # type: ignore[misc]
    )
    async with make(cluster, batch_size_bytes=3_000) as producer:
        deliveries = [await producer.send("t", b"%d" % i + TEXT) for i in range(30)]
        await until(lambda: len(cluster.logs["t", 0].batches) >= 3)
        await asyncio.sleep(0)
        node.cut()
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(30))
    assert cluster.logs["t", 0].values() == [b"%d" % i + TEXT for i in range(30)]


async def test_a_compressed_batch_goes_on_under_another_identity_without_being_compressed_again() -> None:
    settings = AccumulatorSettings(
        batch_size_bytes=100, linger_ms=0, buffer_memory_bytes=1 << 20, delivery_timeout_ms=60_000, max_in_flight=5,
        is_idempotent=True, is_compressing=True,
    )  # fmt: skip
    queue = PartitionQueue(Accumulator(settings), "t", UUID_ONE, 0)
    queue.set_identity(ProducerIdentity(7, 0))
    queue.append(1000, None, TEXT, (), 2000)
    assert queue.sendable(1e9, allow_partial=True) is None
    batch = queue.compressible(1e9, allow_partial=True)
    assert batch is not None
    plain = queue.begin_compression(batch)
    assert queue.compressible(1e9, allow_partial=True) is None
    assert queue.sendable(1e9, allow_partial=True) is None
    queue.handle_compressed(batch, shrink_batch(plain, Codec.GZIP))
    assert queue.sendable(1e9, allow_partial=True) is batch
    assert batch.size_bytes < len(plain) / 2
    queue.mark_sent(batch)
    first = batch.payload or b""
    batch.renumber(ProducerIdentity(7, 1), 0)
    again = batch.payload or b""
    headers = [parse_header(each) for each in (first, again)]
    assert [(each.producer_id, each.producer_epoch, each.codec) for each in headers] == [
        (7, 0, Codec.GZIP),
        (7, 1, Codec.GZIP),
    ]
    assert decode_batch(first) == decode_batch(again) == decode_batch(plain)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"compression": "GZIP"}, r'compression is .GZIP.; it must be one of "none", "gzip"'),
        ({"compression": None}, "compression is None"),
        ({"compression_gzip_level": 0}, r"compression\.gzip\.level is 0; it must be at least 1"),
        ({"compression_gzip_level": 10}, r"compression\.gzip\.level is 10; it must be at most 9"),
        ({"compression_lz4_level": 3}, r"compression\.lz4\.level is 3; it must be 9: the library"),
        ({"compression_zstd_level": 23}, r"compression\.zstd\.level is 23; it must be at most 22"),
        ({"compression_zstd_level": "3"}, r"compression\.zstd\.level is '3' \(str\); it must be an integer"),
    ],
)
def test_what_is_no_compression_is_refused_at_construction(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer("127.0.0.1:1", transport=FakeCluster().transport(), **settings)


@pytest.mark.parametrize("compression", NEEDS_LIBRARY)
def test_a_missing_library_is_told_at_construction(compression: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCompressionError, match=f"{compression} compression needs .*pip install"):
        Producer("127.0.0.1:1", transport=FakeCluster().transport(), compression=compression)
