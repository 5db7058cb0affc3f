"""The client's image of the cluster: who leads what, and how to reach it.

Metadata comes two ways.  A watch stream on one broker pushes every change, which is how a client learns of a new
leader within milliseconds; when that stream is lost the watch moves to the next broker.  A refresh on demand asks any
broker, for the time in which the watch itself is cut off without knowing.  Both end in `_adopt`, which only ever moves
forward: a broker that lags behind cannot take newer knowledge away.  A third way is for leaders only: a broker that refuses a
produce or a fetch names the one that leads (`hear_of_leaders`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from replog.client.backoff import Backoff, retry, telling, timed_out
from replog.client.cluster.addresses import LeaderAddress, parse_bootstrap_servers
from replog.client.cluster.connections import DATA, ConnectionPool
from replog.client.cluster.image import ClusterImage, watched_images, with_details
from replog.client.cluster.leader_hints import LeaderHints, NamedLeader
from replog.client.home_loop import HomeLoop
from replog.client.protocol.connection import KafkaTransport
from replog.client.protocol.seam import Connection, SeededTransport, Transport
from replog.errors import (
    BrokerClosedError,
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    ConfigError,
    InconsistentClusterIdError,
    MalformedFrameError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    ThrottledError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    raised_anew,
)
from replog.errors.choices import require_kind
from replog.host.forks import raise_if_carried
from replog.rpc.messages import Hello, client_hello
from replog.rpc.metadata_messages import ClusterMetadata, TopicInfo
from replog.rpc.transport import ConnectionLostError
from replog.waiting.asks import Asks
from replog.waiting.task_ends import end_tasks

if TYPE_CHECKING:
    from replog.client.protocol.questions.cluster import ClusterDetails
    from replog.client.security.security import Security

T = TypeVar("T")

ATTEMPT_TIMEOUT_MS = 5_000
"""Limit of one attempt of a call; afterwards another broker is asked."""

REFRESH_TIMEOUT_MS = 1_000
"""The same for metadata, which every broker answers from memory."""

DETAILS_TIMEOUT_MS = 3_000
"""Limit of what is asked for besides the metadata of Apache Kafka, whose controller may be away."""

VISIBLE_WITHIN_MS = 2_000
"""How long a new topic may take to reach a broker's metadata before it counts as missing."""

_NOBODY_LISTENS = (
    "Nobody listens there: start the broker, or give bootstrap_servers the port of its listener for clients (listeners)"
)

_WRONG_NODE = (InconsistentClusterIdError, MalformedFrameError, UnsupportedVersionError)

_FINAL = (BrokerIdNotRegisteredError,)
"""Retriable for the broker that it is about, which registers and goes on; what a client asks about a broker is not."""

_log = logging.getLogger(__name__)


