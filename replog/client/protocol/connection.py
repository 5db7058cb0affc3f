"""A client's way to one broker: calls, streams of records, watches, each over TCP connections of its own.

A connection of Kafka's protocol answers in the order of the requests, so that a call which waits at the broker would hold up
those behind it.  So a call takes an idle connection, or opens one, and a stream has its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from replog.client.protocol.asking import A, Broker, Question, RequestMessage
from replog.client.protocol.fetch_session import LinkFetchSession
from replog.client.protocol.link import BrokerEnd, Link, open_link, read_answer
from replog.client.protocol.metadata import MetadataPolls
from replog.client.protocol.questions.table import question_of
from replog.client.protocol.records import JOINING_FROM, produce_request, produce_response
from replog.errors import (
    ErrorCode,
    InvalidRequestError,
    MalformedFrameError,
    ReplogError,
    ThrottledError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from replog.errors.from_code import error_from_number
from replog.protocol.private import PRIVATE_APIS, PrivateAnswer, PrivateApi, PrivateRequest
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    ProduceRequest,
    ProduceResponse,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataUpdate, WaitForMetadata, WatchRequest
from replog.rpc.transport import ConnectionLostError, Stream
from replog.tcp.dialing import Connect, create_connection
from replog.waiting.asks import Asks
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched
from replog.wire.messages.produce import ProduceRequest as KafkaProduce
from replog.wire.messages.produce import ProduceResponse as KafkaProduced

if TYPE_CHECKING:
    from replog.client.security.security import Security

CALL_LINKS_MAX: Final = 8
"""Connections for calls to one broker at a time; further calls wait for one."""

CALLS_MAX: Final = 10_000
"""Calls to one broker that are open, or wait."""

IDLE_S: Final = 60.0
"""How long a connection for calls is kept that nobody uses; brokers end theirs after some minutes."""

FETCH_LINKS_MAX: Final = 4
"""Fetches that are open at one broker at a time."""

METADATA_WAIT_MS: Final = 3_000
"""How long a broker holds an answer back without news; the client knows by then that it is still there."""

ANSWER_GRACE_MS: Final = 2_000
"""How much later than its time an answer may come before the broker is taken for gone."""

WATCH_WAIT_MS: Final = 1_000
"""How long a broker holds the next update of a watch of offsets back without news; the client knows by then that it serves."""

TELL_INTERVAL_S: Final = 0.02
"""The least time between an update with news and the next one: many changes cost one update."""

REST_LOOK_S: Final = 1.0
"""How often a stream that waits because of a quota looks whether it has ended."""

CLIENT_ID: Final = "replog"
"""What brokers are told of a client that gives itself no name."""

M = TypeVar("M")
R = TypeVar("R")
T = TypeVar("T")


class _LinkedBroker:
    """The broker at the other end of a connection, for one question."""

    def __init__(self, link: Link, address: str, cluster_id: str) -> None:
        self._link = link
        self._cluster_id = cluster_id
        self.address = address

    async def version(self, request: type[RequestMessage]) -> int:
        return self._link.version(request)

    async def offers(self, api_key: int) -> bool:
        return api_key in self._link.versions

    async def feature(self, name: str) -> int:
        return self._link.features.get(name, 0)

    async def ask(self, request: RequestMessage | PrivateRequest, answer: type[A], *, timeout_ms: int) -> A:
        return await self._link.ask(request, answer, timeout_ms=timeout_ms, cluster_id=self._cluster_id)


def _closed(address: str) -> ConnectionLostError:
    return ConnectionLostError(f"the connection to {address} was closed")


class CallLinks:
    """The connections of one broker's calls: each carries one call at a time.

    Args:
        endpoint: The broker.
    """

    def __init__(self, endpoint: BrokerEnd) -> None:
        self._endpoint = endpoint
        self._idle: list[Link] = []
        self._all: set[Link] = set()
        self._room = asyncio.Semaphore(CALL_LINKS_MAX)
        self._calls_count = 0
        self._is_closed = False

    async def call(self, question: Question, request: Any, *, timeout_ms: int, cluster_id: str) -> Any:
        """Puts a question to the broker, and returns its answer.

        Raises:
            ConnectionLostError: The broker cannot be reached, or did not answer in time.
            ThrottledError: Too many calls are open.
            ReplogError: What the broker answered.
        """
        if self._calls_count >= CALLS_MAX:
            raise ThrottledError(f"{CALLS_MAX} calls to {self._endpoint.address} are open; try again later")
        self._calls_count += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._room:
                self._check_open()
                kept = self._take()
                link = kept or await self._open(cluster_id)
                used_s = link.used_s
                try:
                    self._check_open()
                    broker = _LinkedBroker(link, self._endpoint.address, cluster_id)
                    return await question(broker, request, timeout_ms)
                except ConnectionLostError as lost:
                    lost.was_idle = kept is not None and link.has_ended_since(used_s)
                    if lost.was_idle:
                        self._drop_idle()
                    raise
                finally:
                    self._give_back(link)
        except TimeoutError:
            raise ConnectionLostError(f"{self._endpoint.address}: no answer in {timeout_ms} ms") from None
        finally:
            self._calls_count -= 1

    async def close(self) -> None:
        """Ends the connections; whoever still waits is told."""
        self._is_closed = True
        links = list(self._all)
        for link in links:
            link.lose(_closed(self._endpoint.address))
        if links:
            await asyncio.wait([link.closed for link in links])

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed(self._endpoint.address)

    def _take(self) -> Link | None:
        """Returns the connection that was used last, if one is idle; ends those that have been for long."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            link = self._idle.pop()
            if link.is_idle and now_s - link.used_s < IDLE_S:
                return link
            link.lose(ConnectionLostError("idle"))
        return None

    def _drop_idle(self) -> None:
        """Ends the connections that nobody uses: they have been idle for longer than one that the broker has ended."""
        while self._idle:
            self._idle.pop().lose(ConnectionLostError("idle"))

    async def _open(self, cluster_id: str) -> Link:
        link = await open_link(self._endpoint, cluster_id=cluster_id)
        self._all.add(link)
        link.closed.add_done_callback(lambda _: self._all.discard(link))
        return link

    def _give_back(self, link: Link) -> None:
        if link.is_idle and not self._is_closed:
            self._idle.append(link)
        else:  # an answer that nobody waits for is still to come, and would hold up the next one
            link.lose(ConnectionLostError("given up"))


