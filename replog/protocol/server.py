"""Answers the requests of Kafka clients: finds the API, reads the message, has it handled, writes the answer.

| frame | answer to the client |
|---|---|
| ApiVersions in a version from the future | which versions there are, as version 0 (KIP-511) |
| another API or version that is not served, a body that is none | the connection ends, and the log says why |
| a request that fails as a whole | Kafka's code for each thing that it names, with our text where the version has a field |
| a request on which a handler breaks | UNKNOWN_SERVER_ERROR and a number; the log has the traceback under the same number |
| a produce with acks=0 | nothing; where a batch was refused, the end of the connection |
"""

from __future__ import annotations

import logging
import math
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct, field

from replog.access.authorizer import OPEN
from replog.access.principal import ClientIdentity
from replog.access.rights import Rights
from replog.errors import BrokerClosedError, BrokerNotAvailableError, ErrorCode, MalformedFrameError, ReplogError
from replog.metadata.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from replog.protocol.audit import Audit
from replog.protocol.client_quotas import NO_QUOTAS, ClientQuotas, Quotas
from replog.protocol.handlers.node import AT_ONCE_MAX, Call, Failure, KafkaNode, ProduceTurn, beside
from replog.protocol.handlers.produce import has_failed, read_in_turns
from replog.protocol.handlers.versions import SOFTWARE_FROM, api_versions, unsupported
from replog.protocol.repeated_answers import AnswerSource, Asked, Buffers, RepeatedAnswers, WrittenAnswer
from replog.protocol.request_time import Measured, RequestTime, in_thread
from replog.protocol.rights.enforcing import answered
from replog.protocol.rights.table import NOTHING
from replog.protocol.served import READ_AT_ONCE_BYTES, SERVED, Handling, Response, Served, refusal
from replog.protocol.written_steps import elements_count
from replog.tcp.answers import Answer
from replog.tcp.connection import Caller
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.primitives import Reader, Writer

P = ParamSpec("P")
T = TypeVar("T")

_start = struct.Struct(">hhi")
_size = struct.Struct(">i")

_THROTTLE_TIME = "throttle_time_ms"
"""The field of answers that says how long no request of the client is taken up."""

_log = logging.getLogger(__name__)


