"""The clients for code without an event loop: one loop thread per process, and thin wrappers around the async ones.

One thread serves all of them, because gRPC's asyncio side wants one loop per process.  It starts with the first client
and ends with the last.  Do not carry a client across a fork; start it in the child.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from replog.client.admin import Admin
from replog.client.batch import BulkDelivery, Delivery
from replog.client.consumer import Consumer, Partitions, Start
from replog.client.partition_description import PartitionDescription
from replog.client.producer import Producer
from replog.client.reassignments import Reassignments
from replog.client.types import (
    ConsumerRecord,
    DeliveredRange,
    EpochEndOffset,
    FetchedBatches,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)
from replog.controller.messages import NewTopic, TopicResult
from replog.errors import BrokerClosedError
from replog.records import Header
from replog.rpc.log_dir_messages import LogDir
from replog.rpc.metadata_messages import ClusterMetadata, TopicInfo
from replog.rpc.node_messages import DescribeNodeResponse

T = TypeVar("T")
Client = TypeVar("Client", bound=Admin | Producer | Consumer)


class LoopThread:
    """An event loop in a daemon thread of its own.  `run` may be called from any other thread."""

    _shared: ClassVar[LoopThread | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._users_count = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="replog-loop", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> LoopThread:
        """The process's loop thread, started if there is none; give it back by `release`."""
        with cls._lock:
            shared = cls._shared
            if shared is None or shared.is_forked:
                shared = cls._shared = cls()
            shared._users_count += 1
            return shared

    @property
    def is_forked(self) -> bool:
        """This is a copy in a forked child; its thread stayed behind in the parent."""
        return self._pid != os.getpid()

    def release(self) -> None:
        """The last user's release ends the thread."""
        with LoopThread._lock:
            self._users_count -= 1
            if self._users_count:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs `coroutine` in the loop and waits for its outcome.

        Raises:
            TimeoutError: not within `timeout_s`; the coroutine is cancelled.
        """
        if self._loop.is_closed():
            coroutine.close()
            raise BrokerClosedError("this client was closed; make a new one")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stops the loop and waits for the thread.  Calling it again does nothing."""
        if self._loop.is_closed() or self.is_forked:
            return
        asyncio.run_coroutine_threadsafe(_wind_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _wind_down() -> None:
    """Cancels what somebody left running in the loop, as `asyncio.run` does at its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class _SyncClient(Generic[Client]):
    """What the three have in common: a client, the thread it lives in, and an end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None
        self._is_closed = False

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        if self._is_closed:
            coroutine.close()
            raise BrokerClosedError("this client was closed; make a new one")
        if self._thread is None:
            self._thread = LoopThread.acquire()
        return self._thread.run(coroutine, timeout_s)

    def __enter__(self) -> Self:
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_closed:
            return
        try:
            self._run(self._client.__aexit__(cls, error, traceback))
        finally:
            self._let_go()

    def close(self) -> None:
        """As the async client's.  Calling it again does nothing."""
        self.__exit__(None, None, None)

    def _let_go(self) -> None:
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.release()


class SyncAdmin(_SyncClient[Admin]):
    """`Admin` without async; arguments and errors are the same."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        super().__init__(Admin(bootstrap_servers, **settings))

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> TopicInfo:
        return self._run(self._client.create_topic(name, num_partitions, replication_factor, configs, **options))

    def create_topics(self, topics: Iterable[NewTopic], **options: Any) -> tuple[TopicResult, ...]:
        return self._run(self._client.create_topics(topics, **options))

    def delete_topic(self, name: str, **options: Any) -> None:
        self._run(self._client.delete_topic(name, **options))

    def list_topics(self) -> list[str]:
        return self._run(self._client.list_topics())

    def describe_topics(self, names: Iterable[str], **options: Any) -> dict[str, TopicInfo]:
        return self._run(self._client.describe_topics(names, **options))

    def describe_cluster(self, **options: Any) -> ClusterMetadata:
        return self._run(self._client.describe_cluster(**options))

    def describe_node(self, broker: int | str, **options: Any) -> DescribeNodeResponse:
        return self._run(self._client.describe_node(broker, **options))

    def describe_log_dirs(self, broker: int | str, **options: Any) -> tuple[LogDir, ...]:
        return self._run(self._client.describe_log_dirs(broker, **options))

    def move_replica(self, topic: str, partition: int, **options: Any) -> None:
        self._run(self._client.move_replica(topic, partition, **options))

    def describe_partition(self, topic: str, partition: int, **options: Any) -> PartitionDescription:
        return self._run(self._client.describe_partition(topic, partition, **options))

    def describe_reassignments(self, since: Reassignments | None = None, **options: Any) -> Reassignments:
        return self._run(self._client.describe_reassignments(since, **options))

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], **options: Any
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._run(self._client.list_offsets(timestamps, **options))

    def delete_records(self, offsets: Mapping[tuple[str, int], int], **options: Any) -> dict[TopicPartition, int]:
        return self._run(self._client.delete_records(offsets, **options))

    def epoch_ends(
        self, epochs: Mapping[tuple[str, int], int], **options: Any
    ) -> dict[TopicPartition, EpochEndOffset | None]:
        return self._run(self._client.epoch_ends(epochs, **options))

    def wait_until_ready(self, *, brokers: int = 1, timeout_ms: int | None = None) -> ClusterMetadata:
        return self._run(self._client.wait_until_ready(brokers=brokers, timeout_ms=timeout_ms))

    def wait_until_in_sync(self, topic: str, *, timeout_ms: int | None = None) -> TopicInfo:
        return self._run(self._client.wait_until_in_sync(topic, timeout_ms=timeout_ms))


class SyncDelivery:
    """The outcome of one record; `result()` waits for it."""

    def __init__(self, client: SyncProducer, delivery: Delivery) -> None:
        self._client = client
        self._delivery = delivery

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Raises TimeoutError after `timeout_s`; the record stays on its way."""
        return self._client.outcome(self._delivery, timeout_s)

    def done(self) -> bool:
        return self._delivery.done()


class SyncBulkDelivery:
    """The outcome of one `send_many`."""

    def __init__(self, client: SyncProducer, delivery: BulkDelivery) -> None:
        self._client = client
        self._delivery = delivery

    def result(self, timeout_s: float | None = None) -> Sequence[DeliveredRange]:
        return self._client.outcome(self._delivery, timeout_s)

    @property
    def acknowledged_count(self) -> int:
        return self._delivery.acknowledged_count


class SyncProducer(_SyncClient[Producer]):
    """`Producer` without async.  Each `send` crosses a thread (about 0.1 ms): prefer `send_many` for speed."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        super().__init__(Producer(bootstrap_servers, **settings))

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> SyncDelivery:
        return SyncDelivery(self, self._run(self._client.send(topic, value, key, partition, timestamp_ms, headers)))

    def send_many(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], **options: Any
    ) -> SyncBulkDelivery:
        return SyncBulkDelivery(self, self._run(self._client.send_many(topic, list(records), **options)))

    def flush(self) -> None:
        self._run(self._client.flush())

    def outcome(self, delivery: Awaitable[T], timeout_s: float | None) -> T:
        """Waits for a delivery of this producer; a closed producer's deliveries are all decided."""

        async def wait() -> T:
            return await delivery

        if self._is_closed:
            return _decided(delivery)
        return self._run(wait(), timeout_s)


class SyncConsumer(_SyncClient[Consumer]):
    """`Consumer` without async."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        super().__init__(Consumer(bootstrap_servers, **settings))

    def assign(self, partitions: Partitions, *, start: Start | Mapping[tuple[str, int], int] = "earliest") -> None:
        self._run(self._client.assign(partitions, start=start))

    def assign_topic(self, topic: str, *, start: Start = "earliest") -> list[TopicPartition]:
        return self._run(self._client.assign_topic(topic, start=start))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        async def seek() -> None:
            self._client.seek(partition, offset)

        self._run(seek())

    def position(self, partition: tuple[str, int]) -> int:
        return self._client.position(partition)

    def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        return self._run(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        return self._run(self._client.end_offsets(partitions))

    def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        return self._run(self._client.poll(max_records, timeout_ms))

    def fetch_batches(self, timeout_ms: int = 1_000) -> list[FetchedBatches]:
        return self._run(self._client.fetch_batches(timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            yield from self.poll()


def _decided(delivery: Awaitable[T]) -> T:
    """The outcome of a delivery that needs no waiting, hence no loop."""
    try:
        next(delivery.__await__())
    except StopIteration as done:
        value: T = done.value
        return value
    raise BrokerClosedError("the producer was closed before the records were acknowledged")
