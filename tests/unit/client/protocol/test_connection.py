"""A client's way to one broker: calls, streams and watches, and what becomes of them when the broker misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from scripted_server import (
    METADATA,
    METADATA_KEY,
    WAIT_S,
    Peer,
    Request,
    ScriptedServer,
    answering,
    scripted,
    silent,
    until,
)

from replog.client.protocol import connection as connection_module
from replog.client.protocol.connection import (
    CALL_LINKS_MAX,
    FETCH_LINKS_MAX,
    KafkaConnection,
    KafkaTransport,
)
from replog.controller.requests import Heartbeat
from replog.errors import (
    ErrorCode,
    InvalidRequestError,
    MalformedFrameError,
    ReplogError,
    ThrottledError,
    TopicExistsError,
)
from replog.protocol.private import PRIVATE_APIS, PrivateAnswer, encoded
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    FindCutsRequest,
    LeaderEndpoint,
    ProducePartition,
    ProduceRequest,
    WatchOffsetsRequest,
    client_hello,
)
from replog.rpc.metadata_messages import MetadataRequest, MetadataUpdate, WaitForMetadata, WatchRequest
from replog.rpc.transport import ConnectionLostError
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched
from replog.wire.messages.produce import ProduceRequest as KafkaProduce
from replog.wire.messages.produce import ProduceResponse as KafkaProduced
from tests.quiet import quiet_for

TOPIC = UUID(int=7)
HELLO = client_hello("c", "tester")
TIMEOUT_MS = WAIT_S * 1000
PUSH_KEY, CUTS_KEY = PRIVATE_APIS[WaitForMetadata].API_KEY, PRIVATE_APIS[FindCutsRequest].API_KEY
WATCH = WatchOffsetsRequest("c", (FetchPartition(TOPIC, 0, -1),))
VERSIONS = {METADATA_KEY: 13, KafkaProduce.API_KEY: 13, KafkaFetch.API_KEY: 13, PUSH_KEY: 0, CUTS_KEY: 0}
UPDATE = MetadataUpdate("c", 5, 1, 0, (), ())


def produce(correlation_id: int, *, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(correlation_id, 1000, acks, (ProducePartition(TOPIC, 0, topic="t"),), (b"abc",))


def fetch(correlation_id: int) -> FetchRequest:
    return FetchRequest(correlation_id, 1000, -1, -1, 0, 0, 100, (FetchPartition(TOPIC, 0, 0, topic="t"),))


async def serving_all(peer: Peer, request: Request) -> None:
    """A script: a broker of ours that has a record of everything."""
    if request.key == KafkaProduce.API_KEY:
        told = KafkaProduced.PartitionProduceResponse(0, base_offset=9)
        topic = KafkaProduced.TopicProduceResponse(topic_id=TOPIC, partition_responses=[told])
        peer.answer(request, KafkaProduced(responses=[topic]))
    elif request.key == KafkaFetch.API_KEY:
        data = KafkaFetched.PartitionData(0, records=b"abc")
        topic_ = KafkaFetched.FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
        peer.answer(request, KafkaFetched(session_id=5, responses=[topic_]))
    elif request.key == PUSH_KEY:
        peer.answer(request, PrivateAnswer(parts=[encoded(UPDATE)]))
    else:
        peer.answer(request, METADATA)


@contextlib.asynccontextmanager
async def connected(
    script: Callable[[Peer, Request], Awaitable[None]] = serving_all, **others: Any
) -> AsyncIterator[tuple[ScriptedServer, KafkaConnection]]:
    """A server and a connection to it that is patient."""
    async with scripted(script, **{"versions": VERSIONS, **others}) as server:
        connection = KafkaTransport().connect(server.endpoint.address, purpose="test")
        connection._endpoint = connection._calls._endpoint = connection._endpoint._replace(open_timeout_s=20.0)
        try:
            yield server, connection
        finally:
            await connection.close()
            await until(lambda: not server.peers)


async def ask(connection: KafkaConnection, timeout_ms: int = TIMEOUT_MS) -> None:
    answer: Any = await connection.call(MetadataRequest(), timeout_ms=timeout_ms)
    assert answer.cluster_id == "c"


def held(gate: asyncio.Event) -> Callable[[Peer, Request], Awaitable[None]]:
    """A script that answers when the gate is open."""

    async def answer(peer: Peer, request: Request) -> None:
        await gate.wait()
        await serving_all(peer, request)

    return answer


# ---- calls -----------------------------------------------------------------------------------------------------------------


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with connected() as (server, connection):
        for _ in range(3):
            await ask(connection)
        assert server.opened == 1


async def test_calls_at_a_time_have_a_few_connections_and_wait_for_them() -> None:
    gate = asyncio.Event()
    async with connected(held(gate)) as (server, connection):
        asked = [asyncio.ensure_future(ask(connection)) for _ in range(3 * CALL_LINKS_MAX)]
        await until(lambda: len(server.requests) == CALL_LINKS_MAX)
        gate.set()
        await asyncio.gather(*asked)
        assert server.opened == CALL_LINKS_MAX


async def test_a_call_that_waits_long_holds_up_no_other() -> None:
    first: list[Request] = []

    async def slow_at_first(peer: Peer, request: Request) -> None:
        if first:
            await answering(peer, request)
        first.append(request)

    async with connected(slow_at_first) as (server, connection):
        slow = asyncio.ensure_future(ask(connection, 300))
        await until(lambda: first)
        await ask(connection)
        with pytest.raises(ConnectionLostError, match="no answer in 300 ms"):
            await slow
        await until(lambda: len(server.peers) == 1)  # the late answer would be taken for that to another question
        await ask(connection)


async def test_a_cancelled_call_takes_its_connection_along() -> None:
    async with connected(silent) as (server, connection):
        asking = asyncio.ensure_future(ask(connection))
        await until(lambda: server.requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not server.peers)


async def test_too_many_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CALLS_MAX", 2)
    gate = asyncio.Event()
    async with connected(held(gate)) as (_, connection):
        asked = [asyncio.ensure_future(ask(connection)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ThrottledError, match=r"2 calls to .* are open; try again later"):
            await ask(connection)
        gate.set()
        await asyncio.gather(*asked)
        await ask(connection)


async def test_a_connection_that_the_broker_has_ended_is_not_used_again() -> None:
    async with connected() as (server, connection):
        await ask(connection)
        server.cut()
        await until(lambda: not server.peers and not connection._calls._all)
        await ask(connection)
        assert server.opened == 2


@pytest.mark.parametrize("kept_count", [0, 1, 3])
@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_error_says_whether_an_idle_connection_ended_before_anything_came(
    kept_count: int, has_begun: bool
) -> None:
    """Goal: only what was most likely never read by the broker is asked again."""
    gate, is_ending = asyncio.Event(), False

    async def ending(peer: Peer, request: Request) -> None:
        if is_ending:
            if has_begun:
                peer.raw(b"\0\0")
            peer.writer.close()
            return
        await gate.wait()
        await answering(peer, request)

    async with connected(ending) as (server, connection):
        asked = [asyncio.ensure_future(ask(connection)) for _ in range(kept_count)]
        await until(lambda: len(server.requests) == kept_count)
        gate.set()
        await asyncio.gather(*asked)
        is_ending = True
        with pytest.raises(ConnectionLostError) as lost:
            await ask(connection)
        assert lost.value.was_idle == (kept_count > 0 and not has_begun)
        is_ending = False
        await ask(connection)
        assert server.opened == {0: 2, 1: 2, 3: 3 if has_begun else 4}[kept_count]


async def test_an_answer_that_is_late_is_no_end_of_an_idle_connection() -> None:
    """Goal: what was given its time is not asked again."""
    replies = [answering, silent]

    async def once(peer: Peer, request: Request) -> None:
        await replies.pop(0)(peer, request)

    async with connected(once) as (_, connection):
        await ask(connection)
        with pytest.raises(ConnectionLostError, match="no answer in 50 ms") as lost:
            await ask(connection, 50)
        assert not lost.value.was_idle


async def test_a_connection_that_nobody_uses_for_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (server, connection):
        await ask(connection)
        monkeypatch.setattr(connection_module, "IDLE_S", -1.0)
        await ask(connection)
        assert server.opened == 2
        await until(lambda: len(server.peers) == 1)


async def test_a_broker_that_was_away_is_found_again() -> None:
    async with connected() as (server, connection):
        await ask(connection)
        await server.stop()
        await until(lambda: not connection._calls._all)
        with pytest.raises(ConnectionLostError, match="Connection refused"):
            await ask(connection)
        await server.start()
        await ask(connection)


async def test_whoever_waits_when_the_calls_are_closed_is_told_and_opens_nothing() -> None:
    async with connected(silent) as (server, connection):
        asked = [asyncio.ensure_future(ask(connection)) for _ in range(3 * CALL_LINKS_MAX)]
        await until(lambda: len(server.requests) == CALL_LINKS_MAX)
        await connection.close()
        async with asyncio.timeout(WAIT_S):
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
        assert server.opened == CALL_LINKS_MAX


async def test_what_nodes_ask_one_another_is_no_question_of_a_client() -> None:
    async with connected() as (server, connection):
        with pytest.raises(InvalidRequestError, match=r"a request of nodes, which meet at inter\.broker\.listener"):
            await connection.call(Heartbeat(1, 1, 1), timeout_ms=1000)
        assert not server.opened


@pytest.mark.parametrize(
    "answer",
    [
        PrivateAnswer(parts=[]),
        PrivateAnswer(parts=[b"\xc0", b"\xc0"]),
        PrivateAnswer(parts=[b"\xc1"]),
        PrivateAnswer(parts=[b"\x81\xa1x" + b"\x91" * 100_000]),
    ],
    ids=["no part", "two parts", "no struct", "deep"],
)
async def test_an_answer_of_ours_that_is_none_is_malformed(answer: PrivateAnswer) -> None:
    async def answer_so(peer: Peer, request: Request) -> None:
        peer.answer(request, answer)

    async with connected(answer_so) as (_, connection):
        with pytest.raises(MalformedFrameError):
            await connection.call(FindCutsRequest((), 1), timeout_ms=TIMEOUT_MS)


# ---- produces --------------------------------------------------------------------------------------------------------------


async def test_produces_are_answered_and_those_without_an_answer_are_not() -> None:
    async def with_acks(peer: Peer, request: Request) -> None:
        message = KafkaProduce.read(reader_of(request), request.version)
        if message.acks:
            await serving_all(peer, request)

    async with connected(with_acks) as (server, connection):
        stream = await connection.open_produce(HELLO)
        for correlation_id, acks in enumerate((0, -1, 0, 1)):
            await stream.send(produce(correlation_id, acks=acks))
        got: list[Any] = []
        while len(got) < 2:
            got += await stream.receive()
        assert [(each.correlation_id, each.results[0].base_offset) for each in got] == [(1, 9), (3, 9)]
        await until(lambda: len(server.requests) == 4)
        await stream.close()


async def test_refusals_name_the_leader_and_where_it_is() -> None:
    async def refusing(peer: Peer, request: Request) -> None:
        code, leader = ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 7)
        if request.key == KafkaProduce.API_KEY:
            of = KafkaProduced.PartitionProduceResponse(0, code, current_leader=KafkaProduced.LeaderIdAndEpoch(*leader))
            of_topic = KafkaProduced.TopicProduceResponse(topic_id=TOPIC, partition_responses=[of])
            peer.answer(request, KafkaProduced([of_topic], 0, [KafkaProduced.NodeEndpoint(2, "::1", 9092, "a")]))
        else:
            told = KafkaFetched.PartitionData(0, code, current_leader=KafkaFetched.LeaderIdAndEpoch(*leader))
            topic = KafkaFetched.FetchableTopicResponse(topic_id=TOPIC, partitions=[told])
            endpoints = [KafkaFetched.NodeEndpoint(2, "::1", 9092, "a")]
            peer.answer(request, KafkaFetched(responses=[topic], node_endpoints=endpoints))

    newest = {**VERSIONS, KafkaFetch.API_KEY: 16}
    async with connected(refusing, versions=newest) as (_, connection):
        producing, fetching = await connection.open_produce(HELLO), await connection.open_fetch(HELLO)
        await producing.send(produce(1))
        await fetching.send(fetch(2))
        (produced,), fetched = await producing.receive(), await fetching.receive()
        for answer in (produced, fetched):
            assert (answer.results[0].leader_id, answer.results[0].leader_epoch) == (2, 7)
            assert answer.leaders == (LeaderEndpoint(2, "::1", 9092, "a"),)


def reader_of(request: Request) -> Any:
    from replog.wire.messages.headers import RequestHeader
    from replog.wire.primitives import Reader

    reader = Reader(memoryview(request.frame))
    header = RequestHeader.read(reader, 2)
    assert header.client_id == "tester"
    assert header.cluster_id == "c"
    return reader


Open = Callable[[KafkaConnection], Awaitable[Any]]


async def producing(connection: KafkaConnection) -> Any:
    return await connection.open_produce(HELLO)


async def fetching(connection: KafkaConnection) -> Any:
    return await connection.open_fetch(HELLO)


each_stream = pytest.mark.parametrize(("opened", "message"), [(producing, produce), (fetching, fetch)])


@each_stream
async def test_a_stream_over_its_quota_rests_as_long_as_it_is_told_and_ends_meanwhile(
    opened: Open, message: Any
) -> None:
    async def throttling(peer: Peer, request: Request) -> None:
        if request.key == KafkaProduce.API_KEY:
            of_topic = KafkaProduced.TopicProduceResponse(
                topic_id=TOPIC, partition_responses=[KafkaProduced.PartitionProduceResponse(0)]
            )
            peer.answer(request, KafkaProduced([of_topic], throttle_time_ms=3_600_000))
        else:
            peer.answer(request, KafkaFetched(throttle_time_ms=3_600_000))

    async with connected(throttling) as (server, connection):
        stream = await opened(connection)
        await stream.send(message(1))
        await stream.receive()
        resting = asyncio.ensure_future(stream.send(message(2)))
        await quiet_for(0.05)
        assert not resting.done()
        assert len(server.requests) == 1, "also over no other connection"
        await stream.close()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionLostError, match="the stream was closed"):
                await resting


@each_stream
async def test_a_stream_that_waits_for_nothing_hears_of_its_end(opened: Open, message: Any) -> None:
    async with connected() as (server, connection):
        stream = await opened(connection)
        receiving = asyncio.ensure_future(stream.receive())
        await asyncio.sleep(0)
        server.cut()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionLostError, match="the broker closed the connection"):
                await receiving
        with pytest.raises(ConnectionLostError):
            await stream.send(message(1))
        await stream.close()


@each_stream
@pytest.mark.parametrize("script", [serving_all, silent])
async def test_who_receives_is_told_of_a_close(opened: Open, message: Any, script: Any) -> None:
    async with connected(script) as (server, connection):
        stream = await opened(connection)
        if script is silent:
            await stream.send(message(1))
        receiving = asyncio.ensure_future(stream.receive())
        await asyncio.sleep(0)
        await stream.close()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionLostError, match="the stream was closed"):
                await receiving
        await stream.close()
        await until(lambda: not server.peers)


@each_stream
async def test_an_answer_that_came_before_the_end_is_received(opened: Open, message: Any) -> None:
    async def answer_and_end(peer: Peer, request: Request) -> None:
        await serving_all(peer, request)
        peer.writer.close()

    async with connected(answer_and_end) as (server, connection):
        stream = await opened(connection)
        await stream.send(message(1))
        await until(lambda: not server.peers)
        await stream.receive()
        with pytest.raises(ConnectionLostError):
            await stream.receive()
        await stream.close()


@each_stream
@pytest.mark.parametrize(
    "body", [b"\0\xff\xff\xff\xff\xff", b"\0\x03", b"", b"\0" + bytes(5)], ids=["ones", "cut", "no tags", "zeros"]
)
async def test_an_answer_that_is_none_ends_a_stream_or_tells_nothing(opened: Open, message: Any, body: bytes) -> None:
    async def answer(peer: Peer, request: Request) -> None:
        peer.frame(struct.pack(">i", request.correlation_id) + body)

    async with connected(answer) as (_, connection):
        stream = await opened(connection)
        await stream.send(message(1))
        async with asyncio.timeout(WAIT_S):
            try:
                told = await stream.receive()
            except ReplogError:
                with pytest.raises(ReplogError):
                    await stream.send(message(2))
            else:
                assert not (told[0] if isinstance(told, tuple) else told).results
        await stream.close()


@each_stream
async def test_partitions_that_nobody_named_are_not_told(opened: Open, message: Any) -> None:
    """Nor does one that is left out end the stream."""

    async def of_others(peer: Peer, request: Request) -> None:
        if request.key == KafkaProduce.API_KEY:
            told = [KafkaProduced.PartitionProduceResponse(number) for number in (5, -1)]
            other = KafkaProduced.TopicProduceResponse(topic_id=UUID(int=9), partition_responses=told)
            peer.answer(request, KafkaProduced(responses=[other, replace(other, topic_id=TOPIC)]))
        else:
            data = [KafkaFetched.PartitionData(number, records=b"abc") for number in (5, -1)]
            topic = KafkaFetched.FetchableTopicResponse(topic_id=UUID(int=9), partitions=data)
            peer.answer(request, KafkaFetched(responses=[topic, replace(topic, topic_id=TOPIC)]))

    async with connected(of_others) as (_, connection):
        stream = await opened(connection)
        await stream.send(message(1))
        told = await stream.receive()
        assert (told[0] if isinstance(told, tuple) else told).results == ()
        await stream.close()


# ---- fetches ---------------------------------------------------------------------------------------------------------------


async def test_fetches_that_wait_have_a_connection_each_and_more_wait_for_one() -> None:
    gate = asyncio.Event()
    async with connected(held(gate)) as (server, connection):
        stream = await connection.open_fetch(HELLO)
        for number in range(FETCH_LINKS_MAX):
            await stream.send(fetch(number))
        another = asyncio.ensure_future(stream.send(fetch(FETCH_LINKS_MAX)))
        await until(lambda: len(server.requests) == FETCH_LINKS_MAX)
        assert not another.done()
        assert server.opened == FETCH_LINKS_MAX
        gate.set()
        got = {(await stream.receive()).correlation_id for _ in range(FETCH_LINKS_MAX + 1)}
        assert got == set(range(FETCH_LINKS_MAX + 1))
        await another
        assert server.opened == FETCH_LINKS_MAX
        await stream.close()


async def test_a_fetch_whose_session_is_gone_is_sent_again_in_full() -> None:
    """Goal: who reads hears nothing of it, and no partition waits for ever."""
    asked: list[tuple[int, int]] = []

    async def forgets(peer: Peer, request: Request) -> None:
        message = KafkaFetch.read(reader_of(request), request.version)
        asked.append((message.session_epoch, len(message.topics)))
        if message.session_epoch == 2:
            peer.answer(request, KafkaFetched(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        else:
            await serving_all(peer, request)

    async with connected(forgets) as (_, connection):
        stream = await connection.open_fetch(HELLO)
        for number in range(4):
            await stream.send(fetch(number))
            answer = await stream.receive()
            assert (answer.correlation_id, [each.error for each in answer.results]) == (number, [ErrorCode.NONE])
        assert asked == [(0, 1), (1, 0), (2, 0), (0, 1), (1, 0)]
        await stream.close()


async def test_a_connection_is_free_only_when_its_session_has_taken_in_the_answer() -> None:
    """Goal: no answer is read as one to the next fetch, which may be sent in the turn of the loop before it is taken in."""
    gate, asked = asyncio.Event(), list[int]()

    async def notes(peer: Peer, request: Request) -> None:
        asked.append(KafkaFetch.read(reader_of(request), request.version).session_epoch)
        await held(gate)(peer, request)

    async with connected(notes) as (_, connection):
        stream: Any = await connection.open_fetch(HELLO)
        await stream.send(fetch(1))
        (link,) = stream._links
        other = replace(fetch(2), partitions=(FetchPartition(TOPIC, 1, 0, topic="t"),))
        sending: list[asyncio.Future[None]] = []
        took_in = link._take_in

        def send_before_callbacks(frame: memoryview) -> None:
            sending.append(asyncio.ensure_future(stream.send(other)))  # its turn is before the answer's callback
            took_in(frame)

        link._take_in = send_before_callbacks
        gate.set()
        answer = await stream.receive()
        assert [(each.partition_id, each.fetch_offset) for each in answer.results] == [(0, 0)]
        link._take_in = took_in
        await sending[0]
        assert (await stream.receive()).correlation_id == 2
        await stream.close()
    assert asked == [0, 1], "the session goes on"


async def test_idle_connections_that_the_broker_ends_are_replaced() -> None:
    """A broker ends what has been idle for long; the fetches of the others go on."""
    gate = asyncio.Event()
    async with connected(held(gate)) as (server, connection):
        stream = await connection.open_fetch(HELLO)
        for number in range(FETCH_LINKS_MAX):
            await stream.send(fetch(number))
        gate.set()
        for _ in range(FETCH_LINKS_MAX):
            await stream.receive()
        (kept, *ended) = server.peers
        for peer in ended:
            peer.writer.close()
        await until(lambda: server.peers == {kept})
        gate.clear()
        async with asyncio.timeout(WAIT_S):
            for number in range(FETCH_LINKS_MAX):
                await stream.send(fetch(number))
            gate.set()
            for _ in range(FETCH_LINKS_MAX):
                await stream.receive()
        await stream.close()


async def test_a_stream_that_is_closed_while_it_opens_a_connection_keeps_none() -> None:
    async with connected(silent) as (server, connection):
        stream = await connection.open_fetch(HELLO)
        await stream.send(fetch(1))
        sending = asyncio.ensure_future(stream.send(fetch(2)))  # it opens a second connection
        await asyncio.sleep(0)
        await stream.close()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionLostError, match="the stream was closed"):
                await sending
        await until(lambda: not server.peers)


# ---- watches ---------------------------------------------------------------------------------------------------------------


async def test_metadata_are_pushed_by_a_broker_of_ours_and_asked_for_elsewhere() -> None:
    for versions, offset in ((VERSIONS, 5), ({METADATA_KEY: 12}, 1)):
        async with connected(versions=versions) as (server, connection):
            watch: Any = connection.watch_metadata(WatchRequest())
            update = await anext(watch)
            assert (update.cluster_id, update.metadata_offset) == ("c", offset)
            await watch.aclose()
            await until(lambda: not server.peers)


async def test_a_watch_that_does_not_follow_ends_by_itself() -> None:
    for versions in (VERSIONS, {METADATA_KEY: 12}):
        async with connected(versions=versions) as (server, connection):
            updates = [each async for each in connection.watch_metadata(WatchRequest(follow=False))]
            assert len(updates) == 1
            await until(lambda: not server.peers)


async def test_an_error_ends_a_watch_as_its_class() -> None:
    async def refuse(peer: Peer, request: Request) -> None:
        peer.answer(request, PrivateAnswer(TopicExistsError.code, "there is one"))

    async with connected(refuse) as (server, connection):
        with pytest.raises(TopicExistsError, match="there is one"):
            await anext(aiter(connection.watch_metadata(WatchRequest())))
        await until(lambda: not server.peers)


async def test_a_watch_of_offsets_ends_when_the_broker_leads_none_of_them() -> None:
    async def last(peer: Peer, request: Request) -> None:
        data = KafkaFetched.PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic = KafkaFetched.FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
        peer.answer(request, KafkaFetched(session_id=5, responses=[topic]))

    async with connected(last) as (server, connection):
        watch: Any = connection.watch_offsets(WATCH)
        assert [each.error for each in await anext(watch)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        with pytest.raises(ConnectionLostError, match="leads none of the partitions any more"):
            await anext(watch)
        await until(lambda: not server.peers)


async def test_a_watch_whose_broker_is_silent_or_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("METADATA_WAIT_MS", "ANSWER_GRACE_MS", "WATCH_WAIT_MS"):
        monkeypatch.setattr(connection_module, name, 20)
    async with connected(silent) as (_, connection):
        for watch in (
            connection.watch_metadata(WatchRequest()),
            connection.watch_offsets(WATCH),
        ):
            with pytest.raises(ConnectionLostError, match="no answer in"):
                await anext(aiter(watch))
    async with connected() as (server, connection):
        watch_: Any = connection.watch_offsets(WATCH)
        await anext(watch_)
        server.cut()
        await until(lambda: not connection._links)
        with pytest.raises(ConnectionLostError):
            await anext(watch_)


# ---- the end ---------------------------------------------------------------------------------------------------------------


Use = Callable[[KafkaConnection], Awaitable[Any]]


async def produce_one(connection: KafkaConnection) -> None:
    stream = await connection.open_produce(HELLO)
    try:
        await stream.send(produce(1))
        await stream.receive()
    finally:
        await stream.close()


async def fetch_some(connection: KafkaConnection) -> None:
    stream = await connection.open_fetch(HELLO)
    try:
        for number in range(2):
            await stream.send(fetch(number))
        await stream.receive()
    finally:
        await stream.close()


async def watch_metadata(connection: KafkaConnection) -> None:
    async with contextlib.aclosing(connection.watch_metadata(WatchRequest())) as watch:  # type: ignore[type-var]
        await anext(watch)
        await anext(watch)


async def watch_offsets(connection: KafkaConnection) -> None:
    watch: Any = connection.watch_offsets(WATCH)
    async with contextlib.aclosing(watch):
        await anext(watch)
        await anext(watch)


@pytest.mark.parametrize("use", [ask, produce_one, fetch_some, watch_metadata, watch_offsets])
async def test_nothing_is_left_wherever_a_use_is_cancelled(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task and no connection, at whichever step; and the next one finds everything as it was."""
    monkeypatch.setattr(
        connection_module, "TELL_INTERVAL_S", 0
    )  # a pause is thousands of steps in which nothing happens
    async with connected() as (server, connection):
        before = asyncio.all_tasks()
        steps = 0
        while True:
            using = asyncio.ensure_future(use(connection))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not using.cancel():
                break
            await asyncio.gather(using, return_exceptions=True)
            await until(lambda: len(server.peers) <= 1)
            steps += 1
        assert steps > 3
        await using
        await use(connection)
        await connection.close()
        await until(lambda: not server.peers)
        gc.collect()
        await until(lambda: not asyncio.all_tasks() - before)
        assert not connection._links
        assert not connection._calls._all


async def test_what_is_being_opened_when_the_connection_is_closed_is_not_kept() -> None:
    gate = asyncio.Event()

    async def late(peer: Peer, request: Request) -> None:
        await gate.wait()
        await server._tell(peer, request)

    async with connected(opening=late) as (server, connection):
        opening = [asyncio.ensure_future(use(connection)) for use in (producing, fetching, ask)]
        await until(lambda: server.opened == 3)
        await connection.close()
        gate.set()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
        await until(lambda: not server.peers)
