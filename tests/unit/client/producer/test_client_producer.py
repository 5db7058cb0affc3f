"""`Producer` against scripted brokers: what reaches the log when replies get lost, leaders move and brokers refuse."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster

from replog.client import BulkDelivery, Delivery, Producer
from replog.client.cluster.view import ClusterView
from replog.client.producer.producer import TURN_BYTES
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    ConfigError,
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRecordError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.records import decode_columns, encode_batch, parse_header
from replog.rpc.messages import ProducePartition
from tests.quiet import quiet_for
from tests.unit.client.memory_transport import MemoryTransport


def answer(code: ErrorCode | str) -> Callable[[ProducePartition, bytes], ErrorCode | str]:
    return lambda _partition, _batch: code


def make(cluster: FakeCluster, **settings: object) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), **settings)  # type: ignore[arg-type]


async def test_a_record_gets_its_offset() -> None:
    cluster = FakeCluster()
    cluster.create_topic("flights", 2)
    async with make(cluster) as producer:
        delivery = await producer.send("flights", b"v", key=b"k", partition=1, timestamp_ms=77, headers=[("h", b"1")])
        assert await delivery == ("flights", 1, 0, 77)
        assert delivery.done()
        assert (await (await producer.send("flights", b"w", partition=1))).offset == 1
    (first, second) = cluster.logs["flights", 1].records()
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"),))
    assert second.value == b"w"
    assert not cluster.nodes[1].streams


async def test_an_unexpected_error_at_the_producer_id_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap: nobody asked again; batches that waited ended at their time-out, without a word about the cause."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    call_any, asked = ClusterView.call_any, list[str]()

    async def failing(view: ClusterView, request: Any, **more: Any) -> Any:
        asked.append(more["what"])
        if len(asked) == 1:
            raise ZeroDivisionError("a bug")
        return await call_any(view, request, **more)

    monkeypatch.setattr(ClusterView, "call_any", failing)
    async with make(cluster) as producer:
        assert (await (await producer.send("t", b"v"))).offset == 0
    assert asked == ["get a producer id"] * 2
    assert "asking for a producer id failed" in caplog.text


async def test_batches_fill_while_requests_are_in_flight_and_share_messages() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 4)
    async with make(cluster) as producer:
        await producer.send("t", b"first", partition=0)
        await producer.flush()
        for i in range(1000):
            await producer.send("t", b"%d" % i, partition=i % 4)
        await producer.flush()
    assert len(cluster.nodes[1].produced) < 10
    assert max(len(request.partitions) for request in cluster.nodes[1].produced) == 4


async def test_who_sends_without_a_pause_fills_batches_and_the_last_one_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("replog.client.producer.accumulator.BUSY_LINGER_S", 3600.0)
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"nobody else sends"))
        deliveries = [await producer.send("t", b"%01000d" % i) for i in range(2000)]
        await deliveries[-1]
        assert not producer._accumulator.is_busy
    counts = [parse_header(batch).records_count for batch in cluster.logs["t", 0].batches]
    assert counts[0] == 1
    assert len(counts) == 5, "four batches of half a megabyte"


async def test_records_without_keys_fill_one_batch_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.client.producer.accumulator.BUSY_LINGER_S", 3600.0)
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    async with make(cluster, batch_size_bytes=20_000) as producer:
        producer._view.rng.seed(1)  # by chance one partition of three gets a single batch, in one run of 44
        for i in range(4000):
            await producer.send("t", b"%050d" % i)
        await producer.flush()
    sizes = [len(batch) for log in cluster.logs.values() for batch in log.batches]
    assert sum(size < 19_800 for size in sizes) <= 1, "the last one"
    assert sum(map(len, (log.values() for log in cluster.logs.values()))) == 4000
    assert min(len(log.batches) for log in cluster.logs.values()) > 1


async def test_a_full_batch_goes_while_records_go_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.client.producer.accumulator.BUSY_LINGER_S", 3600.0)
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    async with make(cluster, batch_size_bytes=20_000) as producer:
        deliveries = [await producer.send("t", b"x", partition=number) for number in range(2)]
        await asyncio.gather(*deliveries)
        producer._accumulator.is_busy = True  # and stays it: nobody tells the senders that they may go
        first = await producer.send("t", b"x" * 1000)
        await quiet_for(0.02)
        assert not first.done()
        while (last := await producer.send("t", b"x" * 1000)).place[0].topic_partition == first.place[
            0
        ].topic_partition:
            pass
        await until(first.done)
        assert not last.done()
        producer._accumulator.is_busy = False


@pytest.mark.parametrize(
    "record",
    [{}, {"key": b"k"}, {"partition": 1}, {"timestamp_ms": 7}, {"headers": [("h", b"1")]}],
    ids=["plain", "key", "partition", "timestamp", "headers"],
)
async def test_nearly_every_record_takes_one_call(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    looked_at: list[object] = []
    with_a_look = Producer._send

    def counted(*arguments: Any) -> Coroutine[Any, Any, Delivery]:
        looked_at.append(arguments)
        return with_a_look(*arguments)

    monkeypatch.setattr(Producer, "_send", counted)
    async with make(cluster) as producer:
        for _ in range(3000):
            await producer.send("t", b"v" * 100, **record)
        await producer.flush()
    turns_count = 3000 * (97 + 100 + 15) // TURN_BYTES
    assert len(looked_at) <= 2 * turns_count + 5, "at the end of a turn, or at the beginning of a batch"


async def test_memory_counts_each_record_to_the_byte_until_it_is_acknowledged() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster) as producer:
        await (await producer.send("t", b"first", partition=0))
        memory = producer._accumulator.memory
        assert memory.held_bytes == 0
        cluster.nodes[1].hold_replies = True
        for i in range(100):
            await producer.send("t", b"v" * i, key=b"k" if i % 2 else None, partition=0)
        held_bytes = memory.held_bytes
        await until(lambda: bool(cluster.nodes[1].held))
        assert memory.held_bytes == held_bytes, "also once the bytes are made"
        await cluster.nodes[1].release_held()
        await producer.flush()
        assert memory.held_bytes == 0
    assert held_bytes == sum(len(batch) - 61 for batch in cluster.logs["t", 0].batches[1:])


async def test_a_small_record_does_not_overtake_one_that_waits_for_room() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, buffer_memory_bytes=4_000, max_request_bytes=4_000) as producer:
        await (await producer.send("t", b"first"))
        cluster.nodes[1].hold_replies = True
        for _ in range(3):
            await producer.send("t", b"a" * 600)
            await quiet_for(0.02)
        assert len(cluster.nodes[1].held) == 2, "and the third is in a batch that has room"
        large = asyncio.create_task(producer.send("t", b"b" * 3_000))
        await until(lambda: not producer._accumulator.memory.has_room(1))
        small = asyncio.create_task(producer.send("t", b"c"))
        await quiet_for(0.02)
        assert not small.done()
        await cluster.nodes[1].release_held()
        await asyncio.gather(large, small)
        assert producer._appender.blocked_count == 0
    assert [value and value[:1] for value in cluster.logs["t", 0].values()] == [b"f", b"a", b"a", b"a", b"b", b"c"]


async def test_batches_are_as_small_as_the_topic_wants_them() -> None:
    cluster = FakeCluster()
    cluster.configs["t"] = {"max.message.bytes": "1000"}
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await producer.send_many("t", [b"x" * 100] * 50)
        cluster.configs["t"] = {"max.message.bytes": "2000"}
        cluster.publish()
        await producer.flush()
        await producer.send_many("t", [b"y" * 100] * 50)
        await producer.send("t", b"z" * 3000)  # for itself: the broker refuses it, and nothing with it
        await producer.flush()
    small, large, alone = ([b for b in cluster.logs["t", 0].batches if fill * 100 in b] for fill in (b"x", b"y", b"z"))
    assert 800 < max(map(len, small)) <= 1000
    assert 1700 < max(map(len, large)) <= 2000
    assert [parse_header(batch).records_count for batch in alone] == [1]


async def test_send_many_tells_the_ranges() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster) as producer:
        bulk = await producer.send_many("t", ((b"%d" % i, b"%d" % (i % 10)) for i in range(500)))
        ranges = await bulk
    assert bulk.records_count == bulk.acknowledged_count == sum(r.records_count for r in ranges) == 500
    for r in ranges:
        assert r.base_offset >= 0
    assert Counter(r.partition for r in ranges).keys() == {0, 1}
    by_key = [record.value for log in cluster.logs.values() for record in log.records() if record.key == b"3"]
    assert by_key == [b"%d" % i for i in range(3, 500, 10)], "a key's records keep their order"


@pytest.mark.parametrize("seed_code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, "lose", "drop"])
async def test_no_loss_no_double_no_reordering(seed_code: ErrorCode | str) -> None:
    """Some of the first batches are refused, or their replies are lost with the connection."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    node.script.extend(answer(code) for code in ["append", seed_code, "append", seed_code])
    async with make(cluster, batch_size_bytes=300) as producer:
        deliveries = [await producer.send("t", b"%050d" % i) for i in range(100)]
        if isinstance(seed_code, str):
            for _ in range(2):
                await until(lambda: len(node.produced) > 1)
                await quiet_for(0.02)  # some replies arrive, and some do not
                node.cut()
        offsets = [(await delivery).offset for delivery in deliveries]
    assert cluster.logs["t", 0].values() == [b"%050d" % i for i in range(100)]
    assert offsets == list(range(100))


