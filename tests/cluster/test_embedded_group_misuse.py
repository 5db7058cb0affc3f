"""What a listener, another thread or an impatient end must not do to a member: each is refused, or costs nothing that was committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from embedded_group_kit import PATIENCE_S, Heard, Rig, error_of_poll, member, read, until

from replog.client import AssignmentListener, Consumer, SyncConsumer, TopicPartition
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    InvalidRequestError,
    RecreatedTopicError,
    UnknownTopicOrPartitionError,
)
from tests.quiet import quiet_for


class Calling(AssignmentListener):
    """Calls something when partitions go, once, and keeps the error."""

    def __init__(self, call: Callable[[Collection[TopicPartition]], Awaitable[object]]) -> None:
        self._call = call
        self.count = 0
        self.error: Exception | None = None

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.count += 1
        if self.count > 1:
            return
        try:
            await self._call(partitions)
        except InvalidRequestError as error:
            self.error = error


@pytest.mark.parametrize("method", ["close", "unsubscribe"])
async def test_a_listener_cannot_end_what_waits_for_it(rig: Rig, method: str) -> None:
    async with rig.consumer() as consumer:

        async def end(_: Collection[TopicPartition]) -> None:
            await asyncio.create_task(getattr(consumer, method)())

        listener = Calling(end)
        await consumer.subscribe(["t"], listener=listener)
        await read(consumer, 5)
        async with asyncio.timeout(PATIENCE_S):
            await consumer.unsubscribe()
        assert f"cannot {method}" in str(listener.error)
        await consumer.subscribe(["t"])
        assert len(await read(consumer, 36)) == 36  # from the record that was in hand


async def test_what_a_listener_has_begun_may_close_afterwards(rig: Rig) -> None:
    tasks: list[asyncio.Task[None]] = []
    consumer = rig.consumer()
    await consumer.start()

    async def begin(_: Collection[TopicPartition]) -> None:
        async def close_later() -> None:
            await gate.wait()
            await consumer.close()

        tasks.append(asyncio.create_task(close_later()))

    gate = asyncio.Event()
    await consumer.subscribe(["t"], listener=Calling(begin))
    await read(consumer, 1)
    await consumer.unsubscribe()
    gate.set()
    await tasks[0]
    with pytest.raises(BrokerClosedError):
        await consumer.poll()


async def test_a_listener_may_seek_and_pause_at_the_end_and_the_last_commit_is_made(rig: Rig) -> None:
    consumer = rig.consumer(auto_commit_interval_ms=600_000)

    async def move(partitions: Collection[TopicPartition]) -> None:
        consumer.pause(*partitions)
        consumer.resume(*partitions)
        assert await consumer.end_offsets(partitions)

    async with consumer:
        await consumer.subscribe(["t"], listener=Calling(move))
        await read(consumer, 40)
    async with rig.consumer() as other:
        await other.subscribe(["t"])
        assert len(await read(other, 1)) == 1  # the record that was in hand
        assert await other.poll(timeout_ms=300) == []


async def test_partitions_that_come_while_a_consumer_unsubscribes_are_not_begun_with(rig: Rig) -> None:
    listener = Heard()
    reading = await member(rig, listener)
    await until(lambda: len(reading.records) == 40)
    consumer = reading.consumer
    assert consumer._group is not None
    ready = consumer._group.member
    listener.gate.clear()
    leaving = asyncio.create_task(consumer.unsubscribe())
    await until(lambda: ("revoked", 4) in listener.heard)
    await rig.admin.create_partitions("t", 6)
    await until(lambda: len(ready.ready) == 2 or len(consumer.assignment()) == 6)
    listener.gate.set()
    await leaving
    assert consumer.assignment() == []
    assert listener.heard == [("assigned", 4), ("revoked", 4)]
    await reading.stop()


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_who_subscribes_while_another_task_unsubscribes_is_told_to_wait(rig: Rig, is_given_up: bool) -> None:
    listener = Heard()
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"], listener=listener)
        await read(consumer, 40)
        listener.gate.clear()
        leaving = asyncio.create_task(consumer.unsubscribe())
        await until(lambda: ("revoked", 4) in listener.heard)
        if is_given_up:  # of two that unsubscribe, the one that only waits for the other
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.unsubscribe(), 0.01)
        refusal = (await asyncio.gather(consumer.subscribe(["t"]), return_exceptions=True))[0]
        listener.gate.set()
        await leaving
        assert "this consumer unsubscribes; call assign or subscribe when it has" in str(refusal)
        await consumer.subscribe(["t"])
        assert len(await read(consumer, 1)) == 1  # the record that was in hand


async def test_who_assigns_while_another_task_subscribes_is_refused(rig: Rig) -> None:
    async with rig.consumer() as consumer:
        both = consumer.assign([("t", 0)], start="latest"), consumer.subscribe(["t"])
        refused, subscribed = await asyncio.gather(*both, return_exceptions=True)
        assert "its group assigns the partitions" in str(refused)
        assert subscribed is None
        assert len(await read(consumer, 40)) == 40


@pytest.mark.parametrize("method", ["close", "unsubscribe"])
async def test_who_ends_while_the_listener_hears_waits_until_it_has(rig: Rig, method: str) -> None:
    listener = Heard()
    reading = await member(rig, listener)
    await until(lambda: len(reading.records) == 40)
    listener.gate.clear()
    other = await member(rig)
    await until(lambda: len(listener.heard) == 2)
    ending = [asyncio.create_task(getattr(reading.consumer, method)()) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    heard = [("assigned", 4), ("revoked", 2)]
    assert listener.heard == heard
    listener.gate.set()
    await asyncio.gather(*ending)
    assert listener.heard == [*heard, ("revoked", 2)]
    assert reading.consumer.assignment() == []
    await reading.stop()
    await other.stop()


async def test_a_listener_that_unsubscribes_where_it_hears_of_new_partitions_waits_for_nobody(rig: Rig) -> None:
    class Leaving(Heard):
        async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await super().on_assigned(partitions)
            await consumer.unsubscribe()

    listener = Leaving()
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"], listener=listener)
        with pytest.raises(InvalidRequestError, match="no partition is assigned any more"):
            await read(consumer, 1)
        assert listener.heard == [("assigned", 4), ("revoked", 4)]
        await consumer.subscribe(["t"], listener=Heard())
        assert len(await read(consumer, 40)) == 40


async def test_a_commit_that_is_cancelled_takes_back_none_that_came_after_it(rig: Rig) -> None:
    place = TopicPartition("t", 0)
    async with rig.consumer(auto_commit_interval_ms=50) as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 1)
        first = asyncio.create_task(consumer.commit({place: 5}))
        await asyncio.sleep(0)
        second = asyncio.create_task(consumer.commit({place: 9}))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await second
        await read(consumer, 1)
        await quiet_for(0.3)
        assert await consumer.committed(place) == 9


async def test_a_close_whose_heartbeats_the_loops_end_has_cancelled_waits_for_no_answer(rig: Rig) -> None:
    """So does `asyncio.run` at a second Ctrl-C: nobody would hear that the member leaves."""
    consumer = rig.consumer()
    await consumer.start()
    await consumer.subscribe(["t"])
    await read(consumer, 1)
    assert consumer._group is not None
    member = consumer._group.member
    member.doubt()
    while member._asking is None:  # until a heartbeat waits for its answer
        await asyncio.sleep(0)
    heartbeats = member._tasks[0]
    heartbeats.cancel()
    await asyncio.wait([heartbeats])
    async with asyncio.timeout(5):  # half of what the answer was waited for
        await consumer.close()


async def test_a_deleted_topic_is_told_no_more_once_others_are_subscribed_to(rig: Rig) -> None:
    await rig.admin.create_topic("gone", 1)
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t", "gone"])
        await until_assigned(consumer, 5)
        await rig.admin.delete_topic("gone")
        with pytest.raises(UnknownTopicOrPartitionError):
            await read(consumer, 41)
        await consumer.subscribe(["t"])
        for _ in range(10):
            await consumer.poll(timeout_ms=1)


async def test_a_recreated_topic_is_told_no_more_once_others_are_subscribed_to(rig: Rig) -> None:
    await rig.admin.create_topic("u", 1)
    await rig.fill("u", 1, 1)
    async with rig.consumer() as consumer:
        await consumer.subscribe(["u", "t"])
        await read(consumer, 41)
        await rig.admin.delete_topic("u")
        with pytest.raises(UnknownTopicOrPartitionError):
            await read(consumer, 1)
        await rig.admin.create_topic("u", 1)
        for wanted, others in (
            ({"topics": ["u", "t"]}, {"topics": ["t"]}),
            ({"topics": ["u", "t"]}, {"pattern": "t|uu"}),
            ({"pattern": "[tu]"}, {"topics": ["t"]}),
        ):
            await consumer.subscribe(**wanted)
            async with asyncio.timeout(PATIENCE_S):
                while not isinstance(await error_of_poll(consumer), RecreatedTopicError):
                    await asyncio.sleep(0.01)
            await consumer.subscribe(**others)
            for _ in range(10):
                await consumer.poll(timeout_ms=1)


async def until_assigned(consumer: Consumer, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(consumer.assignment()) < count:
            await consumer.poll(timeout_ms=50)


# ---- without async ----------------------------------------------------------------------------------------------------------


class Committing(AssignmentListener):
    """Commits in the only way that a listener of a client without async can; keeps the errors of other calls."""

    def __init__(self) -> None:
        self.consumer: SyncConsumer
        self.errors: list[str] = []

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for call in (self.consumer.commit, self.consumer.close):
            try:
                call()
            except InvalidRequestError as error:
                self.errors.append(str(error))
        await self.consumer.in_loop.commit()


async def test_a_listener_without_async_is_refused_instead_of_waiting_for_itself(rig: Rig) -> None:
    listener = Committing()

    def work() -> int:
        with SyncConsumer(
            rig.servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            listener.consumer = consumer
            consumer.subscribe(["t"], listener=listener)
            found = len(consumer.poll())
            consumer.unsubscribe()
            consumer.subscribe(["t"])  # it is not closed
            return found

    found = await asyncio.to_thread(work)
    assert ["in_loop.commit()" in each for each in listener.errors[:2]] == [True, True]
    async with rig.consumer() as other:
        await other.subscribe(["t"])
        committed = [await other.committed(TopicPartition("t", number)) for number in range(4)]
    assert sum(each or 0 for each in committed) == found


async def test_a_second_thread_is_refused_while_one_reads(rig: Rig) -> None:
    def work() -> str:
        with SyncConsumer(rig.servers, group_id="g", auto_offset_reset="latest") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(timeout_ms=500)
            reading = threading.Thread(target=lambda: consumer.poll(timeout_ms=3_000))
            reading.start()
            try:
                while consumer._reading_thread is None:
                    pass
                with pytest.raises(InvalidRequestError, match="another thread reads") as refusal:
                    consumer.poll(timeout_ms=1)
            finally:
                reading.join()
            consumer.poll(timeout_ms=1)
            return str(refusal.value)

    assert "consumer of its own" in await asyncio.to_thread(work)


def test_settings_that_no_heartbeat_can_carry_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms"):
        Consumer("127.0.0.1:1", group_id="g", max_poll_interval_ms=2**31)
    with pytest.raises(ConfigError, match=r"client\.rack has 40000 characters"):
        Consumer("127.0.0.1:1", group_id="g", client_rack="x" * 40_000)


@pytest.mark.parametrize(
    "setting",
    [
        {"group_instance_id": "i"},
        {"enable_auto_commit": False},
        {"auto_commit_interval_ms": 0},
        {"max_poll_interval_ms": "often"},
    ],
)
@pytest.mark.parametrize("client", [Consumer, SyncConsumer])
def test_settings_of_a_member_are_refused_where_there_is_no_group(client: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="there is none: give group_id too"):
        client("127.0.0.1:1", **setting)
