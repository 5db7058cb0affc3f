"""The simulated network behind the transport seam: what a caller sees of a slow, lossy, cut or dead other side."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from replog.controller.messages import CreateTopics, CreateTopicsResponse
from replog.errors import (
    ConfigError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvariantViolationError,
    ReplogError,
    TopicExistsError,
)
from replog.rpc.calls import IncomingCall
from replog.rpc.grpc_transport import client_hello
from replog.rpc.messages import FetchRequest, FetchResponse, Hello
from replog.rpc.metadata_messages import ClusterMetadata, MetadataRequest, MetadataUpdate, WatchRequest
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.transport import ConnectionLostError, RequestContext
from replog.testing.simulated_connection import SimulatedConnection
from replog.testing.simulated_network import WINDOW_BYTES, NetworkConditions, SimulatedNetwork
from replog.testing.simulated_process import PROCESS, SimulatedProcess
from replog.testing.simulated_transport import SimulatedHost, SimulatedInternet
from replog.testing.virtual_loop import VirtualLoop

HELLO = client_hello("c", "tester")
METADATA = ClusterMetadata("c", 0, -1, 0, (), ())
UPDATE = MetadataUpdate("c", 0, -1, 0, (), ())
ADDRESS = "127.0.0.1:9000"


class Handlers:
    """A node that answers what a test tells it to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls = 0
        self.contexts: list[RequestContext] = []
        self.read: list[int] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.ended = 0
        self.changes = asyncio.Queue[MetadataUpdate]()

    def check_hello(self, hello: Hello) -> Hello:
        if hello.cluster_id != "c":
            raise InconsistentClusterIdError(f"this is cluster c, not {hello.cluster_id}")
        return Hello("c", 1, UUID(int=1))

    async def handle_client_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        self.calls += 1
        self.contexts.append(context)
        try:
            if isinstance(call.request, DescribeNodeRequest):
                await asyncio.Event().wait()
            if self.error:
                raise self.error
            return METADATA
        finally:
            self.ended += 1

    async def handle_controller_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        self.contexts.append(context)
        assert call.forwarded
        return CreateTopicsResponse(())

    async def watch_metadata(self, request: WatchRequest, context: RequestContext) -> AsyncIterator[MetadataUpdate]:
        assert request.known_offset == 7
        self.contexts.append(context)
        try:
            while True:
                yield await self.changes.get()
        finally:
            self.ended += 1

    async def handle_fetch_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        self.contexts.append(context)
        try:
            while True:
                await self.reading.wait()
                request = await stream.receive()
                self.read.append(request.correlation_id)
                if self.error:
                    raise self.error
                if request.timeout_ms == 0:
                    return
                await stream.send(FetchResponse(request.correlation_id, (), ()))
        finally:
            self.ended += 1

    handle_produce_stream = handle_quorum_stream = handle_fetch_stream


