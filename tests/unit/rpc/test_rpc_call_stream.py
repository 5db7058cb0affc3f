"""Calls to the controller over one stream: grouped, answered in any order, and failed when the stream is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import MalformedFrameError, ThrottledError
from replog.rpc import call_stream
from replog.rpc.call_stream import (
    CallItem,
    CallSession,
    Items,
    StreamedCalls,
    decode_items,
    encode_items,
)
from replog.rpc.messages import client_hello
from replog.rpc.transport import ConnectionLostError


class Pipe:
    """One end of a stream in memory."""

    def __init__(self, incoming: asyncio.Queue[Items | None], outgoing: asyncio.Queue[Items | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.sent: list[Items] = []
        self.may_send = asyncio.Event()
        self.may_send.set()

    async def send(self, message: Items) -> None:
        await self.may_send.wait()
        self.sent.append(message)
        self._outgoing.put_nowait(message)

    async def receive(self) -> Items:
        message = await self._incoming.get()
        if message is None:
            raise ConnectionLostError("gone")
        return message

    async def close(self) -> None:
        self._outgoing.put_nowait(None)


class Rig:
    """Both sides, and what the server does with a call."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._answer = answer
        self.clients: list[Pipe] = []
        self.servers: list[Pipe] = []
        self.sessions: list[asyncio.Task[None]] = []
        self.refuses: Exception | None = None
        self.calls = StreamedCalls("there:1")

    async def open(self) -> Pipe:
        if self.refuses is not None:
            raise self.refuses
        there: asyncio.Queue[Items | None] = asyncio.Queue()
        back: asyncio.Queue[Items | None] = asyncio.Queue()
        self.clients.append(Pipe(back, there))
        self.servers.append(Pipe(there, back))
        self.sessions.append(asyncio.create_task(CallSession(self._answer).serve(self.servers[-1])))
        return self.clients[-1]

    async def close(self) -> None:
        await self.calls.close()
        for session in self.sessions:
            session.cancel()
        await asyncio.gather(*self.sessions, return_exceptions=True)


async def echo(body: bytes) -> bytes:
    return b"re: " + body


@given(items=st.lists(st.tuples(st.integers(1, 2**62), st.binary(max_size=20)), min_size=1, max_size=5))
def test_items_round_trip(items: list[tuple[int, bytes]]) -> None:
    message = tuple(CallItem(*item) for item in items)
    assert decode_items(encode_items(message)) == message


def test_hello_round_trips() -> None:
    hello = client_hello("c", "x")
    assert decode_items(encode_items(hello)) == hello


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x12\xff"])
def test_what_is_no_group_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_items(data)


async def test_a_call_is_answered() -> None:
    rig = Rig(echo)
    assert await rig.calls.call(b"hi", rig.open, timeout_ms=5_000) == b"re: hi"
    await rig.close()


async def test_calls_that_wait_share_a_message() -> None:
    rig = Rig(echo)
    answers = await asyncio.gather(*(rig.calls.call(b"%d" % n, rig.open, timeout_ms=5_000) for n in range(50)))
    assert answers == [b"re: %d" % n for n in range(50)]
    assert [len(message) for message in rig.clients[0].sent if isinstance(message, tuple)] == [50]
    assert len(rig.servers[0].sent) < 50
    await rig.close()


async def test_a_group_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stream, "GROUP_BYTES", 10)
    rig = Rig(echo)
    await asyncio.gather(*(rig.calls.call(bytes(size), rig.open, timeout_ms=5_000) for size in (4, 4, 4, 30, 1)))
    assert [len(message) for message in rig.clients[0].sent if isinstance(message, tuple)] == [2, 1, 1, 1]
    await rig.close()


async def test_a_slow_call_holds_up_no_other() -> None:
    go = asyncio.Event()

    async def answer(body: bytes) -> bytes:
        if body == b"slow":
            await go.wait()
        return body

    rig = Rig(answer)
    slow = asyncio.create_task(rig.calls.call(b"slow", rig.open, timeout_ms=5_000))
    assert await rig.calls.call(b"quick", rig.open, timeout_ms=5_000) == b"quick"
    assert not slow.done()
    go.set()
    assert await slow == b"slow"
    await rig.close()


async def test_a_call_without_an_answer_times_out_alone() -> None:
    async def answer(body: bytes) -> bytes:
        if body == b"never":
            await asyncio.Event().wait()
        return body

    rig = Rig(answer)
    with pytest.raises(ConnectionLostError, match="there:1: no answer in 10 ms"):
        await rig.calls.call(b"never", rig.open, timeout_ms=10)
    assert await rig.calls.call(b"next", rig.open, timeout_ms=5_000) == b"next"
    assert len(rig.clients) == 1
    await rig.close()


async def test_a_lost_stream_fails_what_waits_and_the_next_call_opens_another() -> None:
    async def answer(body: bytes) -> bytes:
        if body == b"never":
            await asyncio.Event().wait()
        return body

    rig = Rig(answer)
    lost = asyncio.create_task(rig.calls.call(b"never", rig.open, timeout_ms=5_000))
    while not rig.clients or not rig.clients[0].sent:
        await asyncio.sleep(0)
    await rig.servers[0].close()
    with pytest.raises(ConnectionLostError):
        await lost
    assert await rig.calls.call(b"next", rig.open, timeout_ms=5_000) == b"next"
    assert len(rig.clients) == 2
    await rig.close()


async def test_a_refused_connection_is_told_as_such() -> None:
    rig = Rig(echo)
    rig.refuses = ConnectionLostError("nobody there", refused=True)
    with pytest.raises(ConnectionLostError) as raised:
        await rig.calls.call(b"hi", rig.open, timeout_ms=5_000)
    assert raised.value.refused
    rig.refuses = None
    assert await rig.calls.call(b"hi", rig.open, timeout_ms=5_000) == b"re: hi"
    await rig.close()


async def test_closing_tells_whoever_waits() -> None:
    rig = Rig(lambda _: asyncio.get_running_loop().create_future())
    waiting = asyncio.create_task(rig.calls.call(b"hi", rig.open, timeout_ms=5_000))
    while not rig.servers:
        await asyncio.sleep(0)
    await rig.calls.close()
    with pytest.raises(ConnectionLostError):
        await waiting
    await rig.close()


async def test_open_calls_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bytes] = []
    go = asyncio.Event()

    async def answer(body: bytes) -> bytes:
        started.append(body)
        await go.wait()
        return body

    monkeypatch.setattr(call_stream, "MAX_OPEN_CALLS", 3)
    rig = Rig(answer)
    waiting = [asyncio.create_task(rig.calls.call(b"%d" % n, rig.open, timeout_ms=5_000)) for n in range(3)]
    while len(started) < 3:
        await asyncio.sleep(0)
    with pytest.raises(ThrottledError):
        await rig.calls.call(b"too many", rig.open, timeout_ms=5_000)
    go.set()
    assert await asyncio.gather(*waiting) == [b"0", b"1", b"2"]
    await rig.close()


async def test_hello_in_the_middle_ends_the_stream() -> None:
    rig = Rig(lambda _: asyncio.get_running_loop().create_future())
    waiting = asyncio.create_task(rig.calls.call(b"hi", rig.open, timeout_ms=5_000))
    while not rig.servers:
        await asyncio.sleep(0)
    await rig.servers[0].send(client_hello("c", "x"))
    with pytest.raises(MalformedFrameError, match="hello twice"):
        await waiting
    await rig.close()