async def test_replies_in_any_order() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    async with make(cluster, batch_size_bytes=300) as producer:
        await (await producer.send("t", b"first"))
        node.hold_replies = True
        deliveries = [await producer.send("t", b"%050d" % i) for i in range(40)]
        await until(lambda: len(node.held) == 5)
        await node.release_held(newest_first=True)
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 41))


async def test_a_moved_leader_gets_what_the_old_one_did_not_answer() -> None:
    """The old leader appended the batch (the log is replicated here) and falls silent: nothing is doubled."""
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    cluster.nodes[1].is_silent = True
    async with make(cluster) as producer:
        delivery = await producer.send("t", b"v")
        await until(lambda: bool(cluster.nodes[1].produced))
        cluster.move_leader("t", 0, 2)
        assert (await delivery).offset == 0
        assert (await (await producer.send("t", b"w"))).offset == 1
    assert cluster.logs["t", 0].values() == [b"v", b"w"]


async def test_a_dead_broker_and_a_new_leader() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 3)
    async with make(cluster) as producer:
        for i in range(30):
            await producer.send("t", b"%d" % i, partition=i % 3)
        await producer.flush()
        cluster.nodes[1].is_down = True
        cluster.nodes[1].cut()
        deliveries = [await producer.send("t", b"%d" % i, partition=i % 3) for i in range(30, 60)]
        await quiet_for(0.05)
        assert not any(delivery.done() for delivery in deliveries[::3]), "their leader is down"
        cluster.move_leader("t", 0, 2)
        for delivery in deliveries:
            await delivery
    for partition in range(3):
        assert cluster.logs["t", partition].values() == [b"%d" % i for i in range(partition, 60, 3)]


