"""Our own APIs, which only replog has: in the framing of Kafka's protocol, under keys that Kafka does not use.

A request is its struct, and an answer a code, a text and its struct, both structs as MessagePack maps: a field that one side
does not know is skipped, and one that it misses has its default.  `ApiVersions` tells of these APIs as of any other, so
that a client uses them where a broker has them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from replog.controller.requests import DrainBroker, DrainBrokerResponse, ForkTopic, ForkTopicResponse
from replog.coordinator.consumers.requests import GroupNews, WaitForGroupNews
from replog.coordinator.transactions.requests import (
    ForgetTransactionalId,
    ForgetTransactionalIdResponse,
    PrepareTransaction,
    PrepareTransactionResponse,
)
from replog.errors import ErrorCode, MalformedFrameError
from replog.rpc.messages import FindCutsRequest, FindCutsResponse
from replog.rpc.metadata_messages import MetadataUpdate, WaitForMetadata
from replog.rpc.node_messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeNodeConfigsRequest,
    DescribeNodeConfigsResponse,
    DescribeNodeRequest,
    DescribeNodeResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    LocateSegmentsRequest,
    LocateSegmentsResponse,
)
from replog.wire.primitives import Reader, Writer

FIRST_KEY: Final = 20_000

REQUEST_BYTES_MAX: Final = 2 << 20
"""The size of one request: 10,000 partitions, each named with its topic's id."""

_code = struct.Struct(">h")
_timeout = struct.Struct(">i")


class PrivateCall(Struct):
    """One request of our own, as it came.

    Attributes:
        question: The struct.
        timeout_ms: The time within which the client wants an answer.
    """

    question: Any
    timeout_ms: int


class PrivateAnswer(Struct):
    """The answer to any of our own requests.

    Attributes:
        error_code: Why there is no answer; NONE: there is one.
        message: The text of an error.
        parts: The structs of the answer, encoded: one, but for metadata, which have one a step, or none without news.
    """

    FLEXIBLE_FROM: ClassVar = 0

    error_code: int = ErrorCode.NONE
    message: str = ""
    parts: list[bytes | memoryview] = msgspec.field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, version: int) -> PrivateAnswer:  # noqa: ARG003 -- the shape of generated messages
        it = cls(r.fixed(_code)[0], r.text(True))  # noqa: FBT003 -- as generated messages call it
        it.parts = [r.raw(True) for _ in range(r.count(True, 1))]  # noqa: FBT003
        r.tagged()
        return it

    def write(self, w: Writer, version: int) -> None:  # noqa: ARG002 -- the shape of generated messages
        w.fixed(_code, self.error_code)
        w.text(self.message, True)  # noqa: FBT003
        w.count(self.parts, True)
        for part in self.parts:
            w.raw(part, True)  # noqa: FBT003
        w.tagged()


class PrivateApi:
    """One API; it stands where the class of a generated request does.

    Args:
        key: The key of the API.
        request: The class of its requests.
        answer: The class of the structs of its answers.
    """

    VERSIONS: ClassVar = range(1)
    FLEXIBLE_FROM: ClassVar = 0

    def __init__(self, key: int, request: type[Struct], answer: type[Struct]) -> None:
        self.__name__ = request.__name__
        self.API_KEY = key
        self.request = request
        self.answer = answer

    @cached_property
    def _requests(self) -> msgspec.msgpack.Decoder[Any]:
        return _decoder_of(self.request)

    @cached_property
    def _answers(self) -> msgspec.msgpack.Decoder[Any]:
        return _decoder_of(self.answer)

    def read(self, r: Reader, version: int) -> PrivateCall:  # noqa: ARG002 -- the shape of generated messages
        """Returns the request.  Raises: MalformedFrameError: The bytes are none, or too many."""
        if r.left > REQUEST_BYTES_MAX:
            raise MalformedFrameError(
                f"a request of {r.left:,} bytes, and it may have {REQUEST_BYTES_MAX:,}: name fewer things at a time"
            )
        (timeout_ms,) = r.fixed(_timeout)
        return PrivateCall(_decoded(self._requests, r.raw(True)), timeout_ms)  # noqa: FBT003

    def decode(self, part: bytes | memoryview) -> Any:
        """Returns the struct of a part of an answer.  Raises: MalformedFrameError: It is none of this API."""
        return _decoded(self._answers, part)


class PrivateRequest:
    """One request of our own, to be sent.

    Args:
        api: The API.
        question: The struct.
        timeout_ms: The time within which an answer is wanted.
    """

    VERSIONS: ClassVar = PrivateApi.VERSIONS
    FLEXIBLE_FROM: ClassVar = PrivateApi.FLEXIBLE_FROM

    def __init__(self, api: PrivateApi, question: Struct, timeout_ms: int) -> None:
        self.__name__ = api.__name__
        self.API_KEY = api.API_KEY
        self._question = question
        self._timeout_ms = timeout_ms

    def write(self, w: Writer, version: int) -> None:  # noqa: ARG002 -- the shape of generated messages
        w.fixed(_timeout, self._timeout_ms)
        w.raw(encoded(self._question), True)  # noqa: FBT003
        w.tagged()


def encoded(value: Struct) -> bytes:
    """Returns a struct as MessagePack."""
    return msgspec.msgpack.encode(value)


_building = threading.Lock()


def _decoder_of(kind: type[Struct]) -> msgspec.msgpack.Decoder[Any]:
    """Builds a decoder, one at a time.

    msgspec 0.22 keeps what it knows of a class at the class before it knows all: a second thread that meets it half done, for a class
    that two messages have, ends the process by a segmentation fault.
    """
    with _building:
        return msgspec.msgpack.Decoder(kind)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes | memoryview) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrameError(f"not a message of this version: {error}") from None


_KINDS: Mapping[int, tuple[type[Struct], type[Struct]]] = {
    0: (WaitForMetadata, MetadataUpdate),
    2: (WaitForGroupNews, GroupNews),
    3: (FindCutsRequest, FindCutsResponse),
    4: (LocateSegmentsRequest, LocateSegmentsResponse),
    5: (DescribeNodeRequest, DescribeNodeResponse),
    6: (DescribeNodeConfigsRequest, DescribeNodeConfigsResponse),
    7: (DescribeLogDirsRequest, DescribeLogDirsResponse),
    8: (DescribeQuorumRequest, DescribeQuorumResponse),
    9: (DrainBroker, DrainBrokerResponse),
    10: (DescribeConfigsRequest, DescribeConfigsResponse),
    11: (PrepareTransaction, PrepareTransactionResponse),
    12: (ForgetTransactionalId, ForgetTransactionalIdResponse),
    13: (ForkTopic, ForkTopicResponse),
}
"""By the key, counted from `FIRST_KEY`: it never changes, and that of an API that is gone (1) is not given again."""

PRIVATE_APIS: Final[Mapping[type[Struct], PrivateApi]] = {
    request: PrivateApi(FIRST_KEY + number, request, answer) for number, (request, answer) in _KINDS.items()
}
"""By the class of the request."""
