"""Streams over the simulated network: order, windows, ends, and what a broken one still delivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from replog.errors import InconsistentClusterIdError, InvalidRequestError
from replog.rpc.messages import FetchRequest, client_hello
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_network import WINDOW_BYTES, NetworkConditions
from tests.unit.testing.simulated_server import HELLO, World, run


def test_streams_keep_their_order_and_overtake_each_other() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(delay_max_ms=50)
        first, second = [await world.connection.open_fetch(HELLO) for _ in range(2)]
        for number in range(50):
            await first.send(FetchRequest(number, 1, -1, -1, 0, 0, 0, ()))
            await second.send(FetchRequest(100 + number, 1, -1, -1, 0, 0, 0, ()))
        assert [(await first.receive()).correlation_id for _ in range(50)] == list(range(50))
        assert [(await second.receive()).correlation_id for _ in range(50)] == list(range(100, 150))
        read = world.handlers.read
        assert [number for number in read if number < 100] == list(range(50))
        assert read != sorted(read, key=lambda number: (number % 100, number))

    run(test)


def test_the_hello_of_another_cluster_is_refused() -> None:
    async def test(world: World) -> None:
        with pytest.raises(InconsistentClusterIdError, match="not x"):
            await world.connection.open_fetch(client_hello("x", "tester"))

    run(test)


def test_only_one_hello() -> None:
    async def test(world: World) -> None:
        stream: Any = await world.connection.open_fetch(HELLO)
        await stream.send(HELLO)
        with pytest.raises(InvalidRequestError, match="hello was said"):
            await stream.receive()

    run(test)


def test_a_stream_without_an_answer_to_hello() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(keepalive_s=60)
        world.process.pause()
        with pytest.raises(ConnectionLostError, match="hello"):
            await world.connection.open_fetch(HELLO)

    run(test)


def test_an_error_ends_a_stream_for_the_caller() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        world.handlers.error = InvalidRequestError("not like this")
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="not like this"):
                await world.echo(stream, 1)

    run(test)


def test_a_stream_that_its_server_ends() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        with pytest.raises(ConnectionLostError, match="closed"):
            await world.echo(stream, 1, timeout_ms=0)

    run(test)


def test_a_closed_stream_ends_its_handler() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        assert await world.echo(stream, 1) == 1
        await stream.close()
        await world.connection.open_quorum(HELLO)
        await world.connection.close()
        await world.settle()
        assert world.handlers.ended == 2

    run(test)


def test_a_slow_reader_stops_its_sender() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        world.handlers.reading.clear()
        await stream.send(FetchRequest(0, 1, -1, -1, 0, 0, 0, ()))  # the one that the handler already waits for
        big = FetchRequest(1, 1, -1, -1, 0, 0, 0, ())
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await stream.send(replace(big, correlation_id=sent))
                sent += 1

        sending = asyncio.create_task(send())
        await world.settle()
        stopped_at = sent
        await world.settle()
        assert 0 < sent == stopped_at < WINDOW_BYTES
        world.handlers.reading.set()
        await asyncio.sleep(1)
        assert sent > stopped_at
        sending.cancel()

    run(test)


def test_a_killed_process_breaks_its_streams_at_once_a_dead_machine_later() -> None:
    async def test(world: World) -> None:
        for is_off in (False, True):
            stream = await world.connection.open_fetch(HELLO)
            began = world.loop.time()
            world.host.is_off = is_off
            world.process.kill()
            with pytest.raises(ConnectionLostError):
                await stream.receive()
            waited = world.loop.time() - began
            assert waited < 0.1 if not is_off else 3 <= waited < 4
            world.host.is_off = False
            world.process = world.loop.new_process("again")
            await world.serve()

    run(test)


def test_broken_streams_lose_their_end_for_both_sides() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(stream_break=0.05)
        broken = 0
        for _ in range(20):
            sent: list[int] = []
            world.handlers.read.clear()
            try:
                stream = await world.connection.open_fetch(HELLO)
                while True:
                    sent.append(await world.echo(stream, len(sent)))
            except ConnectionLostError:
                broken += 1
            await asyncio.sleep(1)
            assert world.handlers.read[: len(sent)] == sent == list(range(len(sent)))
            assert len(world.handlers.read) <= len(sent) + 1
        assert broken == 20
        assert world.handlers.ended <= 20

    run(test)


@pytest.mark.parametrize("gives_up", [False, True])
def test_what_was_sent_before_a_stream_broke_may_arrive_long_after_its_sender_has_gone_on(gives_up: bool) -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        world.network.conditions = NetworkConditions(late=1.0, late_max_s=60, stream_break=0.0 if gives_up else 1.0)
        for number in range(3):
            await stream.send(FetchRequest(number, 1, -1, -1, 0, 0, 0, ()))
        if gives_up:
            await stream.close()
        else:
            with pytest.raises(ConnectionLostError):
                await stream.receive()
        world.network.conditions = NetworkConditions()
        again = await world.connection.open_fetch(HELLO)
        assert await world.echo(again, 7) == 7
        assert world.handlers.read == [7]
        await asyncio.sleep(61)
        assert world.handlers.read == [7, 0, 1, 2]
        assert (world.handlers.ended, world.network.delivered_late) == (1, 3)

    run(test)


def test_a_cut_link_breaks_its_streams_after_a_while() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        world.network.cut("caller", "server")
        with pytest.raises(ConnectionLostError, match="nothing passes"):
            await world.echo(stream, 1)
        assert 3 <= world.loop.time() < 4
        with pytest.raises(ConnectionLostError):
            await stream.send(FetchRequest(1, 1, -1, -1, 0, 0, 0, ()))

    run(test)


def test_a_presence_ends_with_the_process_that_was_there() -> None:
    async def test(world: World) -> None:
        presence = await world.connection.open_presence(HELLO)
        assert presence.peer == world.handlers.check_hello(HELLO)
        waiting = asyncio.create_task(presence.wait_lost())
        await world.settle()
        assert not waiting.done()
        world.process.kill()
        await waiting

    run(test)
