"""Nodes that meet over simulated TCP: what the real transport makes of a slow, lossy, cut or dead other side."""

from __future__ import annotations

import asyncio

import pytest

from replog.errors import InvariantViolationError, ReplogError, TopicExistsError
from replog.rpc.messages import FetchRequest, Hello
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.tcp.wire import StreamKind
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_network import NetworkConditions
from replog.testing.simulated_process import PROCESS
from tests.unit.testing.simulated_peer import HELLO, QUORUM, World, run

# ---- calls ---------------------------------------------------------------------------------------------------------------


def test_calls_take_time_and_errors_arrive_as_their_class() -> None:
    async def test(world: World) -> None:
        assert await world.call() == QUORUM
        assert 0 < world.loop.time() < 0.02
        world.handlers.error = TopicExistsError("it is there")
        with pytest.raises(TopicExistsError, match="it is there"):
            await world.call()

    run(test)


@pytest.mark.parametrize("bug", [InvariantViolationError("our bug"), KeyError("our bug")])
def test_a_bug_of_the_other_side_is_answered_and_the_simulation_hears_of_it(bug: Exception) -> None:
    async def test(world: World) -> None:
        world.handlers.error = bug
        with pytest.raises(ReplogError, match="a bug of this node; its log says more"):
            await world.call()
        assert "our bug" in world.loop.problems[0]
        stream = await world.connection.open_fetch(HELLO)
        with pytest.raises(ReplogError, match="a bug of this node; its log says more"):
            await world.echo(stream, 1)
        assert len(world.loop.problems) == 2

    run(test)


def test_nobody_refuses_and_a_machine_without_power_is_silent() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConnectionLostError) as caught:
            await world.call()
        assert caught.value.refused
        assert world.loop.time() < 0.1
        await world.serve()
        world.host.is_off = True
        world.process.kill()
        with pytest.raises(ConnectionLostError) as caught:
            await world.call()
        assert not caught.value.refused
        assert 1 <= world.loop.time() < 2

    run(test, serve=False)


def test_one_way_cuts_before_and_after_the_work() -> None:
    async def test(world: World) -> None:
        assert await world.call() == QUORUM
        for source, target, done in (("server", "caller", 2), ("caller", "server", 2)):
            world.network.cut(source, target)
            with pytest.raises(ConnectionLostError):
                await world.call(timeout_ms=500)
            await world.settle()
            assert world.handlers.calls == done
            world.network.mend(source, target)
        assert await world.call() == QUORUM

    run(test)


def test_a_call_that_its_caller_has_given_up_arrives_when_the_link_is_mended() -> None:
    async def test(world: World) -> None:
        assert await world.call() == QUORUM
        world.network.cut("caller", "server")
        with pytest.raises(ConnectionLostError, match="no answer in 500 ms"):
            await world.call(timeout_ms=500)
        world.network.mend_all()
        await world.settle()
        assert world.handlers.calls == 2

    run(test)


def test_streams_of_one_kind_hang_and_others_pass() -> None:
    async def test(world: World) -> None:
        world.network.cut("caller", "server", StreamKind.QUORUM)
        assert await world.call() == QUORUM
        await world.connection.open_fetch(HELLO)
        with pytest.raises(ConnectionLostError, match="nothing passes"):
            await world.connection.open_quorum(HELLO)
        world.network.mend("caller", "server")
        await world.connection.open_quorum(HELLO)

    run(test)


def test_lost_packets_come_later_and_in_their_order() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(loss=0.5)
        stream = await world.connection.open_fetch(HELLO)
        for number in range(20):
            await stream.send(FetchRequest(number, 1, -1, -1, 0, 0, 0, ()))
        assert [(await stream.receive()).correlation_id for _ in range(20)] == list(range(20))
        assert world.loop.time() > 0.1

    run(test)


# ---- processes -----------------------------------------------------------------------------------------------------------


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


def test_a_paused_process_takes_connections_and_says_nothing() -> None:
    async def test(world: World) -> None:
        world.process.pause()
        with pytest.raises(ConnectionLostError, match="did not answer hello"):
            await world.connection.open_fetch(HELLO)
        with pytest.raises(ConnectionLostError, match="no answer in 200 ms"):
            await world.connection.call(DescribeNodeRequest(), timeout_ms=200)
        world.process.resume()
        await world.settle()
        assert world.handlers.calls == 1

    run(test)


def test_a_killed_process_breaks_its_streams_at_once_a_dead_machine_later() -> None:
    async def test(world: World) -> None:
        for is_off in (False, True):
            presence = await world.connection.open_presence(HELLO)
            assert presence.peer == world.handlers.check_hello(HELLO)
            lost = asyncio.create_task(presence.wait_lost())
            await world.settle()
            assert not lost.done()
            began = world.loop.time()
            world.host.is_off = is_off
            world.process.kill()
            await lost
            waited = world.loop.time() - began
            assert waited < 0.1 if not is_off else 3 <= waited < 4
            world.host.is_off = False
            world.process = world.loop.new_process("again")
            await world.serve()

    run(test)


# ---- what breaks on the way ----------------------------------------------------------------------------------------------


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


def test_what_was_sent_before_a_stream_was_given_up_may_arrive_long_after() -> None:
    async def test(world: World) -> None:
        stream = await world.connection.open_fetch(HELLO)
        world.network.conditions = NetworkConditions(late=1.0, late_max_s=60, split=0.0)
        for number in range(3):
            await stream.send(FetchRequest(number, 1, -1, -1, 0, 0, 0, ()))
        await stream.close()
        world.network.conditions = NetworkConditions()
        again = await world.connection.open_fetch(HELLO)
        assert await world.echo(again, 7) == 7
        assert world.handlers.read == [7]
        await asyncio.sleep(61)
        assert (world.handlers.read, world.handlers.ended) == ([7, 0, 1, 2], 1)
        assert world.network.delivered_late == 3

    run(test)


def test_one_seed_is_one_trace() -> None:
    async def test(world: World) -> None:
        world.network.conditions = NetworkConditions(straggler=0.1, loss=0.1, stream_break=0.05)
        for _ in range(30):
            try:
                await world.call(timeout_ms=100)
                stream = await world.connection.open_fetch(HELLO)
                for number in range(5):
                    await world.echo(stream, number)
            except ReplogError:
                continue

    assert run(test).loop.trace == run(test).loop.trace
