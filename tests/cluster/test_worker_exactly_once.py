"""Workers that commit results and offsets together: what a reader of committed records sees, whatever happens to handlers and workers."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from embedded_group_kit import until
from test_worker import SHORT_SESSIONS, fill, work

import replog
from replog import Admin, Consumer, Producer, Worker
from replog.client import ConsumerRecord
from replog.client.groups.consumer_membership import LEAVING_EPOCH
from replog.client.groups.coordinator import Coordinator
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.errors import GroupIdNotFoundError, HandlerFailedError, ProducerFencedError
from replog.worker import DeadLetter, Results
from replog.worker.commits import TransactionCommits
from tests.lint import page_examples

pytestmark = pytest.mark.cluster

DEADLINE_S = 120


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded(config=SHORT_SESSIONS) as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topic("jobs", 2)
            for topic in ("jobs.retry.1", "dead"):
                await admin.create_topic(topic, 1)
            await admin.create_topic("out", 2, configs={"max.message.bytes": 100_000})
        yield broker.bootstrap_servers


async def read_all(servers: str, topic: str) -> list[ConsumerRecord]:
    """The committed records of a topic, by partition and in order."""
    async with Producer(servers) as producer:  # behind the last of them, also behind an open transaction
        partitions = await producer.partitions_for(topic)
        ends = [await producer.send_and_wait(topic, b"", b"end", partition) for partition in partitions]
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S), Consumer(servers) as consumer:
        await consumer.assign_topic(topic)
        while any(consumer.position((topic, end.partition)) <= end.offset for end in ends):
            found += await consumer.poll()
    return sorted((record for record in found if record.key != b"end"), key=lambda each: (each.partition, each.offset))


def copying(record: ConsumerRecord, results: Results) -> None:
    results.send("out", record.value, partition=record.partition)


def worker(servers: str, handler: Callable[[ConsumerRecord, Results], Any], **settings: Any) -> Worker:
    return Worker(handler, "jobs", group="workers", bootstrap_servers=servers, exactly_once=True, **settings)


async def committed(servers: str) -> dict[int, int]:
    """The offsets of "jobs" that the group has committed; none while there is no such group."""
    async with Admin(servers) as admin:
        try:
            found = await admin.group_offsets("workers")
        except GroupIdNotFoundError:
            return {}
    return {place.partition: offset for place, offset in found.items() if place.topic == "jobs"}


async def is_committed(servers: str, offsets: dict[int, int]) -> None:
    while await committed(servers) != offsets:
        await asyncio.sleep(0.05)


async def work_until(worker: Worker, condition: Any) -> None:
    """Runs a worker until something has been waited for."""
    async with asyncio.timeout(DEADLINE_S):
        running, waiting = asyncio.create_task(worker.run()), asyncio.ensure_future(condition)
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await running
        if waiting.done():
            waiting.result()
        waiting.cancel()


@pytest.mark.parametrize("order", ["partition", "key"])
async def test_each_record_has_its_results_once_also_where_attempts_fail(servers: str, order: str) -> None:
    """What an attempt has sent that has failed is in no log; a dead letter is committed with the offset."""
    calls: Counter[bytes | None] = Counter()

    async def handle(record: ConsumerRecord, results: Results) -> None:
        calls[record.value] += 1
        results.send("out", record.value, record.key)
        await asyncio.sleep(0)
        if record.value == b"4" or (record.value == b"6" and calls[b"6"] < 3):
            raise ValueError("busy")
        results.send("out", record.value, record.key)

    await fill(servers, 200, lambda number: b"k%d" % (number % 7))
    given = worker(servers, handle, order=order, concurrency=4, retries=2, retry_backoff_ms=1, dead_letter_topic="dead")
    await work_until(given, is_committed(servers, {0: 100, 1: 100}))
    written = Counter(int(record.value or b"") for record in await read_all(servers, "out"))
    assert written == {number: 2 for number in range(200) if number != 4}
    (dead,) = await read_all(servers, "dead")
    letter = DeadLetter.from_headers(dead.headers)
    assert letter is not None
    assert (dead.value, letter.offset, letter.attempts) == (b"4", 2, 3)


async def test_a_retry_that_is_delayed_is_committed_with_its_offset(servers: str) -> None:
    """And so is what comes of it."""
    tried = 0

    async def handle(record: ConsumerRecord, results: Results) -> None:
        nonlocal tried
        results.send("out", record.value)
        if record.topic == "jobs":
            raise ValueError("busy")
        tried += 1

    await fill(servers, 20)
    await work(worker(servers, handle, retries=0, retry_delays=[0.1]), lambda: tried == 20)
    assert await committed(servers) == {0: 10, 1: 10}
    assert Counter(int(record.value or b"") for record in await read_all(servers, "out")) == Counter(range(20))


async def test_a_result_that_cannot_be_written_is_its_records_failure(servers: str) -> None:
    """It does not abort what others have done."""

    def handle(record: ConsumerRecord, results: Results) -> None:
        results.send("uot" if record.value == b"4" else "out", record.value, partition=5 if record.value == b"6" else 0)

    await fill(servers, 20)
    given = worker(servers, handle, retries=0, dead_letter_topic="dead")
    await work_until(given, is_committed(servers, {0: 10, 1: 10}))
    assert sorted(int(record.value or b"") for record in await read_all(servers, "dead")) == [4, 6]
    assert len(await read_all(servers, "out")) == 18


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_result_that_is_too_large_for_its_topic_is_its_records_failure(servers: str, compression: str) -> None:
    """By its size as it is written: zeros are small once they are compressed."""
    random_bytes = random.Random(6).randbytes(200_000)

    def handle(record: ConsumerRecord, results: Results) -> None:
        large = {b"4": bytes(200_000), b"6": random_bytes}
        results.send("out", large.get(record.value or b"", b"small"))

    await fill(servers, 20)
    settings: dict[str, Any] = {"producer_settings": {"compression": compression}}
    await work_until(
        worker(servers, handle, retries=1, retry_backoff_ms=1, dead_letter_topic="dead", **settings),
        is_committed(servers, {0: 10, 1: 10}),
    )
    letters = [DeadLetter.from_headers(each.headers) for each in await read_all(servers, "dead")]
    assert [each.attempts for each in letters if each] == [2] * (1 if compression == "gzip" else 2)
    assert all(each and "max.message.bytes" in each.error for each in letters)
    assert len(await read_all(servers, "out")) == 20 - len(letters)


async def test_a_result_without_the_key_that_its_topic_needs_is_its_records_failure(servers: str) -> None:
    """Every start would end at it again."""

    def handle(record: ConsumerRecord, results: Results) -> None:
        results.send("keyed", record.value, None if record.value == b"6" else record.value)

    async with Admin(servers) as admin:
        await admin.create_topic("keyed", 1, configs={"cleanup.policy": "compact"})
    await fill(servers, 20)
    given = worker(servers, handle, retries=0, dead_letter_topic="dead")
    await work_until(given, is_committed(servers, {0: 10, 1: 10}))
    (letter,) = await read_all(servers, "dead")
    told = DeadLetter.from_headers(letter.headers)
    assert (letter.value, told and "has no key" in told.error) == (b"6", True)


async def test_a_result_that_its_topic_refuses_is_its_records_failure(servers: str) -> None:
    """Also where only the broker can know it: by its clock, when the handler has returned."""

    def handle(record: ConsumerRecord, results: Results) -> None:
        results.send("strict", record.value, b"key", timestamp_ms=0 if record.value in {b"6", b"7"} else None)

    async with Admin(servers) as admin:
        await admin.create_topic("strict", 1, configs={"message.timestamp.before.max.ms": "60000"})
    await fill(servers, 20)
    with pytest.raises(HandlerFailedError, match=r"message\.timestamp\.before\.max\.ms"):
        async with asyncio.timeout(DEADLINE_S):
            await worker(servers, handle).run()
    given = worker(servers, handle, dead_letter_topic="dead")
    await work_until(given, is_committed(servers, {0: 10, 1: 10}))
    letters = await read_all(servers, "dead")
    told = [DeadLetter.from_headers(each.headers) for each in letters]
    assert sorted(each.value or b"" for each in letters) == [b"6", b"7"]
    assert all(each and each.attempts == 1 and "InvalidTimestampError" in each.error for each in told)
    written = Counter(int(record.value or b"") for record in await read_all(servers, "strict"))
    assert written == Counter(set(range(20)) - {6, 7})


async def test_a_commit_that_breaks_ends_the_worker(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises: the worker would handle on, and commit nothing any more."""

    is_broken = True

    async def broken(*_: object) -> bool:
        nonlocal is_broken
        if is_broken:
            is_broken = False  # the last commit, at the end, says nothing
            raise ZeroDivisionError("of ours, or of a library")
        return False

    monkeypatch.setattr(TransactionCommits, "commit", broken)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ZeroDivisionError):
            await worker(servers, copying).run()


