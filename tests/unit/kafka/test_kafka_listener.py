"""The port of Kafka's clients: how many connections it takes, its begin, its end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from replog.broker.node.client_ports import limits_within
from replog.config.server import ServerConfig
from replog.errors import ConfigError
from replog.metadata.records import CLIENT_LISTENER
from replog.tcp import listener as listener_module
from replog.tcp.connection import RequestServer
from replog.tcp.connection_log import TELL_AGAIN_S, TOLD_MAX, ToldAddresses
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.port import bind
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore
from tests.quiet import quiet_for
from tests.unit.kafka.served_connections import ALONE, HOST, Script, Served, request, serving


async def test_the_room_for_small_requests_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "SMALL_BYTES", 1_000)
    async with serving(bytes_max=1_000) as it:
        clients = [await it.client() for _ in range(4)]
        for number, client in enumerate(clients):
            client.writer.write(request(number, kind=ALONE, size=600 if number < 3 else 5_000))
            await quiet_for(0.03)
        assert it.script.begun == [0, 1]
        it.script.is_open = True
        it.script.finish(0, 1)
        assert [await client.answers(1) for client in clients] == [[0], [1], [2], [3]]


async def test_connections_are_bounded_in_all_and_by_address(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(connections_max=3, connections_per_address_max=2) as it:
        it.script.is_open = True
        for number in range(2):
            client = await it.client()
            client.writer.write(request(number))
            assert await client.answers(1) == [number]
        for _ in range(3):
            assert await (await it.client()).until_ended() == b""
        it.clients[0].writer.close()
        async with asyncio.timeout(60):
            while len(it.listener) == 2:
                await asyncio.sleep(0.01)
        again = await it.client()
        again.writer.write(request(7))
        assert await again.answers(1) == [7]
    assert [message for message in caplog.messages if "from one address" in message] == [
        "a connection from 127.0.0.1 was ended: it has 2 connections already, the most from one address"
    ]


async def test_a_stranger_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as it:
        for _ in range(3):
            client = await it.client()
            client.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await client.until_ended() == b""
    (told,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.endswith("its first bytes look like an HTTP request")


async def test_strangers_with_addresses_without_end_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: more addresses than are remembered had a line for each connection; a network of IPv6 has 2 ** 64."""
    told, now_s = ToldAddresses(), [1_000.0]
    with monkeypatch.context() as clock:
        clock.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
        of_strangers = [told.is_due(f"2001:db8::{number:x}") for number in range(2 * TOLD_MAX)]
        now_s[0] += TELL_AGAIN_S
        is_due_later = told.is_due("2001:db8::ffff")
    assert of_strangers == [True] * TOLD_MAX + [False] * TOLD_MAX
    assert is_due_later


async def test_the_end_of_the_listener_cancels_what_is_in_flight() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0))
        await it.script.until(lambda: 0 in it.script.gates)
        await it.listener.stop()
        assert it.script.gates[0].cancelled()
        assert await client.until_ended() == b""


async def test_a_connection_that_was_being_accepted_does_not_outlive_the_listener() -> None:
    """Example: a client connects in the turn of the loop in which the broker stops."""
    async with serving() as it:
        accepted = it.listener._accept(CLIENT_LISTENER)
        await it.listener.stop()
        transport = AbortedTransport()
        accepted.connection_made(transport)
        assert (transport.is_aborted, len(it.listener)) == (True, 0)
        accepted.connection_lost(None)


class AbortedTransport(asyncio.Transport):
    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_port_that_is_taken_is_told() -> None:
    async with serving() as it:
        with pytest.raises(ConfigError, match=rf"cannot listen at {HOST}:{it.port}"):
            bind(HOST, it.port)


async def test_a_port_that_was_taken_meanwhile_is_told() -> None:
    first = bind("127.0.0.1", 0)
    port = first.port
    second = bind("127.0.0.1", port)  # nobody listens yet, so that both have it
    with second.socket as other:
        other.listen()
        listener = Listener(
            RequestServer(Script().serve, lambda frame: True, lambda frame: True),
            ListenerLimits,
            ByteSemaphore(1),
            TransferRoom(1),
        )
        with pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{port}"):
            await listener.start(first)
        assert first.socket.fileno() == -1
        await listener.stop()


async def test_a_listener_that_is_given_up_while_it_begins_leaves_no_port() -> None:
    """Example: a node is stopped in the turn of the loop in which it is ready."""
    bound = bind("127.0.0.1", 0)
    listener = Listener(
        RequestServer(Script().serve, lambda frame: True, lambda frame: True),
        ListenerLimits,
        ByteSemaphore(1),
        TransferRoom(1),
    )
    starting = asyncio.create_task(listener.start(bound))
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    await listener.stop()
    assert bound.socket.fileno() == -1