class World:
    """A server process and a caller on hosts of their own."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, random.Random(5))
        self.internet = SimulatedInternet(self.network)
        self.caller: SimulatedHost = self.internet.host("caller")
        self.host: SimulatedHost = self.internet.host("server")
        self.handlers = Handlers()
        self.process: SimulatedProcess = loop.new_process("server")
        self.connection: SimulatedConnection = self.caller.connect(ADDRESS, purpose="test")

    async def serve(self) -> None:
        self.process.on_kill.append(self.host.lose_process)

        async def start() -> None:
            host, port = ADDRESS.split(":")
            await self.host.bind(host, int(port)).start(self.handlers)  # type: ignore[arg-type]  # one handler for three kinds

        await self.process.create_task(start())

    async def call(self, timeout_ms: int = 5_000) -> Any:
        return await self.connection.call(MetadataRequest(), timeout_ms=timeout_ms, cluster_id="c")

    async def echo(self, stream: Any, number: int, *, timeout_ms: int = 1) -> int:
        await stream.send(FetchRequest(number, timeout_ms, -1, -1, 0, 0, 0, ()))
        found: int = (await stream.receive()).correlation_id
        return found

    async def settle(self) -> None:
        await asyncio.sleep(20)


def run(test: Callable[[World], Awaitable[None]], *, serve: bool = True) -> World:
    loop = VirtualLoop(random.Random(4))
    world: list[World] = []

    async def main() -> None:
        world.append(World(loop))
        if serve:
            await world[0].serve()
        await test(world[0])

    loop.run(main())
    return world[0]


# ---- calls ---------------------------------------------------------------------------------------------------------------


def test_calls_pass_the_codecs_and_take_time() -> None:
    async def test(world: World) -> None:
        began = world.loop.time()
        assert await world.call() == METADATA
        assert 0 < world.loop.time() - began < 0.01
        answer = await world.connection.controller_call(CreateTopics(()), timeout_ms=1_000, forwarded=True)
        assert answer == CreateTopicsResponse(())
        assert world.handlers.contexts[0].peer == "simulated:caller"
        assert world.network.delivered == 4

    run(test)


def test_errors_of_the_other_side_arrive_as_their_class() -> None:
    async def test(world: World) -> None:
        world.handlers.error = TopicExistsError("it is there")
        with pytest.raises(TopicExistsError, match="it is there"):
            await world.call()

    run(test)


def test_a_bug_of_the_other_side_is_a_lost_connection_and_noted() -> None:
    async def test(world: World) -> None:
        world.handlers.error = InvariantViolationError("our bug")
        with pytest.raises(ConnectionLostError):
            await world.call()
        assert "our bug" in world.loop.problems[0]

    run(test)


def test_nobody_at_the_address_refuses() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConnectionLostError) as caught:
            await world.call()
        assert caught.value.refused
        assert world.loop.time() < 0.1

    run(test, serve=False)


def test_a_machine_without_power_is_silent() -> None:
    async def test(world: World) -> None:
        world.host.is_off = True
        world.process.kill()
        with pytest.raises(ConnectionLostError) as caught:
            await world.call()
        assert not caught.value.refused
        assert 1 <= world.loop.time() < 2

    run(test)


def test_a_call_that_is_not_answered_ends_at_its_time_out_and_its_handler_with_it() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConnectionLostError, match="no answer in 200 ms"):
            await world.connection.call(DescribeNodeRequest(), timeout_ms=200)
        await world.settle()
        assert world.handlers.ended == world.handlers.calls == 1

    run(test)


def test_lost_messages_of_calls_are_time_outs_before_or_after_the_work() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(unary_loss=0.5)
        outcomes = []
        for _ in range(60):
            before = world.handlers.calls
            try:
                await world.call(timeout_ms=100)
                outcomes.append("answered")
            except ConnectionLostError:
                await world.settle()
                outcomes.append("done" if world.handlers.calls > before else "not done")
        assert set(outcomes) == {"answered", "done", "not done"}

    run(test)


def test_one_way_cuts() -> None:
    async def test(world: World) -> None:
        world.network.cut("server", "caller")
        with pytest.raises(ConnectionLostError):
            await world.call(timeout_ms=500)
        assert world.handlers.calls == 1  # it was done, the answer got lost
        world.network.mend("server", "caller")
        world.network.cut("caller", "server")
        with pytest.raises(ConnectionLostError):
            await world.call(timeout_ms=500)
        await world.settle()
        assert world.handlers.calls == 1
        world.network.mend_all()
        assert await world.call() == METADATA

    run(test)


def test_calls_of_one_method_hang_and_others_pass() -> None:
    async def test(world: World) -> None:
        world.network.cut("caller", "server", "Quorum")
        assert await world.call() == METADATA
        with pytest.raises(ConnectionLostError):
            await world.connection.open_quorum(HELLO)
        world.network.mend("caller", "server")
        await world.connection.open_quorum(HELLO)
        world.network.cut("caller", "server")
        assert world.network.is_cut("caller", "server", "Quorum")

    run(test)


def test_what_waits_on_a_cut_link_passes_when_it_is_mended_in_time() -> None:
    async def test(world: World) -> None:
        world.network.cut("caller", "server")
        world.loop.call_later(0.5, world.network.mend_all)
        assert await world.call() == METADATA
        assert world.loop.time() > 0.5

    run(test)


def test_calls_before_the_start_wait_for_it() -> None:
    async def test(world: World) -> None:
        async def bind_then_start() -> None:
            server = world.host.bind("127.0.0.1", 9000)
            await asyncio.sleep(2)
            await server.start(world.handlers)  # type: ignore[arg-type]  # as above

        world.process.create_task(bind_then_start())
        await asyncio.sleep(0.1)
        assert await world.call() == METADATA
        assert world.loop.time() > 2

    run(test, serve=False)


def test_an_address_is_bound_once() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConfigError, match="still listens"):
            world.host.bind("127.0.0.1", 9000)
        with pytest.raises(ConfigError, match="another host"):
            world.caller.bind("127.0.0.1", 9000)
        assert world.caller.bind("127.0.0.1", 0).port != world.internet.host("third").bind("127.0.0.1", 0).port

    run(test)


# ---- streams -------------------------------------------------------------------------------------------------------------


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


def test_a_metadata_watch() -> None:
    async def test(world: World) -> None:
        watch = world.connection.watch_metadata(WatchRequest(7))
        for offset in range(3):
            world.handlers.changes.put_nowait(replace(UPDATE, metadata_offset=offset))
            assert (await anext(watch)).metadata_offset == offset
        world.process.kill()
        with pytest.raises(ConnectionLostError):
            await anext(watch)

    run(test)


# ---- the server's side ---------------------------------------------------------------------------------------------------


def test_handlers_belong_to_the_process_of_the_server() -> None:
    async def test(world: World) -> None:
        found: list[object] = []
        check_hello = world.handlers.check_hello

        def look(hello: Hello) -> Hello:
            found.append(PROCESS.get())
            return check_hello(hello)

        world.handlers.check_hello = look  # type: ignore[method-assign]  # to look from inside
        await world.connection.open_fetch(HELLO)
        assert found == [world.process]

    run(test)


def test_stop_refuses_what_is_new_and_ends_what_runs() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        server = world.host.server
        assert server is not None
        await world.process.create_task(server.stop(0.2))
        with pytest.raises(ConnectionLostError):
            await stream.receive()
        assert world.handlers.ended == 1
        with pytest.raises(ConnectionLostError) as caught:
            await world.call()
        assert caught.value.refused

    run(test)


def test_one_seed_is_one_trace() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(straggler=0.1, unary_loss=0.1, stream_break=0.05)
        for _ in range(30):
            try:
                await world.call(timeout_ms=100)
                stream = await world.connection.open_fetch(HELLO)
                for number in range(5):
                    await world.echo(stream, number)
            except ReplogError:
                continue

    assert run(test).loop.trace == run(test).loop.trace
