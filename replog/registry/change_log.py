"""The topic of a registry: changes are appended to it, and what is in it is applied to the state, in order, by every server.

Any number of servers may run on one topic.  None of them leads: a change is appended with the revision of the state that it was
made on, and counts only if no other came between (`replog.registry.records`).  A server answers a change when it has read it back.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

from replog.client import Admin, Consumer, Producer
from replog.client.cluster.image import has_leaders
from replog.client.types import ConsumerRecord, TopicPartition
from replog.errors import BrokerClosedError, InvalidRequestError, ReplogError, RetriableError, TopicExistsError
from replog.metadata.records import ResourceType
from replog.registry.model import LOG_FAILED, TIMED_OUT, Change, RegistryRefusedError
from replog.registry.records import decode_change, encode_change
from replog.registry.state import RegistryState

if TYPE_CHECKING:
    from replog.client.security.security import Security

DEFAULT_TOPIC: Final = "_replog_schemas"
REPLICAS: Final = 3
"""Replicas of a topic that is made; as many as there are brokers where these are fewer."""

WRITERS_MAX: Final = 100
"""Changes that wait for their turn in one server; further ones are refused."""

ATTEMPTS_MAX: Final = 20
"""How often a change is made anew because another server's came first."""

CLOSE_TIMEOUT_MS: Final = 5_000
"""How long a change that is under way is waited for at the end."""

_POLL_RECORDS: Final = 1_000
_POLL_MS: Final = 1_000

Decide = Callable[[RegistryState], Awaitable[Change | None]]
"""Makes the change that a request asks for of the state; None: nothing has to change.  It may raise RegistryRefusedError."""

_log = logging.getLogger(__name__)