class RequestStream(Generic[M, R]):
    """A `replog.rpc.transport.Stream` over connections of Kafka's protocol: what is sent is a request, what comes an answer.

    Args:
        first: A connection; others are opened where it is busy, as many as there may be.
    """

    def __init__(self, first: Link) -> None:
        self._links: list[Link] = []
        self._answers: deque[R] = deque()
        self._arrived = asyncio.Event()
        self._end: ReplogError | None = None
        self.rests_until_s = 0.0
        self._add(first)

    async def receive_ready(self) -> list[R]:
        """Returns the answers that are there, at least one.

        Raises:
            ConnectionLostError: The stream has ended.
            ReplogError: An answer was none.
        """
        await self._wait_arrived()
        ready, self._answers = list(self._answers), deque()
        return ready

    async def _wait_arrived(self) -> None:
        while not self._answers:
            if self._end is not None:
                raise self._end.with_traceback(None)
            self._arrived.clear()
            await self._arrived.wait()

    def _rest(self, throttle_ms: int) -> None:
        """Takes in for how long the broker takes up no request of this client, which is over its quota."""
        if throttle_ms > 0:
            until_s = asyncio.get_running_loop().time() + throttle_ms / 1000
            self.rests_until_s = max(self.rests_until_s, until_s)

    async def _rested(self) -> None:
        """Waits until the broker takes up requests again; at once where it is not said to rest.

        Raises:
            ConnectionLostError: The stream has ended.
        """
        while True:
            if self._end is not None:
                raise self._end.with_traceback(None)
            left_s = self.rests_until_s and self.rests_until_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, REST_LOOK_S))

    async def close(self) -> None:
        """Ends the connections; answers on their way are dropped."""
        links, error = list(self._links), ConnectionLostError("the stream was closed")
        self._lose(error)
        for link in links:
            link.lose(error)
        if links:
            await asyncio.wait([link.closed for link in links])

    def _add(self, link: Link) -> None:
        if self._end is not None:  # while it was opened
            link.lose(self._end)
            return
        self._links.append(link)
        link.closed.add_done_callback(lambda _: self._drop(link))

    def _drop(self, link: Link) -> None:
        """Takes in the end of a connection: an idle one may be replaced, the last one is the end of the stream."""
        self._links.remove(link)
        if not self._links:
            self._lose(link.why_ended())

    def _put(self, answer: R) -> None:
        self._answers.append(answer)
        self._arrived.set()

    def _lose(self, error: ReplogError) -> None:
        if self._end is None:
            self._end = error
        self._arrived.set()


