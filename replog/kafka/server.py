"""Answers the requests of Kafka clients: finds the API, reads the message, has it handled, writes the answer.

| what comes | what the client gets |
|---|---|
| ApiVersions in a version from the future | which versions there are, as version 0 (KIP-511) |
| another API or version that is not served, a body that is none | the connection ends, and the log says why |
| a request that fails as a whole | Kafka's code for each thing that it names, with our text where the version has a field |
| a request on which a handler breaks | UNKNOWN_SERVER_ERROR and a number; the log has the traceback under the same number |
| a produce with acks=0 | nothing; where a batch was refused, the end of the connection |
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence

from replog.errors import ErrorCode, MalformedFrameError, ReplogError
from replog.kafka.connection import Answer
from replog.kafka.handlers.node import Call, Failure, KafkaNode
from replog.kafka.handlers.produce import has_failed
from replog.kafka.handlers.versions import SOFTWARE_FROM, api_versions, refuse_api_versions, unsupported
from replog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.kafka.messages.headers import RequestHeader, ResponseHeader
from replog.kafka.messages.produce import ProduceRequest
from replog.kafka.repeated_answers import Asked, Buffers, RepeatedAnswers
from replog.kafka.request_counts import RequestCounts
from replog.kafka.served import SERVED, Response, Served
from replog.kafka.wire import Reader, Writer

_start = struct.Struct(">hhi")
_size = struct.Struct(">i")

_log = logging.getLogger(__name__)


class KafkaServer:
    """Answers requests, one by one; `replog.kafka.connection` keeps their order.

    Args:
        node: The node that they are for.
        served: The table of the APIs that are served, beside ApiVersions.

    Attributes:
        advertised: The versions of each API that clients are told, by its key.
        counts: The counts of what was asked for.
    """

    def __init__(self, node: KafkaNode, served: Sequence[Served] = SERVED) -> None:
        own = Served(ApiVersionsRequest, self._api_versions, refuse_api_versions)
        self._node = node
        self._served: Mapping[int, Served] = {api.key: api for api in (*served, own)}
        self._repeated = RepeatedAnswers()
        self.counts = RequestCounts()
        self.advertised: Mapping[int, range] = {key: api.advertised for key, api in self._served.items()}

    def may_overlap(self, frame: memoryview) -> bool:
        """Whether a request may be in flight beside others of its connection."""
        api = self._served.get(_start.unpack_from(frame)[0])
        return api is not None and api.may_overlap

    async def serve(self, frame: memoryview) -> Answer | None:
        """Answers a request; None: it has no answer.

        Args:
            frame: The request without its size.

        Raises:
            MalformedFrameError: The bytes are no request that is served; nothing was done.
        """
        try:
            return await self._serve(frame)
        except MalformedFrameError:
            self.counts.malformed += 1
            raise

    async def _serve(self, frame: memoryview) -> Answer | None:
        key, version, correlation_id = _start.unpack_from(frame)
        api = self._served.get(key)
        if api is None:
            raise MalformedFrameError(f"a request for API {key}, which is not served")
        if version not in api.versions:
            if key == ApiVersionsRequest.API_KEY:
                return _framed(correlation_id, _written(unsupported(self.advertised), 0), has_tags=False)
            raise MalformedFrameError(f"a request for API {key} in version {version}, which is not served")
        is_flexible = version >= api.request.FLEXIBLE_FROM
        reader = Reader(frame)
        header = RequestHeader.read(reader, 2 if is_flexible else 1)
        self.counts.requests[api.name, version] += 1
        call = Call(version, header.client_id or "")
        body = frame[len(frame) - reader.left :]
        has_tags = is_flexible and key != ApiVersionsRequest.API_KEY
        if api.is_repeated is not None:
            return _framed(correlation_id, await self._repeated_or_new(api, body, call), has_tags=has_tags)
        request = _read(api, reader, version)
        response = await self._handle(api, request, call)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return Answer(is_last=True) if has_failed(response) else None  # type: ignore[arg-type]
        return _framed(correlation_id, _written(response, version), has_tags=has_tags)

    async def _repeated_or_new(self, api: Served, body: memoryview, call: Call) -> Buffers:
        """Returns the answer that was written to the same request under the same metadata, or writes one."""
        image, controller_id = self._node.image, self._node.controller_id()
        asked = Asked(api.key, call.version, bytes(body))
        if (kept := self._repeated.find(image, controller_id, asked)) is not None:
            return kept
        response = await self._handle(api, _read(api, Reader(body), call.version), call)
        written = _written(response, call.version)
        if api.is_repeated is not None and api.is_repeated(response):
            self._repeated.keep(image, controller_id, asked, written)
        return written

    async def _handle(self, api: Served, request: object, call: Call) -> Response:
        try:
            return await api.handle(self._node, request, call)
        except ReplogError as error:
            return api.refuse(request, Failure(error.code, str(error)))
        except Exception:  # noqa: BLE001 -- one client hears of it, and the node goes on
            self.counts.failures += 1
            number = self.counts.failures
            _log.exception(
                "failure %d: a request of %r for API %d is answered with an error", number, call.client_id, api.key
            )
            text = f"a bug of broker {self._node.node_id}; its log says more under failure {number}"
            return api.refuse(request, Failure(ErrorCode.UNKNOWN_SERVER_ERROR, text))

    async def _api_versions(self, node: KafkaNode, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
        response = api_versions(node, request, call.version, self.advertised)
        if call.version >= SOFTWARE_FROM:
            self.counts.note_software(request.client_software_name, request.client_software_version)
        return response


def _read(api: Served, reader: Reader, version: int) -> object:
    """Returns the message.  What is left behind it is not looked at, as in Kafka: librdkafka sends bytes too many there."""
    request: object = api.request.read(reader, version)
    return request


def _written(response: Response, version: int) -> Buffers:
    writer = Writer()
    response.write(writer, version)
    return writer.buffers()


def _framed(correlation_id: int, body: Buffers, *, has_tags: bool) -> Answer:
    writer = Writer()
    ResponseHeader(correlation_id).write(writer, 1 if has_tags else 0)
    header = writer.joined()
    size = len(header) + sum(map(len, body))
    return Answer((_size.pack(size) + header, *body))
