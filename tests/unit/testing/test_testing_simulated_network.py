"""The simulated network behind the transport seam: what a caller sees of a slow, lossy, cut or dead other side."""

from __future__ import annotations

import asyncio

import pytest

from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import ConfigError, InvariantViolationError, ReplogError, TopicExistsError
from replog.rpc.messages import Hello
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_network import NetworkConditions
from replog.testing.simulated_process import PROCESS
from tests.unit.testing.simulated_server import HELLO, QUORUM, World, run

# ---- calls ---------------------------------------------------------------------------------------------------------------


def test_calls_pass_the_codecs_and_take_time() -> None:
    async def test(world: World) -> None:
        began = world.loop.time()
        assert await world.call() == QUORUM
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
        assert await world.call() == QUORUM

    run(test)


def test_calls_of_one_method_hang_and_others_pass() -> None:
    async def test(world: World) -> None:
        world.network.cut("caller", "server", "Quorum")
        assert await world.call() == QUORUM
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
        assert await world.call() == QUORUM
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
        assert await world.call() == QUORUM
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