class ProduceStream(RequestStream[ProduceRequest, ProduceResponse]):
    """The produces of one producer to one broker; several are in flight over one connection.

    Args:
        link: The connection.
        cluster_id: The cluster that the producer talks to.
    """

    def __init__(self, link: Link, cluster_id: str) -> None:
        super().__init__(link)
        self._link = link
        self._cluster_id = cluster_id
        self._version = link.version(KafkaProduce)

    async def send(self, message: ProduceRequest) -> None:
        await self._rested()
        request, version = produce_request(message), self._version
        if message.transaction is not None and not message.transaction.adds_partitions:
            version = min(version, JOINING_FROM - 1)
        answered = self._link.send(request, version, cluster_id=self._cluster_id, is_answered=message.acks != 0)
        if message.acks:
            answered.add_done_callback(lambda done: self._take_in(message, version, done))
        await self._link.drain()

    async def receive(self) -> tuple[ProduceResponse, ...]:
        return tuple(await self.receive_ready())

    def _take_in(self, message: ProduceRequest, version: int, done: asyncio.Future[memoryview]) -> None:
        try:
            answer = read_answer(done.result(), KafkaProduced, version)
            self._rest(answer.throttle_time_ms)
            self._put(produce_response(message, answer, version))
        except ReplogError as error:
            self._lose(error)


class FetchStream(RequestStream[FetchRequest, FetchResponse]):
    """The fetches of one consumer from one broker, one over each connection: each may wait for records.

    Args:
        link: The first connection.
        endpoint: The broker.
        cluster_id: The cluster that the consumer talks to.
    """

    def __init__(self, link: Link, endpoint: BrokerEnd, cluster_id: str) -> None:
        self._sessions: dict[Link, LinkFetchSession] = {}
        self._endpoint = endpoint
        self._cluster_id = cluster_id
        self._version = link.version(KafkaFetch)
        self._answered = asyncio.Event()
        super().__init__(link)

    async def send(self, message: FetchRequest) -> None:
        await self._rested()
        link = await self._idle_link()
        self._send(link, self._sessions[link], message)
        await link.drain()

    async def receive(self) -> FetchResponse:
        await self._wait_arrived()
        return self._answers.popleft()

    async def _idle_link(self) -> Link:
        while True:
            if self._end is not None:
                raise self._end.with_traceback(None)
            idle = next((link for link in self._links if link.is_idle and not self._sessions[link].is_asked), None)
            if idle is not None:
                return idle
            if len(self._links) < FETCH_LINKS_MAX:
                self._add(await open_link(self._endpoint, cluster_id=self._cluster_id))
                continue
            self._answered.clear()
            await self._answered.wait()

    def _add(self, link: Link) -> None:
        self._sessions[link] = LinkFetchSession()
        super()._add(link)

    def _drop(self, link: Link) -> None:
        del self._sessions[link]
        super()._drop(link)
        self._answered.set()

    def _send(self, link: Link, session: LinkFetchSession, message: FetchRequest) -> None:
        answered = link.send(session.request(message), self._version, cluster_id=self._cluster_id)
        answered.add_done_callback(lambda done: self._take_in(link, session, message, done))

    def _take_in(
        self, link: Link, session: LinkFetchSession, message: FetchRequest, done: asyncio.Future[memoryview]
    ) -> None:
        self._answered.set()
        try:
            answer = read_answer(done.result(), KafkaFetched, self._version)
            self._rest(answer.throttle_time_ms)
            response = session.response(message, answer, self._version)
            if response is None:
                self._send(link, session, message)
            else:
                self._put(response)
        except ReplogError as error:
            self._lose(error)