class KafkaServer:
    """Answers requests, one by one; `replog.tcp.connection` keeps their order.

    Args:
        node: The node that they are for.
        is_serving: The function that says whether the node serves.  Before, it tells what it serves, and answers our own
            clients, which come with the id of their cluster; the connections of others end, so that they go elsewhere.
        served: The table of the APIs that are served, beside ApiVersions.

    Attributes:
        advertised: The versions of each API that clients are told, by its key.
        counts: The counts of requests.
        quotas: The quotas of clients.
    """

    def __init__(
        self, node: KafkaNode, is_serving: Callable[[], bool] = lambda: True, served: Sequence[Served] = SERVED
    ) -> None:
        handling = Handling(ApiVersionsRequest, self._api_versions, refusal(ApiVersionsResponse))
        request = ApiVersionsRequest
        own = Served(request.API_KEY, "ApiVersions", request.VERSIONS, request.FLEXIBLE_FROM, lambda: handling, NOTHING)
        self._node = node
        self._is_serving = is_serving
        self._served: Mapping[int, Served] = {api.key: api for api in (*served, own)}
        self.quotas = ClientQuotas(lambda: _quotas_of(node))
        self._repeated = RepeatedAnswers(
            lambda: AnswerSource(node.image, node.controller_id(), node.authorizer, node.authorizer.version)
        )
        self._audit = Audit()
        self.counts = RequestCounts()
        self.advertised: Mapping[int, range] = {key: api.advertised for key, api in self._served.items()}

    def may_overlap(self, frame: memoryview) -> bool:
        """Whether a request may be in flight beside others of its connection."""
        api = self._served.get(_start.unpack_from(frame)[0])
        return api is not None and len(frame) <= api.overlapping_bytes_max

    def carries_records(self, frame: memoryview) -> bool:
        """Whether a request brings records."""
        return bool(_start.unpack_from(frame)[0] == ProduceRequest.API_KEY)

    async def serve(self, frame: memoryview, caller: Caller) -> Answer | None:
        """Answers a request; None: it has no answer.

        A node that stops meanwhile ends the connection instead: a client asks again elsewhere, where any error could be final.

        Args:
            frame: The request without its size.
            caller: The client.

        Raises:
            MalformedFrameError: The bytes are no request that is served; nothing was done.
        """
        try:
            if not self.quotas.is_set(REQUEST_PERCENTAGE):
                return await self._serve(frame, caller)
            request_time = RequestTime()
            return await Measured(self._serve(frame, caller, request_time), request_time)
        except BrokerClosedError:
            return Answer(is_last=True)
        except MalformedFrameError:
            self.counts.malformed += 1
            raise

    async def _serve(self, frame: memoryview, caller: Caller, request_time: RequestTime | None = None) -> Answer | None:
        key, version, correlation_id = _start.unpack_from(frame)
        api = self._served.get(key)
        if api is None:
            raise MalformedFrameError(f"a request for API {key}, which is not served")
        if version not in api.versions:
            if key == ApiVersionsRequest.API_KEY:
                return framed(correlation_id, written_buffers(unsupported(self.advertised), 0), has_tags=False)
            raise MalformedFrameError(f"a request for API {key} in version {version}, which is not served")
        is_flexible = version >= api.flexible_from
        reader = Reader(frame, api.elements_max)
        header = RequestHeader.read(reader, 2 if is_flexible else 1)
        if header.cluster_id is None and key != ApiVersionsRequest.API_KEY and not self._is_serving():
            return Answer(is_last=True)
        self.counts.requests[api.name, version] += 1
        body = frame[len(frame) - reader.left :]
        has_tags = is_flexible and key != ApiVersionsRequest.API_KEY
        if header.cluster_id and header.cluster_id != self._node.cluster_id:
            written = await _refused(api, body, version, self._foreign(header.cluster_id))
            return framed(correlation_id, written, has_tags=has_tags)
        unread = self._node.open_answer() if api.has_records else None
        turn = ProduceTurn(caller.in_order)
        client = ClientIdentity(caller.principal, caller.address)
        rights = Rights(self._node.authorizer, client, api.name, self._audit.denied)
        call = Call(version, header.client_id or "", caller, rights, unread, turn, request_time)
        if api.is_repeated is not None:
            buffers = await self._repeated_or_new(api, body, call)
            mute_s = self._time_taken(call)
            return framed(correlation_id, with_throttle_time(api, buffers, call, mute_s), has_tags=has_tags)._replace(
                mute_s=mute_s
            )
        request: object
        try:
            if key == ProduceRequest.API_KEY and len(frame) > READ_AT_ONCE_BYTES:
                await turn.take()
                request = await read_in_turns(reader, version)
            else:
                request = await _runner(api, len(frame))(_read, api, reader, version)
            response, mute_s = await self._throttled(api, request, call, len(frame))
            if isinstance(request, ProduceRequest) and request.acks == 0:
                return _unanswered(response, mute_s)
            written = await _written_in_turns(response, version)
        except BaseException:  # even if the client has gone
            if unread is not None:
                unread.close()
            raise
        finally:
            turn.give_back()
            self._time_taken(call)
        answer = framed(correlation_id, written, has_tags=has_tags)
        return answer if unread is None and not mute_s else answer._replace(unread=unread, mute_s=mute_s)

    async def _throttled(self, api: Served, request: object, call: Call, size: int) -> tuple[Response, float]:
        """Returns the answer to a request, and the seconds for which the client has to wait behind it.

        A fetch is given no more than its quota lets a client take at once, so that no answer silences it for longer than that.  A
        produce counts before it is done: what comes behind one too many is not taken up meanwhile.
        """
        due_s = 0.0
        if isinstance(request, ProduceRequest) and (owed_s := self._counted(PRODUCER_BYTE_RATE, call, size)):
            call.caller.rest(owed_s)
            due_s = time.monotonic() + owed_s
        if isinstance(request, FetchRequest):
            burst = self.quotas.burst(CONSUMER_BYTE_RATE, call.caller.principal.name, call.client_id)
            if burst is not None:
                request.max_bytes = max(1, min(request.max_bytes, int(burst)))
        response = await self._handle(api, request, call, size)
        owed_s = due_s and max(0.0, due_s - time.monotonic())
        return response, self._taken(response, call, owed_s)

    def _taken(self, response: Response, call: Call, owed_s: float) -> float:
        """Counts what a client took, tells it how long it has to wait, and returns that in seconds.

        Args:
            response: The answer to its request.
            call: The context of the request.
            owed_s: The seconds that it has to wait for what it sent.
        """
        wait_s = max(owed_s, getattr(response, _THROTTLE_TIME, 0) / 1000, self._time_taken(call))
        if isinstance(response, FetchResponse):
            fetched_bytes = 0 if call.unread is None else call.unread.held_bytes
            wait_s = max(wait_s, self._counted(CONSUMER_BYTE_RATE, call, fetched_bytes))
        if wait_s and hasattr(response, _THROTTLE_TIME):
            setattr(response, _THROTTLE_TIME, math.ceil(wait_s * 1000))
        return wait_s

    def _time_taken(self, call: Call) -> float:
        """Counts the time that a request took since the last call, and returns the seconds that the client has to wait for it."""
        if call.request_time is None:
            return 0.0
        return self._counted(REQUEST_PERCENTAGE, call, call.request_time.take() * 100)

    def _counted(self, key: str, call: Call, amount: float) -> float:
        return self.quotas.take(key, call.caller.principal.name, call.client_id, amount)

    def _foreign(self, cluster_id: str) -> Failure:
        return Failure(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"node {self._node.node_id} belongs to cluster {self._node.cluster_id}, the caller to cluster {cluster_id}. "
            "Check the address.",
        )

    async def _repeated_or_new(self, api: Served, body: memoryview, call: Call) -> Buffers:
        """Returns the answer that was written to the same request under the same metadata, or writes one."""

        async def write() -> WrittenAnswer:
            run = _runner(api, len(body))
            request = await run(_read, api, Reader(body, api.elements_max), call.version)
            response = await self._handle(api, request, call, len(body))
            is_repeated = api.is_repeated is not None and api.is_repeated(response)
            return WrittenAnswer(await _written_in_turns(response, call.version), is_repeated)

        try:
            return await self._repeated.answer(_asked(call, api, body), write)
        except BrokerClosedError:
            raise
        except ReplogError as error:  # the node does not know the metadata yet
            return await _refused(api, body, call.version, Failure(error.code, error.told))

    async def _handle(self, api: Served, request: object, call: Call, size: int) -> Response:
        try:
            handling = api.load()
            if call.rights.authorizer is OPEN and not api.right.administers:  # nothing to ask, nothing to tell
                return await handling.handle(self._node, request, call)
            response: Response = await answered(api.right, handling, self._node, request, call, self._audit)
            return response
        except BrokerClosedError:
            raise
        except ReplogError as error:
            run = _at_once if size <= READ_AT_ONCE_BYTES else in_thread
            return await run(api.load().refuse, request, Failure(error.code, error.told))
        except Exception:  # noqa: BLE001 -- one client hears of it, and the node goes on
            self.counts.failures += 1
            number = self.counts.failures
            _log.exception(
                "failure %d: a request of %r for API %d is answered with an error", number, call.client_id, api.key
            )
            text = f"a bug of broker {self._node.node_id}; its log says more under failure {number}"
            return api.load().refuse(request, Failure(ErrorCode.UNKNOWN_SERVER_ERROR, text))

    async def _api_versions(self, node: KafkaNode, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
        response = api_versions(node, request, call.version, self.advertised)
        if call.version >= SOFTWARE_FROM:
            self.counts.note_software(request.client_software_name, request.client_software_version)
        return response


def with_throttle_time(api: Served, written: Buffers, call: Call, wait_s: float) -> Buffers:
    """Returns an answer that others get too, with the time that this client has to wait: a copy where it has to.

    Args:
        api: The API, in whose answers it is the first field from a version on.
        written: The answer without its header.
        call: The context of the request.
        wait_s: The time, in seconds.
    """
    if not wait_s or api.throttle_time_from is None or call.version < api.throttle_time_from:
        return written
    first = bytearray(written[0])
    _size.pack_into(first, 0, math.ceil(wait_s * 1000))
    return [first, *written[1:]]


def _unanswered(response: Response, mute_s: float) -> Answer | None:
    """Returns what becomes of the connection behind a produce with acks=0."""
    failed = isinstance(response, ProduceResponse) and has_failed(response)
    return Answer(mute_s=mute_s, is_last=failed) if failed or mute_s else None


def _quotas_of(node: KafkaNode) -> Quotas:
    try:
        return node.image.quotas
    except BrokerNotAvailableError:  # it has not read the metadata since its start, and refuses what is asked
        return NO_QUOTAS


def _asked(call: Call, api: Served, body: memoryview) -> Asked:
    """Returns a request as its answer is kept: for all clients, or, where they have rights, for those who are the same."""
    rights = call.rights
    sender = None if rights.is_open else rights.client
    return Asked(call.listener, sender, api.key, call.version, bytes(body))


class _Run(Protocol):
    """Calls a function that needs only its arguments."""

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **others: P.kwargs) -> T: ...


