"""How a worker commits what it is done with: offsets alone, or offsets and results in one transaction.

With transactions each result is in the log once, for readers of committed records: it is committed with the offset of the record that
it came from, or neither is.

================================================ ===================================================================================
what happens                                     what becomes of results and offsets
================================================ ===================================================================================
the process dies                                 the open transaction is aborted; who has the partition next waits for that, and begins
                                                 at the offset that is committed
a topic refuses a result                         halves of it are tried, down to one record: that one has failed
the transaction fails, and another may not       it is aborted; the results are kept, and sent in the next one
the member was put out of its group              the coordinator refuses its offsets (KIP-447): aborted, and the results are dropped
another producer has the transactional id        aborted; the worker ends
it is not known whether it is committed          nothing is sent again: the worker ends, and the next start begins at what is committed
================================================ ===================================================================================
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import uuid4

from replog.client.arguments import require_partition
from replog.client.consumer.consumer import Consumer
from replog.client.producer.config import MAX_REQUEST_BYTES_MAX
from replog.client.producer.producer import DEFAULTS, Producer
from replog.client.producer.transaction import OffsetsSource
from replog.client.types import MemberOffsets
from replog.errors import (
    CommitStaleError,
    ConfigError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    ReplogError,
    RetriableError,
    StaleMemberEpochError,
    TransactionAbortableError,
)
from replog.errors.choices import require_at_least
from replog.records import encode_batch
from replog.worker.assigned import Assigned, FinishedRecord
from replog.worker.results import ResultRecord, Results

if TYPE_CHECKING:
    from replog.client.security.security import Security

COMMIT_S: Final = 1.0

TRANSACTION_S: Final = 0.1
"""How long results wait for their transaction: readers wait as long, and each one costs requests and markers."""

TRANSACTION_RECORDS: Final = 1_000
TRANSACTION_BYTES: Final = 8 << 20
"""So many results are committed at once."""

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""How long a transaction of a worker that died holds up readers, and whoever has its partitions next.  It is open only while results
are sent, which are ready."""

FAILURES_PAUSE_S: Final = 1.0
"""The pause after a transaction that failed."""

_OWN = frozenset({"bootstrap_servers", "key", "value", "acks", "enable_idempotence", "buffer_memory_bytes"})