class KafkaConnection:
    """A way to one broker; see `replog.client.protocol.seam.Connection`.

    Args:
        endpoint: The broker.
        polls: What makes updates of the answers of brokers that do not push their metadata.
    """

    def __init__(self, endpoint: BrokerEnd, polls: MetadataPolls) -> None:
        self._endpoint = endpoint
        self._polls = polls
        self._calls = CallLinks(endpoint)
        self._links: set[Link] = set()
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._endpoint.address

    async def call(self, request: Asks[T], *, timeout_ms: int, cluster_id: str = "") -> T:
        question = _question(type(request))
        answer: T = await self._calls.call(question, request, timeout_ms=timeout_ms, cluster_id=cluster_id)
        return answer

    async def open_produce(self, hello: Hello) -> Stream[ProduceRequest, tuple[ProduceResponse, ...]]:
        return ProduceStream(await self._open(hello.cluster_id, hello.client_id), hello.cluster_id)

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        endpoint = self._named(hello.client_id)
        return FetchStream(await self._open(hello.cluster_id, hello.client_id), endpoint, hello.cluster_id)

    async def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        link = await self._open()
        try:
            if PRIVATE_APIS[WaitForMetadata].API_KEY in link.versions:
                try:
                    async for update in _pushed_metadata(link, request):
                        yield update
                    return
                except (
                    TopicAuthorizationError
                ):  # that is for those who may know of every topic: others ask for what they may
                    pass
            async for update in self._polls.updates(link, self._endpoint.address, request):
                yield update
        finally:
            link.lose(ConnectionLostError("the watch has ended"))

    async def watch_offsets(self, request: WatchOffsetsRequest) -> AsyncIterator[tuple[FetchResult, ...]]:
        link = await self._open(request.cluster_id)
        try:
            session, version = LinkFetchSession(), link.version(KafkaFetch)
            fetch = FetchRequest(
                0, 0, CONSUMER_REPLICA_ID, -1, WATCH_WAIT_MS, 1, 1, request.partitions, offsets_only=True
            )
            refused = dict.fromkeys((each.topic_id, each.partition_id) for each in request.partitions)
            while True:
                answer = await link.ask(
                    session.request(fetch),
                    KafkaFetched,
                    timeout_ms=WATCH_WAIT_MS + ANSWER_GRACE_MS,
                    cluster_id=request.cluster_id,
                )
                told = session.response(fetch, answer, version)
                if told is None:
                    continue
                if answer.error_code:
                    raise error_from_number(answer.error_code, f"{self._endpoint.address} refuses to be watched")
                results = told.results
                if any(each.error is ErrorCode.OFFSET_OUT_OF_RANGE for each in results):
                    raise UnsupportedVersionError(
                        f"{self._endpoint.address} tells of offsets only if it is asked each time"
                    )
                for each in results:
                    if each.error in {ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE}:
                        refused.pop((each.topic_id, each.partition_id), None)
                    else:
                        refused[each.topic_id, each.partition_id] = None
                yield results
                if len(refused) == len(request.partitions):
                    raise ConnectionLostError(f"{self._endpoint.address} leads none of the partitions any more")
                if not session.is_kept:
                    raise _unwatched(self._endpoint.address, results)
                if results:
                    await asyncio.sleep(TELL_INTERVAL_S)
        finally:
            link.lose(ConnectionLostError("the watch has ended"))

    async def close(self) -> None:
        self._is_closed = True
        await self._calls.close()
        links = list(self._links)
        for link in links:
            link.lose(_closed(self._endpoint.address))
        if links:
            await asyncio.wait([link.closed for link in links])

    async def _open(self, cluster_id: str = "", client_id: str = "") -> Link:
        link = await open_link(self._named(client_id), cluster_id=cluster_id)
        if self._is_closed:
            error = _closed(self._endpoint.address)
            link.lose(error)
            raise error
        self._links.add(link)
        link.closed.add_done_callback(lambda _: self._links.discard(link))
        return link

    def _named(self, client_id: str) -> BrokerEnd:
        return self._endpoint._replace(client_id=client_id) if client_id else self._endpoint


