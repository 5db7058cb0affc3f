"""One connection of a client: what a broker, or whoever listens there, may answer, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
from collections.abc import Awaitable, Callable

import pytest
from scripted_server import (
    FIXED,
    FLEXIBLE,
    METADATA,
    METADATA_KEY,
    WAIT_S,
    Peer,
    Request,
    answer_frame,
    answering,
    scripted,
    silent,
    until,
)

from replog.client.protocol import link as link_module
from replog.client.protocol.link import BrokerEnd, Link, open_link
from replog.errors import (
    InconsistentClusterIdError,
    MalformedFrameError,
    ReplogError,
    UnsupportedVersionError,
)
from replog.rpc.transport import ConnectionLostError
from replog.tcp.dialing import create_connection
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names] or None)


async def ask(link: Link, timeout_ms: int = WAIT_S * 1000) -> None:
    answer = await link.ask(metadata(), MetadataResponse, timeout_ms=timeout_ms)
    assert answer.cluster_id == "c"


async def ended(link: Link) -> None:
    async with asyncio.timeout(WAIT_S):
        await asyncio.shield(link.closed)
    assert not link.is_usable
    assert not link.is_idle


# ---- questions and answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [FIXED, FLEXIBLE])
@pytest.mark.parametrize("size", [0, 60_000, 70_000, 3 << 20])
async def test_several_requests_are_answered_in_order_over_one_connection(version: int, size: int) -> None:
    async def answer(peer: Peer, request: Request) -> None:
        name = str(request.correlation_id) + "n" * min(size, 30_000)
        topic = MetadataResponse.MetadataResponseTopic(name=name)
        peer.answer(request, MetadataResponse(topics=[topic] * max(size // 30_000, 1)))

    async with scripted(answer, {METADATA_KEY: version}) as server:
        link = await open_link(server.endpoint)
        asked = [link.ask(metadata(), MetadataResponse, timeout_ms=WAIT_S * 1000) for _ in range(5)]
        answers = await asyncio.gather(*asked)
        assert [(each.topics[0].name or "")[0] for each in answers] == ["2", "3", "4", "5", "6"]
        assert server.opened == 1
        assert link.is_idle
        link.lose(ConnectionLostError("enough"))
        await ended(link)


@pytest.mark.parametrize("size", [10, 60_000, 5 << 20])
async def test_a_request_arrives_whole(size: int) -> None:
    async with scripted() as server:
        link = await open_link(server.endpoint)
        names = ["t" * 30_000] * (size // 30_000) + ["t" * (size % 30_000)]
        await link.ask(metadata(*names), MetadataResponse, timeout_ms=WAIT_S * 1000)
        assert server.requests[0].frame.count(b"tttttttttt") >= size // 10 - len(names)
        link.lose(ConnectionLostError("enough"))


async def test_half_frames_are_waited_for() -> None:
    async def in_pieces(peer: Peer, request: Request) -> None:
        frame = answer_frame(request, METADATA)
        for byte in struct.pack(">i", len(frame)) + frame:
            peer.raw(bytes((byte,)))
            await asyncio.sleep(0)

    async with scripted(in_pieces) as server:
        link = await open_link(server.endpoint)
        await ask(link)
        link.lose(ConnectionLostError("enough"))


async def test_correlation_ids_begin_anew_after_the_last() -> None:
    async with scripted() as server:
        link = await open_link(server.endpoint)
        link._correlation_id = 2**31 - 2
        for _ in range(3):
            await ask(link)
        assert [request.correlation_id for request in server.requests] == [2**31 - 1, 1, 2]
        link.lose(ConnectionLostError("enough"))


async def test_an_api_that_the_broker_does_not_serve_is_named() -> None:
    async with scripted() as server:
        link = await open_link(server.endpoint)
        with pytest.raises(UnsupportedVersionError, match=rf"{link._endpoint.address} serves none of API 1 \(Fetch\)"):
            link.version(FetchRequest)
        await ask(link)
        link.lose(ConnectionLostError("enough"))


async def test_a_request_over_the_limit_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MESSAGE_BYTES_MAX", 20_000)
    async with scripted() as server:
        link = await open_link(server.endpoint)
        with pytest.raises(MalformedFrameError, match="the limit is 20000"):
            await link.ask(metadata("t" * 20_000), MetadataResponse, timeout_ms=WAIT_S * 1000)
        await ask(link)
        assert len(server.requests) == 1
        link.lose(ConnectionLostError("enough"))


# ---- who is there ----------------------------------------------------------------------------------------------------------


def endpoint(port: int, host: str = "127.0.0.1", open_timeout_s: float = 20.0) -> BrokerEnd:
    return BrokerEnd(f"{host}:{port}", "tester", create_connection, open_timeout_s)


async def test_nobody_there_is_refused() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        with pytest.raises(ConnectionLostError, match=rf"^127\.0\.0\.1:{port}: Connection refused$") as caught:
            await open_link(endpoint(port))
        assert caught.value.refused


async def test_a_name_that_there_is_not_is_told() -> None:
    with pytest.raises(ConnectionLostError, match=r"^no-such-host\.invalid:9092: \D+$") as caught:
        await open_link(endpoint(9092, "no-such-host.invalid"))
    assert not caught.value.refused


async def test_who_never_answers_is_given_up() -> None:
    """A process that is stopped: its kernel goes on to accept connections."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        with pytest.raises(ConnectionLostError, match=r"did not answer within 0\.05 s\. Is this the port") as caught:
            await open_link(endpoint(nobody.getsockname()[1], open_timeout_s=0.05))
        assert not caught.value.refused
        taken, _ = nobody.accept()
        with taken:
            taken.setblocking(False)  # noqa: FBT003 -- the standard library's signature
            async with asyncio.timeout(WAIT_S):
                while await asyncio.get_running_loop().sock_recv(taken, 1000):
                    pass  # until the client has hung up


