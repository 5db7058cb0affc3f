"""What a worker knows of a partition, how much it holds, and which handlers it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from replog.client import ConsumerRecord, TopicPartition
from replog.records import TimestampType
from replog.worker import Worker
from replog.worker import worker as worker_module
from replog.worker.assigned import Assigned
from tests.quiet import quiet_for


def test_an_offset_is_committed_when_all_before_it_are_done() -> None:
    assigned = Assigned(TopicPartition("t", 0))
    for offset in (5, 6, 9):  # a compacted topic has gaps
        assigned.take(offset)
    steps = []
    for offset in (9, 5, 6):
        assigned.finish(offset)
        steps.append(assigned.to_commit)
    assert steps == [None, 6, 10]
    assigned.commit(10)
    assert assigned.to_commit is None


def test_a_log_that_was_cut_is_committed_from_where_it_is_read_again() -> None:
    assigned = Assigned(TopicPartition("t", 0))
    for offset in (100, 101):
        assigned.take(offset)
        assigned.finish(offset)
    assigned.commit(102)
    assigned.take(50)
    assert assigned.to_commit is None
    assigned.finish(50)
    assert assigned.to_commit == 51


class Endless:
    """In the place of a consumer: always has another record of a MiB."""

    def __init__(self) -> None:
        self.polls: list[int] = []

    async def poll(self, max_records: int, _timeout_ms: int) -> list[ConsumerRecord]:
        self.polls.append(max_records)
        await asyncio.sleep(0)
        offset = len(self.polls)
        return [ConsumerRecord("t", 0, offset, 0, TimestampType.CREATE_TIME, None, bytes(1 << 20), ())]


async def test_large_records_are_bounded_by_their_bytes() -> None:
    async def handle(_record: ConsumerRecord) -> None:
        await asyncio.Event().wait()

    worker, consumer = Worker(handle, "t", group="g"), Endless()
    worker._consumer = consumer  # type: ignore[assignment]
    polling = asyncio.create_task(worker._poll_until_stopped())
    while len(consumer.polls) < worker_module.BUFFER_BYTES >> 20:
        await asyncio.sleep(0)
    await quiet_for(0.1)
    assert len(consumer.polls) == worker_module.BUFFER_BYTES >> 20
    for task in (polling, *worker._tasks):
        task.cancel()


class Callable:
    def __call__(self, record: ConsumerRecord) -> Iterator[ConsumerRecord]:
        yield record


def a_generator(record: ConsumerRecord) -> Iterator[ConsumerRecord]:
    yield record


async def an_async_generator(record: ConsumerRecord) -> AsyncIterator[ConsumerRecord]:
    yield record


@pytest.mark.parametrize("handler", [a_generator, an_async_generator, partial(a_generator), Callable()])
def test_a_handler_of_which_nothing_would_run_is_refused(handler: object) -> None:
    with pytest.raises(TypeError, match="has a yield"):
        Worker(handler, "t", group="g")  # type: ignore[arg-type]