class ClusterView:
    """Bootstrap servers, newest metadata, connections.  One per client, driven by that client's loop.

    Invariants:
        - the metadata offset never goes back, and the leader epoch of a partition only where a hint proved wrong;
        - metadata of another cluster id is never adopted.

    Args:
        bootstrap_servers: The addresses to start from; after the first answer the brokers named in it are used too.
        transport: What connects to brokers; None: TCP.
        security: How client and brokers are believed by each other, over TCP; None: plain text.
        client_id: The name of this client in the brokers' logs.
        rng: What spreads retries; None: the transport's, if it has them (`SeededTransport`), else any.

    Attributes:
        heard_s: The loop's time when a broker last sent metadata; minus infinity before.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        transport: Transport | None = None,
        security: Security | None = None,
        client_id: str = "",
        rng: random.Random | None = None,
    ) -> None:
        require_kind("client.id", client_id, str)
        if security is not None:
            _require_security(security, transport)
        self.bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self.client_id = client_id
        if rng is None and isinstance(transport, SeededTransport):
            rng = transport.new_rng()
        self.rng = rng or random.Random()  # noqa: S311 -- spreads retries, keeps no secret
        self.image = ClusterImage()
        self._told = self.image
        self._hints = LeaderHints()
        self.last_error: ReplogError | None = None
        self.heard_s = -math.inf
        self.home = HomeLoop()
        self._transport = transport or KafkaTransport(client_id=client_id, security=security)
        self._pool = ConnectionPool(self._transport)
        self._failures: dict[str, ReplogError] = {}
        self._good_address = self.bootstrap[0]
        self._newsless_count = 0  # refreshes in a row that told nothing new
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._refresh_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    # ---- life ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts the watch and the refresher; returns at once.  Calling it again does nothing.

        Raises:
            InvalidRequestError: This client belongs to another event loop.
            BrokerClosedError: It was closed, or is a copy in a forked process.
        """
        self._raise_if_closed()
        self.home.enter()
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._watch_forever(), name="replog-metadata-watch"),
                asyncio.create_task(self._refresh_forever(), name="replog-metadata-refresh"),
            ]

    async def close(self) -> None:
        """Ends both tasks and closes the connections.  Calling it again does nothing."""
        self._closed = True
        if self.is_out_of_reach:
            return
        self._changed.set()
        await end_tasks(*self._tasks)
        self._tasks = []
        await self._pool.close()

    @property
    def is_out_of_reach(self) -> bool:
        """Whether tasks and connections cannot be ended from here: a fork has copied them, or their loop was closed."""
        return self.home.is_carried or self.home.is_gone

    @property
    def is_simulated(self) -> bool:
        """Whether this is a client of a simulation: it leaves nothing behind when its world ends."""
        return isinstance(self._transport, SeededTransport)

    def __del__(self) -> None:
        if not getattr(self, "_tasks", None) or self._closed or self.home.is_carried:
            return
        if self.is_simulated:
            return
        text = (
            f"the client {self.client_id!r} of {','.join(self.bootstrap)} was never closed; use `async with` or close()"
        )
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    async def ready(self, timeout_ms: int) -> ClusterMetadata:
        """Returns the metadata; waits for the first answer if there was none.

        Raises:
            RequestTimedOutError: No bootstrap server answered; it names the last cause.
            MalformedFrameError, UnsupportedVersionError: What answers there is no broker, or one that is too old.
        """

        def known() -> ClusterMetadata | None:
            return self.image.metadata if self.cluster_id else None

        try:
            return await self.wait_for(known, timeout_ms=timeout_ms, what=f"connect to {','.join(self.bootstrap)}")
        except RequestTimedOutError as error:
            cause = error.__cause__
            if isinstance(cause, ConnectionLostError) and cause.refused:
                raise RequestTimedOutError(f"{error}. {_NOBODY_LISTENS}") from cause
            raise

    # ---- what is known ---------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> ClusterMetadata:
        """The newest; empty, with metadata offset -1, until the first answer."""
        return self.image.metadata

    @property
    def cluster_id(self) -> str:
        """An empty string until the first answer."""
        return self.image.cluster_id

    def leader(self, topic: str, partition: int) -> LeaderAddress | None:
        """Returns who leads the partition; None while nobody does, or the partition or its leader is not known."""
        return self.image.leader(topic, partition)

    def hello(self) -> Hello:
        """Returns what this client says first on a stream."""
        return client_hello(self.cluster_id, self.client_id)

    def data_connection(self, address: str) -> Connection:
        """Makes a connection of the caller's own, for a stream; the caller closes it."""
        return self._transport.connect(address, purpose=DATA)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of the metadata; it must not wait."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Calls `listener` no more; nothing where it is not called."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def hear_of_leaders(self, named: Iterable[NamedLeader]) -> None:
        """Takes in the leaders that a broker names as it refuses requests; those that are not newer count nothing."""
        self._hints.add(named, asyncio.get_running_loop().time())
        self._show()

    def request_refresh(self) -> None:
        """Asks for a refresh soon: something did not fit what is known.  At most one asked for here runs at a time."""
        self._refresh_wanted.set()

    async def wait_for(self, found: Callable[[], T | None], *, timeout_ms: int, what: str) -> T:
        """Looks at each new metadata until `found` returns something.

        Raises:
            RequestTimedOutError: It did not come within `timeout_ms`; it names `what` and the last cause.
            ReplogError: Nothing has ever been learned, and for a reason that waiting does not mend.
        """
        self.open()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while (result := found()) is None:
                    self._raise_if_closed()
                    self._raise_if_hopeless()
                    self._changed.clear()
                    await self._changed.wait()
                return result
        except TimeoutError:
            cause = self.last_error
        raise timed_out(what, timeout_ms, cause) from cause

    async def topic_or_raise(
        self, name: str, *, partitions_count: int = 0, within_ms: int = VISIBLE_WITHIN_MS
    ) -> TopicInfo:
        """Returns the topic's description; waits for brokers that have not heard of it, or of all its partitions, yet.

        Args:
            name: The name of the topic.
            partitions_count: The partitions that it should have; one that has fewer after the wait is returned as it is.
            within_ms: The longest wait, milliseconds.

        Raises:
            UnknownTopicOrPartitionError: Brokers answer, and it is not visible after `within_ms`.
            BrokerNotAvailableError: The same, and the brokers that answer know of no controller: what they tell may be of the past.
            RequestTimedOutError: No broker answers.
        """

        def found() -> TopicInfo | None:
            topic = self.image.topics.get(name)
            if topic is not None and len(topic.partitions) >= partitions_count:
                return topic
            self.request_refresh()
            return None

        try:
            return await self.wait_for(found, timeout_ms=within_ms, what=f"look up topic {name}")
        except RetriableError:
            if not self.cluster_id:
                raise
        topic = self.image.topics.get(name)
        if self.image.controller_id < 0:
            known = "does not exist" if topic is None else f"has {len(topic.partitions)} partitions"
            raise BrokerNotAvailableError(
                f'topic "{name}" {known} as far as the brokers that answer know, and they know of no controller: that may have '
                "changed since they were cut off. Start the controllers that are down, or name more brokers in bootstrap_servers."
            )
        if topic is not None:
            return topic
        raise UnknownTopicOrPartitionError(
            f'topic "{name}" does not exist in cluster {self.cluster_id}{self.image.or_hidden}. '
            "`replog topics list` shows the topics, `replog topics create` makes one."
        )

    # ---- calls -----------------------------------------------------------------------------------------------------

    async def call(self, address: str, request: Asks[T], *, timeout_ms: int) -> T:
        """Sends a request to one broker, once, and returns its answer; raises what comes."""
        self.home.enter()
        async with self._pool.use(address) as connection:
            return await connection.call(request, timeout_ms=timeout_ms, cluster_id=self.cluster_id)

    async def read(self, address: str, request: Asks[T], *, timeout_ms: int) -> T:
        """Asks one broker what changes nothing there: as `call`, and again where the broker ended an idle connection meanwhile."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        try:
            return await self.call(address, request, timeout_ms=timeout_ms)
        except ConnectionLostError as lost:
            if not lost.was_idle:
                raise
        left_ms = max(1, round((deadline_s - loop.time()) * 1000))
        return await self.call(address, request, timeout_ms=left_ms)

    async def call_any(
        self,
        request: Asks[T],
        *,
        timeout_ms: int,
        what: str,
        on_retry: Callable[[ReplogError], None] | None = None,
        first: str = "",
    ) -> T:
        """Asks one broker after the other until one answers; what is for the active controller any of them passes on.

        Raises: As `backoff.retry`; BrokerIdNotRegisteredError at once.

        Args:
            on_retry: What is called with each error that may be tried again, for callers to whom it matters that such
                an attempt may have taken effect.
            first: The address of the broker that is asked before the others; "": any.
        """

        async def ask(address: str, limit_ms: int) -> T:
            try:
                return await self.call(address, request, timeout_ms=limit_ms)
            except RetriableError as error:
                if on_retry is not None and not isinstance(error, _FINAL):
                    on_retry(error)
                raise

        return await self._ask_around(ask, timeout_ms=timeout_ms, what=what, first=first)

    async def describe(self, timeout_ms: int) -> ClusterMetadata:
        """Returns brokers, controller and topics, asked anew; the first answer of all is new enough.

        A broker that knows of no controller is believed when no other tells of one in what is left of `timeout_ms`.  Apache Kafka's
        metadata tell neither of fenced brokers nor of reassignments, and name any broker as the controller: its controller is
        asked for these, and is unknown if it does not answer.

        Raises: As `ready`, or as `backoff.retry`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        if not self.cluster_id:
            knows_controller = (await self.ready(timeout_ms)).controller_id >= 0
        else:
            knows_controller = await self._ask_around(self._update, timeout_ms=timeout_ms, what="describe the cluster")
        if not knows_controller:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    knows_controller = await self._refresh()
        if self.image.is_counted:
            try:
                left_ms = max(1, int((deadline_s - loop.time()) * 1000))
                details = await self._details(min(left_ms, DETAILS_TIMEOUT_MS))
            except ReplogError as error:
                _log.warning("fenced brokers and reassignments are not known: %s", error)
                return replace(self.metadata, controller_id=-1)
            return with_details(self.metadata, details)
        return self.metadata if knows_controller else replace(self.metadata, controller_id=-1)

    async def _details(self, timeout_ms: int) -> ClusterDetails:
        from replog.client.protocol.questions.cluster import ClusterDetailsRequest

        return await self.call_any(
            ClusterDetailsRequest(), timeout_ms=timeout_ms, what="ask for fenced brokers and reassignments"
        )

    async def _ask_around(
        self, ask: Callable[[str, int], Awaitable[T]], *, timeout_ms: int, what: str, first: str = ""
    ) -> T:
        self.open()
        loop = asyncio.get_running_loop()

        async def ask_each(remaining_ms: int) -> T:
            deadline_s = loop.time() + remaining_ms / 1000
            cause: ReplogError | None = None
            for address in dict.fromkeys((*((first,) if first else ()), *self._candidates())):
                left_ms = int((deadline_s - loop.time()) * 1000)
                if left_ms <= 0:
                    break
                try:
                    return await self._ask_one(address, ask, min(left_ms, ATTEMPT_TIMEOUT_MS))
                except _FINAL:
                    raise
                except ThrottledError as error:
                    if error.throttle_time_ms:  # the cluster's word, which another broker would only repeat
                        raise
                    cause = telling(cause, error)
                except (RetriableError, *_WRONG_NODE) as error:
                    # a node that is not ours counts only when there is no other answer
                    cause = telling(cause, error) if cause is None or isinstance(error, RetriableError) else cause
            raise cause or ConnectionLostError("no time was left to ask a broker")

        return await retry(ask_each, timeout_ms=timeout_ms, what=what, backoff=Backoff(self.rng), final=_FINAL)

    async def _ask_one(self, address: str, ask: Callable[[str, int], Awaitable[T]], limit_ms: int) -> T:
        try:
            answer = await ask(address, limit_ms)
        except (ConnectionLostError, *_WRONG_NODE):
            if self._good_address == address:
                self._good_address = ""
            raise
        self._good_address = address
        return answer

    def _candidates(self) -> list[str]:
        """Returns the addresses to try: who answered last, the brokers of the newest metadata, the bootstrap list."""
        good = (self._good_address,) if self._good_address else ()
        return list(dict.fromkeys((*good, *self.image.addresses(), *self.bootstrap)))

    # ---- metadata --------------------------------------------------------------------------------------------------

    async def _watch_forever(self) -> None:
        backoff = Backoff(self.rng)
        while True:
            for address in self._candidates():
                try:
                    await self._watch(address, backoff)
                except ReplogError as error:
                    self._note_failure(address, error)
                    await asyncio.sleep(backoff.next_s_after(error))
                else:
                    await asyncio.sleep(backoff.next_s())

    async def _watch(self, address: str, backoff: Backoff) -> None:
        """Follows one broker's watch until it ends.  A broker is given up that is silent at the start, or later on while
        it knows of no controller: it may be cut off from a cluster that goes on."""
        async with (
            self._pool.use(address) as connection,
            aclosing(watched_images(connection, self._told, ATTEMPT_TIMEOUT_MS)) as images,
        ):
            async for watched in images:
                self._adopt(address, watched.image)
                if watched.knows_controller:
                    backoff.reset()
                    self._good_address = address
                await self._pool.prune({*self.image.addresses(), *self.bootstrap})

    async def _refresh_forever(self) -> None:
        backoff = Backoff(self.rng)
        while True:
            await self._refresh_wanted.wait()
            self._refresh_wanted.clear()
            if await self._refresh():
                backoff.reset()
            self._changed.set()  # whoever waits for something that is not known yet asks again
            await asyncio.sleep(backoff.next_s())

    async def _refresh(self) -> bool:
        """Asks brokers in turn until one answers that knows of a controller; returns whether one did.

        One that is cut off from the controllers does not find out at once and never knows anything new, so that after
        an answer without news the next refresh begins at another broker.
        """
        candidates = self._candidates()
        first = self._newsless_count % len(candidates)
        known_offset = self.image.metadata_offset
        for address in (*candidates[first:], *candidates[:first]):
            try:
                knows_controller = await self._update(address, REFRESH_TIMEOUT_MS)
            except ReplogError as error:
                self._note_failure(address, error)
                continue
            if knows_controller:
                has_news = self.image.metadata_offset > known_offset
                self._newsless_count = 0 if has_news else self._newsless_count + 1
                if has_news or not self._good_address:
                    self._good_address = address
                await self._pool.prune({*self.image.addresses(), *self.bootstrap})
                return True
            if self._good_address == address:
                self._good_address = ""
        return False

    async def _update(self, address: str, limit_ms: int) -> bool:
        """Asks one broker for what has changed and adopts it; returns whether that broker knows of a controller."""
        async with (
            self._pool.use(address) as connection,
            aclosing(watched_images(connection, self._told, limit_ms, follow=False)) as images,
        ):
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    watched = await anext(images)
            except TimeoutError:
                raise ConnectionLostError(f"{address} sends no metadata in {limit_ms} ms") from None
            self._adopt(address, watched.image)
            return watched.knows_controller

    def _adopt(self, address: str, image: ClusterImage) -> None:
        if self.cluster_id and image.cluster_id != self.cluster_id:
            raise InconsistentClusterIdError(
                f"{address} belongs to cluster {image.cluster_id}, this client talks to {self.cluster_id}. "
                "Check bootstrap.servers: all of them must be brokers of one cluster."
            )
        self._failures.pop(address, None)
        self.heard_s = asyncio.get_running_loop().time()
        if image.metadata_offset >= self._told.metadata_offset:
            self._told = image
        self._show()

    def _show(self) -> None:
        """Lets everybody see what is known by now, if that is news."""
        image = self._hints.over(self._told, asyncio.get_running_loop().time())
        if image == self.image:
            return
        self.image = image
        for listener in list(self._listeners):  # one may go
            listener()
        self._changed.set()

    def _note_failure(self, address: str, error: ReplogError) -> None:
        _log.debug("metadata from %s: %s", address, error)
        if isinstance(error, InconsistentClusterIdError):
            _log.warning("%s", error)
        if self._good_address == address:
            self._good_address = ""
        error = error.with_traceback(None)  # it is kept: the frames that it passed, and this client, would be with it
        self.last_error = error
        if address in self.bootstrap:
            self._failures[address] = error
        self._changed.set()

    def _raise_if_closed(self) -> None:
        raise_if_carried(self.home.loop)
        if self._closed:
            raise BrokerClosedError("this client was closed; make a new one")

    def _raise_if_hopeless(self) -> None:
        """Raises the first bootstrap server's error if nothing is known and no bootstrap server is what it should be.

        Waiting longer would not help: none of their errors is retriable.
        """
        if self.cluster_id or len(self._failures) < len(self.bootstrap):
            return
        if not any(isinstance(error, RetriableError) for error in self._failures.values()):
            raise raised_anew(self._failures[self.bootstrap[0]])


def _require_security(security: Security, transport: Transport | None) -> None:
    from replog.client.security.security import require_security

    require_security(security)
    if transport is not None:
        raise ConfigError(
            "security", None, "transport and security are both set: a transport has its own, give one of them"
        )