async def test_a_broker_that_is_cut_off_does_not_keep_the_client_from_the_new_leader() -> None:
    """It answers, is the one that this client asks first, and has not heard that another broker leads."""
    cluster = FakeCluster(3)
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"v"))
        cluster.nodes[1].cut_off()
        cluster.nodes[2].cut_off()
        cluster.move_leader("t", 0, 3)
        async with asyncio.timeout(60):
            assert (await (await producer.send("t", b"w"))).offset == 1
    assert cluster.logs["t", 0].values() == [b"v", b"w"]


async def test_a_topic_that_a_cut_off_broker_does_not_know_is_asked_of_others() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"v"))
        cluster.nodes[1].cut_off()
        cluster.create_topic("new")
        assert (await (await producer.send("new", b"w"))).offset == 0
    assert cluster.logs["new", 0].values() == [b"w"]


async def test_no_leader_waits_for_one() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    cluster.move_leader("t", 0, -1)
    async with make(cluster) as producer:
        delivery = await producer.send("t", b"v")
        await quiet_for(0.01)
        assert not delivery.done()
        cluster.move_leader("t", 0, 2)
        assert (await delivery).offset == 0


async def test_a_refused_record_fails_alone() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    node.script.extend([answer("append"), answer(ErrorCode.MESSAGE_TOO_LARGE)])
    async with make(cluster, batch_size_bytes=300) as producer:
        await (await producer.send("t", b"0"))
        deliveries = [await producer.send("t", b"%0200d" % i) for i in range(6)]
        with pytest.raises(RecordTooLargeError, match="t-0"):
            await deliveries[0]
        assert [(await delivery).offset for delivery in deliveries[1:]] == [1, 2, 3, 4, 5]
    assert cluster.logs["t", 0].values() == [b"0", *(b"%0200d" % i for i in range(1, 6))]