async def _at_once(function: Callable[P, T], /, *args: P.args, **others: P.kwargs) -> T:
    return function(*args, **others)


def _runner(api: Served, size: int) -> _Run:
    """Returns the runner that reads and refuses a request: a thread for a large one, which may name thousands of things.

    A request that may overlap others is not left to a thread: others would overtake it.
    """
    return in_thread if size > max(READ_AT_ONCE_BYTES, api.overlapping_bytes_max) else _at_once


async def _refused(api: Served, body: memoryview, version: int, failure: Failure) -> Buffers:
    """Returns the written answer to a request that is refused before the node is asked."""
    run = _runner(api, len(body))
    request = await run(_read, api, Reader(body, api.elements_max), version)
    return await _written_in_turns(await run(api.load().refuse, request, failure), version)


def _read(api: Served, reader: Reader, version: int) -> object:
    """Returns the message.  Bytes behind it are ignored, as in Kafka: librdkafka sends too many there."""
    request: object = api.load().request.read(reader, version)
    return request


async def _written_in_turns(response: Response, version: int) -> Buffers:
    return await beside(elements_count(response, AT_ONCE_MAX), written_buffers, response, version)


def written_buffers(response: Response, version: int) -> Buffers:
    writer = Writer()
    response.write(writer, version)
    return writer.buffers()


def framed(correlation_id: int, body: Buffers, *, has_tags: bool) -> Answer:
    writer = Writer()
    ResponseHeader(correlation_id).write(writer, 1 if has_tags else 0)
    header = writer.joined()
    size = len(header) + sum(map(len, body))
    return Answer((_size.pack(size) + header, *body))


SOFTWARE_MAX = 100
"""How many kinds of software are told apart; a client may call itself anything."""

OTHER = "other"


class RequestCounts(Struct):
    """Counts of one server.

    Attributes:
        requests: The requests by the name of the API and their version.
        software: The connections by the name and the version of the software that they said they are.
        failures: The requests that were answered with an error because of a bug.
        malformed: The frames that were no request that is served.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    software: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    failures: int = 0
    malformed: int = 0

    def note_software(self, name: str, version: str) -> None:
        """Counts a client that says what it is."""
        kind = (name, version)
        is_known = kind in self.software or len(self.software) < SOFTWARE_MAX
        self.software[kind if is_known else (OTHER, OTHER)] += 1
