"""`Producer`: records in, acknowledgements out.

A record's way: `send` picks a partition and appends it to that partition's open batch (`PartitionQueue`, memory
counted by `Accumulator`), in one compiled call where there is nothing else to look at (`Appender`); the leader's `BrokerSender` gathers batches of many partitions into one message; the reply
resolves the batch, and with it every `Delivery` of its records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self

from msgspec.structs import replace

from replog.client.arguments import (
    headers_bytes_bound,
    require_columns,
    require_limit,
    require_partition,
    require_records,
    require_text,
    require_timestamp,
    require_whole,
    wrong_type,
)
from replog.client.cluster.view import ClusterView
from replog.client.producer.accumulator import Accumulator, AccumulatorSettings
from replog.client.producer.batch import BulkDelivery, Delivery, ProducerBatch
from replog.client.producer.bulk import (
    CHUNK_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    Chunk,
    ColumnRows,
    RecordLike,
    Runs,
    spread,
    take_chunk,
    traced,
)
from replog.client.producer.config import Acks, ProducerConfig
from replog.client.producer.identity import IdentitySource
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.producer.partitioner import DefaultPartitioner, Partitioner, check_partitioner
from replog.client.producer.router import Router, TopicQueues, lost_text
from replog.client.protocol.seam import TimedTransport, Transport
from replog.client.settings import refuse_unknown
from replog.client.tracing import current_trace, is_tracing, with_trace
from replog.client.typed_records import RecordEncoder
from replog.client.types import K, RecordMetadata, V
from replog.codecs import ValueCodec
from replog.errors import BrokerClosedError, InvalidRequestError, RecordTooLargeError, ReplogError
from replog.host.forks import raise_if_carried, tell_at_fork
from replog.records import HEADER_BYTES, Appender, Buffer, CodecName, Columns, Header, batch_bytes_bound
from replog.waiting.task_ends import Ending

if TYPE_CHECKING:
    from replog.client.producer.transaction import Transaction, TransactionDriver
    from replog.client.producer.transaction_partitions import TransactionPartitions
    from replog.client.security.security import Security

TURN_BYTES = 64 * 1024
"""After this much a busy `send` loop lets the loop run, so that senders and replies get their turn."""

NANOSECONDS_PER_MS = 1_000_000

_DATA = (bytes, type(None))

NO_HEADERS: tuple[Header, ...] = ()
"""The one empty tuple, which needs no check."""

RECORD_BYTES_BOUND = batch_bytes_bound(None, None)

ABORT_FLUSH_MS = 1_000
"""How long leaving `async with` by an exception still waits for acknowledgements."""


DEFAULTS = ProducerConfig()

_log = logging.getLogger(__name__)


class Producer(Generic[K, V]):
    """Writes records; idempotent and `acks="all"` by default.

    ::

        async with Producer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"value", key=b"UA")
            print(await delivery)  # RecordMetadata(topic, partition, offset, timestamp)

    `send` returns as soon as the record has a place in a batch; awaiting what it returns waits for the
    acknowledgement.  Records of one partition keep their order.  Retries across leader changes are the producer's
    business until `delivery_timeout_ms` has passed; then the records of that batch fail, and only those: later ones go
    on, in a new producer epoch where that is needed (see `partition_queue`).

    Args:
        bootstrap_servers: "host:port,host:port" or a sequence of them.
        key, value: What keys and values are: bytes, or what `replog.codecs` makes bytes of (docs/RECORDS.md).
        client_id: The name of this client in the brokers' logs.
        partitioner: The object that chooses partitions for records that name none; None: one that does as Kafka does.
        security: How client and brokers are believed by each other (docs/SECURITY_CLIENTS.md); None: plain text.
        transport: The way to the brokers; None: TCP.
        Others: The settings, see `ProducerConfig`.

    Raises:
        ConfigError: A setting is wrong.
        UnsupportedCompressionError: The library for `compression` is not installed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *misplaced: Never,
        key: type[K] | ValueCodec[K] = bytes,  # type: ignore[assignment]  # which is K where nobody says another one
        value: type[V] | ValueCodec[V] = bytes,  # type: ignore[assignment]  # likewise
        acks: Acks = "all",
        enable_idempotence: bool | None = None,
        batch_size_bytes: int = DEFAULTS.batch_size_bytes,
        linger_ms: float = DEFAULTS.linger_ms,
        max_request_bytes: int = DEFAULTS.max_request_bytes,
        buffer_memory_bytes: int = DEFAULTS.buffer_memory_bytes,
        delivery_timeout_ms: int = DEFAULTS.delivery_timeout_ms,
        request_timeout_ms: int = DEFAULTS.request_timeout_ms,
        max_in_flight_per_partition: int = DEFAULTS.max_in_flight_per_partition,
        fail_below_min_isr: bool = DEFAULTS.fail_below_min_isr,
        connect_timeout_ms: int = DEFAULTS.connect_timeout_ms,
        close_timeout_ms: int | None = DEFAULTS.close_timeout_ms,
        compression: CodecName = DEFAULTS.compression,
        compression_gzip_level: int = DEFAULTS.compression_gzip_level,
        compression_lz4_level: int = DEFAULTS.compression_lz4_level,
        compression_zstd_level: int = DEFAULTS.compression_zstd_level,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULTS.transaction_timeout_ms,
        client_id: str = "replog-producer",
        partitioner: Partitioner | None = None,
        security: Security | None = None,
        transport: Transport | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(type(self), unknown, misplaced)
        self.config = ProducerConfig(
            acks=acks,
            enable_idempotence=enable_idempotence,
            batch_size_bytes=batch_size_bytes,
            linger_ms=linger_ms,
            max_request_bytes=max_request_bytes,
            buffer_memory_bytes=buffer_memory_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_in_flight_per_partition=max_in_flight_per_partition,
            fail_below_min_isr=fail_below_min_isr,
            connect_timeout_ms=connect_timeout_ms,
            close_timeout_ms=close_timeout_ms,
            compression=compression,
            compression_gzip_level=compression_gzip_level,
            compression_lz4_level=compression_lz4_level,
            compression_zstd_level=compression_zstd_level,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        self._view = ClusterView(bootstrap_servers, transport=transport, security=security, client_id=client_id)
        self._wall_ns = _clock_of(transport)
        check_partitioner(partitioner)
        self._partitioner = (
            DefaultPartitioner(sticky_bytes=batch_size_bytes, rng=self._view.rng)
            if partitioner is None
            else partitioner
        )
        self._accumulator = Accumulator(AccumulatorSettings.of(self.config), self._view.home)
        self._memory = self._accumulator.memory
        partitions: TransactionPartitions | None = None
        if (
            transactional_id is not None
        ):  # with Kafka's messages about transactions, which other producers need not load
            from replog.client.producer.transaction_partitions import TransactionPartitions

            partitions = TransactionPartitions.of(self._view, self.config)
        identities = IdentitySource(self._view) if partitions is None else partitions
        self._router = Router(self._view, self._accumulator, self.config, self._partitioner, identities)
        self._appender = Appender(
            Delivery,
            self._accumulator.meter,
            self._wall_ns,
            limit_bytes=self.config.buffer_memory_bytes,
            record_bytes_max=self.config.max_request_bytes,
            overhead_bytes=RECORD_BYTES_BOUND,
            topics=self._router.open_batches,
        )
        self._is_barred = False
        self._transactions: TransactionDriver | None = None
        if partitions is not None:
            from replog.client.producer.transaction import TransactionDriver

            self._bar()
            self._transactions = TransactionDriver(
                self._router, self._accumulator, partitions, bar=self._bar, admit=self._admit
            )
        self._encoder = RecordEncoder.of(key, value)
        append = self._appender.append
        self._append: Callable[..., Delivery | None] = append if self._encoder is None else self._encoder.before(append)
        self._is_tracing = is_tracing()
        if self._is_tracing:
            self._append = _look_closer
        self._topics = self._router.topics
        self._max_request_bytes = self.config.max_request_bytes
        self._chunk_bytes_max = _chunk_bytes_max(self.config)
        self._appender.turn_bytes = TURN_BYTES
        self._yielding_count = 0
        self._is_closed = False
        self._ending = Ending(self._release)
        tell_at_fork(self)

    # ---- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close(timeout_ms=0)
            raise
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        limit_ms = self.config.close_timeout_ms
        await self._shut_down(ABORT_FLUSH_MS if limit_ms is None else min(limit_ms, ABORT_FLUSH_MS))
        unheard = self._accumulator.unheard()
        if unheard:
            _log.warning("%s. The producer was left by %r", lost_text(unheard), error)

    async def start(self) -> None:
        """Connects; with a transactional id, takes that over too, so that what its last producer left open is aborted at once.

        Raises:
            RequestTimedOutError: No bootstrap server answered within `connect_timeout_ms`, or no coordinator within
                `delivery_timeout_ms`; it names the last cause.
            MalformedFrameError, UnsupportedVersionError: What answers there is no broker, or one that is too old.
            InvalidTransactionTimeoutError: `transaction_timeout_ms` is more than the brokers allow.
        """
        await self._view.ready(self.config.connect_timeout_ms)
        if self._transactions is not None:
            await self._transactions.take_over()

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Flushes, then closes.  Calling it again does nothing.

        Args:
            timeout_ms: How long to wait for acknowledgements, milliseconds; None: `close_timeout_ms`, or, where that is not
                set, until every record is acknowledged or has failed by its delivery time-out.  What is left then fails with
                BrokerClosedError.

        Raises:
            ReplogError: As `flush`; the producer is closed all the same.
        """
        if timeout_ms is not None:
            require_limit("timeout_ms", timeout_ms)
        await self._shut_down(self.config.close_timeout_ms if timeout_ms is None else timeout_ms)
        error = self._accumulator.unseen_failure()
        if error is not None and timeout_ms != 0:
            raise error

    async def _shut_down(self, timeout_ms: int | None) -> None:
        if self._is_closed:
            return
        if self._view.home.is_gone:
            await self._give_up()
            return
        self._view.home.enter()
        self._refuse_records()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if self._transactions is not None:
                    await self._transactions.close()
                await self._router.flush()
        except TimeoutError:
            pass
        finally:
            await self._ending.wait()

    async def _give_up(self) -> None:
        """Ends a producer whose loop was closed before it was: nothing of it can be sent or waited for."""
        self._refuse_records()
        await self._view.close()
        lost_count = sum(batch.records_count for batch in self._accumulator.unresolved())
        self._router.has_told_lost = True
        if lost_count:
            raise BrokerClosedError(
                f"the event loop of this producer was closed before {lost_count} records were acknowledged; they may or may "
                "not be in the log. Close a producer in the loop in which it sends"
            )

    def handle_fork(self) -> None:
        """Closes this copy in a forked child, which sends nothing: the parent has what waits here, and sends it."""
        if self._view.home.is_carried:
            self._refuse_records()

    def _refuse_records(self) -> None:
        """Makes every `send` from now on an error."""
        if not self._is_closed:
            self._is_closed = True
            self._appender.blocked_count += 1

    async def _release(self) -> None:
        self._refuse_records()
        self._accumulator.close(BrokerClosedError("the producer was closed before the records were acknowledged"))
        if self._transactions is not None:
            await self._transactions.release()
        await self._router.close()
        await self._view.close()

    async def flush(self) -> None:
        """Waits until everything sent so far is acknowledged or has failed; lingering batches go at once.

        Raises:
            ReplogError: The first failure since the last flush among records whose delivery nobody has awaited.
        """
        self._view.home.enter()
        await self._router.flush()
        error = self._accumulator.unseen_failure()
        if error is not None:
            raise error

    # ---- transactions ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Returns a transaction, for `async with`: what is sent in its block is read together or not at all.

        The producer has a `transactional_id`, and sends in transactions only, one at a time: all that its tasks send while one is
        open belongs to it.  See `Transaction`.

        Raises:
            InvalidRequestError: The producer has no `transactional_id`.
            BrokerClosedError: The producer was closed.
        """
        return self._with_transactions().new_transaction()

    async def take_over(self, transactional_id: str) -> None:
        """Goes on with another transactional id, over the connections that it has, and takes that over as `start` does.

        Args:
            transactional_id: The name, which no other producer that runs has.

        Raises:
            ConfigError: It is empty.
            InvalidRequestError: A transaction is open, or the producer has had no `transactional_id`.
            ReplogError: As `start`.
        """
        require_text("transactional_id", transactional_id)
        transactions = self._with_transactions()
        await self._view.ready(self.config.connect_timeout_ms)
        await transactions.rename(transactional_id)
        self.config = replace(self.config, transactional_id=transactional_id)

    def _with_transactions(self) -> TransactionDriver:
        self._raise_if_closed()
        if self._transactions is None:
            raise InvalidRequestError(
                'this producer has no transactional_id: give it one, such as Producer(..., transactional_id="payments-1"), that no '
                "other producer that runs has"
            )
        return self._transactions

    def _bar(self) -> None:
        """Refuses records, until `_admit`: there is no transaction that they would belong to."""
        if not self._is_barred:
            self._is_barred = True
            self._appender.blocked_count += 1

    def _admit(self) -> None:
        if self._is_barred:
            self._is_barred = False
            self._appender.blocked_count -= 1

    def _joined(self) -> Transaction | None:
        """Returns the transaction that what is sent now belongs to; None: the producer has none.

        Raises:
            InvalidRequestError: There is no open one.
            TransactionAbortableError: It can only be aborted.
            ProducerFencedError: Another producer has the transactional id.
        """
        return None if self._transactions is None else self._transactions.current()

    # ---- sending ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = NO_HEADERS,
    ) -> Delivery:
        """Puts a record into a batch; waits only for room, or for metadata that have the topic and the partition.

        Args:
            topic: The name of a topic that exists.
            value: The payload; None is a tombstone.
            key: The key; it decides the partition when none is given, and identity under compaction.  None: no key.
            partition: The partition to write to; None lets the partitioner choose.
            timestamp_ms: The time of the record, milliseconds since 1970; None is now, by the clock of the transport if
                it has one (a simulated network).
            headers: Pairs of a name and bytes or None.  Where OpenTelemetry was imported before this producer was made, the headers of
                the current span are added, `traceparent` as a rule, unless they have some already.

        Returns:
            The outcome; awaiting it gives the `RecordMetadata`.

        Raises:
            RecordTooLargeError: The record is larger than `max_request_bytes`; nothing was sent.
            RecordEncodeError: A codec cannot encode the key or the value; nothing was sent.
            UnknownTopicOrPartitionError: There is no such topic or partition, also after the wait for a new one.
            InvalidRecordError: The timestamp is neither a time since 1970 nor -1 for none, or a header name is not
                valid Unicode.
            BrokerClosedError: The producer was closed.
            InvalidRequestError: The producer has a `transactional_id`, and is in no transaction.
            TransactionAbortableError, ProducerFencedError: Something of the transaction has failed before.
        """
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is not None:  # nearly always: all of the rest has to be looked at once in a batch or a turn
            return delivery
        if self._is_tracing:
            headers_bytes_bound(headers)  # refuses what are no headers
            headers = with_trace(headers, current_trace())
        if self._encoder is None:
            return await self._send(topic, value, key, partition, timestamp_ms, headers)
        data, key_data = self._encoder.encode(topic, value, key)
        return await self._send(topic, data, key_data, partition, timestamp_ms, headers)

    async def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[Header] = NO_HEADERS,
    ) -> Delivery:
        """Sends one record, whose value and key are encoded, with a look at everything; see `send`."""
        size_bytes = self._checked_size(topic, key, value, headers)
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        if self._is_barred:
            self._raise_if_closed()
            self._joined()
        if self._appender.turn_bytes <= 0 or self._yielding_count:
            await self._yield()
        reserved_bytes = 0
        try:
            queues = self._topics.get(topic)
        except TypeError:  # not even a key
            raise wrong_type("topic", topic, "a str") from None
        is_unknown = queues is None or (partition is not None and queues.lacks(partition))
        if queues is None or is_unknown or self._is_closed or not self._memory.has_room(size_bytes):
            queues = await self._wait_until_possible(topic, partition, size_bytes)
            reserved_bytes = size_bytes
        try:  # nothing is awaited from here on: a caller that is cancelled has sent nothing
            record_bytes = size_bytes - RECORD_BYTES_BOUND + RECORD_OVERHEAD_BYTES
            if key is None and partition is None:
                queues.end_full_batch(size_bytes)
            queue = queues.queue_for(self._partitioner, key, partition, record_bytes)
            timestamp = self._now_ms() if timestamp_ms is None else timestamp_ms
            batch, relative_offset = queue.append(timestamp, key, value, headers, size_bytes)
            if relative_offset == 0:  # a new batch: before, there may have been nothing to send
                self._router.route(queue)
        finally:
            if reserved_bytes:
                self._memory.release(reserved_bytes)
        self._appender.turn_bytes -= size_bytes
        return Delivery(batch, relative_offset, timestamp)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = NO_HEADERS,
    ) -> RecordMetadata:
        """Sends one record, as `send` does, and waits until it is acknowledged.

        Raises:
            ReplogError: As `send`, or what kept the record from being acknowledged within `delivery_timeout_ms`.
        """
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def send_many(
        self,
        topic: str,
        records: Iterable[RecordLike[V, K]],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkDelivery:
        """Puts each of `records` into a batch, as `send` does, in order, with one outcome for all instead of one each.

        Args:
            topic: The name of a topic that exists.
            records: Values, (value, key) pairs, or (value, key, headers); a value that is a tuple by itself goes into a pair.  The span that
                is current at the call is added as by `send`.
            partition: The partition of all of them; None lets the partitioner choose for each.
            timestamp_ms: The time of all of them, milliseconds since 1970; None is now.

        Raises:
            As `send`, at the record that is at fault: those before it are sent, and `flush` tells their fate.
        """
        require_text("topic", topic)
        require_records(records, "send_many")
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        if partition is not None:
            require_whole("partition", partition)
        self._raise_if_closed()
        self._joined()
        runs = Runs()
        rest: Iterator[Any] = iter(records) if self._encoder is None else self._encoder.encode_all(topic, records)
        if self._is_tracing and (trace := current_trace()):
            rest = traced(rest, trace)
        while True:
            timestamp = self._now_ms() if timestamp_ms is None else timestamp_ms
            chunk = take_chunk(rest, timestamp, self._chunk_bytes_max)
            if chunk.rows:
                await self._send_chunk(topic, chunk, partition, runs)
            chunk.raise_error()
            if chunk.odd is not None:
                value, key, headers = chunk.odd
                runs.add_one(await self._send(topic, value, key, partition, timestamp, headers))
            elif chunk.is_last:
                return runs.finish()

    async def _send_chunk(self, topic: str, chunk: Chunk, partition: int | None, runs: Runs) -> None:
        if partition is None and type(self._partitioner) is not DefaultPartitioner:  # it is asked once a record
            for timestamp, key, value, headers in chunk.rows:
                runs.add_one(await self._send(topic, value, key, None, timestamp, headers))
            return
        queues, reserved_bytes = await self._room_for(topic, partition, chunk.size_bytes)
        try:
            for queue, rows in spread(chunk, queues, partition, self._partitioner):
                self._note(queue, queue.extend(rows), runs)
        finally:
            self._memory.release(reserved_bytes)
        self._appender.turn_bytes -= chunk.size_bytes

    async def send_columns(
        self,
        topic: str,
        columns: Columns,
        *,
        partitions: Buffer | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkDelivery:
        """Puts each row of `columns` into a batch, as `send_many` does, without an object per record; codecs have no part in it.

        Args:
            topic: The name of a topic that exists.
            columns: The records as columns, see `replog.records.Columns`; the partitioner chooses once for many rows
                without a key.  No span is added: the rows were records before, and some may have headers of their own.
            partitions: The partition of each row, int32, little-endian; -1, and None for all: the partitioner chooses.
            timestamp_ms: The time of all of them where `columns` has no timestamps, milliseconds since 1970; None is now.

        Raises:
            InvalidRecordError: A column is too short or contradicts itself, or a row has no such partition or time.
            RecordTooLargeError: A row is larger than `max_request_bytes`.
            UnknownTopicOrPartitionError, BrokerClosedError: As `send`.  What comes before the row at fault may be sent.
        """
        require_text("topic", topic)
        require_columns(columns, partitions)
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        self._raise_if_closed()
        transaction = self._joined()
        now_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        rows = ColumnRows(columns, partitions, now_ms, self._partitioner)
        queues = await self._router.resolve(topic)
        await self._router.resolve(topic, rows.partitions_count_least(len(queues.queues)))
        if transaction is not None:
            transaction.require_open()
        runs = Runs()
        for start, end, size_bytes in rows.chunks(self._chunk_bytes_max):
            if size_bytes + HEADER_BYTES > self._max_request_bytes:
                raise self._too_large(topic, size_bytes + HEADER_BYTES, f"row {start}: ")
            queues, reserved_bytes = await self._room_for(topic, None, size_bytes)
            try:
                for number, group in rows.groups(start, end, size_bytes, queues):
                    self._note(queues.queues[number], queues.queues[number].extend_rows(rows.source, group), runs)
            finally:
                self._memory.release(reserved_bytes)
            self._appender.turn_bytes -= size_bytes
        return runs.finish()

    def _note(self, queue: PartitionQueue, filled: Iterable[tuple[ProducerBatch, int, int]], runs: Runs) -> None:
        """Iterates over what fills the batches of a partition, and tells its sender of each new one."""
        for batch, first, count in filled:
            if first == 0:
                self._router.route(queue)
            runs.add(batch, first, count)

    async def _room_for(self, topic: str, partition: int | None, size_bytes: int) -> tuple[TopicQueues, int]:
        """Returns the topic's queues, and how much memory was reserved for the caller to release."""
        if self._appender.turn_bytes <= 0 or self._yielding_count:
            await self._yield()
        queues = self._topics.get(topic)
        is_unknown = queues is None or (partition is not None and queues.lacks(partition))
        if queues is None or is_unknown or self._is_closed or not self._memory.has_room(size_bytes):
            return await self._wait_until_possible(topic, partition, size_bytes), size_bytes
        return queues, 0

    async def partitions_for(self, topic: str) -> list[int]:
        """Returns the numbers of the topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        require_text("topic", topic)
        return [p.partition_id for p in (await self._view.topic_or_raise(topic)).partitions]

    async def message_bytes_max(self, topic: str) -> int:
        """Returns the size of the largest batch that the topic takes, bytes: its `max.message.bytes`.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            BrokerClosedError: The producer was closed.
        """
        require_text("topic", topic)
        self._raise_if_closed()
        return (await self._router.resolve(topic)).message_bytes_max

    async def needs_keys(self, topic: str) -> bool:
        """Returns whether the topic takes no record without a key, for it says that it is compacted.  Raises: As `message_bytes_max`."""
        require_text("topic", topic)
        self._raise_if_closed()
        return (await self._router.resolve(topic)).needs_keys

    def _now_ms(self) -> int:
        return self._wall_ns() // NANOSECONDS_PER_MS

    def _checked_size(self, topic: str, key: Any, value: Any, headers: Sequence[Header]) -> int:
        """Returns an upper bound of a record in its own batch; refuses what can never be sent, of whatever type."""
        if not (isinstance(value, _DATA) and isinstance(key, _DATA)):
            name, data = ("key", key) if isinstance(value, _DATA) else ("value", value)
            raise wrong_type(name, data, "bytes or None: encode it first")
        size_bytes = RECORD_BYTES_BOUND + (len(key) if key else 0) + (len(value) if value else 0)
        if headers is not NO_HEADERS:
            size_bytes += headers_bytes_bound(headers)
        if size_bytes > self._max_request_bytes:
            raise self._too_large(topic, size_bytes)
        return size_bytes

    def _too_large(self, topic: str, size_bytes: int, which: str = "") -> RecordTooLargeError:
        return RecordTooLargeError(
            f"{topic}: {which}a record of up to {size_bytes} bytes with its overhead, max.request.bytes is "
            f"{self.config.max_request_bytes}. Send smaller records, or raise max_request_bytes here and "
            "max.message.bytes of the topic."
        )

    async def _yield(self) -> None:
        """Lets the loop run; callers that come meanwhile do the same, so that none is overtaken."""
        self._view.home.enter()
        transaction = self._joined()
        self._appender.turn_bytes = 0
        self._yielding_count += 1
        if not self._accumulator.is_busy:
            self._accumulator.is_busy = True
            asyncio.get_running_loop().call_soon(self._end_busy)
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding_count -= 1
            if not self._yielding_count:
                self._appender.turn_bytes = TURN_BYTES
        if transaction is not None:
            transaction.require_open()

    def _end_busy(self) -> None:
        """Lets batches that are not full go, once a turn of the loop has passed in which nobody went on sending."""
        if self._yielding_count:
            asyncio.get_running_loop().call_soon(self._end_busy)
            return
        self._accumulator.is_busy = False
        self._router.wake()

    async def _wait_until_possible(self, topic: str, partition: int | None, size_bytes: int) -> TopicQueues:
        """Waits for the topic's metadata and for room, which is reserved for the caller then; see `Accumulator.memory`."""
        require_text("topic", topic)
        self._raise_if_closed()
        transaction = self._joined()
        while True:
            self._raise_if_closed()
            queues = await self._router.resolve(topic)
            if partition is not None:
                queues = await self._router.resolve(topic, 1 + require_whole("partition", partition))
                require_partition(queues.name, len(queues.queues), partition)
            self._appender.blocked_count += 1  # no caller overtakes one that waits
            try:
                await self._memory.acquire(size_bytes)
            finally:
                self._appender.blocked_count -= 1
            if not self._is_closed and self._topics.get(topic) is queues:
                try:
                    if transaction is not None:
                        transaction.require_open()
                except ReplogError:
                    self._memory.release(size_bytes)
                    raise
                return queues
            self._memory.release(size_bytes)

    def _raise_if_closed(self) -> None:
        raise_if_carried(self._view.home.loop)
        if self._is_closed:
            raise BrokerClosedError("this producer was closed; make a new one")
        self._view.home.enter()


def _look_closer(*_: object) -> None:
    """Leaves each record to the way that looks at everything: its trace belongs into its headers."""


def _clock_of(transport: Transport | None) -> Callable[[], int]:
    """Returns the clock for records without a timestamp, nanoseconds since 1970: the transport's where it has one."""
    if isinstance(transport, TimedTransport):
        wall_ms = transport.wall_ms
        return lambda: wall_ms() * NANOSECONDS_PER_MS
    return time.time_ns


def _chunk_bytes_max(config: ProducerConfig) -> int:
    """Returns the size of chunks: small beside the memory, and such that a record in one can always be sent."""
    return min(
        CHUNK_BYTES_MAX,
        config.buffer_memory_bytes // 4,
        config.batch_size_bytes,
        config.max_request_bytes - HEADER_BYTES,
    )
