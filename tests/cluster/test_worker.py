"""Workers: what is handled, how often, in which order, and what is committed, whatever happens to handlers and processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path

import pytest

import replog
from replog import Admin, Consumer, Producer, Worker
from replog.cli.app import run
from replog.client import ConsumerRecord, TopicPartition
from replog.errors import ConfigError, GroupIdNotFoundError, HandlerFailedError, UnknownTopicOrPartitionError
from replog.worker import DeadLetter, replaying
from replog.worker.threads import DaemonThreads
from tests.lint import page_examples
from tests.quiet import quiet_for

DEADLINE_S = 60

SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.heartbeat.interval.ms": 500,
}
"""So that a member that was killed is missed soon."""


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded(config=SHORT_SESSIONS) as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topic("jobs", 2)
            await admin.create_topic("dead", 1)
        yield broker.bootstrap_servers


async def fill(servers: str, count: int, key: Callable[[int], bytes | None] = lambda _: None) -> None:
    async with Producer(servers) as producer:
        for number in range(count):
            await producer.send("jobs", b"%d" % number, key(number), number % 2)


async def committed(servers: str) -> dict[int, int]:
    """The offsets of the group by partition; none while there is no such group."""
    async with Admin(servers) as admin:
        try:
            return {place.partition: offset for place, offset in (await admin.group_offsets("workers")).items()}
        except GroupIdNotFoundError:
            return {}


async def work(worker: Worker, until: Callable[[], bool]) -> None:
    """Runs a worker until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run())
        while not until() and not running.done():
            await asyncio.sleep(0.01)
        worker.stop()
        await running


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_each_record_is_handled_in_order_and_committed(servers: str, kind: str) -> None:
    seen: list[tuple[int, int]] = []

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        seen.append((record.partition, record.offset))

    def handle_blocking(record: ConsumerRecord) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append((record.partition, record.offset))

    await fill(servers, 2_000)
    worker = Worker(
        handle if kind == "async" else handle_blocking,
        "jobs",
        group="workers",
        bootstrap_servers=servers,
        concurrency=2,
    )
    await work(worker, lambda: len(seen) == 2_000)
    for partition in (0, 1):
        assert [offset for of, offset in seen if of == partition] == list(range(1_000))
    assert await committed(servers) == {0: 1_000, 1: 1_000}


async def test_records_of_a_key_are_handled_one_after_the_other_and_others_beside_them(servers: str) -> None:
    running: dict[tuple[int, bytes | None], int] = {}
    seen: dict[tuple[int, bytes | None], list[int]] = {}
    most_of_a_key = widest = 0

    async def handle(record: ConsumerRecord) -> None:
        nonlocal most_of_a_key, widest
        lane = (record.partition, record.key)
        running[lane] = running.get(lane, 0) + 1
        widest = max(widest, sum(running.values()))
        if record.key is not None:
            most_of_a_key = max(most_of_a_key, running[lane])
        await asyncio.sleep(0.001)
        running[lane] -= 1
        seen.setdefault(lane, []).append(int(record.value or b""))

    await fill(servers, 300, lambda n: None if n % 10 == 0 else b"k%d" % (n % 7))
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, concurrency=8, order="key")
    await work(worker, lambda: sum(map(len, seen.values())) == 300)
    assert (most_of_a_key, widest) == (1, 8)
    assert all(values == sorted(values) for (_, key), values in seen.items() if key is not None)
    assert await committed(servers) == {0: 150, 1: 150}


async def test_a_record_that_fails_is_tried_again_and_then_a_dead_letter(servers: str) -> None:
    calls: list[bytes | None] = []

    async def handle(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if record.value == b"4" or (record.value == b"6" and calls.count(b"6") < 3):
            raise ValueError("no such customer")

    await fill(servers, 20)
    worker = Worker(
        handle,
        ["jobs"],
        group="workers",
        bootstrap_servers=servers,
        retries=2,
        retry_backoff_ms=1,
        dead_letter_topic="dead",
    )
    await work(worker, lambda: len(set(calls)) == 20 and len(calls) == 24)
    assert calls.count(b"4") == 3
    assert calls.count(b"6") == 3
    assert await committed(servers) == {0: 10, 1: 10}
    async with Consumer(servers) as consumer:
        await consumer.assign_topic("dead")
        (dead,) = await consumer.poll(timeout_ms=5_000)
    assert dead.value == b"4"
    found = DeadLetter.from_headers(dead.headers)
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.group) == ("jobs", 0, 2, "workers")
    assert (found.error, found.attempts) == ("ValueError: no such customer", 3)


