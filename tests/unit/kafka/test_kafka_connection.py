"""Connections of Kafka's clients, over real sockets: order, bounds, ends."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import struct
from collections.abc import Callable
from itertools import chain
from typing import cast

import pytest
from msgspec.structs import replace

from replog.errors import MalformedFrameError
from replog.metadata.records import CLIENT_LISTENER
from replog.tcp import connection as connection_module
from replog.tcp import listener as listener_module
from replog.tcp import transfer_room as transfer_room_module
from replog.tcp.answers import Answer
from replog.tcp.connection import Caller, RequestServer, ServerConnection
from replog.tcp.idle_connections import IdleConnections
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore
from tests.quiet import quiet_for
from tests.unit.kafka.served_connections import ALONE, LIMITS, OVERLAPPING, Client, Script, answer, request, serving

# ---- order ---------------------------------------------------------------------------------------------------------


async def test_answers_come_in_order_though_they_are_ready_in_another() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(b"".join(map(request, range(4))))
        await it.script.until(lambda: len(it.script.gates) == 4)
        it.script.finish(3, 1, 2)
        await quiet_for(0.03)
        it.script.finish(0)
        assert await client.answers(4) == [0, 1, 2, 3]


async def test_a_request_that_may_not_overlap_waits_and_is_waited_for() -> None:
    """Example: a fetch between produces, which holds up what comes behind it."""
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + request(1) + request(2, kind=ALONE) + request(3) + request(4))
        await it.script.until(lambda: len(it.script.gates) == 2)
        it.script.finish(1)
        await quiet_for(0.03)
        assert it.script.begun == [0, 1]
        it.script.finish(0)
        await it.script.until(lambda: 2 in it.script.gates)
        await quiet_for(0.03)
        assert it.script.begun == [0, 1, 2]
        it.script.finish(2)
        await it.script.until(lambda: 4 in it.script.gates)
        it.script.finish(3, 4)
        assert await client.answers(5) == [0, 1, 2, 3, 4]


async def test_who_leaves_with_requests_behind_one_that_waits_is_missed_at_once() -> None:
    """Goal: a fetch that waits for a minute holds nothing of a client that has gone."""
    async with serving() as it:
        client = await it.client()
        client.writer.write(b"".join(request(number, kind=ALONE) for number in range(3)))
        await it.script.until(lambda: it.script.begun)
        client.writer.close()
        async with asyncio.timeout(30):
            await asyncio.wait([it.script.gates[0]])
        assert (it.script.gates[0].cancelled(), it.script.begun) == (True, [0])


async def test_a_request_without_an_answer_is_passed_over() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(b"".join(map(request, range(3))))
        await it.script.until(lambda: len(it.script.gates) == 3)
        it.script.finish(0, 2)
        it.script.gates[1].set_result(None)
        assert await client.answers(2) == [0, 2]


@pytest.mark.parametrize("seed", range(8))
async def test_any_mix_is_answered_whole_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [rng.choice([OVERLAPPING, OVERLAPPING, ALONE]) for _ in range(60)]
    sizes = [rng.choice([12, 200, 70_000, 300_000]) for _ in kinds]
    sent: list[bytes] = []

    async def serve(frame: memoryview, _address: str) -> Answer | None:
        number: int = struct.unpack_from(">hi", frame)[1]
        assert len(frame) == sizes[number]
        for _ in range(rng.randint(0, 20)):
            await asyncio.sleep(0)
        sent.append(bytes(frame[:10]))
        return answer(number, rng.choice([0, 10, 200_000]))

    async with serving(serve=serve, bytes_max=400_000) as it:
        client = await it.client()
        data = b"".join(request(n, kind=kind, size=sizes[n]) for n, kind in enumerate(kinds))

        async def send() -> None:
            at = 0
            while at < len(data):
                step = rng.choice([1, 7, 5_000, 400_000])
                client.writer.write(data[at : at + step])
                await client.writer.drain()
                at += step

        sending = asyncio.create_task(send())
        assert await client.answers(len(kinds)) == list(range(len(kinds)))
        await sending
        assert len(sent) == len(kinds)


# ---- bounds --------------------------------------------------------------------------------------------------------


async def test_requests_in_flight_are_bounded() -> None:
    async with serving(limits=replace(LIMITS, in_flight_max=5)) as it:
        client = await it.client()
        client.writer.write(b"".join(map(request, range(40))))
        await it.script.until(lambda: len(it.script.gates) == 5)
        await quiet_for(0.03)
        assert it.script.begun == list(range(5))
        it.script.is_open = True
        it.script.finish(*range(5))
        assert await client.answers(40) == list(range(40))


async def test_bytes_of_requests_are_bounded_over_all_connections() -> None:
    async with serving(bytes_max=1_000) as it:
        first, second = await it.client(), await it.client()
        first.writer.write(request(0, size=900))
        await it.script.until(lambda: 0 in it.script.gates)
        second.writer.write(request(1, size=900) + request(2))
        await quiet_for(0.03)
        assert it.script.begun == [0]
        it.script.finish(0)
        await it.script.until(lambda: 2 in it.script.gates)
        it.script.finish(1, 2)
        assert (await first.answers(1), await second.answers(2)) == ([0], [1, 2])


async def test_memory_for_a_large_request_waits_for_room() -> None:
    async with serving(bytes_max=1_000_000) as it:
        first, second = await it.client(), await it.client()
        first.writer.write(request(0, size=900_000))
        await it.script.until(lambda: 0 in it.script.gates)
        second.writer.write(request(1, size=800_000))
        await quiet_for(0.03)
        assert (it.script.begun, it.request_bytes.held_bytes) == ([0], 900_000)
        it.script.finish(0)
        await it.script.until(lambda: 1 in it.script.gates)
        assert it.request_bytes.held_bytes == 800_000
        it.script.finish(1)
        assert await second.answers(1) == [1]


async def test_a_small_request_does_not_wait_for_the_room_of_large_ones() -> None:
    """Goal: metadata are answered, and leaders found, while produces have taken all memory for requests."""
    async with serving(bytes_max=1_000) as it:
        first, second, third = await it.client(), await it.client(), await it.client()
        first.writer.write(request(0, size=900))
        await it.script.until(lambda: 0 in it.script.gates)
        second.writer.write(request(1, size=900))  # waits
        third.writer.write(request(2, kind=ALONE, size=900) + request(3, size=900))
        await it.script.until(lambda: 2 in it.script.gates)
        it.script.finish(2)
        assert await third.answers(1) == [2]
        await quiet_for(0.03)
        assert it.script.begun == [0, 2], "what may overlap has no part in the reserve, be it small or not"
        it.script.is_open = True
        it.script.finish(0)
        assert (await second.answers(1), await third.answers(1)) == ([1], [3])
        assert it.listener._small_bytes.held_bytes == 0


@pytest.mark.parametrize("size", [900, 900_000])
async def test_who_leaves_while_waiting_for_room_stands_in_nobodys_way(size: int) -> None:
    """Note: reading pauses meanwhile, so what has come whole is begun before the end of the connection is seen."""
    async with serving(bytes_max=size + 10) as it:
        first, second, third = await it.client(), await it.client(), await it.client()
        first.writer.write(request(0, size=size))
        await it.script.until(lambda: 0 in it.script.gates)
        second.writer.write(request(1, size=size))
        await quiet_for(0.03)
        second.writer.transport.abort()
        await quiet_for(0.03)
        it.script.finish(0)
        third.writer.write(request(2, size=size))
        await it.script.until(lambda: 2 in it.script.gates)
        it.script.finish(2)
        assert await third.answers(1) == [2]


async def test_idle_connections_are_looked_at_together() -> None:
    """Goal: a loop with a thousand clients that ask for nothing sleeps, and is not woken for each of them."""
    async with serving() as it:
        for _ in range(5):
            await it.client()
            await quiet_for(0.01)
        timers = [connection._check for connection in it.listener._connections]
        step_s = connection_module.CHECK_S / connection_module.LOOKS_PER_CHECK
        assert len(timers) == 5
        for timer in timers:
            assert timer is not None
            assert timer.when() == round(timer.when() / step_s) * step_s


async def test_a_request_that_is_cancelled_before_it_runs_gives_its_bytes_back() -> None:
    """Example: bytes and the end of a connection come in one turn of the loop."""
    request_bytes, script = ByteSemaphore(1_000), Script()
    listener = Listener(
        RequestServer(script.serve, lambda frame: True, lambda frame: True),
        ListenerLimits,
        request_bytes,
        TransferRoom(1),
    )
    made = listener._accept(CLIENT_LISTENER)
    made.connection_made(asyncio.Transport({"peername": ("127.0.0.1", 1)}))
    data = request(0, size=500) + request(1, size=100)
    made.get_buffer(-1)[: len(data)] = data
    made.buffer_updated(len(data))
    assert request_bytes.held_bytes == 600
    made.connection_lost(None)
    await made.closed
    assert (request_bytes.held_bytes, script.begun, len(listener)) == (0, [], 0)


async def test_a_client_that_does_not_read_is_asked_nothing_more_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    async with serving(limits=replace(LIMITS, stalled_s=0.3)) as it:
        it.script.is_open, it.script.answer_size = True, 1 << 20
        client = await it.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b"".join(request(n, kind=ALONE) for n in range(100)))
        async with asyncio.timeout(60):
            while len(it.listener):
                await asyncio.sleep(0.01)
        assert 1 <= len(it.script.begun) < 50


@pytest.mark.parametrize(
    ("limit", "sent", "text"),
    [
        ("first_request_s", b"", "no request came within"),
        ("stalled_s", request(0) + request(1)[:7], "a request stopped in the middle"),
    ],
)
async def test_time_is_bounded(
    limit: str, sent: bytes, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    async with serving(limits=replace(LIMITS, **{limit: 0.1})) as it:
        it.script.is_open = True
        client = await it.client()
        client.writer.write(sent)
        assert len(await client.until_ended()) == (8 if sent else 0)
    assert text in caplog.text


async def trickle(client: Client, data: bytes) -> None:
    """Sends a byte now and then until the connection ends."""
    with contextlib.suppress(OSError):
        for at in range(len(data)):
            client.writer.write(data[at : at + 1])
            await client.writer.drain()
            await quiet_for(0.02)


async def test_a_large_request_that_trickles_holds_memory_of_all_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    async with serving(limits=replace(LIMITS, stalled_s=0.3)) as it:
        client = await it.client()
        client.writer.write(request(0) + request(1, size=900_000)[:100])
        trickling = asyncio.create_task(trickle(client, bytes(2_000)))
        await client.until_ended()
        await trickling
    assert "a request stopped in the middle" in caplog.text


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_room_module, "GRACE_S", 0.05)
    monkeypatch.setattr(transfer_room_module, "LOOK_S", 0.02)
    monkeypatch.setattr(transfer_room_module, "FINISH_S", 0.2)


@pytest.mark.usefixtures("hurried")
async def test_a_large_request_that_trickles_gives_way_to_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    """Example: two connections announce 64 MiB each and send a byte a second; every producer waits for a minute."""
    async with serving(reading_bytes_max=1_000_000) as it:
        it.script.is_open = True
        slow, small, large = await it.client(), await it.client(), await it.client()
        slow.writer.write(request(0, size=900_000)[:100])
        trickling = asyncio.create_task(trickle(slow, bytes(2_000)))
        await quiet_for(0.5)
        assert not trickling.done(), "nobody waits"
        small.writer.write(request(1, size=50_000))
        assert await small.answers(1) == [1]
        assert not trickling.done(), "small requests do not wait for it"
        large.writer.write(request(2, size=900_000))
        assert await large.answers(1) == [2]
        await trickling
    assert "came too slowly while others waited" in caplog.text


async def test_a_large_request_that_comes_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_room_module, "GRACE_S", 0.0)
    monkeypatch.setattr(transfer_room_module, "LOOK_S", 0.01)
    async with serving(reading_bytes_max=1_000_000) as it:
        it.script.is_open = True
        first, second = await it.client(), await it.client()
        data = request(0, size=900_000)
        first.writer.write(data[:800_000])  # most of the five seconds' worth
        await quiet_for(0.05)
        second.writer.write(request(1, size=900_000))
        await quiet_for(0.2)
        assert it.script.begun == []
        first.writer.write(data[800_000:])
        assert (await first.answers(1), await second.answers(1)) == ([0], [1])


async def test_a_large_request_behind_one_that_waits_takes_no_memory_of_others() -> None:
    """Example: a fetch that waits a minute for records, and 64 MiB behind it."""
    async with serving(reading_bytes_max=1_000_000) as it:
        waiting, other = await it.client(), await it.client()
        waiting.writer.write(request(0, kind=ALONE))
        await it.script.until(lambda: 0 in it.script.gates)
        waiting.writer.write(request(1, size=900_000))
        await quiet_for(0.03)
        other.writer.write(request(2, size=900_000))
        await it.script.until(lambda: 2 in it.script.gates)
        other.writer.write(request(3, kind=ALONE, size=900_000))  # behind an append whose answer is waited for
        await quiet_for(0.03)
        third = await it.client()
        third.writer.write(request(4, size=900_000))
        await it.script.until(lambda: 4 in it.script.gates)
        it.script.is_open = True
        it.script.finish(0, 2, 4)
        assert (await waiting.answers(2), await other.answers(2), await third.answers(1)) == ([0, 1], [2, 3], [4])


async def test_only_records_are_very_large(caplog: pytest.LogCaptureFixture) -> None:
    """Example: a fetch that waits a minute, with 64 MiB of anything behind its last field: all memory for produces."""
    async with serving(limits=replace(LIMITS, recordless_bytes_max=200_000)) as it:
        it.script.is_open = True
        client, other = await it.client(), await it.client()
        client.writer.write(request(0, size=300_000) + request(1, kind=ALONE, size=200_000))
        other.writer.write(request(2) + request(3, kind=ALONE, size=300_000)[:100])
        assert (await client.answers(2), await other.answers(1)) == ([0, 1], [2])
        assert await other.until_ended() == b""
    assert "a request without records is said to have 300000 bytes, and has at most 200000" in caplog.text


async def test_a_client_that_sends_and_does_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Example: it leaves an answer of 32 MiB where it is, and sends a byte now and then."""
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    async with serving(limits=replace(LIMITS, stalled_s=0.3)) as it:
        it.script.is_open, it.script.answer_size = True, 32 << 20
        client = await it.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(request(0))
        await asyncio.wait_for(trickle(client, request(1, size=2_000)), 60)
        async with asyncio.timeout(60):
            while len(it.listener):
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("hurried")
async def test_large_answers_that_are_not_read_give_way_to_those_who_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Example: forty connections asked for all metadata of a large cluster and read nothing, and the broker held 2.4 GB."""
    monkeypatch.setattr(listener_module, "WRITING_BYTES", 40 << 20)
    async with serving() as it:
        it.script.is_open, it.script.answer_size = True, 32 << 20
        idle = [await it.client() for _ in range(3)]
        for number, client in enumerate(idle):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(request(number))
        await it.script.until(lambda: len(it.script.begun) == 3)
        assert 32 << 20 <= it.listener._writing_room.held_bytes < 33 << 20, "the others wait, and are not written"
        it.script.answer_size = 0
        other = await it.client()
        other.writer.write(request(3))
        assert await other.answers(1) == [3], "what is small does not wait"
        it.script.answer_size = 32 << 20
        other.writer.write(request(4) + request(5))
        assert await other.answers(2) == [4, 5]
    assert "a large answer was read too slowly while others waited" in caplog.text


async def test_large_answers_leave_one_after_another_in_their_order() -> None:
    async with serving() as it:
        it.script.answer_size = 8 << 20
        client = await it.client()
        client.writer.write(b"".join(request(number) for number in range(4)))
        await it.script.until(lambda: len(it.script.gates) == 4)
        it.script.finish(3, 2, 1, 0)
        assert await client.answers(4) == [0, 1, 2, 3]
        assert it.listener._writing_room.held_bytes == 0


async def test_a_request_that_takes_long_is_no_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.01)
    async with serving(limits=replace(LIMITS, idle_s=0.05, stalled_s=0.05, first_request_s=0.05)) as it:
        client = await it.client()
        client.writer.write(request(0))
        await it.script.until(lambda: 0 in it.script.gates)
        await quiet_for(0.2)
        it.script.finish(0)
        assert await client.answers(1) == [0]


async def test_a_connection_ends_over_which_nothing_comes(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: clients that are gone, or keep connections that they need no more, hold nothing; nobody is alarmed."""
    async with serving(limits=replace(LIMITS, idle_s=0.1)) as it:
        it.script.is_open = True
        client, silent = await it.client(), await it.client()
        client.writer.write(request(0) + request(1))
        assert await client.answers(2) == [0, 1]
        assert (await client.until_ended(), await silent.until_ended()) == (b"", b"")
        await until(lambda: not len(it.listener))
        assert it.listener.ended_count == 2
    assert [record.message for record in caplog.records if "no request came for" in record.message] == []


