"""`SyncProducer`: `Producer` without async.

One that is not closed is flushed when the process ends, for as long as `EXIT_FLUSH_S`.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from replog.client.arguments import require_records, wrong_type
from replog.client.producer.batch import BatchOutcome, BulkDelivery, Delivery
from replog.client.producer.bulk import RecordLike
from replog.client.producer.producer import NO_HEADERS, Producer
from replog.client.producer.router import flush_all
from replog.client.sync.loop_thread import LoopThread, SyncClient, made_like, without_async
from replog.client.types import DeliveredRange, GroupMetadata, K, RecordMetadata, V
from replog.errors import BrokerClosedError
from replog.records import Buffer, Columns, Header

if TYPE_CHECKING:
    from replog.client.producer.transaction import Transaction
    from replog.client.sync.consumer import SyncConsumer

T = TypeVar("T")

EXIT_FLUSH_S = 5.0
"""How long the end of the process waits for acknowledgements of producers that nobody has closed."""


class SyncDelivery:
    """The outcome of one record; `result()` waits for it."""

    def __init__(self, client: SyncProducer[Any, Any], delivery: Delivery) -> None:
        self._client = client
        self._delivery = delivery

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Waits for the outcome and returns it.  Raises TimeoutError after `timeout_s`; the record stays on the way."""
        return self._client.outcome(self._delivery, timeout_s)

    def done(self) -> bool:
        """Whether `result` would return or raise at once, as `Delivery.done` says."""
        return self._delivery.done()


class SyncBulkDelivery:
    """The outcome of one `send_many`; `result()` waits for it."""

    def __init__(self, client: SyncProducer[Any, Any], delivery: BulkDelivery) -> None:
        self._client = client
        self._delivery = delivery

    def result(self, timeout_s: float | None = None) -> Sequence[DeliveredRange]:
        """Waits for the outcome and returns it.  Raises TimeoutError after `timeout_s`; the records stay on the way."""
        return self._client.outcome(self._delivery, timeout_s)

    def done(self) -> bool:
        """Whether the outcome of every record is known, as `BulkDelivery.done` says."""
        return self._delivery.done()

    @property
    def acknowledged_count(self) -> int:
        """The number of records that are acknowledged so far."""
        return self._delivery.acknowledged_count


class SyncTransaction:
    """`Transaction` without async: what is sent in its `with` block is read together or not at all."""

    def __init__(self, client: SyncProducer[Any, Any], transaction: Transaction) -> None:
        self._client = client
        self._transaction = transaction

    def __enter__(self) -> Self:
        try:
            self._client.carry_out(self._transaction.__aenter__)
        except BaseException as error:  # an interrupt may come when it has begun in the loop
            with contextlib.suppress(BrokerClosedError):
                self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._client.carry_out(lambda: self._transaction.__aexit__(cls, error, traceback))
        except Exception:
            raise
        except BaseException as interrupt:  # may have come before it had begun in the loop, where it then does not
            kind, reason = type(interrupt), interrupt
            with contextlib.suppress(BrokerClosedError):
                self._client.carry_out(lambda: self._transaction.__aexit__(kind, reason, None))
            raise

    def commit_offsets(
        self, group: SyncConsumer[Any, Any] | GroupMetadata, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Commits offsets of a group with the transaction, as `Transaction.commit_offsets` does."""
        if isinstance(group, GroupMetadata):
            self._client.carry_out(lambda: self._transaction.commit_offsets(group, offsets))
            return
        if not hasattr(group, "in_loop"):
            raise wrong_type("group", group, "the SyncConsumer, or what its group_metadata() returned")
        source = group.in_loop
        given: dict[tuple[str, int], int] = {
            each: found.offset for each, found in group.member_offsets(offsets).offsets.items()
        }
        self._client.carry_out(lambda: self._transaction.commit_offsets(source, given))


class SyncProducer(SyncClient[Producer[K, V]], Generic[K, V]):
    """`Producer` without async.  Each `send` crosses a thread (about 0.1 ms): prefer `send_many` for speed.

    One that nobody closes is flushed at the end of the process, for as long as `EXIT_FLUSH_S`; what is left then is told on
    stderr, as what an unclosed `Producer` leaves when its event loop is closed.
    """

    @made_like(Producer)
    def __init__(self, client: Producer[K, V]) -> None:
        super().__init__(client)

    start = without_async(Producer.start)

    def transaction(self) -> SyncTransaction:
        """Returns a transaction, for `with`: what is sent in its block is read together or not at all; see `Producer.transaction`."""

        async def transaction() -> Transaction:
            return self._client.transaction()

        return SyncTransaction(self, self._run(transaction))

    def carry_out(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Carries out a step of a transaction in the loop's thread, and returns its result."""
        return self._run(work)

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Flushes, then closes, as `Producer.close` does.  Calling it again does nothing."""
        self._end(lambda: self._client.close(timeout_ms=timeout_ms))

    def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = NO_HEADERS,
    ) -> SyncDelivery:
        """Puts a record into a batch, as `Producer.send` does."""
        delivery = self._run(lambda: self._client.send(topic, value, key, partition, timestamp_ms, headers))
        return SyncDelivery(self, delivery)

    send_and_wait = without_async(Producer.send_and_wait)

    def send_many(
        self,
        topic: str,
        records: Iterable[RecordLike[V, K]],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SyncBulkDelivery:
        """Takes all of `records` from the iterable, then puts them into batches, as `Producer.send_many` does."""
        require_records(records, "send_many")
        taken = list(records)  # the caller's code runs in the caller's thread
        delivery = self._run(
            lambda: self._client.send_many(topic, taken, partition=partition, timestamp_ms=timestamp_ms)
        )
        return SyncBulkDelivery(self, delivery)

    def send_columns(
        self,
        topic: str,
        columns: Columns,
        *,
        partitions: Buffer | None = None,
        timestamp_ms: int | None = None,
    ) -> SyncBulkDelivery:
        """Puts each row of `columns` into a batch, as `Producer.send_columns` does."""
        delivery = self._run(
            lambda: self._client.send_columns(topic, columns, partitions=partitions, timestamp_ms=timestamp_ms)
        )
        return SyncBulkDelivery(self, delivery)

    flush = without_async(Producer.flush)
    take_over = without_async(Producer.take_over)

    partitions_for = without_async(Producer.partitions_for)

    message_bytes_max = without_async(Producer.message_bytes_max)
    needs_keys = without_async(Producer.needs_keys)

    def outcome(self, delivery: BatchOutcome[T], timeout_s: float | None) -> T:
        """Waits for a delivery of this producer; a closed producer's deliveries are all decided."""
        if not self._is_closed:
            return self._run(delivery.wait, timeout_s)
        if not delivery.done():
            raise BrokerClosedError("the producer was closed before the records were acknowledged")
        return delivery.result()


def flush_at_exit() -> None:
    """Flushes producers that nobody has closed; what is left then is told by their routers."""
    thread = LoopThread.running()
    if thread is None:
        return
    try:
        thread.run(flush_all, EXIT_FLUSH_S)
    except TimeoutError:
        atexit.unregister(flush_at_exit)  # it was waited for long enough
    except BrokerClosedError:
        pass


atexit.register(flush_at_exit)  # after the end of all threads that may send
with contextlib.suppress(AttributeError, RuntimeError):
    # and before that of executors, which compress and look up names; undocumented, and of use without it, too
    threading._register_atexit(flush_at_exit)  # type: ignore[attr-defined]  # noqa: SLF001
