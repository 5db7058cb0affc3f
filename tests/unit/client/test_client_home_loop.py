"""A client belongs to the event loop of its first use: in another one it says so at once, and never waits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, Delivery, Producer
from replog.errors import BrokerClosedError, InvalidRequestError

CLOSED = "an event loop that is closed.*inside of each asyncio.run, or use Sync"
WITHIN_S = 5


class World:
    """A cluster whose topic has a record, and clients that were started in a loop of which nothing is left."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.create_topic("t")
        transport: Any = self.cluster.transport()
        self.admin = Admin(self.cluster.bootstrap, transport=transport)
        self.consumer = Consumer(self.cluster.bootstrap, transport=transport)
        self.producer = Producer(self.cluster.bootstrap, transport=transport)
        self.delivery: Delivery | None = None

    async def use(self) -> None:
        await self.admin.list_topics()
        await self.producer.start()
        await (await self.producer.send("t", b"0"))
        await self.consumer.assign_topic("t")
        await self.consumer.poll(1)

    async def leave_unacknowledged(self) -> None:
        self.cluster.nodes[1].is_silent = True
        self.delivery = await self.producer.send("t", b"lost")

    async def close(self) -> None:
        await self.admin.close()
        await self.consumer.close()
        await self.producer.close()


async def in_the_loop(call: Callable[[], Any]) -> Any:
    return call()


async def sent(producer: Producer) -> None:
    """`send` looks at the loop for each new batch, for speed; a delivery always does."""
    await (await producer.send("t", b""))


USES: list[Callable[[World], Awaitable[Any]]] = [
    lambda it: it.admin.list_topics(),
    lambda it: it.admin.describe_node("127.0.0.1:10001"),
    lambda it: it.admin.wait_until_ready(),
    lambda it: sent(it.producer),
    lambda it: it.producer.send_many("t", [b""]),
    lambda it: it.producer.flush(),
    lambda it: it.producer.partitions_for("t"),
    lambda it: it.producer.message_bytes_max("t"),
    lambda it: it.producer.start(),
    lambda it: it.consumer.assign_topic("t"),
    lambda it: it.consumer.poll(),
    lambda it: it.consumer.fetch_batches(),
    lambda it: anext(it.consumer),
    lambda it: it.consumer.seek_to_end(),
    lambda it: it.consumer.end_offsets([("t", 0)]),
    lambda it: in_the_loop(lambda: it.consumer.seek(("t", 0), 0)),
]


def world_of_a_run() -> World:
    """What an `asyncio.run` left behind that used each client once."""
    world = World()
    asyncio.run(world.use())
    return world


@pytest.mark.parametrize("use", USES)
def test_in_a_second_run(use: Callable[[World], Awaitable[Any]]) -> None:
    async def again(world: World) -> None:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(InvalidRequestError, match=CLOSED):
                await use(world)
            await world.close()

    asyncio.run(again(world_of_a_run()))
    gc.collect()  # no warning of clients that nobody closed


@pytest.mark.parametrize("use", USES)
def test_in_another_loop_while_the_first_one_is_there(use: Callable[[World], Awaitable[Any]]) -> None:
    world = World()
    with asyncio.Runner() as first:
        first.run(world.use())
        with asyncio.Runner() as second, pytest.raises(InvalidRequestError, match="not the one that is running here"):
            second.run(asyncio.wait_for(as_coroutine(use(world)), WITHIN_S))
        first.run(world.close())


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def test_a_seek_between_two_runs_of_the_same_loop_and_beside_one() -> None:
    world = World()
    with asyncio.Runner() as runner:
        runner.run(world.use())
        world.consumer.seek(("t", 0), 0)
        records = runner.run(world.consumer.poll())
        assert [record.offset for record in records] == [0]

        async def seek_in_a_thread() -> None:
            with pytest.raises(InvalidRequestError, match="not the one that is running here"):
                await asyncio.to_thread(world.consumer.seek, ("t", 0), 0)

        runner.run(seek_in_a_thread())
        runner.run(world.close())


def test_what_was_made_before_the_first_run_lives_in_it() -> None:
    world = World()

    async def use_and_close() -> None:
        await world.use()
        await world.close()

    asyncio.run(use_and_close())


@pytest.mark.parametrize("wait", [lambda it: it, lambda it: it.wait(), lambda it: asyncio.wait([it])])
def test_a_delivery_of_an_earlier_run(wait: Callable[[Delivery], Awaitable[Any]]) -> None:
    world = World()

    async def send() -> None:
        await world.use()
        await world.leave_unacknowledged()

    async def again() -> None:
        assert world.delivery is not None
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(InvalidRequestError, match=CLOSED):
                await wait(world.delivery)
            with pytest.raises(BrokerClosedError, match="before 1 records were acknowledged"):
                await world.producer.close()
            await world.close()

    asyncio.run(send())
    asyncio.run(again())


async def looped(consumer: Consumer) -> None:
    async for _ in consumer:
        break


@pytest.mark.parametrize("use", [lambda consumer: consumer.getone(), looped], ids=["getone", "loop"])
def test_records_that_are_decoded_already_are_handed_out_in_no_other_loop(
    use: Callable[[Consumer], Awaitable[Any]],
) -> None:
    world = World()

    async def begin() -> None:
        await world.producer.start()
        await (await world.producer.send_many("t", [b"0", b"1"]))
        await world.consumer.assign_topic("t")
        assert len(await world.consumer.poll(1)) == 1
        assert world.consumer._reader.backlog.has_records

    async def again() -> None:
        with pytest.raises(InvalidRequestError, match=CLOSED):
            await use(world.consumer)
        await world.close()

    asyncio.run(begin())
    asyncio.run(again())
    gc.collect()