async def test_a_lost_order_is_told_and_the_producer_goes_on() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].script.extend([answer("append"), answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
    async with make(cluster) as producer:
        await (await producer.send("t", b"a"))
        with pytest.raises(OutOfOrderSequenceError, match="new producer epoch"):
            await (await producer.send("t", b"b"))
        assert (await (await producer.send("t", b"c"))).offset == 1
    headers = [parse_header(batch) for batch in cluster.logs["t", 0].batches]
    assert [(header.producer_id, header.producer_epoch) for header in headers] == [(1000, 0), (1000, 1)]


async def test_the_delivery_timeout_ends_all_retries_and_names_the_last_cause() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].script.extend([answer(ErrorCode.NOT_ENOUGH_REPLICAS)] * 100)
    async with make(cluster, delivery_timeout_ms=300) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(RequestTimedOutError, match=r"t-0: 1 records.*300 ms.*NotEnoughReplicasError"):
            await delivery
        cluster.nodes[1].script.clear()
        assert (await (await producer.send("t", b"w"))).offset == 0


async def test_a_silent_broker_is_taken_for_lost() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].is_silent = True
    async with make(cluster, request_timeout_ms=1) as producer:
        delivery = await producer.send("t", b"v")
        await until(lambda: len(cluster.nodes[1].produced) > 1)
        cluster.nodes[1].is_silent = False
        assert (await delivery).offset == 0
    assert cluster.logs["t", 0].values() == [b"v"]


async def test_memory_is_bounded_and_send_waits() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    async with make(cluster, buffer_memory_bytes=10_000) as producer:
        node.hold_replies = True

        async def send_all() -> None:
            for _ in range(100):
                await producer.send("t", b"x" * 500)

        sending = asyncio.create_task(send_all())
        await until(lambda: producer._accumulator.memory.held_bytes > 9_000)
        await quiet_for(0.05)
        assert not sending.done()
        assert producer._accumulator.memory.held_bytes <= 10_000
        await node.release_held()
        await sending
    assert len(cluster.logs["t", 0].values()) == 100


class Moody:
    """A partitioner that fails for one record."""

    def partition(self, topic: str, key: bytes | None, size_bytes: int, count: int, available: Sequence[int]) -> int:
        if key == b"bad":
            raise LookupError("a bug of the caller's")
        return 0


async def test_a_send_that_fails_after_waiting_for_memory_lets_the_next_one_in() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    async with make(cluster, buffer_memory_bytes=1024, partitioner=Moody()) as producer:
        node.hold_replies = True
        await producer.send("t", b"x" * 800)
        waiting = [asyncio.create_task(producer.send("t", b"x" * 800, key=key)) for key in (b"bad", b"good")]
        await until(lambda: len(node.held) == 1 and len(producer._accumulator.memory._waiters) == 2)
        await node.release_held()
        with pytest.raises(LookupError):
            await asyncio.wait_for(waiting[0], 60)
        assert (await (await asyncio.wait_for(waiting[1], 60))).offset == 1


async def test_below_min_isr_the_cause_of_a_time_out_says_so_by_its_type() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    node.script.extend([answer(ErrorCode.NOT_ENOUGH_REPLICAS)])
    async with make(cluster, delivery_timeout_ms=400) as producer:
        delivery = await producer.send("t", b"v")
        await until(lambda: bool(node.produced))
        node.is_silent = True
        await until(lambda: len(node.produced) == 2)
        node.cut()
        with pytest.raises(RequestTimedOutError, match=r"NotEnoughReplicasError.*then ConnectionLostError") as failed:
            await delivery
        assert isinstance(failed.value.__cause__, NotEnoughReplicasError)