class ChangeLog:
    """The topic, and the state that it comes to.

    Args:
        bootstrap_servers: The brokers.
        topic: The name of the topic; made with one partition where it does not exist.
        timeout_ms: How long a request waits for brokers, milliseconds.
        security: How this client and brokers are believed by each other; None: plain text.

    Attributes:
        state: What the changes that were read come to.

    Invariants:
        - one task applies records, in order of offset, each once;
        - one change of this server is under way at a time.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str], *, topic: str, timeout_ms: int, security: Security | None = None
    ) -> None:
        self._security = security
        self.state = RegistryState()
        self._servers = bootstrap_servers
        self._partition = TopicPartition(topic, 0)
        self._timeout_s = timeout_ms / 1_000
        self._producer = Producer(
            bootstrap_servers,
            security=security,
            delivery_timeout_ms=timeout_ms,
            client_id="replog-registry",
            close_timeout_ms=CLOSE_TIMEOUT_MS,
        )
        self._consumer = Consumer(bootstrap_servers, security=security, client_id="replog-registry")
        self._position = 0
        self._moved = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._writers_count = 0
        self._attempts: dict[bytes, bool] = {}
        self._tail: asyncio.Task[None] | None = None

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Makes the topic if it is not there, and reads it to its end.

        Raises:
            InvalidRequestError: The topic has several partitions, or is not compacted.
            ReplogError: The brokers cannot be asked, or bring nothing for the time of a request.
        """
        async with Admin(self._servers, security=self._security, timeout_ms=round(self._timeout_s * 1_000)) as admin:
            await _prepare_topic(admin, self._partition.topic)
        await self._producer.start()
        await self._consumer.start()
        await self._consumer.assign([self._partition])
        self._tail = asyncio.create_task(self._follow(), name="registry-tail")
        end = await self._end_offset()
        while self._position < end:
            before = self._position
            async with self._limited():  # a large topic takes as long as it takes, while something comes
                await self._reach(before + 1)

    async def close(self) -> None:
        """Stops reading and closes the connections.  Calling it again does nothing."""
        async with AsyncExitStack() as stack:  # a cancellation in one step takes none of the others away
            stack.push_async_callback(self._consumer.close)
            stack.push_async_callback(self._producer.close)
            if self._tail is not None:
                self._tail.cancel()
                await asyncio.wait([self._tail])

    async def wait_ended(self) -> None:
        """Waits until the log cannot be followed any more; raises why."""
        if self._tail is None:
            raise InvalidRequestError("the registry was not started")
        await asyncio.wait([self._tail])
        self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        if self._tail is not None and self._tail.done():
            if not self._tail.cancelled() and (error := self._tail.exception()) is not None:
                raise error
            raise BrokerClosedError("the registry is closed")

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Waits until the state has all changes that were committed when this was called.

        Raises:
            RegistryRefusedError: 50002: brokers do not answer.
        """
        async with self._limited():
            await self._reach(await self._end_offset())

    def _limited(self) -> _Limit:
        return _Limit(self._timeout_s)

    async def _end_offset(self) -> int:
        ends = await self._consumer.end_offsets([self._partition], timeout_ms=round(self._timeout_s * 1_000))
        return ends[self._partition]

    async def _reach(self, position: int) -> None:
        async with self._moved:
            while self._position < position:
                self._raise_if_ended()
                await self._moved.wait()

    async def _follow(self) -> None:
        """Applies what comes, until that is not possible any more: records were lost, or the topic was deleted."""
        try:
            while True:
                try:
                    records = await self._consumer.poll(_POLL_RECORDS, _POLL_MS)
                except RetriableError as error:
                    _log.warning("the registry cannot read its topic, and goes on trying: %s", error)
                    await asyncio.sleep(1)
                    continue
                for record in records:
                    self._apply(record)
                # also where compaction has taken the last records, or control records are there
                position = self._consumer.position(self._partition)
                if position != self._position:
                    async with self._moved:
                        self._position = position
                        self._moved.notify_all()
        finally:
            async with self._moved:
                self._moved.notify_all()

    def _apply(self, record: ConsumerRecord) -> None:
        logged = None if record.value is None else decode_change(record.value)
        if logged is None:
            _log.warning("offset %d of %s is no change of a registry, and is left out", record.offset, record.topic)
            return
        counts = self.state.apply(logged)
        if record.key in self._attempts:  # a retry of the producer's may stand there again, void
            self._attempts[record.key] = self._attempts[record.key] or counts

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def change(self, decide: Decide) -> None:
        """Makes a change of the newest state, again where another server's came first.

        Raises:
            RegistryRefusedError: `decide` raised it; 50001, 50002: the change could not be written, or it is not known whether it was;
                to ask again is safe.
        """
        if self._writers_count >= WRITERS_MAX:
            raise RegistryRefusedError(LOG_FAILED, f"{WRITERS_MAX} changes wait already: ask again later")
        self._writers_count += 1
        try:
            async with self._limited(), self._turn:
                await self._reach(await self._end_offset())
                for _ in range(ATTEMPTS_MAX):
                    revision = self.state.revision + 1
                    change = await decide(self.state)
                    if change is None or await self._append(revision, change):
                        return
        finally:
            self._writers_count -= 1
        raise RegistryRefusedError(
            LOG_FAILED, f"other servers' changes came first {ATTEMPTS_MAX} times: ask again later"
        )

    async def _append(self, revision: int, change: Change) -> bool:
        """Appends a change and reads it back; returns whether it counts."""
        attempt = uuid.uuid4().hex.encode()
        self._attempts[attempt] = False
        try:
            value = encode_change(revision, change)
            told = await self._producer.send_and_wait(self._partition.topic, value, attempt, self._partition.partition)
            await self._reach(told.offset + 1)
            return self._attempts[attempt]
        finally:
            del self._attempts[attempt]


class _Limit:
    """Makes refusals of what brokers do not do in time, or cannot do."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = asyncio.timeout(timeout_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, cls: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            await self._timeout.__aexit__(cls, error, traceback)  # type: ignore[arg-type]  # it looks at the class alone
        except TimeoutError:
            raise RegistryRefusedError(
                TIMED_OUT, "the brokers did not answer in time; whether a change was made is not known: ask again"
            ) from error
        if isinstance(error, RegistryRefusedError):
            return
        if isinstance(error, RetriableError):
            raise RegistryRefusedError(TIMED_OUT, f"the brokers cannot carry it out: {error}") from error
        if isinstance(error, ReplogError):
            raise RegistryRefusedError(LOG_FAILED, f"the topic of the registry cannot be used: {error}") from error


async def _prepare_topic(admin: Admin, topic: str) -> None:
    """Makes the topic, or checks the one that is there."""
    brokers = (await admin.wait_until_ready()).brokers
    replicas = max(1, min(REPLICAS, sum(not broker.fenced for broker in brokers)))
    if topic not in await admin.list_topics():
        configs = {"cleanup.policy": "compact", "min.insync.replicas": max(1, replicas - 1)}
        with suppress(TopicExistsError):  # another server was faster
            await admin.create_topic(topic, 1, replicas, configs)
    info = await admin.wait_for_topic(topic, has_leaders)
    if len(info.partitions) != 1:
        raise InvalidRequestError(
            f"topic {topic} has {len(info.partitions)} partitions; the changes of a registry have one order, so its topic has one: "
            "name another topic, or let the registry make it"
        )
    told = await admin.describe_configs((ResourceType.TOPIC, topic))
    policy = next((config.value for config in told if config.name == "cleanup.policy"), None)
    if policy != "compact":
        raise InvalidRequestError(
            f"topic {topic} has cleanup.policy={policy}, by which schemas would be deleted: set it to compact "
            f"(`replog configs set --topic {topic} cleanup.policy=compact`)"
        )
