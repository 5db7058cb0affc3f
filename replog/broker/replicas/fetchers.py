"""Follower fetching: one stream to each leader this broker follows, carrying all its partitions there.

The leader parks a request until it has something (KIP-16's long poll), so an idle partition costs nothing and a busy one
is asked again as soon as its batches are appended.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from replog.broker.clock import Clock
from replog.broker.driver import Driver
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.replication_throttle import ReplicationThrottle
from replog.broker.tasks import watched_task
from replog.config.server import ServerConfig
from replog.errors import BrokerClosedError, ErrorCode, ReplogError
from replog.replication.follower import Follower
from replog.replication.messages import EpochEnd, FetchAnswered, FetchFailed, FetchPosition, FollowerMessage
from replog.rpc.messages import (
    Buffer,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ForgottenPartition,
    Hello,
)
from replog.rpc.transport import ConnectionLostError, PeerTransport, Stream
from replog.waiting.task_ends import end_tasks, until_one_ends

RECONNECT_DELAY_S = 0.1
THROTTLED_DELAY_S = 0.1
"""How long a replica that is being filled waits before it asks again whether the throttle has room."""

PARTITIONS_TOGETHER = 1_000
"""Positions in one request: writing and reading them are one step on either side, tens of milliseconds."""

RESULTS_TOGETHER = 100
"""Results of an answer that are taken in one step: each may have records to append."""

ANSWER_GRACE_S = 5.0
"""How long beyond its own waiting time an answer may take before the leader counts as gone."""

_log = logging.getLogger(__name__)

StepFollower = Callable[[Replica, FollowerMessage, "memoryview | bytes"], None]


class _Said(Struct, frozen=True):
    """A position, and the request that carried it: answers to earlier ones are about another."""

    position: FetchPosition
    asked_id: int


class LeaderFetcher:
    """Fetches from one leader for all partitions that it leads and this broker follows.

    Requests are incremental (`incremental_fetch`): a position is sent once and stands until its answer comes.  All work on
    positions is done on the driver.
    """

    def __init__(self, leader_id: int, address: Callable[[], str | None], owner: Fetchers) -> None:
        self.replicas: dict[ReplicaKey, Replica] = {}
        self._leader_id = leader_id
        self._address = address
        self._owner = owner
        self._wakeup = asyncio.Event()
        self._asking = asyncio.Lock()
        self._answer_due_s = 0.0
        self._changed: dict[ReplicaKey, None] = {}
        self._forgotten: list[ReplicaKey] = []
        self._held_back: dict[ReplicaKey, None] = {}
        self._release_timer: asyncio.TimerHandle | None = None
        self._said: dict[ReplicaKey, _Said] = {}
        self._asked_id = 0
        self._is_answered = True
        self._repeated_ms = 0
        self._last_problem = ""
        self._task = watched_task(self._run(), name=f"fetcher-{leader_id}", on_failure=owner.on_failure)

    def add(self, replica: Replica) -> None:
        self.replicas[replica.key] = replica
        self.changed(replica)

    def remove(self, replica: Replica) -> None:
        self.replicas.pop(replica.key, None)
        self._changed.pop(replica.key, None)
        self._held_back.pop(replica.key, None)
        if self._said.pop(replica.key, None) is not None:
            self._forgotten.append(replica.key)
            self._wakeup.set()

    def changed(self, replica: Replica) -> None:
        """Notes that the replica's position may differ from the one that the leader knows."""
        self._changed[replica.key] = None
        self._wakeup.set()

    async def stop(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
        await end_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait()
            if not self.replicas:  # all have moved on, as they do from a dead leader: nothing to connect for
                self._wakeup.clear()
                continue
            address = self._address()
            try:
                if address is None:
                    raise ConnectionLostError(f"broker {self._leader_id} is not registered")
                await self._connected(address)
            except BrokerClosedError:
                return
            except ReplogError as error:
                self._note(error)
                self._owner.driver.submit(self._fail_all)
            await asyncio.sleep(RECONNECT_DELAY_S)

    async def _connected(self, address: str) -> None:
        connection = self._owner.transport.connect(address, purpose="replication", node_id=self._leader_id)
        try:
            stream = await connection.open_fetch(self._owner.hello())
            self._last_problem = ""
            try:
                await self._owner.driver.call(self._begin)
                await until_one_ends(self._receive(stream), self._send(stream), self._watch_answers())
            finally:
                await stream.close()
        finally:
            await connection.close()

    async def _send(self, stream: Stream[FetchRequest, FetchResponse]) -> None:
        while True:
            self._wakeup.clear()
            await self._ask(stream, self._build_request)
            await self._wakeup.wait()

    async def _receive(self, stream: Stream[FetchRequest, FetchResponse]) -> None:
        def take(response: FetchResponse) -> FetchRequest | None:
            self._handle(response)
            return self._build_request()

        while True:
            *first, last = _pieces(await stream.receive())
            for piece in first:
                await self._owner.driver.call(partial(self._handle, piece))
            await self._ask(stream, partial(take, last))

    async def _watch_answers(self) -> None:
        """Ends the stream when an answer is overdue.  Looks seldom: a time-out for each answer would cost as much as reading it."""
        loop = asyncio.get_running_loop()
        while True:
            wait_s = self._answer_time_s() if self._is_answered else self._answer_due_s - loop.time()
            if wait_s <= 0:
                raise ConnectionLostError(f"broker {self._leader_id} did not answer within {self._answer_time_s():g} s")
            await asyncio.sleep(wait_s)

    async def _ask(
        self, stream: Stream[FetchRequest, FetchResponse], prepare: Callable[[], FetchRequest | None]
    ) -> None:
        async with self._asking:
            request = await self._owner.driver.call(prepare)
            if request is not None:
                await stream.send(request)

    def _answer_time_s(self) -> float:
        return self._owner.config.replica_fetch_wait_max_ms / 1000 + ANSWER_GRACE_S

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Forgets which positions were sent: on a new stream the leader knows none of them."""
        self._said.clear()
        self._forgotten.clear()
        self._changed = dict.fromkeys(self.replicas)
        self._is_answered = True

    def _build_request(self) -> FetchRequest | None:
        """Builds a request with the positions that have changed, and the replicas that are gone.

        Returns:
            None where nothing has changed and a request still waits at the leader, or no position stands there.
        """
        now_ms = self._owner.clock.now_ms()
        self._repeat_outsiders(now_ms)
        changed, forgotten = self._take_news()
        positions = [position for key in changed if (position := self._new_position(key, now_ms)) is not None]
        if not positions and not forgotten and (not self._is_answered or not self._said):
            return None
        self._asked_id += 1
        self._is_answered = False
        self._answer_due_s = asyncio.get_running_loop().time() + self._answer_time_s()
        config = self._owner.config
        return FetchRequest(
            correlation_id=self._asked_id,
            timeout_ms=config.request_timeout_ms,
            replica_id=config.node_id,
            broker_epoch=self._owner.broker_epoch(),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partitions=tuple(positions),
            incremental=True,
            forgotten=tuple(ForgottenPartition(*key) for key in forgotten if key not in self._said),
        )

    def _take_news(self) -> tuple[list[ReplicaKey], list[ReplicaKey]]:
        """Takes changed and forgotten replicas that the leader does not know of, as many as fit into one request.

        The next request has more of them.
        """
        changed = list(itertools.islice(self._changed, PARTITIONS_TOGETHER))
        for key in changed:
            del self._changed[key]
        forgotten, self._forgotten = self._forgotten[:PARTITIONS_TOGETHER], self._forgotten[PARTITIONS_TOGETHER:]
        if self._changed or self._forgotten:
            self._wakeup.set()
        return changed, forgotten

    def _repeat_outsiders(self, now_ms: int) -> None:
        """Marks positions of replicas outside of the ISR to be sent again, at most every `replica.fetch.wait.max.ms`.

        A leader takes a replica into the ISR when it fetches.  Those for which the throttle has no room are left out.
        """
        config = self._owner.config
        if now_ms < self._repeated_ms + config.replica_fetch_wait_max_ms:
            return
        self._repeated_ms = now_ms
        for key, replica in self.replicas.items():
            if config.node_id in replica.registration.isr or self._fetch_max_bytes(replica) == 0:
                continue
            if self._said.pop(key, None) is not None:
                self._changed[key] = None

    def _new_position(self, key: ReplicaKey, now_ms: int) -> FetchPartition | None:
        """Notes and returns the position to send for a replica; None: there is none now, or the leader knows it."""
        replica = self.replicas.get(key)
        if replica is None or not isinstance(replica.role, Follower) or replica.log.is_behind_write_back:
            return None
        position = replica.role.fetch_position(now_ms)
        if position is None:
            return None
        said = self._said.get(key)
        if said is not None and said.position == position:
            return None
        max_bytes = self._fetch_max_bytes(replica)
        if max_bytes == 0:
            self._hold_back(key)
            return None
        self._said[key] = _Said(position, self._asked_id + 1)
        return _fetch_partition(replica, position, max_bytes)

    def _fetch_max_bytes(self, replica: Replica) -> int:
        """Returns how many bytes to ask for; 0: the throttle has no room."""
        max_bytes = self._owner.config.replica_fetch_max_bytes
        return min(max_bytes, self._owner.throttle.room_bytes()) if self._is_being_filled(replica) else max_bytes

    def _is_being_filled(self, replica: Replica) -> bool:
        """Whether a reassignment adds this replica, and it is not in sync yet."""
        node_id, registration = self._owner.config.node_id, replica.registration
        return node_id in registration.adding_replicas and node_id not in registration.isr

    def _hold_back(self, key: ReplicaKey) -> None:
        """Keeps a replica's position back until the throttle is asked again, within `THROTTLED_DELAY_S`."""
        self._held_back[key] = None
        if self._release_timer is None:
            self._release_timer = asyncio.get_running_loop().call_later(THROTTLED_DELAY_S, self._release)

    def _release(self) -> None:
        self._release_timer = None
        held_back, self._held_back = self._held_back, {}
        self._changed.update(held_back)
        self._wakeup.set()

    def _handle(self, response: FetchResponse) -> None:
        if response.correlation_id == self._asked_id:
            self._is_answered = True
        for result, batches in zip(response.results, response.batches, strict=True):
            key = (result.topic_id, result.partition_id)
            replica, said = self.replicas.get(key), self._said.get(key)
            if replica is not None and self._is_being_filled(replica):
                self._owner.throttle.count(len(batches))
            if replica is None or said is None or response.correlation_id < said.asked_id:
                continue  # about a position that we have left, perhaps in an earlier leader epoch
            if batches or result.error is not ErrorCode.NONE or result.diverging is not None:
                del self._said[key]
                self._changed[key] = None
            self._owner.step(replica, _answer(said.position, result, batches), memoryview(batches))

    def _fail_all(self) -> None:
        self._fail(list(self.replicas.values()))

    def _fail(self, replicas: Sequence[Replica]) -> None:
        """Tells followers that their fetch failed: some of them now, the rest after the other work of the driver."""
        for replica in replicas[:PARTITIONS_TOGETHER]:
            self._owner.step(replica, FetchFailed(), b"")
        if len(replicas) > PARTITIONS_TOGETHER:
            self._owner.driver.submit(lambda: self._fail(replicas[PARTITIONS_TOGETHER:]))

    def _note(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != self._last_problem:
            _log.info("fetching from broker %d: %s", self._leader_id, text)
            self._last_problem = text


class Fetchers:
    """The fetchers of this broker, one per leader, started and stopped as partitions come and go."""

    def __init__(
        self,
        *,
        config: ServerConfig,
        driver: Driver,
        clock: Clock,
        transport: PeerTransport,
        hello: Callable[[], Hello],
        broker_epoch: Callable[[], int],
        address_of: Callable[[int], str | None],
        step: StepFollower,
        throttle: ReplicationThrottle,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.driver = driver
        self.clock = clock
        self.transport = transport
        self.hello = hello
        self.broker_epoch = broker_epoch
        self.step = step
        self.throttle = throttle
        self.on_failure = on_failure
        self._address_of = address_of
        self._by_leader: dict[int, LeaderFetcher] = {}
        self._of_replica: dict[ReplicaKey, LeaderFetcher] = {}

    def add(self, replica: Replica, leader_id: int) -> None:
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = LeaderFetcher(leader_id, lambda: self._address_of(leader_id), self)
            self._by_leader[leader_id] = fetcher
        self._of_replica[replica.key] = fetcher
        fetcher.add(replica)

    def remove(self, replica: Replica) -> None:
        fetcher = self._of_replica.pop(replica.key, None)
        if fetcher is not None:
            fetcher.remove(replica)

    def wake(self, replica: Replica) -> None:
        """Tells the fetcher of a replica that its position may have changed; nothing where it has none."""
        fetcher = self._of_replica.get(replica.key)
        if fetcher is not None:
            fetcher.changed(replica)

    async def stop(self) -> None:
        for fetcher in self._by_leader.values():
            await fetcher.stop()


def _pieces(response: FetchResponse) -> list[FetchResponse]:
    """Splits an answer into pieces; a piece is taken in one step."""
    count = len(response.results)
    if count <= RESULTS_TOGETHER:
        return [response]
    parts = [slice(start, start + RESULTS_TOGETHER) for start in range(0, count, RESULTS_TOGETHER)]
    return [replace(response, results=response.results[part], batches=response.batches[part]) for part in parts]


def _fetch_partition(replica: Replica, position: FetchPosition, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        topic_id=replica.topic_id,
        partition_id=replica.partition_id,
        fetch_offset=position.fetch_offset,
        flushed_offset=position.flushed_offset,
        log_start_offset=position.log_start_offset,
        leader_epoch=position.leader_epoch,
        last_fetched_epoch=position.last_fetched_epoch,
        max_bytes=max_bytes,
    )


def _answer(position: FetchPosition, result: FetchResult, batches: Buffer) -> FetchAnswered:
    diverging = result.diverging
    return FetchAnswered(
        fetch_offset=position.fetch_offset,
        leader_epoch=position.leader_epoch,
        error=result.error,
        high_watermark=result.high_watermark,
        log_start_offset=result.log_start_offset,
        leader_end_offset=result.log_end_offset,
        size_bytes=len(batches),
        diverging=None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
    )