async def test_without_a_topic_for_dead_letters_the_worker_ends_and_the_record_stays(servers: str) -> None:
    async def handle(record: ConsumerRecord) -> None:
        if record.value == b"4":
            raise ValueError("no such customer")

    await fill(servers, 20)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, retries=0)
    with pytest.raises(
        HandlerFailedError, match="jobs-0 offset 2, 1 times, last with ValueError: no such customer"
    ) as raised:
        await work(worker, lambda: False)
    assert raised.value.offset == 2
    assert (await committed(servers))[0] == 2


async def test_stopping_waits_for_handlers_and_leaves_the_rest(servers: str) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    offsets: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        offsets.append(record.offset)
        began.set()
        await ended.wait()

    await fill(servers, 100)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run())
        await began.wait()
        worker.stop()
        await quiet_for(0.3)
        assert not running.done()
        ended.set()
        await running
    assert offsets == [0]
    assert list((await committed(servers)).values()) == [1]


async def test_a_handler_that_hangs_does_not_hold_the_end(servers: str) -> None:
    release = threading.Event()
    began = []

    def handle(record: ConsumerRecord) -> None:
        began.append(record.offset)
        release.wait(DEADLINE_S)

    await fill(servers, 2)
    await work(
        Worker(handle, "jobs", group="workers", bootstrap_servers=servers, drain_timeout_ms=50), lambda: bool(began)
    )
    release.set()
    assert await committed(servers) == {}


async def test_two_workers_share_and_no_record_is_handled_twice(servers: str) -> None:
    """What runs when a partition goes is waited for, and what is done is committed before another worker has it."""
    seen: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}

    def handler(name: str) -> Callable[[ConsumerRecord], Awaitable[None]]:
        async def handle(record: ConsumerRecord) -> None:
            await asyncio.sleep(0.01 if seen["second"] else 0.1)
            seen[name].append((record.partition, record.offset))

        return handle

    async with Admin(servers) as admin:
        await admin.create_topic("wide", 8)
    async with Producer(servers) as producer:
        for number in range(
            480
        ):  # all of them wait in one worker, so that each partition has a record at work when it goes
            await producer.send("wide", b"%d" % number, partition=number % 8)
    first, second = (
        Worker(handler(name), "wide", group="workers", bootstrap_servers=servers, concurrency=8) for name in seen
    )
    async with asyncio.timeout(DEADLINE_S):
        one = asyncio.create_task(first.run())
        while len(seen["first"]) < 16:
            await asyncio.sleep(0.01)
        two = asyncio.create_task(second.run())
        while len(seen["second"]) < 20:
            await asyncio.sleep(0.01)
        first.stop()
        await one
        while len({*seen["first"], *seen["second"]}) < 480:
            await asyncio.sleep(0.01)
        second.stop()
        await two
    assert len(seen["first"]) + len(seen["second"]) == 480
    assert await committed(servers) == dict.fromkeys(range(8), 60)


async def test_a_long_handler_stays_a_member(servers: str) -> None:
    """With all places taken and the buffer full, the worker still attends its group."""
    seen: list[tuple[int, int]] = []
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handle(record: ConsumerRecord) -> None:
        if not hold.is_set() and not seen:
            loop.call_later(3, hold.set)
        await hold.wait()
        seen.append((record.partition, record.offset))

    await fill(servers, 3_000)
    worker = Worker(
        handle, "jobs", group="workers", bootstrap_servers=servers, consumer_settings={"max_poll_interval_ms": 1_000}
    )
    await work(worker, lambda: len(set(seen)) == 3_000)
    assert len(seen) == 3_000
    assert await committed(servers) == {0: 1_500, 1: 1_500}


async def test_a_misspelt_topic_is_told_at_once(servers: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="ded"):
        await Worker(print, "jobs", group="workers", bootstrap_servers=servers, dead_letter_topic="ded").run()
    with pytest.raises(UnknownTopicOrPartitionError, match="jbos"):
        await Worker(print, "jbos", group="workers", bootstrap_servers=servers).run()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"concurrency": 0}, ConfigError),
        ({"order": "topic"}, ConfigError),
        ({"retries": -1}, ConfigError),
        ({"dead_letter_topic": "jobs"}, ConfigError),
        ({"consumer_settings": {"group_id": "x"}}, ConfigError),
        ({"group": None}, TypeError),
        ({"handler": "print"}, TypeError),
    ],
)
def test_a_wrong_argument_is_refused(wrong: dict[str, object], error: type[Exception]) -> None:
    given: dict[str, object] = {"handler": print, "topics": "jobs", "group": "workers", **wrong}
    with pytest.raises(error):
        Worker(**given)  # type: ignore[arg-type]


PROGRAM = """
import sys, time
import replog

def handle(record):
    print(record.value.decode(), flush=True)
    time.sleep(0.3)
    print("done", flush=True)

replog.run(handler=handle, topics="jobs", group="workers", bootstrap_servers=sys.argv[1])
print("ended in order", flush=True)
"""