def _unwatched(address: str, results: Iterable[FetchResult]) -> ReplogError:
    """Returns why a broker has no session for a watch."""
    if any(each.error is not ErrorCode.NONE for each in results):
        return ConnectionLostError(
            f"{address} has ended the watch, since it does not know all the partitions; begin it anew"
        )
    return ThrottledError(f"{address} has no room for another fetch session: ask for the offsets instead")


async def _pushed_metadata(link: Link, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
    """Yields the steps of a broker that answers when there is something new."""
    api = PRIVATE_APIS[WaitForMetadata]
    wait = WaitForMetadata(request.known_offset)
    while True:
        asked = PrivateRequest(api, wait, METADATA_WAIT_MS)
        answer = await link.ask(asked, PrivateAnswer, timeout_ms=wait.wait_ms + ANSWER_GRACE_MS)
        for part in _parts(answer):
            step: MetadataUpdate = api.decode(part)
            yield step
            known = max(wait.known_offset, step.metadata_offset)
            wait = WaitForMetadata(known, step.controller_id, step.controller_epoch, METADATA_WAIT_MS)
        if not request.follow:
            return


def _question(request: type[Struct]) -> Question:
    """Returns what puts a question: by our own API where a broker has it, else by Kafka's.

    Raises:
        InvalidRequestError: It is a question of nodes to one another.
    """
    kafkas, private = question_of(request), PRIVATE_APIS.get(request)
    if private is None:
        if kafkas is None:
            raise InvalidRequestError(f"{request.__name__} is a request of nodes, which meet at inter.broker.listener")
        return kafkas
    api = private

    async def ask(broker: Broker, question: Struct, timeout_ms: int) -> Any:
        if kafkas is not None and not await broker.offers(api.API_KEY):
            return await kafkas(broker, question, timeout_ms)
        return await _ask_privately(api, broker, question, timeout_ms)

    return ask


async def _ask_privately(api: PrivateApi, broker: Broker, question: Struct, timeout_ms: int) -> Any:
    answer = await broker.ask(PrivateRequest(api, question, timeout_ms), PrivateAnswer, timeout_ms=timeout_ms)
    parts = _parts(answer)
    if len(parts) != 1:
        raise MalformedFrameError(f"{broker.address} answers {api.__name__} with {len(parts)} parts")
    return api.decode(parts[0])


def _parts(answer: PrivateAnswer) -> list[bytes | memoryview]:
    """Returns what an answer has; raises the broker's refusal."""
    if answer.error_code:
        raise error_from_number(answer.error_code, answer.message)
    return answer.parts


class KafkaTransport:
    """Connections of one client in Kafka's protocol.

    Args:
        connect: The function that connects a protocol; a simulated network has its own.
        client_id: The name of the client, for brokers; "": `CLIENT_ID`.
        security: How client and brokers are believed by each other; None: plain text, without a login.

    Raises:
        ConfigError: A file of TLS cannot be used.
    """

    def __init__(
        self, connect: Connect = create_connection, client_id: str = "", security: Security | None = None
    ) -> None:
        self._end = BrokerEnd("", client_id or CLIENT_ID, connect)
        if security is not None and security.protocol != "PLAINTEXT":
            from replog.client.protocol.secure_link import SECURE_OPEN_TIMEOUT_S, SecureWay

            way = SecureWay(security, connect)
            self._end = self._end._replace(connect=way.connect, open_timeout_s=SECURE_OPEN_TIMEOUT_S, make=way.make)
        self._polls = MetadataPolls()

    def connect(self, address: str, *, purpose: str) -> KafkaConnection:  # noqa: ARG002 -- the seam's shape
        return KafkaConnection(self._end._replace(address=address), self._polls)