async def test_a_worker_whose_transactional_id_another_has_ends(servers: str) -> None:
    given = worker(servers, copying, producer_settings={"transactional_id": "id"})
    await fill(servers, 20)

    async def fenced() -> None:
        await is_committed(servers, {0: 10, 1: 10})
        async with Producer(servers, transactional_id="id") as other, other.transaction():
            pass
        await fill(servers, 20)
        await asyncio.Event().wait()

    with pytest.raises(ProducerFencedError):
        await work_until(given, fenced())
    assert len(await read_all(servers, "out")) == sum((await committed(servers)).values()) == 20


async def test_the_last_results_are_committed_when_it_is_told_to_end(servers: str) -> None:
    """A handler that runs may end, and its results are there before another worker has the partition."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def handle(record: ConsumerRecord, results: Results) -> None:
        results.send("out", record.value)
        began.set()
        await ended.wait()

    await fill(servers, 20)
    given = worker(servers, handle)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(given.run())
        await began.wait()
        given.stop()
        asyncio.get_running_loop().call_later(0.2, ended.set)
        await running
    assert len(await read_all(servers, "out")) == sum((await committed(servers)).values()) == 1


async def test_a_member_that_was_put_out_commits_no_results(servers: str) -> None:
    """What it has not committed is handled again, by whoever has the partition then."""
    seen: Counter[bytes | None] = Counter()
    put_out = asyncio.Event()

    async def handle(record: ConsumerRecord, results: Results) -> None:
        results.send("out", record.value)
        seen[record.value] += 1
        if record.offset == 5:
            await put_out.wait()

    await fill(servers, 20)
    given = worker(servers, handle, concurrency=2)

    async def story() -> None:
        await until(lambda: sum(seen.values()) == 12)
        async with Admin(servers) as admin:
            (member,) = (await admin.describe_groups(["workers"]))["workers"].members
            await Coordinator(admin._view, "workers").call(
                ConsumerHeartbeat("workers", member.member_id, LEAVING_EPOCH)
            )
        put_out.set()
        await is_committed(servers, {0: 10, 1: 10})

    await work_until(given, story())
    assert Counter(int(record.value or b"") for record in await read_all(servers, "out")) == Counter(range(20))


async def test_the_program_of_the_page_bills_each_order_once(servers: str, tmp_path: Path) -> None:
    async with Admin(servers) as admin, Producer(servers) as producer:
        for topic in ("orders", "bills"):
            await admin.create_topic(topic)
        for number in range(10):
            await producer.send("orders", b"%d" % number, b"t7")
    program = tmp_path / "program.py"
    program.write_text(page_examples.blocks("docs/WORKERS.md")[1].replace("127.0.0.1:9092", servers))
    process = await asyncio.create_subprocess_exec(sys.executable, str(program))
    async with asyncio.timeout(DEADLINE_S), Consumer(servers) as consumer:
        await consumer.assign_topic("bills")
        for _ in range(10):
            await consumer.getone()
        process.terminate()
        assert await process.wait() == 0
    bills = [(record.key, record.value) for record in await read_all(servers, "bills")]
    assert bills == [(b"t7", b"bill of %d" % number) for number in range(10)]


PROGRAM = """
import sys, time
import replog