def hold_up(seconds: float) -> None:
    """A computation of the application."""
    time.sleep(seconds)


async def test_a_loop_that_was_held_up_takes_nobody_for_dead() -> None:
    async with scripted(silent) as server:
        opening = asyncio.ensure_future(open_link(server.endpoint._replace(open_timeout_s=0.2)))
        await until(lambda: server.opened or opening.done())
        hold_up(0.3)
        link = await opening
        asking = asyncio.ensure_future(ask(link, 500))
        await until(lambda: server.requests)
        (peer,) = server.peers
        peer.answer(server.requests[0], METADATA)
        hold_up(0.6)
        await asking
        link.lose(ConnectionLostError("enough"))


async def hangs_up(peer: Peer, _request: Request) -> None:
    peer.writer.close()


async def ends_in_the_middle(peer: Peer, request: Request) -> None:
    peer.raw(struct.pack(">i", 1000) + struct.pack(">i", request.correlation_id) + b"half")
    peer.writer.close()


async def ends_in_a_size(peer: Peer, _request: Request) -> None:
    peer.raw(b"\0\0")
    peer.writer.close()


async def is_a_web_server(peer: Peer, _request: Request) -> None:
    peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def is_too_large(peer: Peer, _request: Request) -> None:
    peer.raw(struct.pack(">i", (64 << 20) + 1025))


async def is_negative(peer: Peer, _request: Request) -> None:
    peer.raw(struct.pack(">i", -1))


async def is_empty(peer: Peer, _request: Request) -> None:
    peer.raw(struct.pack(">i", 0))


async def answers_another(peer: Peer, request: Request) -> None:
    peer.answer(request, METADATA, correlation_id=request.correlation_id + 1)


async def answers_with_noise(peer: Peer, request: Request) -> None:
    peer.frame(struct.pack(">i", request.correlation_id) + b"\0\xff\xff\xff\xff\xff")