async def test_below_min_isr_records_fail_at_once_if_asked() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    refusals = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    retried = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
    node.script.extend([answer(code) for code in (*refusals, *retried)])
    async with make(cluster, fail_below_min_isr=True) as producer:
        for error in (NotEnoughReplicasError, *[NotEnoughReplicasAfterAppendError] * 2):
            with pytest.raises(error):
                await asyncio.wait_for(await producer.send("t", b"v"), 60)
        assert (await (await producer.send("t", b"w"))).offset == 0
    assert cluster.logs["t", 0].values() == [b"w"]


async def test_what_can_never_be_sent_is_refused_before_it_waits_for_memory() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, buffer_memory_bytes=1024) as producer:
        cluster.nodes[1].hold_replies = True
        await producer.send("t", b"x" * 800)
        with pytest.raises(UnknownTopicOrPartitionError):
            await asyncio.wait_for(producer.send("t", b"x" * 800, partition=9), 60)
        with pytest.raises(UnknownTopicOrPartitionError):
            await asyncio.wait_for(producer.send_many("t", [b"x" * 800], partition=9), 60)
        for send in (producer.send("t", b"x" * 800, timestamp_ms=-2), producer.send_many("t", [], timestamp_ms=-2)):
            with pytest.raises(InvalidRecordError, match="timestamp -2 ms"):
                await asyncio.wait_for(send, 60)
        await cluster.nodes[1].release_held()


@pytest.mark.parametrize("buffer_memory_bytes", [32 << 20, 150_000])
async def test_sends_of_many_tasks_keep_the_order_in_which_they_began(buffer_memory_bytes: int) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, buffer_memory_bytes=buffer_memory_bytes) as producer:
        await producer.partitions_for("t")
        tasks: list[asyncio.Task[object]] = []
        for i in range(200):
            tasks.append(asyncio.create_task(producer.send("t", b"%04d" % i + b"." * 20_000)))
            if i % 3:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        await producer.flush()
    values = [int((value or b"")[:4]) for value in cluster.logs["t", 0].values()]
    assert values == list(range(200))


async def test_a_send_that_is_cancelled_has_sent_nothing() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"a" * 100_000))
        task = asyncio.create_task(producer.send("t", b"b"))
        await asyncio.sleep(0)
        assert not task.done(), "a busy loop lets others have their turn"
        task.cancel()
        await asyncio.wait({task})
        await producer.flush()
    assert [len(value or b"") for value in cluster.logs["t", 0].values()] == [100_000]


@pytest.mark.parametrize(("acks", "offset"), [(1, 0), (0, -1)])
async def test_weaker_acks(acks: int, offset: int) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster, acks=acks) as producer:
        assert (await (await producer.send("t", b"v"))).offset == offset
        await until(lambda: bool(cluster.nodes[1].produced))
    assert cluster.nodes[1].produced[0].acks == acks
    assert parse_header(cluster.logs["t", 0].batches[0]).producer_id == -1


