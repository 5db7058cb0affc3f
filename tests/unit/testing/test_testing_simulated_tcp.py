"""TCP between simulated machines: what asyncio's protocols see of a slow, cut, dead or paused other side."""

from __future__ import annotations

import asyncio

import pytest

from replog.testing.simulated_network import NetworkConditions
from replog.testing.simulated_tcp_pipe import WINDOW_BYTES
from replog.testing.simulated_tcp_transport import HIGH_WATER_BYTES
from tests.unit.testing.simulated_tcp_server import HOST, PORT, BufferedEar, Ear, World, run

MEGABYTE = bytes(range(256)) * 4_096


@pytest.mark.parametrize("split", [0.0, 0.9])
def test_bytes_arrive_in_order_whole_both_ways(split: float) -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(b"ping")
        client.transport.write(MEGABYTE)
        server.transport.write(b"pong")
        await world.until(lambda: len(server.heard) == 4 + len(MEGABYTE) and client.heard)
        assert (server.heard, client.heard) == (b"ping" + MEGABYTE, b"pong")

    run(test, conditions=NetworkConditions(split=split))


def test_what_is_written_at_once_arrives_in_pieces() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(bytes(1_000))
        await world.until(lambda: len(server.heard) == 1_000)
        assert server.pieces > 3

    run(test, conditions=NetworkConditions(split=0.9))


def test_a_buffered_protocol_gets_as_much_as_its_buffer_takes() -> None:
    async def test(world: World) -> None:
        world.factory = BufferedEar
        client, server = await world.pair()
        client.transport.write(MEGABYTE[:1_000])
        await world.until(lambda: len(server.heard) == 1_000)
        assert server.heard == MEGABYTE[:1_000]

    run(test)


def test_who_does_not_read_holds_the_writer_back() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        server.transport.pause_reading()
        client.transport.write(MEGABYTE)
        assert client.is_paused
        await asyncio.sleep(20)
        assert not server.heard
        assert client.transport.get_write_buffer_size() == len(MEGABYTE) - WINDOW_BYTES
        server.transport.resume_reading()
        await world.until(lambda: len(server.heard) == len(MEGABYTE))
        assert not client.is_paused
        assert client.transport.get_write_buffer_size() == 0

    run(test, conditions=NetworkConditions(split=0.0))


def test_limits_of_the_write_buffer_can_be_set() -> None:
    async def test(world: World) -> None:
        client = await world.connect()
        assert client.transport.get_write_buffer_limits() == (HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES)
        client.transport.set_write_buffer_limits(high=100)
        assert client.transport.get_write_buffer_limits() == (25, 100)
        client.transport.write(bytes(WINDOW_BYTES + 100))
        assert not client.is_paused
        client.transport.write(bytes(1))
        assert client.is_paused

    run(test, conditions=NetworkConditions(split=0.0))


def test_asyncio_s_streams_work_over_it() -> None:
    async def test(world: World) -> None:
        reader = asyncio.StreamReader(loop=world.loop)
        transport, protocol = await world.caller.tcp.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader, loop=world.loop), HOST, PORT
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, world.loop)
        writer.write(MEGABYTE)
        await writer.drain()
        await world.until(lambda: len(world.served[0].heard) == len(MEGABYTE))
        world.served[0].transport.write(b"line\nrest")
        world.served[0].transport.close()
        assert await reader.readline() == b"line\n"
        assert await reader.read() == b"rest"
        writer.close()
        await writer.wait_closed()

    run(test)


def test_addresses_of_both_ends_are_known() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        assert client.transport.get_extra_info("peername") == (HOST, PORT)
        assert server.transport.get_extra_info("peername") == client.transport.get_extra_info("sockname")
        assert server.transport.get_extra_info("peername")[0] == "caller"

    run(test)


# ---- ends ----------------------------------------------------------------------------------------------------------------


def test_a_close_comes_behind_what_was_written() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(MEGABYTE)
        client.transport.close()
        assert client.transport.is_closing()
        await world.until(lambda: server.lost)
        assert len(server.heard) == len(MEGABYTE)
        assert server.has_ended
        assert (client.lost, server.lost) == ([None], [None])

    run(test)


def test_a_half_can_be_closed_alone() -> None:
    async def test(world: World) -> None:
        class Answers(Ear):
            def eof_received(self) -> bool:
                self.transport.write(b"heard %d" % len(self.heard))
                return True

        world.factory = Answers
        client, server = await world.pair()
        client.transport.write(b"question")
        client.transport.write_eof()
        await world.until(lambda: client.heard)
        assert client.heard == b"heard 8"
        assert not server.lost
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        server.transport.close()
        await world.until(lambda: client.lost and server.lost)

    run(test)


def test_after_an_abort_the_other_side_reads_what_was_on_the_way() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(MEGABYTE)
        client.transport.abort()
        await world.until(lambda: server.lost)
        assert bytes(server.heard) == MEGABYTE[:WINDOW_BYTES]
        assert (client.lost, server.lost) == ([None], [None])

    run(test, conditions=NetworkConditions(split=0.0))


def test_who_aborts_without_having_read_resets_the_connection() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.pause_reading()
        server.transport.write(b"unread")
        await asyncio.sleep(1)
        client.transport.abort()
        await world.until(lambda: server.lost)
        assert server.ending is ConnectionResetError

    run(test)


def test_who_has_closed_answers_with_a_reset() -> None:
    async def test(world: World) -> None:
        class Stays(Ear):
            def eof_received(self) -> bool:
                return True

        world.factory = Stays
        client, server = await world.pair()
        client.transport.close()
        await asyncio.sleep(1)
        assert not server.lost
        server.transport.write(b"are you there?")
        await world.until(lambda: server.lost)
        assert server.ending is ConnectionResetError

    run(test)


def test_who_does_not_read_does_not_hear_of_a_reset() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        server.transport.pause_reading()
        client.transport.pause_reading()
        server.transport.write(b"unread")
        await asyncio.sleep(1)
        client.transport.abort()
        await asyncio.sleep(1)
        assert not server.lost
        server.transport.resume_reading()
        await world.until(lambda: server.lost)

    run(test)


def test_a_protocol_that_raises_loses_its_connection() -> None:
    class Raises(Ear):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError("a bug")

    async def test(world: World) -> None:
        world.factory = Raises
        client, server = await world.pair()
        client.transport.write(b"x")
        await world.until(lambda: client.lost)
        assert (client.ending, server.ending) == (None, ZeroDivisionError)
        assert len(world.loop.problems) == 1
        world.loop.problems.clear()

    run(test)


def test_one_seed_is_one_run() -> None:
    async def test(world: World) -> None:
        client, server = await world.pair()
        client.transport.write(MEGABYTE)
        client.transport.close()
        await world.until(lambda: server.lost)

    assert run(test).trace == run(test).trace != run(test, seed=6).trace