async def test_the_program_of_the_page_and_its_dead_letters(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It charges what it can; what it cannot is listed, shown, and written back once."""

    def cli(*words: str) -> list[str]:
        assert run([*words, "-b", servers]) == 0
        return capsys.readouterr().out.splitlines()

    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topic("orders")
        await admin.create_topic("orders-dead")
        await producer.send("orders", b"no order", b"t1", headers=[("from", b"bar")])
        await producer.send("orders", b'{"table": 7, "total": 12}', b"t7")
    block = page_examples.blocks("docs/WORKERS.md")[0]
    program = tmp_path / "program.py"
    program.write_text(block.replace("127.0.0.1:9092", servers).replace("order=", "retries=0, order="))
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S), Consumer(servers) as consumer:
        assert await process.stdout.readline() == b"charged 12 to 7\n"
        await consumer.assign_topic("orders-dead")
        await consumer.getone()
        process.terminate()
        assert await process.wait() == 0
    error = "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert await asyncio.to_thread(cli, "dlq", "list", "orders-dead") == [f"       1  orders (group billing)  {error}"]
    shown = await asyncio.to_thread(cli, "dlq", "show", "orders-dead", "--max", "1")
    assert shown[0].startswith("0/0  orders-0 offset 0 of 2")
    assert shown[0].endswith(f"group billing, 1 attempt: {error}")
    assert shown[1] == '    key "t1"  value "no order"'
    replay = ("dlq", "replay", "orders-dead")
    assert await asyncio.to_thread(cli, *replay, "--dry-run") == ["1 record would be written to orders"]
    assert await asyncio.to_thread(cli, *replay) == ["1 record written to orders"]
    assert await asyncio.to_thread(cli, *replay) == ["orders-dead has no dead letters that were not replayed before"]
    async with Consumer(servers) as consumer:
        await consumer.assign([("orders", 0)])
        await consumer.seek_to("latest-1")
        again = await consumer.getone()
    assert (again.key, again.value, again.headers) == (b"t1", b"no order", (("from", b"bar"),))


async def test_a_replay_of_dead_letters_that_gets_none_ends_with_the_reason(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: where another member of its group had all partitions, it waited for ever, without a word."""
    monkeypatch.setattr(replaying, "GROUP_TIMEOUT_S", 0.0)
    async with (
        Admin(servers) as admin,
        Consumer(servers, group_id=replaying.REPLAY_GROUP, auto_offset_reset="earliest") as other,
    ):
        await admin.create_topic("orders-dead")
        await other.subscribe(["orders-dead"])
        async with asyncio.timeout(DEADLINE_S):
            while not other.assignment():
                await other.poll(timeout_ms=10)
            assert await asyncio.to_thread(run, ["dlq", "replay", "orders-dead", "-b", servers]) == 1
    assert "another member of group replog-dlq-replay has had all partitions of orders-dead" in capsys.readouterr().err


def test_a_replay_names_the_partitions_that_give_nothing() -> None:
    unread = [TopicPartition("dead", number) for number in (4, 0, 2, 1)]
    assert replaying._silence("dead", unread, unread, replaying.TIMEOUT_S) == ""
    assert replaying._silence("dead", unread, (), 10 * replaying.TIMEOUT_S) == ""
    told = replaying._silence("dead", unread, unread, replaying.TIMEOUT_S + 1)
    assert told.startswith("no dead letter of dead-0, dead-1, dead-2 and others came for 11 s")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_ends_in_order_at_a_signal(servers: str, tmp_path: Path, number: signal.Signals) -> None:
    await fill(servers, 10)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), servers, stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        await process.stdout.readline()
        process.send_signal(number)
        told = await process.stdout.read()
        assert await process.wait() == 0
    assert told.splitlines() == [b"done", b"ended in order"]
    assert sum((await committed(servers)).values()) == 1


async def test_a_program_that_is_killed_leaves_its_record_to_another(servers: str, tmp_path: Path) -> None:
    await fill(servers, 4)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), servers, stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        first = int(await process.stdout.readline())
        process.kill()
        await process.wait()
    seen: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        seen.append(int(record.value or b""))

    await work(Worker(handle, "jobs", group="workers", bootstrap_servers=servers), lambda: len(seen) == 4)
    assert sorted(seen) == [0, 1, 2, 3]
    assert first in seen


async def test_what_a_plain_function_returns_to_be_awaited_is_awaited(servers: str) -> None:
    """Such as a lambda around an `async` function: the record is not done with before."""
    seen: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        seen.append(record.offset)

    await fill(servers, 10)
    worker = Worker(lambda record: handle(record), "jobs", group="workers", bootstrap_servers=servers)  # noqa: PLW0108
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run())
        while await committed(servers) != {0: 5, 1: 5}:
            await asyncio.sleep(0.05)
        worker.stop()
        await running
    assert sorted(seen) == sorted([*range(5), *range(5)])


