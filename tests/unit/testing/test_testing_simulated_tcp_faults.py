"""TCP between simulated machines: who is not there, and what links do to connections."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from replog.testing.simulated_network import NetworkConditions
from tests.unit.testing.simulated_tcp_server import HOST, PORT, World, run

# ---- who is not there ----------------------------------------------------------------------------------------------------


def test_where_nobody_listens_connections_are_refused() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        bound = world.host.tcp.bind(HOST, PORT)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        bound.close()
        await world.serve()
        await world.connect()
        assert world.port is not None
        world.port.close()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    run(test, serve=False)


def test_a_port_is_taken_once() -> None:
    async def test(world: World) -> None:
        for machine in (world.host, world.caller):
            with pytest.raises(OSError, match="is taken"):
                machine.tcp.bind(HOST, PORT)
        assert world.host.tcp.bind(HOST, 0).port != PORT

    run(test)


def test_a_machine_without_power_is_silent() -> None:
    async def test(world: World) -> None:
        client, _ = await world.pair()
        world.crash(power_cut=True)
        began = world.loop.time()
        with pytest.raises(TimeoutError):
            await world.connect()
        assert world.loop.time() - began >= world.network.conditions.connect_timeout_s
        await world.until(lambda: client.lost)
        assert client.ending is TimeoutError
        assert world.loop.time() - began >= world.network.conditions.keepalive_s

    run(test)


def test_a_killed_process_ends_its_connections() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        server.transport.write(b"last words")
        world.crash(power_cut=False)
        await world.until(lambda: client.lost)
        assert (client.heard, client.has_ended) == (b"last words", True)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        assert not server.lost  # nothing of it runs any more

    run(test)


def test_the_finally_blocks_of_a_dead_process_say_nothing() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()

        async def speak() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                server.transport.write(b"from the grave")
                server.transport.close()

        world.process.create_task(speak())
        await asyncio.sleep(0.1)
        world.crash(power_cut=False)
        await world.until(lambda: client.lost)
        assert client.heard == b""

    run(test)


def test_a_paused_process_reads_later_what_a_dead_connection_has_sent() -> None:
    async def test(world: World) -> None:
        world.process.pause()
        client = await world.connect()
        client.transport.write(b"hello")
        client.transport.close()
        await asyncio.sleep(100)
        assert not world.served
        world.process.resume()
        await world.until(lambda: world.served and world.served[0].lost)
        assert world.served[0].heard == b"hello"

    run(test)


def test_who_gives_up_connecting_leaves_nothing_open() -> None:
    async def test(world: World) -> None:
        world.network.cut("server", "caller")  # the answer does not come
        connecting = asyncio.ensure_future(world.connect())
        await world.until(lambda: world.served)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await world.until(lambda: world.served[0].lost)

    run(test)


# ---- links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [("caller", "server"), ("server", "caller")])
def test_a_cut_link_ends_connections_that_have_something_to_say(direction: tuple[str, str]) -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        world.network.cut(*direction)
        client.transport.write(b"x")
        server.transport.write(b"y")
        await world.until(lambda: client.lost and server.lost)
        assert (client.ending, server.ending) == (TimeoutError, TimeoutError)
        assert (client.heard, server.heard) == ((b"y", b"") if direction[0] == "caller" else (b"", b"x"))
        with pytest.raises(TimeoutError):
            await world.connect()

    run(test)


def test_what_waits_at_a_cut_arrives_when_it_is_mended() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        world.network.cut("caller", "server")
        client.transport.write(b"x")
        await asyncio.sleep(world.network.conditions.keepalive_s / 2)
        assert not server.heard
        world.network.mend_all()
        await world.until(lambda: server.heard)

    run(test)


def test_a_connection_breaks_within_what_was_written() -> None:
    """Over many of them something, all and nothing of it arrives; both sides hear of it."""
    heard: set[int] = set()

    async def test(world: World) -> None:
        client, server = await world.pair()
        world.network.conditions = replace(world.network.conditions, stream_break=1.0)
        client.transport.write(b"four")
        await world.until(lambda: client.lost and server.lost)
        assert (client.ending, server.ending) == (ConnectionResetError, ConnectionResetError)
        heard.add(len(server.heard))

    for seed in range(40):
        run(test, seed=seed)
    assert heard == {0, 1, 2, 3, 4}


def test_bytes_of_a_connection_that_was_given_up_come_late() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(b"late")
        client.transport.abort()
        await asyncio.sleep(0)
        assert client.lost == [None]
        again = await world.connect()
        again.transport.write(b"new")
        await world.until(lambda: len(world.served) == 2 and world.served[1].heard)
        assert not server.heard
        await world.until(lambda: server.lost)
        assert (server.heard, server.has_ended) == (b"late", True)
        assert world.network.delivered_late == 1

    run(test, conditions=NetworkConditions(late=1.0, split=0.0))
