"""Follower fetching: one stream to each leader this broker follows, carrying all its partitions there.

One request is in flight per leader; the leader parks it until it has something (KIP-16's long poll), so an idle
partition costs nothing and a busy one is asked again as soon as its batches are appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from replog.broker.clock import Clock
from replog.broker.config import ServerConfig
from replog.broker.driver import Driver
from replog.broker.replica import Replica, ReplicaKey
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError, ReplogError
from replog.replication.follower import Follower
from replog.replication.messages import EpochEnd, FetchAnswered, FetchFailed, FetchPosition, FollowerMessage
from replog.rpc.messages import Buffer, FetchPartition, FetchRequest, FetchResponse, FetchResult, Hello
from replog.rpc.transport import ConnectionLostError, Stream, Transport

RECONNECT_DELAY_S = 0.1
ANSWER_GRACE_S = 5.0
"""How long beyond its own waiting time an answer may take before the leader counts as gone."""

_log = logging.getLogger(__name__)

StepFollower = Callable[[Replica, FollowerMessage, "memoryview | bytes"], None]


class LeaderFetcher:
    """Fetches from one leader for all partitions that it leads and this broker follows."""

    def __init__(self, leader_id: int, address: Callable[[], str | None], owner: Fetchers) -> None:
        self.replicas: dict[ReplicaKey, Replica] = {}
        self._leader_id = leader_id
        self._address = address
        self._owner = owner
        self._wakeup = asyncio.Event()
        self._correlation_id = 0
        self._rotation = 0
        self._last_problem = ""
        self._task = watched_task(self._run(), name=f"fetcher-{leader_id}", on_failure=owner.on_failure)

    def wake(self) -> None:
        self._wakeup.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

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
            except (ReplogError, TimeoutError) as error:
                self._note(error)
                self._owner.driver.submit(self._fail_all)
            await asyncio.sleep(RECONNECT_DELAY_S)

    async def _connected(self, address: str) -> None:
        connection = self._owner.transport.connect(address, purpose="replication")
        try:
            stream = await connection.open_fetch(self._owner.hello())
            self._last_problem = ""
            try:
                while True:
                    await self._fetch_once(stream)
            finally:
                await stream.close()
        finally:
            await connection.close()

    async def _fetch_once(self, stream: Stream[FetchRequest, FetchResponse]) -> None:
        self._wakeup.clear()
        request = await self._owner.driver.call(self._build_request)
        if request is None:
            await self._wakeup.wait()
            return
        await stream.send(request)
        async with asyncio.timeout(request.max_wait_ms / 1000 + ANSWER_GRACE_S):
            response = await stream.receive()
        if response.correlation_id == request.correlation_id:
            await self._owner.driver.call(lambda: self._handle(request, response))

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def _build_request(self) -> FetchRequest | None:
        config = self._owner.config
        now = self._owner.clock.now_ms()
        partitions = [
            _fetch_partition(replica, position, config.replica_fetch_max_bytes)
            for replica in self.replicas.values()
            if isinstance(replica.role, Follower)
            and (position := replica.role.fetch_position(now)) is not None
            and not replica.log.is_behind_write_back  # woken when the disk has caught up
        ]
        if not partitions:
            return None
        self._rotation = (self._rotation + 1) % len(partitions)  # whoever comes first fills the answer first
        self._correlation_id += 1
        return FetchRequest(
            correlation_id=self._correlation_id,
            timeout_ms=config.request_timeout_ms,
            replica_id=config.node_id,
            broker_epoch=self._owner.broker_epoch(),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partitions=tuple(partitions[self._rotation :] + partitions[: self._rotation]),
        )

    def _handle(self, request: FetchRequest, response: FetchResponse) -> None:
        asked = {(p.topic_id, p.partition_id): p for p in request.partitions}
        for result, batches in zip(response.results, response.batches, strict=True):
            key = (result.topic_id, result.partition_id)
            replica, position = self.replicas.get(key), asked.get(key)
            if replica is not None and position is not None:
                self._owner.step(replica, _answer(position, result, batches), memoryview(batches))

    def _fail_all(self) -> None:
        for replica in list(self.replicas.values()):
            self._owner.step(replica, FetchFailed(), b"")

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
        transport: Transport,
        hello: Callable[[], Hello],
        broker_epoch: Callable[[], int],
        address_of: Callable[[int], str | None],
        step: StepFollower,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.driver = driver
        self.clock = clock
        self.transport = transport
        self.hello = hello
        self.broker_epoch = broker_epoch
        self.step = step
        self.on_failure = on_failure
        self._address_of = address_of
        self._by_leader: dict[int, LeaderFetcher] = {}
        self._of_replica: dict[ReplicaKey, LeaderFetcher] = {}

    def add(self, replica: Replica, leader_id: int) -> None:
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = LeaderFetcher(leader_id, lambda: self._address_of(leader_id), self)
            self._by_leader[leader_id] = fetcher
        fetcher.replicas[replica.key] = replica
        self._of_replica[replica.key] = fetcher
        fetcher.wake()

    def remove(self, replica: Replica) -> None:
        fetcher = self._of_replica.pop(replica.key, None)
        if fetcher is not None:
            fetcher.replicas.pop(replica.key, None)

    def wake(self, replica: Replica) -> None:
        fetcher = self._of_replica.get(replica.key)
        if fetcher is not None:
            fetcher.wake()

    async def stop(self) -> None:
        for fetcher in self._by_leader.values():
            await fetcher.stop()


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


def _answer(position: FetchPartition, result: FetchResult, batches: Buffer) -> FetchAnswered:
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