def handle(record, results):
    results.send("out", record.value, partition=record.partition)
    if record.offset % 10 == 0:
        time.sleep(0.005)

print("started", flush=True)
replog.run(
    handle, "jobs", group="workers", bootstrap_servers=sys.argv[1], exactly_once=True, concurrency=4,
    consumer_settings={"group_instance_id": sys.argv[2]} if sys.argv[2] else {},
    producer_settings={"transaction_timeout_ms": 2_000},
)
"""


async def copy_with_kills(servers: str, folder: Path, count: int, kills: int, rng: random.Random) -> None:
    """Two workers copy a topic, while now one and now the other is killed; each record is copied once, in order."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    is_static = rng.random() < 0.5
    running: list[asyncio.subprocess.Process] = []

    async def start(name: str) -> asyncio.subprocess.Process:
        words = (sys.executable, str(program), servers, name if is_static else "")
        return await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL)

    try:
        running += [await start("a"), await start("b")]
        async with asyncio.timeout(DEADLINE_S + 60 * kills):
            for _ in range(kills):
                await fill(servers, count // kills)
                before = sum((await committed(servers)).values())
                while sum((await committed(servers)).values()) <= before:
                    await asyncio.sleep(rng.random() / 10)
                victim = rng.randrange(2)
                running[victim].kill()
                await running[victim].wait()
                running[victim] = await start("ab"[victim])
            each = kills * (count // kills) // 2
            await is_committed(servers, {0: each, 1: each})
            for process in running:
                process.send_signal(signal.SIGTERM)
            assert [await process.wait() for process in running] == [0, 0]
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
                await process.wait()
    copied = {0: list[bytes | None](), 1: list[bytes | None]()}
    for record in await read_all(servers, "out"):
        copied[record.partition].append(record.value)
    given = {0: list[bytes | None](), 1: list[bytes | None]()}
    for record in await read_all(servers, "jobs"):
        given[record.partition].append(record.value)
    assert copied == given


async def test_workers_that_are_killed_copy_each_record_once(servers: str, tmp_path: Path) -> None:
    await copy_with_kills(servers, tmp_path, 4_000, 2, random.Random(1))


@pytest.mark.campaign
async def test_workers_that_are_killed_again_and_again_copy_each_record_once(servers: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    await copy_with_kills(servers, tmp_path, 20_000, 8, random.Random(seed))