@pytest.mark.parametrize(
    ("descriptors", "together", "by_address"), [(65_536, None, None), (256, 128, 128), (4, 2, 2), (1, 1, 1)]
)
def test_connections_leave_descriptors_to_the_logs(
    descriptors: int, together: int | None, by_address: int | None
) -> None:
    most = ListenerLimits()
    found = limits_within(descriptors, config(), lambda _: None)
    assert found.connections_max == (together or most.connections_max)
    assert found.connections_per_address_max == (by_address or most.connections_per_address_max)
    assert found.unknown_max <= max(1, found.connections_max // 2), "strangers leave room for others"


def config(keys: Mapping[str, object] = MappingProxyType({})) -> ServerConfig:
    return ServerConfig.from_mapping({"node.id": 1, "log.dirs": ["/data"], **keys})


def test_the_configuration_bounds_connections_of_all_of_addresses_and_of_listeners() -> None:
    keys = config(
        {
            "max.connections": 50,
            "max.connections.per.ip": 9,
            "max.connections.per.ip.overrides": "10.0.0.7:20",
            "listener.name.plaintext.max.connections": 7,
        }
    )
    found = limits_within(65_536, keys, lambda _: None)
    assert (found.connections_max, found.connections_per_address_max) == (50, 9)
    assert (found.by_address, found.by_listener) == ({"10.0.0.7": 20}, {"PLAINTEXT": 7})


def test_what_is_set_while_the_cluster_runs_counts_before_the_file() -> None:
    keys = config({"max.connections": 50, "max.connections.per.ip": 9, "listener.name.plaintext.max.connections": 7})
    changed = {
        "max.connections": "70",
        "max.connections.per.ip": "60",
        "max.connections.per.ip.overrides": "10.0.0.7:20,[2001:db8::7]:5",
        "max.connection.creation.rate": "3",
        "log.retention.ms": "1",
    }
    found = limits_within(65_536, keys, lambda _: None, changed)
    assert (found.connections_max, found.connections_per_address_max) == (70, 60)
    assert (found.by_address, found.by_listener) == ({"10.0.0.7": 20, "2001:db8::7": 5}, {"PLAINTEXT": 7})
    assert found.rates is not None
    assert (found.rates.together, found.rates.by_listener) == (3, {})


def test_limits_of_one_listener_that_are_set_count_before_the_file() -> None:
    keys = config(
        {
            "listeners": "127.0.0.1:9092,OUTSIDE://127.0.0.1:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "listener.name.plaintext.max.connections": 7,
            "listener.name.outside.max.connection.creation.rate": 8,
        }
    )
    changed = {
        "listener.name.outside.max.connections": "5",
        "listener.name.plaintext.max.connections": "6",
        "listener.name.outside.max.connection.creation.rate": "4",
        "listener.name.elsewhere.max.connections": "3",
    }
    found = limits_within(65_536, keys, lambda _: None, changed)
    assert found.by_listener == {"PLAINTEXT": 6, "OUTSIDE": 5}
    assert found.rates is not None
    assert found.rates.by_listener == {"OUTSIDE": 4}


async def test_limits_that_change_hold_for_the_next_connection() -> None:
    """Goal: an operator ends a flood without a restart, and connections that there are go on."""
    limits, script = [ListenerLimits(connections_max=2)], Script()
    script.is_open = True
    server = RequestServer(script.serve, lambda frame: True, lambda frame: True)
    listener = Listener(server, lambda: limits[0], ByteSemaphore(1_000), TransferRoom(1_000))
    bound = bind(HOST, 0)
    await listener.start(bound)
    it = Served(listener, bound.port, script, ByteSemaphore(1), [])
    first, second = await it.client(), await it.client()
    second.writer.write(request(1))
    assert await second.answers(1) == [1]
    limits[0] = ListenerLimits(connections_max=1)
    assert await (await it.client()).until_ended() == b""
    first.writer.write(request(2))
    assert await first.answers(1) == [2]
    limits[0] = ListenerLimits(connections_max=3)
    third = await it.client()
    third.writer.write(request(3))
    assert await third.answers(1) == [3]
    await listener.stop()
    for client in it.clients:
        client.writer.close()


async def test_single_addresses_and_listeners_have_bounds_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(connections_per_address_max=1, by_address={"127.0.0.1": 3}, by_listener={"PLAINTEXT": 2}) as it:
        it.script.is_open = True
        for number in range(2):
            client = await it.client()
            client.writer.write(request(number))
            assert await client.answers(1) == [number]
        assert await (await it.client()).until_ended() == b""
    assert any("2 connections already to PLAINTEXT" in message for message in caplog.messages)


async def test_the_kernel_asks_whether_silent_clients_are_there() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0))
        await it.script.until(lambda: it.script.begun)
        (connection,) = it.listener._connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
