"""The way to one other voter: every request is answered or fails, and nothing piles up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from broker_fakes import FakeNetwork, FakeStream
from broker_kit import wait_until

from replog.broker.quorum import peer_link
from replog.broker.quorum.peer_link import MAX_QUEUED_REQUESTS, PeerLink
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from replog_quorum.messages import QuorumError, Response, VoteRequest, VoteResponse
from tests.quiet import quiet_for


def request(correlation_id: int) -> VoteRequest:
    return VoteRequest(
        correlation_id, 2, 1, 5, 4, 10, pre_vote=False, replica_directory_id=UUID(int=1), voter_directory_id=None
    )


def response(correlation_id: int) -> VoteResponse:
    return VoteResponse(correlation_id, 2, QuorumError.NONE, None, 5, vote_granted=True)


class Linked:
    def __init__(self, request_timeout_s: float, addresses: tuple[str, ...]) -> None:
        self.network = FakeNetwork()
        self.responses: list[Response] = []
        self.failed: list[int] = []
        self.refused: list[bool] = []
        self.failures: list[BaseException] = []
        self.link = PeerLink(
            peer_id=2,
            addresses=addresses,
            transport=self.network,  # type: ignore[arg-type]
            hello=lambda: Hello("c", 1, UUID(int=1)),
            request_timeout_s=request_timeout_s,
            on_response=self.responses.append,
            on_failed=self.note_failed,
            on_failure=self.failures.append,
        )

    def note_failed(self, correlation_id: int, refused: bool) -> None:
        self.failed.append(correlation_id)
        self.refused.append(refused)

    async def stream(self) -> FakeStream:
        await wait_until(lambda: self.network.streams)
        return self.network.streams[-1]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "RECONNECT_DELAY_S", 0)


@contextlib.asynccontextmanager
async def linked(request_timeout_s: float = 5, addresses: tuple[str, ...] = ("there:1",)) -> AsyncIterator[Linked]:
    it = Linked(request_timeout_s, addresses)
    it.link.start()
    yield it
    await it.link.stop()
    assert all(connection.closed for connection in it.network.connections)
    assert all(stream.closed for stream in it.network.streams)


async def test_nothing_is_connected_before_there_is_something_to_say() -> None:
    async with linked() as it:
        await quiet_for(0.01)
        assert it.network.attempts == 0


async def test_requests_leave_in_order_and_answers_come_back() -> None:
    async with linked() as it:
        for correlation_id in range(3):
            it.link.send(request(correlation_id))
        stream = await it.stream()
        await wait_until(lambda: stream.sent == [request(0), request(1), request(2)])
        for correlation_id in (2, 0):
            stream.incoming.put_nowait(response(correlation_id))
        await wait_until(lambda: it.responses == [response(2), response(0)])
        assert it.failed == []


async def test_an_answer_nobody_waits_for_is_dropped() -> None:
    async with linked() as it:
        it.link.send(request(1))
        stream = await it.stream()
        await wait_until(lambda: stream.sent)
        for correlation_id in (1, 1, 77):
            stream.incoming.put_nowait(response(correlation_id))
        await wait_until(lambda: it.responses)
        await quiet_for(0.01)
        assert it.responses == [response(1)]


async def test_a_lost_connection_fails_what_was_under_way_and_the_next_request_connects_again() -> None:
    async with linked() as it:
        it.link.send(request(1))
        first = await it.stream()
        await wait_until(lambda: first.sent)
        first.incoming.put_nowait(ConnectionLostError("gone"))
        await wait_until(lambda: it.failed == [1])
        assert it.refused == [False]
        it.link.send(request(2))
        await wait_until(lambda: len(it.network.streams) == 2)
        await wait_until(lambda: it.network.streams[1].sent == [request(2)])


async def test_a_peer_that_cannot_be_reached_fails_each_request_once() -> None:
    async with linked() as it:
        it.network.refuses = ConnectionLostError("refused", refused=True)
        it.link.send(request(1))
        it.link.send(request(2))
        await wait_until(lambda: it.failed == [1, 2])
        assert it.refused == [True, True], "the process is gone: that is worth more than silence"
        attempts = it.network.attempts
        await quiet_for(0.01)
        assert it.network.attempts == attempts, "nothing is waiting: no reason to knock again"


async def test_a_silent_peer_is_gone_after_the_timeout() -> None:
    async with linked(request_timeout_s=0.02) as it:
        it.link.send(request(1))
        stream = await it.stream()
        await wait_until(lambda: it.failed == [1])
        assert stream.closed


async def test_a_peer_that_takes_nothing_is_gone_after_the_timeout() -> None:
    async with linked(request_timeout_s=0.02) as it:
        it.link.send(request(1))
        stream = await it.stream()
        stream.accepts.clear()
        it.link.send(request(2))
        await wait_until(lambda: sorted(it.failed) == [1, 2])


async def test_the_queue_is_bounded_and_the_oldest_request_fails() -> None:
    async with linked() as it:
        for correlation_id in range(MAX_QUEUED_REQUESTS + 3):
            it.link.send(request(correlation_id))
        assert it.failed == [0, 1, 2]


async def test_a_request_on_a_response_stream_ends_it() -> None:
    async with linked() as it:
        it.link.send(request(1))
        stream = await it.stream()
        stream.incoming.put_nowait(request(5))
        await wait_until(lambda: it.failed == [1])


async def test_a_bug_is_not_swallowed() -> None:
    async with linked() as it:
        it.network.refuses = KeyError("bug")
        it.link.send(request(1))
        await wait_until(lambda: it.failures)
        assert isinstance(it.failures[0], KeyError)


async def test_after_a_failure_the_next_address_is_tried() -> None:
    async with linked(addresses=("there:1", "elsewhere:2")) as it:
        it.network.refuses = ConnectionLostError("refused", refused=True)
        for correlation_id in range(3):
            it.link.send(request(correlation_id))
            await wait_until(lambda sent=correlation_id: len(it.failed) == sent + 1)
        assert [connection.address for connection in it.network.connections] == ["there:1", "elsewhere:2", "there:1"]


async def test_a_peer_that_moved_is_asked_at_its_new_address() -> None:
    async with linked() as it:
        it.link.send(request(1))
        stream = await it.stream()
        await wait_until(lambda: stream.sent)
        it.link.set_addresses(("elsewhere:2",))
        await wait_until(lambda: it.failed == [1])
        it.link.send(request(2))
        await wait_until(lambda: len(it.network.streams) == 2)
        assert it.network.connections[-1].address == "elsewhere:2"


async def test_a_stream_that_works_survives_a_new_address_beside_its_own() -> None:
    async with linked() as it:
        it.link.send(request(1))
        stream = await it.stream()
        await wait_until(lambda: stream.sent)
        it.link.set_addresses(("elsewhere:2", "there:1"))
        it.link.send(request(2))
        await wait_until(lambda: len(stream.sent) == 2)
        assert not it.failed


async def test_an_idle_link_takes_the_new_address_at_once() -> None:
    async with linked() as it:
        it.link.set_addresses(("elsewhere:2",))
        it.link.send(request(1))
        stream = await it.stream()
        await wait_until(lambda: stream.sent)
        assert it.network.connections[-1].address == "elsewhere:2"
