"""Results of handlers, and the transactions that they are committed in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import pytest

from replog.client import ConsumerRecord, TopicPartition
from replog.client.types import GroupMetadata, MemberOffset, MemberOffsets
from replog.errors import (
    CommitStaleError,
    ConfigError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTimestampError,
    ProducerFencedError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    UnknownTopicOrPartitionError,
)
from replog.records import TimestampType
from replog.worker import Results, Worker
from replog.worker import commits as commits_module
from replog.worker import worker as worker_module
from replog.worker.assigned import Assigned
from replog.worker.commits import TransactionCommits
from replog.worker.results import RESULTS_BYTES_MAX, ResultRecord, result_of
from tests.quiet import quiet_for

PLACE = TopicPartition("t", 0)


def result(value: bytes, topic: str = "out") -> ResultRecord:
    return result_of(topic, value, None, ())


def done(*offsets: int) -> Assigned:
    """A partition whose first records are done with, each with a result."""
    assigned = Assigned(PLACE)
    for offset in offsets:
        assigned.take(offset)
        assigned.finish(offset, [result(b"%d" % offset)])
    return assigned


class Member:
    """In the place of a consumer that has all partitions."""

    def member_offsets(self, offsets: Mapping[tuple[str, int], int] | None = None) -> MemberOffsets:
        found = {TopicPartition(*each): MemberOffset(offset) for each, offset in (offsets or {}).items()}
        return MemberOffsets(GroupMetadata("g", "m", 1, None), found)


class Log:
    """In the place of a producer: keeps what was committed, fails as it is told."""

    def __init__(self) -> None:
        self.committed: list[tuple[list[bytes | None], dict[TopicPartition, int]]] = []
        self.end: Callable[[], Any] = lambda: None
        self.begun_count = 0

    def transaction(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        self.begun_count += 1
        self.values: list[bytes | None] = []
        self.offsets: dict[TopicPartition, int] = {}
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            if (waiting := self.end()) is not None:
                await waiting
            self.committed.append((self.values, self.offsets))

    async def partitions_for(self, _topic: str) -> list[int]:
        return [0]

    async def message_bytes_max(self, _topic: str) -> int:
        return 64 << 20

    async def needs_keys(self, _topic: str) -> bool:
        return False

    async def send(self, _topic: str, value: bytes | None, *_rest: object) -> None:
        self.values.append(value)
        await asyncio.sleep(0)

    async def commit_offsets(self, source: Any) -> None:
        self.offsets = {each: offset.offset for each, offset in source.member_offsets().offsets.items()}


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def commits(log: Log) -> TransactionCommits:
    made = TransactionCommits("127.0.0.1:1", "id", {})
    made.producer = log  # type: ignore[assignment]
    return made


def failing(error: BaseException, cause: ReplogError | None = None) -> Callable[[], None]:
    def fail() -> None:
        raise error from cause

    return fail


def test_results_are_ready_when_all_before_them_are_done() -> None:
    assigned = Assigned(PLACE)
    for offset in (5, 6, 7):
        assigned.take(offset)
    assigned.finish(7, [result(b"7")])
    assigned.finish(6)
    assert (list(assigned.ready), assigned.to_commit) == ([], None)
    held_bytes = assigned.held_bytes
    assigned.finish(5, [result(b"5"), result(b"5")])
    assert [each.value for done in assigned.ready for each in done.results] == [b"5", b"5", b"7"]
    assert assigned.held_bytes == 3 * held_bytes
    assigned.commit(8, 2)
    assert (len(assigned.ready), assigned.held_bytes) == (0, 0)


def test_what_cannot_be_a_result_is_refused_in_the_handler() -> None:
    results = Results(1_000)
    with pytest.raises(RecordTooLargeError, match="producer_settings"):
        results.send("out", bytes(1_000))
    with pytest.raises(TypeError, match="value"):
        results.send("out", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="headers"):
        results.send("out", b"", headers={"a": b""})  # type: ignore[arg-type]
    results.send("out", b"1", b"k", 2, 3, [("h", b"4")])
    (sent,) = results.end()
    assert (sent.value, sent.key, sent.partition, sent.timestamp_ms, sent.headers) == (b"1", b"k", 2, 3, (("h", b"4"),))
    with pytest.raises(InvalidRequestError, match="has ended"):
        results.send("out", b"")


def test_the_results_of_one_record_are_bounded() -> None:
    results = Results(RESULTS_BYTES_MAX)
    results.send("out", bytes(RESULTS_BYTES_MAX // 2))
    with pytest.raises(InvalidRequestError, match="kept in memory"):
        results.send("out", bytes(RESULTS_BYTES_MAX // 2))
    assert len(results.end()) == 1


async def test_results_are_committed_once_with_their_offset(commits: TransactionCommits, log: Log) -> None:
    assigned = done(0, 1)
    for _ in range(2):
        await commits.commit(Member(), [assigned])
    assert log.committed == [([b"0", b"1"], {PLACE: 2})]
    assert log.begun_count == 1


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RequestTimedOutError("slow"), None),
        (TransactionAbortableError("aborted"), None),
        (TransactionAbortableError("aborted"), InvalidProducerIdMappingError("expired in a week without records")),
        (CommitStaleError("moved"), None),
    ],
)
async def test_what_was_aborted_is_committed_by_the_next_transaction(
    commits: TransactionCommits, log: Log, error: ReplogError, cause: ReplogError | None
) -> None:
    assigned = done(0)
    log.end = failing(error, cause)
    assert not await commits.commit(Member(), [assigned])
    assert commits.pause_s == commits_module.FAILURES_PAUSE_S
    assigned.take(1)
    assigned.finish(1, [result(b"1")])
    log.end = lambda: None
    assert await commits.commit(Member(), [assigned])
    assert log.committed == [([b"0", b"1"], {PLACE: 2})]
    assert commits.pause_s == commits_module.TRANSACTION_S


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ProducerFencedError("another"), None),
        (TransactionOutcomeUnknownError("who knows"), RequestTimedOutError("slow")),
        (TransactionAbortableError("aborted"), RecordTooLargeError("too large for its topic")),
        (TransactionAbortableError("aborted"), UnknownTopicOrPartitionError("deleted")),
    ],
)
async def test_after_a_transaction_that_is_the_last_none_is_begun(
    commits: TransactionCommits, log: Log, error: ReplogError, cause: ReplogError | None
) -> None:
    assigned = done(0)
    log.end = failing(error, cause)
    with pytest.raises(type(error)):
        await commits.commit(Member(), [assigned])
    log.end = lambda: None
    await commits.commit(Member(), [assigned])
    assert (log.committed, log.begun_count) == ([], 1)


async def test_a_transaction_that_is_cancelled_at_its_end_is_not_sent_again(
    commits: TransactionCommits, log: Log
) -> None:
    """It may be committed."""
    assigned = done(0)
    log.end = asyncio.Event().wait
    committing = asyncio.create_task(commits.commit(Member(), [assigned]))
    while log.begun_count == 0 or not log.offsets:
        await asyncio.sleep(0)
    committing.cancel()
    await asyncio.wait([committing])
    log.end = lambda: None
    await commits.commit(Member(), [assigned])
    assert (log.committed, log.begun_count) == ([], 1)


async def test_partitions_that_go_while_another_transaction_is_open_are_not_in_the_next(
    commits: TransactionCommits, log: Log
) -> None:
    held = {1: done(0), 2: done(0)}
    ending = asyncio.Event()
    log.end = ending.wait
    first = asyncio.create_task(commits.commit(Member(), [held[1]]))
    await asyncio.sleep(0)
    second = asyncio.create_task(commits.commit(Member(), held.values()))
    await asyncio.sleep(0)
    del held[2]
    ending.set()
    await asyncio.gather(first, second)
    assert log.committed == [([b"0"], {PLACE: 1})]


async def test_a_partition_that_was_lost_and_came_back_commits_nothing_of_before(
    commits: TransactionCommits, log: Log
) -> None:
    """Another member has read it in between, and this one may commit again: the coordinator would take its offsets."""
    assigned = done(*range(10))
    committing = asyncio.create_task(commits.commit(Member(), [assigned]))
    while log.begun_count == 0:
        await asyncio.sleep(0)
    assigned.is_lost = True
    assert not await committing
    assert log.committed == []


async def test_many_results_do_not_wait(commits: TransactionCommits) -> None:
    small, large = result(b""), result(bytes(commits_module.TRANSACTION_BYTES))
    commits.note([small] * (commits_module.TRANSACTION_RECORDS - 1))
    assert not commits.is_due.is_set()
    commits.note([small])
    assert commits.is_due.is_set()
    commits.is_due.clear()
    await commits.commit(Member(), [done(0)])
    commits.note([large])
    assert commits.is_due.is_set()


def two(_record: ConsumerRecord, _results: Results) -> None: ...


def one(_record: ConsumerRecord) -> None: ...


@pytest.mark.parametrize("order", ["partition", "key"])
async def test_results_that_are_not_committed_let_records_wait(order: Any, log: Log) -> None:
    """As long as no transaction succeeds, they would take 32 MiB for each record that the worker has taken."""
    called: list[int] = []
    large = bytes(4 << 20)

    async def handle(record: ConsumerRecord, results: Results) -> None:
        called.append(record.offset)
        if record.offset == 3:
            await is_free.wait()
        results.send("out", large)

    settings: dict[str, Any] = {"producer_settings": {"max_request_bytes": 8 << 20}}
    worker = Worker(handle, "t", group="g", exactly_once=True, concurrency=3, order=order, **settings)
    worker._commits.producer = log  # type: ignore[assignment]
    worker._consumer = Member()  # type: ignore[assignment]
    is_free = asyncio.Event()
    if order == "partition":
        is_free.set()
    for offset in range(100):
        record = ConsumerRecord("t", 0, offset, 0, TimestampType.CREATE_TIME, b"%d" % offset, b"", ())
        worker._take_all([record])
    await quiet_for(0.3)
    bound = worker_module.BUFFER_BYTES // len(large)
    assert bound <= len(called) <= bound + 3
    is_free.set()
    async with asyncio.timeout(60):
        while len(called) < 100:  # each commit lets as many begin
            before = len(called)
            await worker._commit(worker._assigned.values())
            await asyncio.sleep(0.01)
            assert len(called) <= before + bound + 3
    for task in worker._tasks:
        task.cancel()
    assert sorted(called) == list(range(100))


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"exactly_once": "yes"}, ConfigError, "exactly.once"),
        ({"handler": one}, TypeError, "results"),
        ({"handler": two, "exactly_once": False}, TypeError, "exactly_once=True"),
        ({"exactly_once": False, "handler": one, "producer_settings": {}}, ConfigError, "exactly_once"),
        ({"producer_settings": {"acks": 1}}, ConfigError, "acks"),
        ({"producer_settings": {"transactional_id": None}}, ConfigError, "transactional_id"),
        ({"producer_settings": {"compression": "rar"}}, ConfigError, "compression"),
        ({"producer_settings": {"max_request_bytes": 1}}, ConfigError, "max.request.bytes"),
    ],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    given: dict[str, Any] = {"handler": two, "topics": "t", "group": "g", "exactly_once": True, **wrong}
    with pytest.raises(error, match=text):
        Worker(**given)


@pytest.mark.parametrize("instance", [None, "a"])
def test_the_transactional_id_is_the_groups_and_the_instances(instance: str | None) -> None:
    names = set()
    for _ in range(2):
        worker = Worker[Any, Any](
            two, "t", group="g", exactly_once=True, consumer_settings={"group_instance_id": instance}
        )
        assert isinstance(worker._commits, TransactionCommits)
        names.add(worker._commits._settings["transactional_id"])
    assert names == {"g-a"} if instance else len(names) == 2


def test_the_settings_may_have_a_transactional_id() -> None:
    worker = Worker[Any, Any](
        two, "t", group="g", exactly_once=True, producer_settings={"transactional_id": "own", "compression": "gzip"}
    )
    assert isinstance(worker._commits, TransactionCommits)
    assert worker._commits._settings["transactional_id"] == "own"


@pytest.mark.parametrize("bad", [{0}, {3}, {6}, {2, 3}, set(range(7))])
async def test_only_records_whose_results_are_refused_have_failed(
    log: Log, commits: TransactionCommits, bad: set[int]
) -> None:
    """Each of the others is committed once, in order, and offsets never pass one that is not there."""
    assigned = Assigned(PLACE)
    values = [b"bad %d" % number if number in bad else b"%d" % number for number in range(7)]
    for number, value in enumerate(values):
        assigned.take(number)
        dead = result(b"dead " + value)
        assigned.finish(number, [result(value)], lambda _, dead=dead: [dead])  # type: ignore[misc]

    def refuse() -> None:
        if any((value or b"").startswith(b"bad") for value in log.values):
            raise TransactionAbortableError("aborted") from InvalidTimestampError("too old")

    log.end = refuse
    assert await commits.commit(Member(), [assigned])
    wanted = [b"dead " + value if value.startswith(b"bad") else value for value in values]
    assert [value for sent, _ in log.committed for value in sent] == wanted
    ends = [offsets[PLACE] for _, offsets in log.committed]
    assert ends == sorted(set(ends))
    assert (ends[-1], assigned.to_commit, assigned.held_bytes) == (7, None, 0)


async def test_a_record_that_has_nowhere_to_go_ends_the_worker_behind_those_before_it(
    log: Log, commits: TransactionCommits
) -> None:
    assigned = Assigned(PLACE)

    def nowhere(error: BaseException) -> list[ResultRecord]:
        raise ZeroDivisionError from error

    for number in range(4):
        assigned.take(number)
        assigned.finish(number, [result(b"%d" % number)], nowhere)

    def refuse() -> None:
        if b"2" in log.values:
            raise TransactionAbortableError("aborted") from InvalidTimestampError("too old")

    log.end = refuse
    with pytest.raises(ZeroDivisionError):
        await commits.commit(Member(), [assigned])
    assert [sent for sent, _ in log.committed] == [[b"0", b"1"]]
    assert not await commits.commit(Member(), [assigned])