async def ends_in_its_header(peer: Peer, request: Request) -> None:
    peer.frame(struct.pack(">i", request.correlation_id))


async def has_a_header_of_noise(peer: Peer, request: Request) -> None:
    peer.frame(struct.pack(">i", request.correlation_id) + b"\xff" * 20)


Misbehaves = Callable[[Peer, Request], Awaitable[None]]
EVERYWHERE: list[tuple[Misbehaves, type[ReplogError], str]] = [
    (hangs_up, ConnectionLostError, "closed the connection"),
    (ends_in_the_middle, ConnectionLostError, "closed the connection"),
    (ends_in_a_size, ConnectionLostError, "closed the connection"),
    (is_a_web_server, MalformedFrameError, "the answer of a web server"),
    (is_too_large, MalformedFrameError, "a frame is said to have"),
    (is_negative, MalformedFrameError, "a frame is said to have -1 bytes"),
    (is_empty, MalformedFrameError, "a frame is said to have 0 bytes"),
    (answers_another, MalformedFrameError, "was asked before"),
]


@pytest.mark.parametrize(("opening", "error", "text"), EVERYWHERE)
async def test_what_is_no_broker_is_told_apart(opening: Misbehaves, error: type[ReplogError], text: str) -> None:
    async def answer(peer: Peer, request: Request) -> None:
        await opening(peer, request)

    async with scripted(opening=answer) as server:
        with pytest.raises(error, match=text) as caught:
            await open_link(server.endpoint)
        assert server.endpoint.address in str(caught.value)
        if opening is hangs_up:
            assert "Is this the port for clients" in str(caught.value)
        await until(lambda: not server.peers)


NOTHING = b"\x01" + bytes(4)
"""That nothing is served, and no time of a throttle; tags follow."""


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (struct.pack(">h", 35) + bytes(20), UnsupportedVersionError, "does not know version 3 of ApiVersions"),
        (struct.pack(">h", 104) + NOTHING + b"\x01\x90\x4e\x03\x03no", InconsistentClusterIdError, "^no$"),
        (struct.pack(">h", 104) + NOTHING + b"\0", InconsistentClusterIdError, "refuses to say what it serves"),
        (struct.pack(">h", 4711) + NOTHING + b"\0", ReplogError, "4711"),
        (b"\0", MalformedFrameError, "."),
        (struct.pack(">h", 0), MalformedFrameError, "."),
        (struct.pack(">h", 0) + b"\xff\xff\xff\xff\x0f", MalformedFrameError, "."),
    ],
)
async def test_a_refused_opening_is_its_error(body: bytes, error: type[ReplogError], text: str) -> None:
    async def refuse(peer: Peer, request: Request) -> None:
        peer.frame(struct.pack(">i", request.correlation_id) + body)

    async with scripted(opening=refuse) as server:
        with pytest.raises(error, match=text):
            await open_link(server.endpoint, cluster_id="c")
        await until(lambda: not server.peers)