async def test_a_handler_that_waits_for_what_was_cancelled_has_failed(servers: str) -> None:
    """Its own CancelledError ends no lane: the record is handled again, and those behind it wait."""
    seen: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        if record.offset == 1 and 1 not in seen:
            seen.append(1)
            raise asyncio.CancelledError
        seen.append(record.offset)

    async with Producer(servers) as producer:
        for number in range(4):
            await producer.send("jobs", b"%d" % number, partition=0)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, retry_backoff_ms=1)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run())
        while len(seen) < 5:
            await asyncio.sleep(0.01)
        worker.stop()
        await running
    assert seen == [0, 1, 1, 2, 3]
    assert await committed(servers) == {0: 4}


async def test_the_end_waits_once_for_a_handler_that_hangs(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    began = asyncio.Event()

    async def handle(_: ConsumerRecord) -> None:
        began.set()
        await asyncio.Event().wait()

    await fill(servers, 1)
    await work(Worker(handle, "jobs", group="workers", bootstrap_servers=servers, drain_timeout_ms=50), began.is_set)
    assert sum("still run after" in line for line in caplog.messages) == 1


async def test_who_cancels_the_end_does_not_wait_for_handlers(servers: str) -> None:
    began = asyncio.Event()

    async def handle(_: ConsumerRecord) -> None:
        began.set()
        await asyncio.Event().wait()

    await fill(servers, 1)
    worker = Worker(handle, "jobs", group="workers", bootstrap_servers=servers, drain_timeout_ms=3_600_000)
    async with asyncio.timeout(20):
        running = asyncio.create_task(worker.run())
        await began.wait()
        worker.stop()
        await quiet_for(0.3)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(0)
    assert running.cancelled()
    assert not [task for task in asyncio.all_tasks() if "_commit_now_and_then" in str(task.get_coro())]


async def test_a_large_record_and_an_error_that_is_no_unicode_become_a_dead_letter(servers: str) -> None:
    async def handle(_: ConsumerRecord) -> None:
        raise ValueError("bad name \udc80")

    async with Admin(servers) as admin, Producer(servers, max_request_bytes=4 << 20) as producer:
        for name in ("large", "large-dead"):
            await admin.create_topic(name, configs={"max.message.bytes": 4 << 20})
        await producer.send("large", bytes(2 << 20))
    worker = Worker(
        handle, "large", group="workers", bootstrap_servers=servers, retries=0, dead_letter_topic="large-dead"
    )
    async with asyncio.timeout(DEADLINE_S), Consumer(servers) as consumer:
        running = asyncio.create_task(worker.run())
        await consumer.assign_topic("large-dead")
        reading = asyncio.create_task(consumer.getone())
        await asyncio.wait([running, reading], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await running
        dead = await reading
    found = DeadLetter.from_headers(dead.headers)
    assert dead.value == bytes(2 << 20)
    assert found is not None
    assert found.error == "ValueError: bad name \\udc80"


async def test_a_thread_that_cannot_start_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = DaemonThreads(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await threads.run(lambda: None)
    async with asyncio.timeout(DEADLINE_S):
        await threads.run(lambda: None)
    threads.close()


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_a_handler_that_ends_the_program_ends_it_in_order(servers: str, kind: str) -> None:
    def handle_blocking(record: ConsumerRecord) -> None:
        if record.offset == 2:
            sys.exit(7)

    async def handle(record: ConsumerRecord) -> None:
        handle_blocking(record)

    async with Producer(servers) as producer:
        for number in range(4):
            await producer.send("jobs", b"%d" % number, partition=0)
    worker = Worker(handle if kind == "async" else handle_blocking, "jobs", group="workers", bootstrap_servers=servers)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(SystemExit, match="7"):
            await worker.run()
    assert await committed(servers) == {0: 2}


async def test_a_handler_that_cancels_its_own_task_is_told(servers: str) -> None:
    """Else its lane would end in silence, with all records behind it."""

    async def handle(_record: ConsumerRecord) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await fill(servers, 4)
    with pytest.raises(RuntimeError, match="a handler has cancelled the task that calls it"):
        await work(Worker(handle, "jobs", group="workers", bootstrap_servers=servers), lambda: False)
    assert await committed(servers) == {}


async def test_a_blocking_handler_sees_the_context_of_its_worker(servers: str) -> None:
    trace: ContextVar[str] = ContextVar("trace")
    trace.set("of the caller")
    seen: list[str] = []
    await fill(servers, 2)
    worker = Worker(lambda _: seen.append(trace.get("none")), "jobs", group="workers", bootstrap_servers=servers)
    await work(worker, lambda: len(seen) == 2)
    assert seen == ["of the caller"] * 2
