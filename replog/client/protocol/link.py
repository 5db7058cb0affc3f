"""One TCP connection to a broker: requests leave in order, and answers come in that order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from replog._version import __version__
from replog.client.protocol.asking import A, RequestMessage
from replog.errors import ErrorCode, MalformedFrameError, ReplogError, UnsupportedVersionError, raised_anew
from replog.errors.from_code import error_from_number
from replog.protocol.private import PrivateRequest
from replog.rpc.transport import ConnectionLostError
from replog.tcp.dialing import Connect, cause_of, write_pieces
from replog.tcp.frames import FrameReader, SpareBuffers
from replog.waiting.looks import timeout_in_looks
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.primitives import Reader, Writer

OPEN_TIMEOUT_S: Final = 1.0
"""How long the way to the broker may take, with its first answer: one that is stopped or overloaded is left for another."""

MESSAGE_BYTES_MAX: Final = 64 << 20
"""Of one message either way, but for what stands around it.  A batch and a fetch answer must fit."""

ELEMENTS_MAX: Final = 2**24
"""Of the arrays of one answer: 200,000 partitions of a cluster, each with its replicas, are some million."""

WRITTEN_BYTES_MAX: Final = 256 << 10
"""Bytes that wait to be written before whoever sends waits."""

VERSIONS_VERSION: Final = 3
"""Of ApiVersions; every broker since Kafka 2.4 has it."""

_WHICH_PORT: Final = "Is this the port for clients (listeners) of a broker?"

_FIRST_REQUEST: Final = 2
"""The number of the one behind ApiVersions, which is all that a broker answers before a login."""

REFUSAL_S: Final = 0.5
"""How soon the end comes of a connection whose first request is one that needed a login."""

_LOGIN_HINT = " at the first request. Does this listener want a login (Security.scram, docs/SECURITY_CLIENTS.md)?"

_SPARES = SpareBuffers()
"""Shared by all clients of the process."""

_size = struct.Struct(">i")


class BrokerEnd(NamedTuple):
    """Where a broker listens, and who connects.

    Attributes:
        address: The host:port, for messages.
        client_id: The name of this client in the broker's logs.
        connect: The function that connects a protocol.
        open_timeout_s: How long the way there may take, with the first answer.
        make: The function that makes the protocol of a connection, of this; None: `Link`, which speaks plain text.
    """

    address: str
    client_id: str
    connect: Connect
    open_timeout_s: float = OPEN_TIMEOUT_S
    make: Callable[[Any], Link] | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The host, without the brackets of an IPv6 address, and the port."""
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


class _Waiting(Struct, frozen=True):
    """A request without its answer."""

    correlation_id: int
    has_tags: bool
    answered: asyncio.Future[memoryview]