_PASSING = (
    RetriableError,
    StaleMemberEpochError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,  # nothing was sent for so long that the transactional id has expired
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
"""What has aborted a transaction, and says nothing against the next one."""

_REFUSALS = (InvalidTimestampError, InvalidRecordError, RecordTooLargeError)
"""What a topic says against a record: another attempt, or another start, would be of no use."""

_Part: TypeAlias = tuple[Assigned, FinishedRecord]

_log = logging.getLogger(__name__)


class Commits(Protocol):
    """What commits what is done with.

    Attributes:
        producer: The producer of what is sent in transactions; None: there are none.
        is_due: Set when there is so much to commit that it does not wait any longer.
    """

    producer: Producer | None
    is_due: asyncio.Event

    @property
    def pause_s(self) -> float: ...

    async def start(self) -> None: ...

    def results(self) -> Results | None: ...

    async def check(self, records: Iterable[ResultRecord]) -> None: ...

    def note(self, records: Collection[ResultRecord]) -> None: ...

    async def commit(self, consumer: Consumer, partitions: Iterable[Assigned]) -> bool: ...

    async def settle(self) -> None: ...

    async def close(self) -> None: ...


class OffsetCommits:
    """Commits offsets."""

    pause_s = COMMIT_S

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.is_due = asyncio.Event()

    async def start(self) -> None:
        """Starts nothing."""

    def results(self) -> Results | None:
        """Returns None: handlers send by themselves."""
        return None

    async def check(self, records: Iterable[ResultRecord]) -> None:
        """Checks nothing: there are no results."""

    def note(self, records: Collection[ResultRecord]) -> None:
        """Counts nothing: there are no results."""

    async def commit(self, consumer: Consumer, partitions: Iterable[Assigned]) -> bool:
        """Commits what is done with; what cannot be committed now is committed the next time, or done again.

        Returns:
            Whether results are held no more: there are none.

        Raises:
            ReplogError: Another attempt would be of no use.
        """
        wanted = {each: offset for each in partitions if (offset := each.to_commit) is not None}
        if not wanted:
            return False
        try:
            await consumer.commit({each.partition: offset for each, offset in wanted.items()})
        except (CommitStaleError, RetriableError) as error:
            _log.warning("what is done was not committed, and may be handled again: %s", error)
        else:
            for each, offset in wanted.items():
                each.commit(offset)
        return False

    async def settle(self) -> None:
        """Waits for nothing: a commit that is cancelled is done again."""

    async def close(self) -> None:
        """Closes nothing."""


class TransactionCommits:
    """Commits results and offsets together.

    Invariants:
        - one transaction at a time;
        - a result is sent when all records before its own, in that partition, are done with, so that no offset is behind it;
        - once it is not known whether a transaction is committed, none follows.

    Args:
        servers: The brokers to ask first.
        name: The transactional id, unless the settings have one.
        settings: Further settings of the producer.
        security: How the producer and brokers are believed by each other; None: plain text.

    Raises:
        ConfigError: One of them is the worker's own business.
    """

    def __init__(
        self, servers: str | Sequence[str], name: str, settings: Mapping[str, Any], security: Security | None = None
    ) -> None:
        if wrong := settings.keys() & _OWN:
            raise ConfigError(
                "producer.settings", min(wrong), f"producer_settings has {min(wrong)}, which the worker sets itself"
            )
        given = {"transactional_id": name, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **settings}
        if given["transactional_id"] is None:
            raise ConfigError(
                "transactional.id",
                None,
                "producer_settings has no transactional_id, and exactly_once needs one: leave it out, and the worker makes one",
            )
        self._max_record_bytes = given.pop("max_request_bytes", DEFAULTS.max_request_bytes)
        require_at_least("max.request.bytes", self._max_record_bytes, 256, MAX_REQUEST_BYTES_MAX)
        self._servers = servers
        self._settings = {**given, "security": security}
        self._new_producer()  # so that a wrong setting is told at once
        self.producer: Producer | None = None
        self.is_due = asyncio.Event()
        self._due_count = self._due_bytes = 0
        self._is_failing = False
        self._is_over = False
        self._lock = asyncio.Lock()

    def _new_producer(self) -> Producer:
        return Producer(  # how large a dead letter may be is for its topic to say
            self._servers,
            max_request_bytes=MAX_REQUEST_BYTES_MAX,
            buffer_memory_bytes=2 * MAX_REQUEST_BYTES_MAX,
            **self._settings,
        )

    @property
    def pause_s(self) -> float:
        """The pause before the next transaction."""
        return FAILURES_PAUSE_S if self._is_failing else TRANSACTION_S

    async def start(self) -> None:
        """Takes over the transactional id, which aborts what was left open with it.  Raises: As `Producer.start`."""
        self.producer = self._new_producer()
        await self.producer.start()

    def results(self) -> Results | None:
        """Returns what a handler sends with."""
        return Results(self._max_record_bytes)

    async def check(self, records: Iterable[ResultRecord]) -> None:
        """Refuses results that cannot be written, while that is one record's failure and not the transaction's.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic or partition.
            RecordTooLargeError: One is larger than its topic takes.
            InvalidRecordError: One has no key, and its topic is compacted.
            ReplogError: No broker answers.
        """
        producer, given = self._started(), tuple(records)
        for topic, partition in dict.fromkeys((each.topic, each.partition) for each in given):
            count = len(await producer.partitions_for(topic))
            if partition is not None:
                require_partition(topic, count, partition)
        limits = {topic: await producer.message_bytes_max(topic) for topic in {each.topic for each in given}}
        keyed = {topic for topic in limits if await producer.needs_keys(topic)}
        for each in given:
            self._require_fitting(each, limits[each.topic])
            if each.key is None and each.topic in keyed:
                raise InvalidRecordError(
                    f"a result for {each.topic} has no key, and that topic is compacted: give it one, by `results.send(..., key=...)`"
                )

    def _require_fitting(self, result: ResultRecord, bytes_max: int) -> None:
        """Refuses a result that is larger than its topic takes, as the broker would: by the size of a batch of it alone."""
        if result.size_bytes <= bytes_max:  # nearly always
            return
        record = (0, result.key, result.value, result.headers)
        size_bytes = len(encode_batch([record], codec=self._started().config.codec))
        if size_bytes > bytes_max:
            raise RecordTooLargeError(
                f"a result for {result.topic} takes {size_bytes} bytes, and max.message.bytes of that topic is {bytes_max}: make it "
                "smaller, or raise the topic's limit"
            )

    def note(self, records: Collection[ResultRecord]) -> None:
        """Counts results that are ready, and lets many not wait any longer."""
        self._due_count += len(records)
        self._due_bytes += sum(each.size_bytes for each in records)
        if self._due_count >= TRANSACTION_RECORDS or self._due_bytes >= TRANSACTION_BYTES:
            self.is_due.set()

    async def commit(self, consumer: OffsetsSource, partitions: Iterable[Assigned]) -> bool:
        """Commits what is done with, and its results; where that fails, they are sent anew the next time.

        Args:
            consumer: The consumer.
            partitions: The partitions, looked at when no other transaction is open.

        Returns:
            Whether results are held no more.

        Raises:
            ReplogError: Another transaction would be of no use, or may write again what is committed.
        """
        async with self._lock:
            wanted = {each: offset for each in partitions if (offset := each.to_commit) is not None}
            if self._is_over or not wanted:
                return False
            self._due_count = self._due_bytes = 0
            parts = [(each, done) for each in wanted for done in each.ready]
            self._is_over = True  # until it is known what has become of it, also where this is cancelled
            try:
                await self._commit(consumer, wanted, parts)
            except ReplogError as error:
                if not _is_passing(error):
                    raise
                _log.warning("a transaction was aborted; what is still this worker's is in the next one: %s", error)
                self._is_over, self._is_failing = False, True
                return False
            self._is_over = self._is_failing = False
            return bool(parts)

    async def _commit(self, consumer: OffsetsSource, wanted: Mapping[Assigned, int], parts: Sequence[_Part]) -> None:
        """Commits offsets and the results up to them; where a topic refuses some of these, halves, until it is known whose they are.

        Args:
            consumer: The consumer.
            wanted: The offsets.
            parts: The records with results below the offsets, in order.

        Raises:
            HandlerFailedError: A record's results are refused, and there is nowhere to go with it.
            ReplogError: As `commit`; what was committed before is noted.
        """
        try:
            await self._carry_out(_Holding(consumer, wanted), [each for _, done in parts for each in done.results])
        except ReplogError as error:
            refusal = _cause_of(error)
            if not isinstance(refusal, _REFUSALS) or not parts:
                raise
            if len(parts) == 1:
                done = parts[0][1]
                if done.give_up is None:
                    raise
                done.results, done.give_up = done.give_up(refusal), None
                await self._commit(consumer, wanted, parts)
                return
            middle = len(parts) // 2
            for half in (parts[:middle], parts[middle:]):
                await self._commit(consumer, {each: done.end_offset for each, done in half}, half)
            return
        counts = Counter(each for each, _ in parts)
        for partition, offset in wanted.items():
            partition.commit(offset, counts[partition])

    async def _carry_out(self, holding: _Holding, results: Iterable[ResultRecord]) -> None:
        producer = self._started()
        holding.member_offsets()  # else what was sent for nothing would be aborted
        async with producer.transaction() as transaction:
            for each in results:
                await producer.send(each.topic, each.value, each.key, each.partition, each.timestamp_ms, each.headers)
            await transaction.commit_offsets(holding)

    def _started(self) -> Producer:
        if self.producer is None:
            raise InvalidRequestError("the worker has not started")
        return self.producer

    async def settle(self) -> None:
        """Waits for the end of the transaction that is open: who cancels that does not know what becomes of it."""
        async with self._lock:
            pass

    async def close(self) -> None:
        """Closes the producer."""
        if self.producer is not None:
            await self.producer.close()


class _Holding:
    """A consumer that says nothing for partitions that were lost, also where they have come back: others have read them meanwhile.

    Args:
        consumer: The consumer.
        wanted: The offsets to commit.
    """

    def __init__(self, consumer: OffsetsSource, wanted: Mapping[Assigned, int]) -> None:
        self._consumer = consumer
        self._wanted = wanted

    def member_offsets(self, _: Mapping[tuple[str, int], int] | None = None) -> MemberOffsets:
        """Returns the offsets, and the member that may commit them.  Raises: CommitStaleError: A partition is not its own any more."""
        for each in self._wanted:
            if each.is_lost:
                raise CommitStaleError(
                    f"{each.partition} was lost to another member, which handles its records", each.partition
                )
        return self._consumer.member_offsets({each.partition: offset for each, offset in self._wanted.items()})


def _cause_of(error: BaseException) -> BaseException:
    """Returns what has aborted a transaction."""
    while isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_passing(error: ReplogError) -> bool:
    """Whether a transaction that has failed was certainly aborted, and the next one may be committed."""
    return isinstance(_cause_of(error), (TransactionAbortableError, *_PASSING))


def commits_of(
    servers: str | Sequence[str],
    group: str,
    instance_id: str | None,
    *,
    is_exactly_once: bool,
    producer_settings: Mapping[str, Any] | None,
    security: Security | None = None,
) -> Commits:
    """Returns what commits for a worker.

    Args:
        servers: The brokers to ask first.
        group: The name of the group.
        instance_id: The member's own name in it, which stays the same from start to start; None: it has none.
        is_exactly_once: Whether results and offsets are committed together.
        producer_settings: Further settings of the producer.
        security: How the producer and brokers are believed by each other; None: plain text.

    Raises:
        ConfigError: A setting is wrong.
    """
    if is_exactly_once:
        name = f"{group}-{uuid4().hex if instance_id is None else instance_id}"
        return TransactionCommits(servers, name, producer_settings or {}, security)
    if producer_settings is not None:
        raise ConfigError(
            "producer.settings",
            producer_settings,
            "producer_settings are those of the producer of exactly_once=True: set that, or leave them out",
        )
    return OffsetCommits()
