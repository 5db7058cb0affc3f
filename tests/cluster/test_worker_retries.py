"""Workers that try failed records later, in topics of retries, and what their observers hear."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from embedded_group_kit import QUICK, until
from prometheus_client import REGISTRY
from test_worker import committed, fill, work

import replog
from replog import Admin, Consumer, Producer, Worker
from replog.client import ConsumerRecord
from replog.client.groups.consumer_membership import LEAVING_EPOCH
from replog.client.groups.coordinator import Coordinator
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.errors import ConfigError, HandlerFailedError, UnknownTopicOrPartitionError
from replog.records import TimestampType
from replog.worker import DeadLetter, WorkerObserver
from tests.lint import page_examples

pytestmark = pytest.mark.cluster

RETRIES = ["jobs.retry.1", "jobs.retry.2"]
HOUR_S = 3_600


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded(config=QUICK) as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topic("jobs", 2)
            for topic in (*RETRIES, "dead"):
                await admin.create_topic(topic, 1)
        yield broker.bootstrap_servers


class Counting(WorkerObserver):
    """Counts what it hears, and fails at the first record that was handled."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    def on_handled(self, record: ConsumerRecord, seconds: float) -> None:
        assert seconds >= 0
        self.heard["handled"] += 1
        if self.heard["handled"] == 1:
            raise RuntimeError("no such metric")

    def on_failed(self, record: ConsumerRecord, error: BaseException, seconds: float) -> None:
        self.heard[f"{record.topic} failed: {error}"] += 1

    def on_moved(self, record: ConsumerRecord, error: BaseException, topic: str) -> None:
        self.heard[f"to {topic}"] += 1


async def test_a_record_that_fails_is_tried_later_and_at_last_a_dead_letter(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: dict[bytes | None, list[str]] = {}

    async def handle(record: ConsumerRecord) -> None:
        calls.setdefault(record.value, []).append(record.topic)
        if record.value == b"4" or (record.value == b"6" and record.topic == "jobs"):
            raise ValueError("busy")

    await fill(servers, 20)
    observer = Counting()
    worker = Worker(
        handle, "jobs", group="workers", bootstrap_servers=servers, retries=0, retry_delays=[0.1, 0.1], dead_letter_topic="dead",
        observer=observer,
    )  # fmt: skip
    await work(worker, lambda: observer.heard["to dead"] == 1 and observer.heard["handled"] == 19)
    assert calls.pop(b"4") == ["jobs", *RETRIES]
    assert calls.pop(b"6") == ["jobs", "jobs.retry.1"]
    assert set(map(tuple, calls.values())) == {("jobs",)}
    failed = {"jobs failed: busy": 2, "jobs.retry.1 failed: busy": 1, "jobs.retry.2 failed: busy": 1}
    assert observer.heard == failed | {"handled": 19, "to jobs.retry.1": 2, "to jobs.retry.2": 1, "to dead": 1}
    assert sum("observer failed" in line for line in caplog.messages) == 1
    async with Consumer(servers) as consumer:
        await consumer.assign_topic("dead")
        (dead,) = await consumer.poll(timeout_ms=5_000)
    found = DeadLetter.from_headers(dead.headers)
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.attempts) == ("jobs", 0, 2, 3)


async def test_a_retry_that_is_not_due_holds_up_its_partition_alone(servers: str) -> None:
    """Not for longer than its delay from now either, whatever the clock of its writer said."""
    now_ms = int(time.time() * 1_000)
    seen: list[tuple[str, int]] = []
    async with Producer(servers) as producer:
        for age_s in (2 * HOUR_S, HOUR_S, 0, 2 * HOUR_S):
            await producer.send("jobs.retry.1", b"later", timestamp_ms=now_ms - age_s * 1_000)
    await fill(servers, 2_000)
    worker = Worker(
        lambda record: seen.append((record.topic, record.offset)),
        "jobs", group="workers", bootstrap_servers=servers, retry_delays=[HOUR_S, HOUR_S], concurrency=3,
    )  # fmt: skip
    await work(worker, lambda: len(seen) == 2_002)
    assert [offset for topic, offset in seen if topic == "jobs.retry.1"] == [0, 1]
    async with Admin(servers) as admin:
        assert sorted((await admin.group_offsets("workers")).values()) == [2, 1_000, 1_000]


async def test_without_dead_letters_the_worker_ends_after_the_last_retry(servers: str) -> None:
    def handle(record: ConsumerRecord) -> None:
        raise ValueError("busy")

    await fill(servers, 1)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, retries=0, retry_delays=[0, 0])
    with pytest.raises(HandlerFailedError, match=r"jobs\.retry\.2-0 offset 0, 3 times, last with ValueError: busy"):
        await asyncio.wait_for(worker.run(), 60)
    async with Admin(servers) as admin:
        assert await admin.group_offsets("workers") == {("jobs", 0): 1, ("jobs.retry.1", 0): 1}


async def test_a_member_that_was_put_out_handles_again_what_it_has_not_committed(servers: str) -> None:
    """Goal: what it still works on is of a former assignment, and says nothing of the one that it has afterwards."""
    calls: list[bytes | None] = []
    may_end = asyncio.Event()

    async def handle(record: ConsumerRecord) -> None:
        calls.append(record.value)
        await may_end.wait()

    await fill(servers, 2)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, concurrency=4)
    async with Admin(servers) as admin:
        running = asyncio.create_task(worker.run())
        await until(lambda: len(calls) == 2)
        (member,) = (await admin.describe_groups(["workers"]))["workers"].members
        await Coordinator(admin._view, "workers").call(ConsumerHeartbeat("workers", member.member_id, LEAVING_EPOCH))
        await until(lambda: sum(map(len, worker._lanes.values())) == 2)  # handed out again, behind what still runs
        may_end.set()
        await until(lambda: len(calls) == 4)
        worker.stop()
        await running
    assert sorted(calls) == [b"0", b"0", b"1", b"1"]  # type: ignore[type-var]
    assert await committed(servers) == {0: 1, 1: 1}


async def test_the_metrics_of_the_page_count() -> None:
    names: dict[str, Any] = {}
    exec(page_examples.blocks("docs/WORKERS.md")[2], names)
    observer: WorkerObserver = names["Metrics"]()
    record = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, None, ())
    observer.on_handled(record, 2.5)
    observer.on_failed(record, ValueError("busy"), 1.0)
    observer.on_moved(record, ValueError("busy"), "dead")
    found = [
        REGISTRY.get_sample_value("orders_handled_seconds_sum"),
        REGISTRY.get_sample_value("orders_failed_total", {"error": "ValueError"}),
        REGISTRY.get_sample_value("orders_moved_total", {"topic": "dead"}),
    ]
    assert found == [2.5, 1, 1]


async def test_what_cannot_be_is_told_before_a_record_is_handled(servers: str) -> None:
    settings = {"group": "workers", "bootstrap_servers": servers}
    for delays in (["soon"], [-1], [1] * 17, "10", [8 * 86_400]):
        with pytest.raises(ConfigError, match=r"retry\.delays"):
            Worker(print, "jobs", retry_delays=delays, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="would come back at once"):
        Worker(print, "jobs", retry_delays=[1], dead_letter_topic="jobs.retry.1", **settings)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"jobs\.retry\.3"):
        await Worker(print, "jobs", retry_delays=[1, 1, 1], **settings).run()  # type: ignore[arg-type]
