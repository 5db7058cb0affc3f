"""This node as the handlers of Kafka's requests see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from replog.broker.requests.handlers import HandlerParts, RequestHandlers
from replog.controller.requests import ControllerRequest
from replog.errors import InvariantViolationError
from replog.metadata.image import MetadataImage
from replog.metadata.records import KAFKA_LISTENER, BrokerEndpoint
from replog.rpc.calls import IncomingCall
from replog.rpc.client_messages import ClientRequest
from replog.rpc.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from replog.rpc.transport import RequestContext

R = TypeVar("R")

_CONTEXT = RequestContext(principal="", client_id="", listener="KAFKA", peer="", deadline_ms=0)


class LocalKafkaNode:
    """See `replog.kafka.handlers.node.KafkaNode`.

    Args:
        parts: What the handlers of our own requests hand over to.
        handlers: The handlers of our own requests.
        own_endpoint: The endpoint at which this node serves Kafka's clients; None: it does not.
    """

    def __init__(self, parts: HandlerParts, handlers: RequestHandlers, own_endpoint: BrokerEndpoint | None) -> None:
        self._parts = parts
        self._handlers = handlers
        self._own_endpoint = own_endpoint

    @property
    def node_id(self) -> int:
        return self._parts.config.node_id

    @property
    def cluster_id(self) -> str:
        return self._parts.hello.cluster_id

    @property
    def image(self) -> MetadataImage:
        return self._parts.publisher.image

    @property
    def request_timeout_ms(self) -> int:
        return self._parts.config.request_timeout_ms

    def controller_id(self) -> int:
        return self._handlers.controller()[0]

    def endpoint(self, broker_id: int) -> BrokerEndpoint | None:
        if broker_id == self.node_id:
            return self._own_endpoint  # whoever asks has reached it, whatever the metadata know
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.endpoint(KAFKA_LISTENER)

    async def call(self, request: ClientRequest, answer: type[R], timeout_ms: int) -> R:
        call = IncomingCall(request, "", timeout_ms or self.request_timeout_ms)
        return _checked(await self._handlers.handle_client_call(call, _CONTEXT), answer)

    async def change(self, request: ControllerRequest, answer: type[R], timeout_ms: int) -> R:
        call = IncomingCall(request, "", timeout_ms or self.request_timeout_ms)
        return _checked(await self._handlers.handle_controller_call(call, _CONTEXT), answer)

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        return await _awaited(lambda answer: self._parts.produces.submit(request, answer))

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        return await _awaited(lambda answer: self._parts.fetches.submit(request, answer))


async def _awaited(submit: Callable[[Callable[[R], None]], None]) -> R:
    """Returns what `submit` answers; whoever has stopped waiting is not told."""
    answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def answer(response: R) -> None:
        if not answered.done():
            answered.set_result(response)

    submit(answer)
    return await answered


def _checked(response: object, answer: type[R]) -> R:
    if not isinstance(response, answer):
        raise InvariantViolationError(f"{type(response).__name__} is no answer where {answer.__name__} is awaited")
    return response