# ---- who misbehaves --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        *EVERYWHERE,
        (ends_in_its_header, MalformedFrameError, "a header that is none"),
        (has_a_header_of_noise, MalformedFrameError, "a header that is none"),
    ],
)
async def test_whoever_waits_is_told_of_an_answer_that_is_none(
    answer: Misbehaves, error: type[ReplogError], text: str
) -> None:
    async with scripted(answer) as server:
        link = await open_link(server.endpoint)
        async with asyncio.timeout(WAIT_S):
            outcomes = await asyncio.gather(*(ask(link, 1_000_000) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [error] * 3, outcomes
        assert all(text in str(outcome) for outcome in outcomes)
        await ended(link)
        with pytest.raises(error, match=text):
            await ask(link)
        await until(lambda: not server.peers)


async def test_an_answer_that_cannot_be_read_is_malformed_and_ends_nothing() -> None:
    noisy = [answers_with_noise, answering]

    async def answer(peer: Peer, request: Request) -> None:
        await noisy.pop(0)(peer, request)

    async with scripted(answer) as server:
        link = await open_link(server.endpoint)
        with pytest.raises(MalformedFrameError):
            await ask(link)
        await ask(link)
        link.lose(ConnectionLostError("enough"))


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async with scripted() as server:
        link = await open_link(server.endpoint)
        (peer,) = server.peers
        peer.frame(bytes(20))
        await ended(link)
        with pytest.raises(MalformedFrameError, match="what nobody has asked for: no broker's port"):
            await ask(link)


async def test_no_memory_is_taken_for_a_large_frame_that_nobody_asked_for() -> None:
    async with scripted() as server:
        link = await open_link(server.endpoint)
        (peer,) = server.peers
        peer.raw(struct.pack(">i", 64 << 20) + bytes(100))
        await ended(link)
        assert link._reader.come_bytes == 0
        with pytest.raises(MalformedFrameError, match="what nobody has asked for"):
            await ask(link)


async def test_who_is_late_loses_the_connection_for_all() -> None:
    async with scripted(silent) as server:
        link = await open_link(server.endpoint)
        patient = asyncio.ensure_future(ask(link))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionLostError, match="no answer in 30 ms"):
            await ask(link, 30)
        with pytest.raises(ConnectionLostError, match="no answer in 30 ms"):
            await patient
        await ended(link)


async def test_the_answer_to_a_question_that_was_given_up_is_dropped() -> None:
    async with scripted(silent) as server:
        link = await open_link(server.endpoint)
        asking = asyncio.ensure_future(ask(link))
        await until(lambda: server.requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not link.is_idle, "its answer is still to come"
        (peer,) = server.peers
        peer.answer(server.requests[0], METADATA)
        await until(lambda: link.is_idle)
        link.lose(ConnectionLostError("enough"))


async def test_who_does_not_read_stops_the_sender_until_the_end() -> None:
    async def read_nothing(_peer: Peer, _request: Request) -> None:
        await asyncio.Event().wait()

    async with scripted(read_nothing) as server:
        link = await open_link(server.endpoint)
        for _ in range(40):  # megabytes: more than the kernel takes
            link.send(metadata(*["t" * 30_000] * 35), FLEXIBLE)
        draining = asyncio.ensure_future(link.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        link.lose(ConnectionLostError("enough"))
        async with asyncio.timeout(WAIT_S):
            await draining


async def test_nothing_is_left_wherever_opening_is_cancelled() -> None:
    """No task, no connection, at whichever step."""
    async with scripted() as server:
        before = asyncio.all_tasks()
        steps = 0
        while True:
            opening = asyncio.ensure_future(open_link(server.endpoint))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not opening.cancel():
                break
            assert isinstance((await asyncio.gather(opening, return_exceptions=True))[0], asyncio.CancelledError)
            steps += 1
        assert steps > 3
        (await opening).lose(ConnectionLostError("enough"))
        await until(lambda: not server.peers)
        gc.collect()
        await until(lambda: not asyncio.all_tasks() - before)


@pytest.mark.parametrize(("requests_before", "refusal_s"), [(0, 60.0), (0, 0.0), (1, 60.0)])
async def test_only_a_broker_that_ends_the_first_request_at_once_may_want_a_login(
    requests_before: int, refusal_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a broker that dies while it holds an answer back, or later, is not taken for one that asks who this is."""
    monkeypatch.setattr(link_module, "REFUSAL_S", refusal_s)
    seen: list[Request] = []

    async def ending(peer: Peer, request: Request) -> None:
        seen.append(request)
        if len(seen) <= requests_before:
            await answering(peer, request)
        else:
            peer.writer.close()

    async with scripted(ending) as server:
        link = await open_link(server.endpoint)
        for _ in range(requests_before):
            await ask(link)
        with pytest.raises(ConnectionLostError) as raised:
            await ask(link)
    assert ("want a login" in str(raised.value)) is (not requests_before and refusal_s > 0)
