"""This node as the handlers of Kafka's requests see it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from replog.access.authorizer import Authorizer
from replog.access.principal import Envelope
from replog.access.rights import Rights
from replog.access.token_key import TokenKey
from replog.broker.coordinator.commit_permits import CommitPermits
from replog.broker.requests.config_description import known_configs
from replog.broker.requests.fetch_reader import ProducersPartition
from replog.broker.requests.handlers import HandlerParts, RequestHandlers
from replog.broker.requests.metadata_views import EncodedNews
from replog.broker.requests.refusals import Refusal
from replog.coordinator.offsets.transactions import GetCommitPermit
from replog.errors import ReplogError, RequestTimedOutError
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.metadata.image import MetadataImage
from replog.metadata.records import BrokerEndpoint, ResourceType, SecurityProtocol
from replog.protocol.fetch_sessions import FetchSessions
from replog.protocol.handlers.known_configs import KnownConfig
from replog.protocol.handlers.node import Failure
from replog.protocol.request_time import measured_request
from replog.replication.fetch_positions import FetchPositions
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.node_messages import DescribeQuorumRequest
from replog.rpc.request_limits import check_request
from replog.rpc.transaction_messages import WriteMarkersRequest, WriteMarkersResponse
from replog.rpc.transport import ConnectionLostError, RequestContext
from replog.waiting.asks import Asks
from replog.waiting.byte_semaphore import ByteSemaphore
from replog.waiting.unread_answers import UnreadAnswer

R = TypeVar("R")

WAIT_MAX_MS = 60_000
"""The longest wait of a call, even if it asks for more: later requests of its connection wait with it."""

SESSION_PARTITIONS_MAX = 200_000
"""How many partitions all fetch sessions have together: half a kilobyte each."""

SESSION_EVICTION_MS = 120_000
"""After how long without a fetch a session makes room for a new one, as in Kafka."""

_CONTEXT = RequestContext(principal="", client_id="", listener="KAFKA", peer="")


class LocalKafkaNode:
    """See `replog.protocol.handlers.node.KafkaNode`.

    Args:
        parts: The parts of the node that the handlers of our own requests use.
        handlers: The handlers of our own requests.
        own_endpoint: The endpoint at which this node serves clients.
        rng: The source of the ids of fetch sessions.

    Attributes:
        fetch_sessions: The fetch sessions of the node's consumers.
    """

    def __init__(
        self,
        parts: HandlerParts,
        handlers: RequestHandlers,
        own_endpoints: Iterable[BrokerEndpoint],
        rng: random.Random,
    ) -> None:
        self._parts = parts
        self._handlers = handlers
        self._own_endpoints = {each.name: each for each in own_endpoints}
        self._news = EncodedNews()
        self._commit_permits = CommitPermits(parts.coordinators, parts.joins)
        self.fetch_sessions = FetchSessions(
            slots=parts.config.kafka_fetch_sessions,
            partitions_max=SESSION_PARTITIONS_MAX,
            eviction_ms=SESSION_EVICTION_MS,
            rng=rng,
            movements=parts.fetch_path.movements,
        )

    @property
    def node_id(self) -> int:
        return self._parts.config.node_id

    @property
    def cluster_id(self) -> str:
        return self._parts.hello.cluster_id

    @property
    def authorizer(self) -> Authorizer:
        return self._parts.authorizer

    @property
    def token_key(self) -> TokenKey | None:
        return self._parts.token_key

    @property
    def image(self) -> MetadataImage:
        return self._parts.publisher.image_or_raise()

    @property
    def request_timeout_ms(self) -> int:
        return self._parts.config.request_timeout_ms

    @property
    def creates_missing_topics(self) -> bool:
        return self._parts.config.auto_create_topics_enable

    def controller_id(self) -> int:
        return self._handlers.controller()[0]

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        if broker_id == self.node_id:
            return self._own_endpoints.get(listener)  # the client has reached it, even if the metadata lack it
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.endpoint(listener)

    def protocol_of(self, listener: str) -> SecurityProtocol:
        return self._parts.config.protocol_of(listener) or SecurityProtocol.PLAINTEXT

    async def call(self, request: Asks[R], timeout_ms: int) -> R:
        check_request(request)

        async def handle(within_ms: int) -> Any:
            call: IncomingCall[Any] = IncomingCall(request, "", within_ms)
            return await self._handlers.handle_node_call(call, _CONTEXT)

        answer: R = await self._in_time(handle, timeout_ms)
        return answer

    async def change(self, request: Asks[R], timeout_ms: int, rights: Rights) -> R:
        check_request(request)
        envelope: Envelope[Any] = Envelope(request, rights.client, rights.api)
        answer: R = await self._in_time(lambda within_ms: self._handlers.change(envelope, within_ms), timeout_ms)
        return answer

    async def _in_time(self, handle: Callable[[int], Awaitable[Any]], timeout_ms: int) -> Any:
        within_ms = self._within_ms(timeout_ms)
        try:
            async with asyncio.timeout(within_ms / 1000):
                return await handle(within_ms)
        except (TimeoutError, ConnectionLostError) as error:  # which have no code of Kafka's
            raise RequestTimedOutError(str(error) or f"there was no answer within {within_ms} ms; try again") from error

    def _within_ms(self, timeout_ms: int) -> int:
        return min(timeout_ms, WAIT_MAX_MS) if timeout_ms > 0 else self.request_timeout_ms

    async def wait_for_metadata(self, request: WaitForMetadata, wait_ms: int, listener: str) -> Sequence[bytes]:
        news = await self._handlers.wait_for_metadata(request, wait_ms, listener)
        return () if news is None else await self._news.encoded(news)

    async def catch_up(self, timeout_ms: int) -> None:
        quorum = await self.call(DescribeQuorumRequest(), timeout_ms)
        try:
            async with asyncio.timeout(self._within_ms(timeout_ms) / 1000):
                async for _ in self._parts.publisher.changes():
                    if self.image.end_offset >= quorum.high_watermark:
                        return
        except TimeoutError:
            raise RequestTimedOutError(
                "this broker is behind with the metadata; try again, or ask another one"
            ) from None

    async def find_coordinators(self, group_ids: Sequence[str]) -> Sequence[int | ReplogError]:
        return await self._parts.coordinators.find_all(group_ids)

    async def coordinate(self, group_id: str, request: Any, timeout_ms: int | None) -> Any:
        return await self._parts.coordinators.submit(group_id, request, timeout_ms)

    async def commit_permit(
        self, transactional_id: str, request: GetCommitPermit, *, only_verifies: bool, timeout_ms: int
    ) -> int:
        return await self._commit_permits.get(
            transactional_id, request, only_verifies=only_verifies, timeout_ms=timeout_ms
        )

    async def coordinate_all(self, request: Any, timeout_ms: int) -> list[Any]:
        return await self._parts.coordinators.submit_all(request, timeout_ms)

    async def find_transaction_coordinators(self, transactional_ids: Sequence[str]) -> Sequence[int | ReplogError]:
        return await self._parts.transactions.find_all(transactional_ids)

    async def coordinate_transaction(self, transactional_id: str, request: Any, timeout_ms: int) -> Any:
        return await self._parts.transactions.submit(transactional_id, request, timeout_ms)

    async def coordinate_all_transactions(self, request: Any, timeout_ms: int) -> list[Any]:
        return await self._parts.transactions.submit_all(request, timeout_ms)

    async def group_place(self, group_id: str) -> tuple[str, int]:
        return await self._parts.coordinators.place_of(group_id)

    def wall_ms(self) -> int:
        return self._parts.manager.stepper.clock.wall_ms()

    async def producers(
        self, topic_id: UUID, partition_ids: Sequence[int]
    ) -> list[Sequence[ProducerSnapshotEntry] | Failure]:
        asked = [ProducersPartition(topic_id, number) for number in partition_ids]
        told = await self._parts.look_ups.producers(asked)
        return [Failure(one.error, one.message) if isinstance(one, Refusal) else one for one in told]

    def configs(
        self, resource_type: ResourceType, resource_name: str, own: Mapping[str, str] | None = None
    ) -> tuple[KnownConfig, ...]:
        return known_configs(self.image, self._parts.config, resource_type, resource_name, own)

    async def produce(self, request: ProduceRequest, caller: object = None) -> ProduceResponse:
        produce = _Produce(self._parts.credits)
        request_time = measured_request()
        add_time = None if request_time is None else request_time.add
        self._parts.produces.submit(request, produce.answer, caller, add_time)
        try:
            return await produce.answered
        except asyncio.CancelledError:  # the client has gone, and its connection gives back its bytes
            produce.hold(sum(map(len, request.batches)))
            raise

    async def write_markers(self, request: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse:
        return await self._parts.markers.write(request, timeout_ms)

    def open_answer(self) -> UnreadAnswer:
        return self._parts.fetch_path.unread.open()

    async def fetch(
        self,
        request: FetchRequest,
        unread: UnreadAnswer | None,
        session: FetchPositions[FetchPartition] | None = None,
    ) -> FetchResponse:
        answered: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        withdraw = self._parts.fetches.submit(request, partial(_answer, answered), unread, session)
        try:
            return await answered
        except asyncio.CancelledError:  # the client has gone
            withdraw()
            raise


class _Produce:
    """A produce on its way.  Its batches count as held until the node has answered, even if its client has gone.

    Why: a client that has no answer in time comes back over another connection with the same batches.  While a disk is
    slow, memory would fill with them.
    """

    __slots__ = ("_held_bytes", "_is_through", "_request_bytes", "answered")

    def __init__(self, request_bytes: ByteSemaphore) -> None:
        self._request_bytes = request_bytes
        self._held_bytes = 0
        self._is_through = False
        self.answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()

    def hold(self, size_bytes: int) -> None:
        """Holds bytes until the answer is there; nothing if it is there already."""
        if not self._is_through:
            self._held_bytes = size_bytes
            self._request_bytes.held_bytes += size_bytes

    def answer(self, response: ProduceResponse) -> None:
        """Hands the answer over, or gives the held bytes back if its client has gone."""
        self._is_through = True
        if not self.answered.done():
            self.answered.set_result(response)
        elif self._held_bytes:
            self._request_bytes.release(self._held_bytes)


def _answer(answered: asyncio.Future[R], response: R) -> None:
    """Hands an answer over, unless its caller has stopped waiting."""
    if not answered.done():
        answered.set_result(response)