class Link(asyncio.BufferedProtocol):
    """A connection to one broker; made by `open_link`.

    Args:
        endpoint: The broker.

    Attributes:
        versions: The versions of each API that the broker serves, by its key.
        features: The levels of the features that the cluster has settled on, by name.
        closed: The future that is done when the connection has ended.
        used_s: The loop's time when the last answer came.
        has_heard: Whether anything came from the broker.
    """

    def __init__(self, endpoint: BrokerEnd) -> None:
        self.versions: Mapping[int, range] = {}
        self.features: Mapping[str, int] = {}
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MESSAGE_BYTES_MAX + 1024, _SPARES, bytes_min=_size.size)
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._drained: asyncio.Future[None] | None = None
        self.has_heard = False
        self._end: ReplogError | None = None
        self.used_s = self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_idle(self) -> bool:
        """Whether every request has its answer, and more can be asked."""
        return not self._waiting and self.is_usable

    @property
    def is_usable(self) -> bool:
        """Whether the connection has not ended."""
        return self._end is None and self._transport is not None and not self._transport.is_closing()

    def has_ended_since(self, used_s: float) -> bool:
        """Whether the broker has ended the connection, and nothing has come since the answer at a time of the loop (`used_s`)."""
        return self.closed.done() and self.used_s == used_s and self._reader.is_between_frames

    # ---- what asyncio calls ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITTEN_BYTES_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Returns where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Takes in bytes that have come."""
        self.has_heard = True
        for frame in self._reader.received(nbytes):
            self._take_in(frame)
        if self._reader.trouble:
            self.lose(MalformedFrameError(f"{self._endpoint.address}: {self._reader.trouble}"))
        elif self._reader.wanted_bytes:
            if not self._waiting:
                self._refuse_unasked()
            else:
                self._reader.admit()  # what comes was asked for

    def pause_writing(self) -> None:
        """Lets whoever sends wait."""
        self._drained = self._drained or self._loop.create_future()

    def resume_writing(self) -> None:
        """Lets whoever sends go on."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection; every request without an answer fails."""
        cause = f" ({exc})" if exc is not None else ""
        text = f"{self._endpoint.address}: the broker closed the connection{cause}{self._end_hint()}"
        self._fail(ConnectionLostError(text))
        self._transport = None
        self.resume_writing()
        if not self.closed.done():
            self.closed.set_result(None)

    # ---- requests --------------------------------------------------------------------------------------------------------

    async def authenticate(self) -> None:
        """Proves who the client is; here, in plain text, nobody asks.

        Raises:
            AuthenticationError: One side does not believe the other.
            ReplogError: The connection was lost.
        """

    def version(self, request: RequestMessage | type[RequestMessage] | PrivateRequest) -> int:
        """Returns the newest version of an API that both sides know.

        Raises:
            UnsupportedVersionError: There is none.
        """
        served, own = self.versions.get(request.API_KEY, range(0)), request.VERSIONS
        version = min(served.stop, own.stop) - 1
        if version >= max(served.start, own.start):
            return version
        theirs = f"versions {served.start} to {served.stop - 1}" if served else "none"
        raise UnsupportedVersionError(
            f"{self._endpoint.address} serves {theirs} of API {request.API_KEY} ({_name(request)}), and this client knows "
            f"{own.start} to {own.stop - 1}. It needs a newer broker, or a replog one where Apache Kafka has no such API."
        )

    def send(
        self, request: RequestMessage | PrivateRequest, version: int, *, cluster_id: str = "", is_answered: bool = True
    ) -> asyncio.Future[memoryview]:
        """Sends a request; the future is the body of its answer, or done already where there is none.

        Args:
            request: The request.
            version: Its version.
            cluster_id: The cluster that the client talks to, which a replog broker compares with its own; "": any.
            is_answered: Whether there is an answer.

        Raises:
            ConnectionLostError: The connection has ended.
            MalformedFrameError: The request is too large.
        """
        transport = self._transport
        if self._end is not None or transport is None or transport.is_closing():
            raise self.why_ended()
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        writer = Writer()
        is_flexible = version >= request.FLEXIBLE_FROM
        header = RequestHeader(
            request.API_KEY, version, self._correlation_id, self._endpoint.client_id, cluster_id=cluster_id
        )
        header.write(writer, 2 if is_flexible else 1)
        request.write(writer, version)
        pieces = writer.buffers()
        size = sum(map(len, pieces))
        if size > MESSAGE_BYTES_MAX:
            raise MalformedFrameError(
                f"{self._endpoint.address}: a request of {size} bytes, the limit is {MESSAGE_BYTES_MAX}"
            )
        answered: asyncio.Future[memoryview] = self._loop.create_future()
        if is_answered:
            has_tags = is_flexible and request.API_KEY != ApiVersionsRequest.API_KEY
            self._waiting.append(_Waiting(self._correlation_id, has_tags, answered))
        else:
            answered.set_result(memoryview(b""))
        write_pieces(transport, _size.pack(size), size, pieces)
        return answered

    async def drain(self) -> None:
        """Waits until few bytes wait to leave."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    async def ask(
        self, request: RequestMessage | PrivateRequest, answer: type[A], *, timeout_ms: int, cluster_id: str = ""
    ) -> A:
        """Sends a request and returns its answer; as `replog.client.protocol.asking.Broker.ask`.

        A broker that is late loses the connection: what was asked behind that request would be late, too.
        """
        version = self.version(request)
        answered = self.send(request, version, cluster_id=cluster_id)
        try:
            async with timeout_in_looks(timeout_ms / 1000):
                body = await answered
        except TimeoutError:
            error = ConnectionLostError(f"{self._endpoint.address}: no answer in {timeout_ms} ms")
            self.lose(error)
            raise raised_anew(error) from None
        finally:
            del answered  # what it raises has passed here: it must not be found from there
        return read_answer(body, answer, version)

    def why_ended(self) -> ReplogError:
        """Returns the error for those who ask after the end."""
        if self._end is None:
            return ConnectionLostError(f"{self._endpoint.address}: the connection was closed")
        return raised_anew(self._end)

    def lose(self, error: ReplogError) -> None:
        """Ends the connection at once, for a reason."""
        self._fail(error)
        if self._transport is not None:
            self._transport.abort()

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _end_hint(self) -> str:
        """Returns what the end of the connection may mean by when it comes."""
        if not self.has_heard:
            return f" before it said anything. {_WHICH_PORT}"
        is_refused = self._correlation_id == _FIRST_REQUEST and self._loop.time() - self.used_s < REFUSAL_S
        return _LOGIN_HINT if is_refused and self._waiting else ""

    def _take_in(self, frame: memoryview) -> None:
        if self._end is not None:
            return
        if not self._waiting:
            self._refuse_unasked()
            return
        reader = Reader(frame)
        waiting = self._waiting[0]  # it stays there until this is its answer: who waits hears of the end
        try:
            told = ResponseHeader.read(reader, 1 if waiting.has_tags else 0).correlation_id
        except MalformedFrameError as error:
            self.lose(MalformedFrameError(f"{self._endpoint.address} answers with a header that is none: {error}"))
            return
        if told != waiting.correlation_id:
            self.lose(
                MalformedFrameError(
                    f"{self._endpoint.address} answers request {told} where {waiting.correlation_id} was asked before"
                )
            )
            return
        self._waiting.popleft()
        self.used_s = self._loop.time()
        if not waiting.answered.done():
            waiting.answered.set_result(frame[len(frame) - reader.left :])

    def _refuse_unasked(self) -> None:
        self.lose(MalformedFrameError(f"{self._endpoint.address} sends what nobody has asked for: no broker's port"))

    def _fail(self, error: ReplogError) -> None:
        if self._end is None:
            self._end = error
        while self._waiting:
            answered = self._waiting.popleft().answered
            if not answered.done():
                answered.set_exception(raised_anew(self._end))
                answered.exception()  # nobody need wait for it


def read_answer(body: memoryview, answer: type[A], version: int) -> A:
    """Returns the answer in the body of a frame.  Raises: MalformedFrameError: It is none."""
    found: A = answer.read(Reader(body, ELEMENTS_MAX), version)
    return found


async def open_link(endpoint: BrokerEnd, *, cluster_id: str = "") -> Link:
    """Connects to a broker, and asks what it serves.

    Args:
        endpoint: The broker.
        cluster_id: The cluster that it is to belong to; "": any.

    Raises:
        ConnectionLostError: It cannot be reached, or does not answer in time.
        MalformedFrameError: What listens there is no broker.
        UnsupportedVersionError: It is older than the protocol of this client.
        InconsistentClusterIdError: It belongs to another cluster.
        AuthenticationError: One side does not believe the other who it is.
    """
    link: Link | None = None
    try:
        async with timeout_in_looks(endpoint.open_timeout_s):
            link = await _connect(endpoint)
            await _greet(link, endpoint.address, cluster_id)
            await link.authenticate()
    except TimeoutError:
        hint = f". {_WHICH_PORT}" if link is not None and not link.has_heard else ""
        _abort(link)
        raise ConnectionLostError(
            f"{endpoint.address} did not answer within {endpoint.open_timeout_s:g} s{hint}"
        ) from None
    except BaseException:
        _abort(link)
        raise
    return link


async def _greet(link: Link, address: str, cluster_id: str) -> None:
    """Asks what the broker serves, and takes it in."""
    body = await link.send(ApiVersionsRequest("replog", __version__), VERSIONS_VERSION, cluster_id=cluster_id)
    told = _served(body, address)
    link.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in told.api_keys}
    link.features = {each.name: each.max_version_level for each in told.finalized_features}


def _served(body: memoryview, address: str) -> ApiVersionsResponse:
    code: int = struct.unpack_from(">h", body)[0] if len(body) >= 2 else ErrorCode.CORRUPT_MESSAGE
    if code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(
            f"{address} does not know version {VERSIONS_VERSION} of ApiVersions: it is older than any broker that this client knows"
        )
    told = read_answer(body, ApiVersionsResponse, VERSIONS_VERSION)
    if code != ErrorCode.NONE:
        raise error_from_number(code, told.error_message or f"{address} refuses to say what it serves")
    return told


async def _connect(endpoint: BrokerEnd) -> Link:
    try:
        made = await endpoint.connect(partial(endpoint.make or Link, endpoint), *endpoint.host_and_port)
    except OSError as error:
        is_refused = isinstance(error, ConnectionRefusedError)
        raise ConnectionLostError(f"{endpoint.address}: {cause_of(error)}", refused=is_refused) from None
    return cast("Link", made[1])


def _abort(link: Link | None) -> None:
    if link is not None:
        link.lose(ConnectionLostError("given up"))


def _name(request: RequestMessage | type[RequestMessage] | PrivateRequest) -> str:
    named = request if isinstance(request, type | PrivateRequest) else type(request)
    return named.__name__.removesuffix("Request")