async def test_connections_that_are_idle_have_one_timer_and_are_served_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    async with serving() as it:
        it.script.is_open = True
        clients = [await it.client() for _ in range(3)]
        for turn in range(2):
            for number, client in enumerate(clients):
                client.writer.write(request(number))
                assert await client.answers(1) == [number], turn
            await until(lambda: len(it.listener._idle) == 3)
            assert [connection._check for connection in it.listener._connections] == [None] * 3
        clients[0].writer.close()
        await until(lambda: len(it.listener._idle) == 2)
        clients[1].writer.write(request(1)[:7])
        await until(lambda: len(it.listener._idle) == 1)


@pytest.mark.parametrize("parts", [[request(0)[:7]], [b""], [request(0, kind=ALONE), request(1)[:7]]])
async def test_no_connection_is_idle_that_has_yet_to_ask_or_is_asking(
    parts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_S", 0.01)
    async with serving() as it:
        client = await it.client()
        for part in parts:
            client.writer.write(part)
            await quiet_for(0.05)
        assert (len(it.listener), len(it.listener._idle)) == (1, 0)


async def test_what_a_slow_reader_has_read_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Example: an answer that takes a minute to read, with `connections.max.idle.ms` of a second."""
    monkeypatch.setattr(connection_module, "CHECK_S", 0.01)
    async with serving() as it:
        it.script.is_open, it.script.answer_size = True, 32 << 20
        client = await it.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(request(0))
        await it.script.until(lambda: it.script.begun)
        (connection,) = it.listener._connections
        await until(lambda: connection._written_bytes)
        asked_s = connection._heard_s
        await quiet_for(0.05)
        assert len(it.listener._idle) == 0
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await client.answers(1) == [0]
        await until(lambda: len(it.listener._idle))
        assert it.listener._idle._since_s[connection] > asked_s + 0.05


async def test_idle_connections_end_some_at_a_time_and_the_oldest_first() -> None:
    """Goal: ten thousand that are due at once are not one turn of the loop."""
    ended: list[list[object]] = [[]]
    loop = asyncio.get_running_loop()

    class Ended:
        def end_idle(self, idle_s: float) -> None:
            assert idle_s >= 1
            if not ended[-1]:
                loop.call_soon(ended.append, [])  # the next turn
            ended[-1].append(self)

    idle, connections = IdleConnections(1.0), [Ended() for _ in range(250)]
    young = Ended()
    for connection in connections:
        idle.add(connection, loop.time() - 1)
    idle.add(young, loop.time() + 60)
    idle.discard(connections[0])
    await until(lambda: len(idle) == 1)
    assert [len(turn) for turn in ended if turn] == [100, 100, 49]
    assert list(chain(*ended)) == connections[1:]
    idle.stop()


async def test_nothing_ends_where_idle_connections_may_stay() -> None:
    idle = IdleConnections(math.inf)
    idle.add(cast("ServerConnection", object()), 0.0)
    assert idle._timer is None


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_throttled_client_is_taken_up_again_after_its_time() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + request(1))
        await it.script.until(lambda: 1 in it.script.gates)
        it.script.gates[0].set_result(answer(0)._replace(mute_s=0.2))
        it.script.finish(1)
        assert await client.answers(2) == [0, 1]
        began_s = asyncio.get_running_loop().time()
        client.writer.write(request(2))
        await it.script.until(lambda: 2 in it.script.gates)
        assert asyncio.get_running_loop().time() - began_s > 0.05
        it.script.finish(2)
        assert await client.answers(1) == [2]


async def test_nothing_is_taken_up_behind_a_request_that_is_one_too_many() -> None:
    """Example: 64 produces in flight were done before the connection of a throttled producer rested."""
    script = Script()

    async def serve(frame: memoryview, caller: object) -> Answer | None:
        assert isinstance(caller, Caller)
        if not script.begun:
            caller.rest(30)
        return await script.serve(frame, caller)

    async with serving(serve=serve) as it:
        client = await it.client()
        client.writer.write(request(0))
        await script.until(lambda: 0 in script.gates)
        client.writer.write(request(1))
        await quiet_for(0.05)
        assert script.begun == [0]
        script.finish(0)
        assert await client.answers(1) == [0], "what is in flight is answered"


async def test_a_shorter_time_does_not_end_a_longer_one() -> None:
    """Example: two answers in flight; the first one says 30 s, the second one 10 ms."""
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + request(1))
        await it.script.until(lambda: 1 in it.script.gates)
        it.script.gates[0].set_result(answer(0)._replace(mute_s=30))
        it.script.gates[1].set_result(answer(1)._replace(mute_s=0.01))
        assert await client.answers(2) == [0, 1]
        client.writer.write(request(2))
        await quiet_for(0.05)
        assert it.script.begun == [0, 1]


async def test_a_throttled_client_takes_no_memory_of_others() -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0))
        await it.script.until(lambda: 0 in it.script.gates)
        it.script.gates[0].set_result(answer(0)._replace(mute_s=0.2))
        assert await client.answers(1) == [0]
        client.writer.write(request(1, size=900_000))
        await quiet_for(0.05)
        assert it.request_bytes.held_bytes == 0
        await it.script.until(lambda: 1 in it.script.gates)
        it.script.finish(1)
        assert await client.answers(1) == [1]


# ---- ends ----------------------------------------------------------------------------------------------------------


async def test_what_came_before_a_frame_that_is_none_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + request(1) + struct.pack(">i", -5) + request(2))
        await it.script.until(lambda: 1 in it.script.gates)
        it.script.finish(1)
        await quiet_for(0.03)
        it.script.finish(0)
        assert await client.answers(2) == [0, 1]
        assert await client.until_ended() == b""
        assert it.script.begun == [0, 1]
    assert "said to have -5 bytes" in caplog.text


@pytest.mark.parametrize(
    ("error", "text"), [(MalformedFrameError("cut off"), "cut off"), (KeyError("x"), "a bug of ours")]
)
async def test_a_request_that_cannot_be_answered_ends_its_connection_alone(
    error: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as it:
        client, other = await it.client(), await it.client()
        other.writer.write(request(9))
        client.writer.write(request(0) + request(1) + request(2))
        await it.script.until(lambda: {2, 9} <= it.script.gates.keys())
        it.script.gates[1].set_exception(error)
        it.script.finish(2, 0, 9)
        assert await client.answers(1) == [0]
        assert await client.until_ended() == b""
        assert await other.answers(1) == [9]
    assert f"was ended: {text}" in caplog.text


async def test_a_request_that_the_broker_cancels_before_what_is_no_frame_ends_its_connection() -> None:
    """Trap: the end waited for its answer, for ever."""
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + struct.pack(">i", -1))
        await it.script.until(lambda: 0 in it.script.gates)
        it.script.gates[0].cancel()
        assert await client.until_ended() == b""


async def test_a_request_that_the_broker_cancels_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Note: its answer never comes, and all behind it would be held back for ever."""
    async with serving() as it:
        client = await it.client()
        client.writer.write(request(0) + request(1))
        await it.script.until(lambda: 1 in it.script.gates)
        it.script.gates[0].cancel()
        assert await client.until_ended() == b""
    assert "given up by the broker" in caplog.text
