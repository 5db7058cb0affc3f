"""A node behind a transport that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from replog.controller.requests import CreateTopicsResponse
from replog.errors import ErrorCode, InconsistentClusterIdError, UnsupportedVersionError
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    client_hello,
)
from replog.rpc.node_messages import DescribeNodeConfigsRequest, DescribeNodeConfigsResponse, DescribeNodeRequest
from replog.rpc.transport import RequestContext, Stream
from replog_quorum.messages import QuorumError, VoteResponse

TOPIC = UUID(int=7)
HELLO = client_hello("c", "tester")
ASKED = DescribeNodeConfigsRequest(1)
ANSWERED = DescribeNodeConfigsResponse(1, ())
"""What nodes may ask one another, and what `Handlers` answers."""


class Handlers:
    """A node that answers what a test tells it to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.contexts: list[RequestContext] = []
        self.fetched: list[FetchRequest] = []
        self.sent = 0
        self.stream_ended = asyncio.Event()

    def check_hello(self, hello: Hello) -> Hello:
        if hello.cluster_id not in {"", "c"}:
            raise InconsistentClusterIdError(f"this is cluster c, not {hello.cluster_id}")
        if hello.min_api_version > 1:
            raise UnsupportedVersionError("too new")
        return Hello("c", 1, UUID(int=1))

    check_caller = check_hello

    async def handle_node_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        self.contexts.append(context)
        if isinstance(call.request, DescribeNodeRequest):
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        return ANSWERED

    async def handle_controller_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        if self.error:
            raise self.error
        return CreateTopicsResponse(())

    async def handle_fetch_stream(
        self, hello: Hello, stream: Stream[FetchResponse, FetchRequest], context: RequestContext
    ) -> None:
        """Answers each request with as many bytes as it may have."""
        self.contexts.append(context)
        try:
            while True:
                request = await stream.receive()
                self.fetched.append(request)
                if self.error:
                    raise self.error
                await stream.send(fetched(request.correlation_id, request.max_bytes))
        finally:
            self.stream_ended.set()

    async def handle_quorum_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        request = await stream.receive()
        await stream.send(VoteResponse(request.correlation_id, 1, QuorumError.NONE, None, 3, vote_granted=True))


def fetch(correlation_id: int, size: int = 3, *, partitions: int = 1) -> FetchRequest:
    asked = tuple(FetchPartition(TOPIC, partition_id, 0) for partition_id in range(partitions))
    return FetchRequest(correlation_id, 1000, -1, -1, 0, 0, size, asked)


def fetched(correlation_id: int, size: int = 3) -> FetchResponse:
    """What is answered to `fetch` of the same."""
    return FetchResponse(correlation_id, (FetchResult(TOPIC, 0, ErrorCode.NONE, 0),), (bytes(size),))
