"""Which sender each partition of a producer belongs to, kept in step with the metadata.

A producer that was forgotten goes on sending as long as its event loop runs.  What it has left when that was closed, or when
the process ends, is lost, and told: nobody would hear of it otherwise.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from weakref import WeakSet

from replog.client.arguments import require_partition
from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.leader_calls import first_few
from replog.client.cluster.view import VISIBLE_WITHIN_MS, ClusterView
from replog.client.producer.accumulator import Accumulator
from replog.client.producer.batch import ProducerBatch
from replog.client.producer.compressor import BatchCompressor
from replog.client.producer.config import ProducerConfig
from replog.client.producer.identity import Identities
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.producer.partitioner import DefaultPartitioner, Partitioner
from replog.client.producer.sender import BrokerSender, SenderSettings
from replog.errors import BrokerClosedError, LeaderNotAvailableError, ReplogError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import CLEANUP_POLICY, MAX_MESSAGE_BYTES
from replog.metadata.records import ResourceType
from replog.records import Codec, OpenBatches, StickyPartition
from replog.rpc.metadata_messages import TopicInfo
from replog.rpc.node_messages import DescribeConfigsRequest
from replog.rpc.transport import ConnectionLostError

_NEXT_STEP = "Use `async with` or `with`, or call flush() or close() at the end"

_routers: WeakSet[Router] = WeakSet()


class TopicQueues:
    """The queues of one topic, by partition.

    Args:
        sticky: Where records without a key go for now; None: the partitioner has an object of its own.
        on_ready: A function that is told of a queue that may have something to send without a new record in it.
        asked: The configurations of the topic, where the metadata leave them out; None: they do not, or nobody tells them.

    Attributes:
        message_bytes_max: The bound of a batch that the topic sets for itself, else the default of `max.message.bytes`: the brokers'
            default is larger than any batch that is not asked for.
        needs_keys: Whether the topic says that it is compacted, so that it takes no record without a key.
        open_batches: The open batches of the queues.
        available: The partitions that have a leader.
    """

    def __init__(
        self,
        info: TopicInfo,
        accumulator: Accumulator,
        *,
        sticky: StickyPartition | None = None,
        on_ready: Callable[[PartitionQueue], None],
        asked: Mapping[str, str | None] | None = None,
    ) -> None:
        self.open_batches = OpenBatches(sticky)
        self.name = info.name
        self.topic_id = info.topic_id
        self.queues: list[PartitionQueue] = []
        self.available: tuple[int, ...] = ()
        self._on_ready = on_ready
        self._asked = asked
        self.update(info, accumulator)

    def update(self, info: TopicInfo, accumulator: Accumulator) -> None:
        """Takes in newer metadata: partitions may have been added, leaders may have gone, batches may have to be smaller."""
        for partition_id in range(len(self.queues), len(info.partitions)):
            self.open_batches.add_partition()
            queue = PartitionQueue(
                accumulator,
                info.name,
                info.topic_id,
                partition_id,
                open_batches=self.open_batches,
                on_ready=self._on_ready,
            )
            self.queues.append(queue)
        configs = {entry.name: entry.value for entry in info.configs} if self._asked is None else self._asked
        self.message_bytes_max = int(configs.get(MAX_MESSAGE_BYTES.name) or MAX_MESSAGE_BYTES.default)
        self.needs_keys = "compact" in (configs.get(CLEANUP_POLICY.name) or "")
        batch_bytes_max = min(accumulator.settings.batch_size_bytes, self.message_bytes_max)
        for queue in self.queues:
            queue.batch_bytes_max = batch_bytes_max
        self.available = tuple(p.partition_id for p in info.partitions if p.leader >= 0)
        sticky = self.open_batches.sticky
        if sticky is not None and sticky.partition not in self.available:
            sticky.left_bytes = 0

    def lacks(self, partition: int) -> bool:
        """Whether the topic may have been given the partition, or it is none at all, which `require_partition` tells."""
        return type(partition) is not int or partition >= len(self.queues)

    def end_full_batch(self, size_bytes: int, *, is_run: bool = False) -> None:
        """Ends the open batch of the sticky partition if what comes next does not fit: it begins a batch elsewhere then.

        Args:
            size_bytes: The most that it takes.
            is_run: Whether it is many records, of which some may go into what is left of the batch if that is much.
        """
        sticky = self.open_batches.sticky
        if sticky is not None and 0 <= sticky.partition < len(self.queues):
            queue = self.queues[sticky.partition]
            queue.close_if_full(min(size_bytes, queue.batch_bytes_max // 8) if is_run else size_bytes)

    def queue_for(
        self, partitioner: Partitioner, key: bytes | None, partition: int | None, size_bytes: int
    ) -> PartitionQueue:
        """Returns the queue of a record.

        Args:
            partitioner: The object that chooses where no partition is given.
            key, partition: The record's; None: it has none.
            size_bytes: The approximate size of the record in a batch.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """
        if partition is None:
            partition = partitioner.partition(self.name, key, size_bytes, len(self.queues), self.available)
        if type(partition) is not int or not 0 <= partition < len(self.queues):  # without a call for each record
            require_partition(self.name, len(self.queues), partition)
        return self.queues[partition]


class Router:
    """Topics in use, the queues of their partitions, and one sender per leader.

    Args:
        view: What knows the leaders.
        accumulator: What the queues share.
        config: The producer's settings.
        partitioner: What chooses partitions.
        identities: What gives partitions the producer id of their batches.

    Attributes:
        open_batches: The open batches of the topics in use, by name.
        has_told_lost: Whether somebody was told of the records that it has left.

    Invariants:
        - a queue's work is with the sender of its current leader, or waits for a leader;
        - a sender exists only for brokers in the metadata.
    """

    def __init__(
        self,
        view: ClusterView,
        accumulator: Accumulator,
        config: ProducerConfig,
        partitioner: Partitioner,
        identities: Identities,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.open_batches: dict[str, OpenBatches] = {}
        self._partitioner = partitioner
        self._view = view
        self._accumulator = accumulator
        self._settings = SenderSettings.of(config)
        self._visible_within_ms = min(VISIBLE_WITHIN_MS, config.delivery_timeout_ms)
        self._compressor: BatchCompressor | None = None
        if config.codec is not Codec.NONE:
            self._compressor = BatchCompressor(config.codec, config.compression_level, on_compressed=self.route)
        self._identities = identities
        identities.on_arrived = self._handle_identities
        self._senders: dict[int, BrokerSender] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self.has_told_lost = False
        self._is_closed = False
        view.add_listener(self._handle_metadata)
        _routers.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):  # else the setting-up has failed
            self.tell_lost()

    def tell_lost(self) -> None:
        """Tells the event loop's exception handler, once, of records that nobody will hear of otherwise, if there are any.

        The loop's own handler logs an error, which Python shows on stderr where logging is not set up.
        """
        home = self._view.home
        if self.has_told_lost or home.loop is None or home.is_carried or self._view.is_simulated:
            return
        unheard = self._accumulator.unheard()
        if unheard:
            self.has_told_lost = True
            home.loop.call_exception_handler({"message": f"{lost_text(unheard)}. {_NEXT_STEP}"})

    def is_at_home_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether its producer lives in an event loop, and is not closed."""
        return self._view.home.loop is loop and not self._is_closed

    def wake(self) -> None:
        """Tells the senders that batches which were waiting to be filled may go."""
        for sender in self._senders.values():
            sender.wake()

    async def flush(self, *, until_failure: bool = False) -> None:
        """Waits until everything sent so far is acknowledged or has failed; lingering batches go at once.

        Args:
            until_failure: Whether the first failure ends the wait.
        """
        accumulator = self._accumulator
        until = asyncio.FIRST_EXCEPTION if until_failure else asyncio.ALL_COMPLETED
        accumulator.flushing_count += 1
        try:
            self.wake()
            futures = [batch.future for batch in accumulator.unresolved()]
            if futures:
                await asyncio.wait(futures, return_when=until)
        finally:
            accumulator.flushing_count -= 1

    def queues(self) -> Iterator[PartitionQueue]:
        """Yields the queues of all topics in use."""
        for topic in self.topics.values():
            yield from topic.queues

    async def resolve(self, topic: str, partitions_count: int = 0) -> TopicQueues:
        """Returns the topic's queues; waits for its first metadata, and for partitions that it may just have been given.

        Args:
            topic: The name of the topic.
            partitions_count: The partitions that it should have; it may still have fewer.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            BrokerClosedError: The producer was closed meanwhile.
        """
        if (queues := self.topics.get(topic)) is not None and len(queues.queues) >= partitions_count:
            return queues
        within_ms, asked = self._visible_within_ms, None
        info = await self._view.topic_or_raise(topic, partitions_count=partitions_count, within_ms=within_ms)
        if self._view.image.is_counted and topic not in self.topics:
            asked = await self._asked_configs(topic)
            info = await self._view.topic_or_raise(topic, partitions_count=partitions_count, within_ms=within_ms)
        if self._is_closed:
            raise BrokerClosedError("this producer was closed; make a new one")
        if (queues := self.topics.get(topic)) is None:
            # only a default partitioner leaves the choice to the router, which has the open batches
            sticky = self._partitioner.sticky(topic) if type(self._partitioner) is DefaultPartitioner else None
            queues = TopicQueues(info, self._accumulator, sticky=sticky, on_ready=self.route, asked=asked)
            self.topics[topic] = queues
            self.open_batches[topic] = queues.open_batches
            for queue in queues.queues:
                queue.leader = self._view.leader(queue.topic, queue.partition_id)
        return queues

    async def _asked_configs(self, topic: str) -> Mapping[str, str | None] | None:
        """Asks brokers of Apache Kafka, whose metadata leave out configurations; None: nobody tells them."""
        request, what = DescribeConfigsRequest(ResourceType.TOPIC, topic), f"look up configurations of {topic}"
        try:
            configs = (await self._view.call_any(request, timeout_ms=self._visible_within_ms, what=what)).configs
        except ReplogError:
            return None
        return {one.name: one.value for one in configs}

    async def close(self) -> None:
        """Stops the senders; what they had in flight is back in its queues."""
        self._is_closed = True
        if self._compressor is not None:
            self._compressor.close()
        await self._identities.close()
        for sender in self._senders.values():
            self._stop(sender)
        self._senders.clear()
        while self._stopping:
            await asyncio.gather(*self._stopping)

    def route(self, queue: PartitionQueue) -> None:
        """Tells the leader's sender that `queue` has something to send; without a leader it waits for metadata."""
        leader = queue.leader
        if leader is None or self._is_closed:
            self._view.request_refresh()
            return
        sender = self._senders.get(leader.broker_id)
        if sender is None or sender.address != leader.address:
            if sender is not None:
                self._stop(sender)
            sender = self._senders[leader.broker_id] = self._new_sender(leader)
        sender.add(queue)

    def _new_sender(self, leader: LeaderAddress) -> BrokerSender:
        sender = BrokerSender(
            self._view,
            leader.broker_id,
            leader.address,
            self._settings,
            compressor=self._compressor,
            identities=self._identities,
        )
        sender.start()
        return sender

    def _stop(self, sender: BrokerSender) -> None:
        task = asyncio.create_task(sender.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _handle_identities(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            self.route(queue)

    def _handle_metadata(self) -> None:
        """Takes in newer metadata: moves partitions to their new leaders, ends what was deleted."""
        if self._is_closed:
            return
        for name, queues in list(self.topics.items()):
            info = self._view.image.topics.get(name)
            if info is None or info.topic_id != queues.topic_id:
                self._drop(queues)
                continue
            queues.update(info, self._accumulator)
            for queue in queues.queues:
                self._follow(queue)
        for broker_id, sender in list(self._senders.items()):
            if broker_id not in self._view.image.brokers:
                del self._senders[broker_id]
                self._stop(sender)

    def _follow(self, queue: PartitionQueue) -> None:
        old, new = queue.leader, self._view.leader(queue.topic, queue.partition_id)
        if old == new:
            return
        queue.leader = new
        queue.backoff_until_s = 0.0
        queue.failures_count = 0
        if old is not None and (new is None or (old.broker_id, old.address) != (new.broker_id, new.address)):
            self._leave(queue, old, new)
        if queue.has_work and new is not None:
            self.route(queue)

    def _leave(self, queue: PartitionQueue, old: LeaderAddress, new: LeaderAddress | None) -> None:
        """Takes back what is in flight at the old leader: it goes again to the new one, which knows what it has."""
        sender = self._senders.get(old.broker_id)
        if sender is not None:
            sender.remove(queue)
        if new is None:
            queue.take_back(LeaderNotAvailableError(f"{queue} has no leader right now"))
        else:
            queue.take_back(ConnectionLostError(f"the leader of {queue} moved from {old.address} to {new.address}"))

    def _drop(self, queues: TopicQueues) -> None:
        del self.topics[queues.name], self.open_batches[queues.name]
        or_hidden = self._view.image.or_hidden
        error = UnknownTopicOrPartitionError(
            f"topic {queues.name} was deleted{or_hidden} while records were on their way"
        )
        for queue in queues.queues:
            if (leader := queue.leader) is not None and (sender := self._senders.get(leader.broker_id)) is not None:
                sender.remove(queue)
            queue.fail_all(error)


def lost_text(batches: Sequence[ProducerBatch]) -> str:
    """Returns what is said of batches that nobody has waited for: how many records they have, and where they belong."""
    count = sum(batch.records_count for batch in batches)
    partitions = sorted({str(batch.topic_partition) for batch in batches})
    return f"{count:,} records of a producer were not acknowledged before it ended, and may be lost: {first_few(partitions, ', ')}"


async def flush_all() -> None:
    """Flushes the producers that live in the running loop and were not closed."""
    loop = asyncio.get_running_loop()
    here = [router.flush() for router in _routers if router.is_at_home_in(loop)]
    await asyncio.gather(*here)


def _tell_all_lost() -> None:
    for router in list(_routers):
        router.tell_lost()


atexit.register(_tell_all_lost)