async def test_bad_input_is_refused_at_once() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster, max_request_bytes=1000, delivery_timeout_ms=50) as producer:
        with pytest.raises(RecordTooLargeError, match=r"t: a record of up to 1097 bytes.*max.request.bytes is 1000"):
            await producer.send("t", b"x" * 1000)
        with pytest.raises(TypeError, match=r"value is .*\(str\); expected bytes"):
            await producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(UnknownTopicOrPartitionError, match="t has 2 partitions"):
            await producer.send("t", b"v", partition=2)
        with pytest.raises(UnknownTopicOrPartitionError, match=r'topic "nope" does not exist.*topics create'):
            await producer.send("nope", b"v")
    with pytest.raises(BrokerClosedError):
        await producer.send("t", b"v")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"acks": 2}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "enable.idempotence"),
        ({"max_in_flight_per_partition": 6}, "max.in.flight.per.partition"),
        ({"batch_size_bytes": 0}, "batch.size.bytes"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Producer("127.0.0.1:1", transport=MemoryTransport(FakeCluster()), **settings)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:0", "localhost:abc", ":9092"])
def test_bad_bootstrap_servers_are_refused(servers: str) -> None:
    with pytest.raises(ConfigError):
        Producer(servers, transport=MemoryTransport(FakeCluster()))


async def test_nobody_listens() -> None:
    cluster = FakeCluster()
    cluster.nodes[1].is_down = True
    with pytest.raises(RequestTimedOutError, match=r"connect to 127.0.0.1:10001: .*refused"):
        async with make(cluster, connect_timeout_ms=300):
            pass


@pytest.mark.parametrize("how", ["send", "send_many", "send_columns"])
async def test_a_partition_that_was_just_added_is_waited_for(how: str) -> None:
    """Its producer may not have heard of it, though whoever has added it has."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send("t", b"v"))
        ways: dict[str, Coroutine[Any, Any, Delivery | BulkDelivery]] = {
            "send": producer.send("t", b"w", partition=1),
            "send_many": producer.send_many("t", [b"w"], partition=1),
            "send_columns": producer.send_columns(
                "t", decode_columns(encode_batch([(0, None, b"w", ())]), with_headers=True), partitions=b"\1\0\0\0"
            ),
        }
        sending = asyncio.create_task(ways.pop(how))
        for other in ways.values():
            other.close()
        for _ in range(10):
            await asyncio.sleep(0)
        cluster.add_partition("t")
        await (await sending)
    assert cluster.logs["t", 1].values() == [b"w"]


@pytest.mark.parametrize(("topic", "partition"), [("u", None), ("t", 1)])
async def test_a_broker_that_is_cut_off_does_not_say_for_good_that_there_is_no_topic(
    topic: str, partition: int | None
) -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    cluster.nodes[1].cut_off(knows_it=True)
    cluster.create_topic("u")
    cluster.add_partition("t")
    async with make(cluster, delivery_timeout_ms=50) as producer:
        with pytest.raises(BrokerNotAvailableError, match="they know of no controller: that may have changed since"):
            await producer.send(topic, b"v", partition=partition)
        cluster.nodes[1].hear_again()
        await (await producer.send(topic, b"v", partition=partition))


async def test_a_deleted_topic_fails_what_is_on_its_way() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].is_silent = True
    async with make(cluster) as producer:
        delivery = await producer.send("t", b"v")
        await until(lambda: bool(cluster.nodes[1].produced))
        cluster.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            await delivery


async def test_flush_and_close_report_failures_that_nobody_saw() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].script.extend([answer(ErrorCode.MESSAGE_TOO_LARGE)] * 2)
    producer = make(cluster)
    await producer.start()
    await producer.send("t", b"v")
    with pytest.raises(RecordTooLargeError):
        await producer.flush()
    await producer.flush()
    await producer.send("t", b"v")
    with pytest.raises(RecordTooLargeError):
        await producer.close()
    await producer.close()


async def test_close_in_a_hurry_fails_what_is_left() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].is_silent = True
    producer = make(cluster)
    await producer.start()
    delivery = await producer.send("t", b"v")
    await producer.close(timeout_ms=0)
    with pytest.raises(BrokerClosedError, match="before the records were acknowledged"):
        await delivery


async def test_leaving_takes_no_longer_than_the_limit_that_is_set() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.nodes[1].is_silent = True
    with pytest.raises(BrokerClosedError, match="before the records were acknowledged"):
        async with (
            asyncio.timeout(60),
            make(cluster, close_timeout_ms=20) as producer,
        ):  # of 120 s by the delivery time-out
            await producer.send("t", b"v")
    with pytest.raises(ConfigError, match=r"close.timeout.ms is -1"):
        make(cluster, close_timeout_ms=-1)


async def test_another_cluster_at_the_address_is_refused() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    async with make(cluster) as producer:
        cluster.cluster_id = "another"
        with pytest.raises(InconsistentClusterIdError):
            await producer._view.describe(1000)
        cluster.cluster_id = "fake-cluster"


async def test_a_cancelled_waiter_does_not_cancel_the_batch() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    node = cluster.nodes[1]
    node.hold_replies = True
    async with make(cluster) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await delivery
        await until(lambda: bool(node.held))
        await node.release_held()
        assert (await delivery).offset == 0
