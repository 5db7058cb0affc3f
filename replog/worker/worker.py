"""`Worker`: hands the records of topics to a handler, and commits what it is done with.

One task polls the consumer.  Each record waits in a lane, the records that must be handled in order: those of its partition, or
those of its partition with its key.  A lane has a task as long as it has records, and hands over one after the other; a
semaphore bounds how many handlers run.  A partition's offset is committed up to the first record that is not done with, with
`exactly_once` in a transaction that has the results of the records below it, too (`replog.worker.commits`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, TypeAlias, cast, get_args

from replog.client.arguments import require_text, texts_of
from replog.client.backoff import Backoff
from replog.client.consumer.consumer import Consumer
from replog.client.consumer.group_settings import MAX_POLL_INTERVAL_MS, AssignmentListener
from replog.client.settings import refuse_unknown
from replog.client.typed_records import RecordDecoder
from replog.client.types import ConsumerRecord, K, TopicPartition, V
from replog.codecs import ValueCodec
from replog.errors import (
    ConfigError,
    InvalidRequestError,
    RecordDecodeError,
    ReplogError,
)
from replog.errors.choices import require_at_least, require_choice, require_kind
from replog.errors.texts import error_text
from replog.worker.assigned import Assigned, GiveUp
from replog.worker.commits import commits_of
from replog.worker.failed_records import FailedRecords
from replog.worker.handlers import CodecNotReadyError, Handler, check_handler, decoding, is_async
from replog.worker.observer import WorkerObserver
from replog.worker.results import ResultRecord, Results
from replog.worker.threads import DaemonThreads
from replog.worker.tracing import Spans

if TYPE_CHECKING:
    from replog.client.security.security import Security

Order: TypeAlias = Literal["partition", "key"]

Undecodable: TypeAlias = Literal["raise", "skip", "dead_letter"]

_Lane: TypeAlias = tuple[TopicPartition, bytes | None]

BUFFER_RECORDS: Final = 500
"""Records that wait for a handler, beside those that the consumer has fetched ahead."""

BUFFER_BYTES: Final = 32 << 20
"""Bytes of them and of results that are not committed, above which no more are asked for: what came together may pass it.  So many bytes
of results let records wait that are not handled yet."""

ENDING_S: Final = 1.0
"""How long handlers that are cancelled may put their things in order."""

COMMITS_PAUSE_S: Final = 0.05
"""How often a record looks whether there is room for its results again."""

POLL_MS: Final = 200

ATTENDANCE_S: Final = 10.0
"""How often the consumer is asked while there is no room for records, so that the group counts this member as alive."""

RETRIES: Final = 3

BACKOFF_MS: Final = 500

BACKOFF_MAX_MS: Final = 60_000

CODEC_PAUSE_S: Final = 1.0
"""The pause before a codec is asked again that could not work."""

NO_RESULTS: Final[Sequence[ResultRecord]] = ()

DRAIN_MS: Final = 20_000
"""Below the 30 s that container runtimes give, with room for the last commit."""

_log = logging.getLogger(__name__)


class Worker(Generic[K, V]):
    """A member of a group that hands each record to a handler.

    Every record is handled at least once; with `exactly_once` what a handler sends by its `Results` is committed once for each record.  One whose handler raises is handled again, after a pause that doubles; when it has failed
    `retries` times more, it goes to the topic of dead letters, or the worker ends with the error and the record stays to be done.
    A record that a codec cannot decode is not handled, and not tried again.

    Args:
        handler: What handles a record; `async` or not.  With `exactly_once` it takes the record and `Results`.
        topics: The topics.
        group: The name of the group; workers with the same one share the partitions.
        bootstrap_servers: The brokers to ask first.
        key, value: What keys and values are: bytes, or what `replog.codecs` decodes them to.
        on_undecodable: What to do about a record that a codec cannot decode: "dead_letter": it goes there at once, as the bytes that it
            is; "raise": the worker ends with RecordDecodeError; "skip": it is left out, counted and told to the log.  None: the first
            where there is a `dead_letter_topic`, else the second.
        concurrency: The most records that are handled at the same time.
        order: "partition": the records of a partition are handled one after the other; "key": those of a partition with the same key
            are, and records without a key in any order.
        retries: How often a record is handled again before it counts as failed.
        retry_backoff_ms: The pause before the first of them; it doubles up to a minute.
        retry_delays: Seconds; a record that has failed is written to the topic `NAME.retry.1`, which must exist, and handled again
            after the first of them, then to `NAME.retry.2`, and so on.  Later records do not wait for it: order is given up.
        dead_letter_topic: The topic for records that have failed after that; it must exist.  None: the worker ends.
        exactly_once: Whether what the handler sends by its `Results`, retries and dead letters are committed with the offset of their
            record, in one transaction.
        producer_settings: With `exactly_once`, further settings of its `Producer`, such as `compression`.  `transactional_id` is the
            group and the `group_instance_id` of `consumer_settings`; without that, a new one at each start.
        observer: What hears what becomes of records, to count and measure.
        drain_timeout_ms: How long handlers may go on working when the worker stops, or a partition goes to another member.
        security: How the worker and brokers are believed by each other (docs/SECURITY_CLIENTS.md); None: plain text.
        consumer_settings: Further settings of the `Consumer`, such as `client_rack`; `auto_offset_reset` is "earliest".

    Raises:
        ConfigError: A setting is wrong.
        TypeError: An argument is of another type.
    """

    def __init__(
        self,
        handler: Handler[K, V],
        topics: str | Iterable[str],
        *misplaced: Never,
        group: str,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        key: type[K] | ValueCodec[K] = bytes,  # type: ignore[assignment]  # which is K where nobody says another one
        value: type[V] | ValueCodec[V] = bytes,  # type: ignore[assignment]  # likewise
        on_undecodable: Undecodable | None = None,
        concurrency: int = 1,
        order: Order = "partition",
        retries: int = RETRIES,
        retry_backoff_ms: int = BACKOFF_MS,
        retry_delays: Iterable[float] = (),
        dead_letter_topic: str | None = None,
        exactly_once: bool = False,
        observer: WorkerObserver | None = None,
        drain_timeout_ms: int = DRAIN_MS,
        security: Security | None = None,
        consumer_settings: Mapping[str, Any] | None = None,
        producer_settings: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(type(self), unknown, misplaced)
        require_choice("exactly.once", exactly_once, (True, False))
        check_handler(handler, 2 if exactly_once else 1)
        require_text("group", group)
        require_at_least("concurrency", concurrency, 1, 10_000)
        require_choice("order", order, get_args(Order))
        require_at_least("retries", retries, 0)
        require_at_least("retry.backoff.ms", retry_backoff_ms, 0, BACKOFF_MAX_MS)
        require_at_least("drain.timeout.ms", drain_timeout_ms, 0)
        self._topics = [topics] if isinstance(topics, str) else list(texts_of("topics", topics))
        self._failed = FailedRecords(
            bootstrap_servers, group, self._topics, retry_delays, dead_letter_topic, security=security
        )
        self._topics += self._failed.retry_topics
        self._settings = {**_own_settings(consumer_settings or {}), "security": security}
        self._commits = commits_of(
            bootstrap_servers,
            group,
            self._settings.get("group_instance_id"),
            is_exactly_once=exactly_once,
            producer_settings=producer_settings,
            security=security,
        )
        self._on_undecodable = _undecodable_or_default(on_undecodable, dead_letter_topic)
        next_step = _how_to_go_on if self._on_undecodable == "raise" else None
        self._decoder = RecordDecoder.of(key, value, is_skipping=False, next_step=next_step)
        self._handle = cast("Callable[..., object]", handler)
        if self._decoder is not None:
            self._handle = decoding(self._decoder, self._handle)
        self._is_async = is_async(handler)
        require_kind("observer", observer := WorkerObserver() if observer is None else observer, WorkerObserver)
        self._observer = observer
        self._spans = Spans(group)
        self._group = group
        self._servers = bootstrap_servers
        self._order = order
        self._retries = retries
        self._backoff_ms = retry_backoff_ms
        self._drain_s = drain_timeout_ms / 1_000
        self._attendance_s = ATTENDANCE_S
        self._consumer: Consumer
        self._held_back: dict[TopicPartition, asyncio.TimerHandle] = {}  # whose next record is a retry that is not due
        self._threads = DaemonThreads(concurrency)
        self._rng = random.Random()  # noqa: S311 -- spreads pauses
        self._slots = asyncio.Semaphore(concurrency)
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._lanes: dict[_Lane, deque[tuple[Assigned, ConsumerRecord]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_count = self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_used = False

    # ---- life ----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Lets the worker end: no handler begins any more, those that run have `drain_timeout_ms`.  Call it in the loop's thread."""
        self._stopping.set()
        self._has_room.set()
        for assigned in self._assigned.values():
            assigned.is_gone.set()

    def _fail(self, error: BaseException) -> None:
        """Lets the worker end with an error, the first one; further ones are told to the log."""
        if self._failure is None:
            self._failure = error
        else:
            _log.error("while the worker ended: %s", error_text(error))
        self.stop()

    async def run(self) -> None:
        """Handles records until `stop` is called; returns when what is done is committed, and the group is left.

        Raises:
            HandlerFailedError: A record has failed, and there is no topic for dead letters.
            ReplogError: The consumer could not go on, or the topic of dead letters could not be written.
            InvalidRequestError: The worker has run already.
        """
        if self._is_used:
            raise InvalidRequestError("a worker runs once: make another one")
        self._is_used = True
        self._consumer = Consumer(self._servers, group_id=self._group, enable_auto_commit=False, **self._settings)
        self._attendance_s = min(ATTENDANCE_S, self._settings["max_poll_interval_ms"] / 3_000)
        committing: asyncio.Task[None] | None = None
        try:
            async with self._consumer:
                await self._commits.start()
                await self._failed.start(self._commits.producer)
                await self._consumer.subscribe(self._topics, listener=_Listener(self))
                committing = asyncio.create_task(self._commit_now_and_then())
                committing.add_done_callback(self._ended)
                try:
                    await self._poll_until_stopped()
                except asyncio.CancelledError:
                    self._drain_s = 0.0  # a caller that cancels does not wait
                    raise
                finally:
                    self.stop()
                    try:
                        await self._drain(self._assigned.values())
                    finally:
                        self._drain_s = 0.0  # partitions that go when the consumer closes are not waited for anew
                        try:
                            await self._commits.settle()
                        finally:
                            committing.cancel()
                    await self._commit(self._assigned.values())
                    self._assigned.clear()
        finally:
            for timer in self._held_back.values():
                timer.cancel()
            self._threads.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:  # each may put its things in order, and none hold up the end
                await asyncio.wait(self._tasks, timeout=ENDING_S)
            await self._failed.close()
            await self._commits.close()
        if self._failure is not None:
            raise self._failure

    # ---- records -------------------------------------------------------------------------------------------------------

    async def _poll_until_stopped(self) -> None:
        while not self._stopping.is_set():
            held_bytes = self._waiting_bytes + self._results_bytes
            room = BUFFER_RECORDS - self._waiting_count if held_bytes < BUFFER_BYTES else 0
            if room > 0:
                self._take_all(await self._consumer.poll(room, POLL_MS))
                continue
            self._has_room.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_room.wait(), self._attendance_s)
            if not self._has_room.is_set():
                await self._attend()

    async def _attend(self) -> None:
        """Asks the consumer for nothing, so that it is counted as alive, and its partitions may come and go."""
        held = [each for each in self._consumer.assignment() if each not in self._held_back]
        if held:
            self._consumer.pause(*held)
        try:
            self._take_all(await self._consumer.poll(1, 0))  # of a partition that has just come
        finally:
            if kept := [each for each in self._consumer.assignment() if each in held and each not in self._held_back]:
                self._consumer.resume(*kept)

    def _take_all(self, records: Sequence[ConsumerRecord]) -> None:
        """Puts records into their lanes, unless no handler begins any more."""
        for record in () if self._stopping.is_set() else records:
            place = TopicPartition(record.topic, record.partition)
            if place in self._held_back or self._hold_back(place, record):
                continue
            assigned = self._assigned.get(place)
            if assigned is None:
                assigned = self._assigned[place] = Assigned(place)
            assigned.take(record.offset)
            self._waiting_count += 1
            self._waiting_bytes += _size(record)
            self._queue(place, assigned, record)

    def _hold_back(self, place: TopicPartition, record: ConsumerRecord) -> bool:
        """Leaves a partition of retries alone until its next record is due, which is read again then; False: it is due."""
        wait_s = self._failed.wait_s(record)
        if wait_s <= 0:
            return False
        self._consumer.seek(place, record.offset)
        self._consumer.pause(place)
        self._held_back[place] = asyncio.get_running_loop().call_later(wait_s, self._read_on, place)
        return True

    def _read_on(self, place: TopicPartition) -> None:
        del self._held_back[place]
        if place in self._consumer.assignment():
            self._consumer.resume(place)

    def _queue(self, place: TopicPartition, assigned: Assigned, record: ConsumerRecord) -> None:
        if self._order == "key" and record.key is None:
            self._start(self._work(assigned, record))
            return
        lane = (place, record.key if self._order == "key" else None)
        if (waiting := self._lanes.get(lane)) is not None:
            waiting.append((assigned, record))
            return
        self._lanes[lane] = deque([(assigned, record)])
        self._start(self._work_off(lane))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self._stopping.is_set():
                self._fail(RuntimeError("a handler has cancelled the task that calls it: raise an error instead"))
        elif (error := task.exception()) is not None:
            self._fail(error)

    async def _work_off(self, lane: _Lane) -> None:
        """Hands the records of a lane over, one after the other, until it has none."""
        waiting = self._lanes[lane]
        try:
            while waiting:
                await self._work(*waiting.popleft())
        finally:
            self._lanes.pop(lane, None)

    async def _work(self, assigned: Assigned, record: ConsumerRecord) -> None:
        """Handles a record until it is done with, or its partition goes."""
        try:
            attempts = 0
            backoff = Backoff(self._rng, min_ms=self._backoff_ms, max_ms=BACKOFF_MAX_MS)
            while not assigned.is_gone.is_set():
                error = await self._attempt(assigned, record, attempts + 1)
                if error is None:
                    return
                if isinstance(error, RecordDecodeError) and error.record is record:  # not one of the handler's own
                    await self._pass_over(assigned, record, error, attempts)
                    return
                if isinstance(error, CodecNotReadyError):
                    pause_s, what = CODEC_PAUSE_S, f"its codec cannot work now ({error})"
                else:
                    attempts += 1
                    if attempts > self._retries:
                        await self._give_up(assigned, record, error, attempts, is_final=False)
                        return
                    pause_s = backoff.next_s()
                    what = f"the handler failed ({error_text(error)}), attempt {attempts} of {self._retries + 1}"
                place = (record.topic, record.partition, record.offset)
                _log.warning("%s-%d offset %d: %s; again in %.1f s", *place, what, pause_s)
                with suppress(TimeoutError):
                    await asyncio.wait_for(assigned.is_gone.wait(), pause_s)
        finally:
            self._waiting_count -= 1
            self._waiting_bytes -= _size(record)
            self._has_room.set()

    async def _attempt(self, assigned: Assigned, record: ConsumerRecord, number: int) -> BaseException | None:
        """Calls the handler once there is a place for it; returns what it raised."""
        await self._wait_for_commits(assigned, record.offset)
        async with self._slots:
            if assigned.is_gone.is_set():
                return None
            assigned.begin()
            begun_s = time.monotonic()
            results, sent = self._commits.results(), NO_RESULTS
            try:
                with self._spans.around(record):
                    await self._call(record, results)
                if results is not None:
                    await self._commits.check(sent := results.end())
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                return self._failed_after(begun_s, record, error)  # it has waited for something that was cancelled
            except (SystemExit, KeyboardInterrupt) as error:  # out of a task it would end the loop at once
                self._fail(error)
                return None
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is its record's failure
                return self._failed_after(begun_s, record, error)
            finally:
                if results is not None:
                    results.end()
                assigned.end()
            self._tell(self._observer.on_handled, record, time.monotonic() - begun_s)
            self._finish(assigned, record, sent, partial(self._refused, record, number))
            return None

    @property
    def _results_bytes(self) -> int:
        """The bytes of results that are not committed."""
        return sum(each.held_bytes for each in self._assigned.values())

    async def _wait_for_commits(self, assigned: Assigned, offset: int) -> None:
        """Waits while so many results are kept that no more may be made, unless none of them can be committed before this record."""
        while self._results_bytes >= BUFFER_BYTES:
            is_needed = assigned.is_first(offset) and not any(each.ready for each in self._assigned.values())
            if is_needed or assigned.is_gone.is_set():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(assigned.is_gone.wait(), COMMITS_PAUSE_S)

    def _finish(
        self,
        assigned: Assigned,
        record: ConsumerRecord,
        results: Sequence[ResultRecord],
        give_up: GiveUp | None = None,
    ) -> None:
        assigned.finish(record.offset, results, give_up, 0 if give_up is None else _size(record))
        if results:
            self._commits.note(results)

    async def _call(self, record: ConsumerRecord, results: Results | None) -> None:
        given = (record,) if results is None else (record, results)
        if self._is_async:
            await cast("Awaitable[object]", self._handle(*given))
            return
        found = await self._threads.run(partial(copy_context().run, self._handle, *given))
        if inspect.isawaitable(found):  # of a lambda or a decorator around an `async` function
            await found

    def _failed_after(self, begun_s: float, record: ConsumerRecord, error: BaseException) -> BaseException:
        if not isinstance(error, CodecNotReadyError):  # else the handler was not called
            self._tell(self._observer.on_failed, record, error, time.monotonic() - begun_s)
        return error

    async def _pass_over(
        self, assigned: Assigned, record: ConsumerRecord, error: RecordDecodeError, attempts: int
    ) -> None:
        """Passes a record that cannot be decoded as `on_undecodable` says.

        Raises:
            RecordDecodeError: It says that the worker ends.
            ReplogError: As `_give_up`.
        """
        if self._on_undecodable == "dead_letter":
            await self._give_up(assigned, record, error, attempts, is_final=True)
            return
        if self._on_undecodable == "raise" or self._decoder is None:
            raise error
        self._decoder.note_skipped(error)
        assigned.finish(record.offset)

    async def _give_up(
        self, assigned: Assigned, record: ConsumerRecord, error: BaseException, attempts: int, *, is_final: bool
    ) -> None:
        """Writes a record to where it goes after it has failed.  Raises: As `FailedRecords.hand_over`."""
        if self._commits.producer is not None:
            self._finish(assigned, record, self._placed(record, error, attempts, is_final=is_final))
            return
        assigned.begin()  # a partition that goes waits for this
        try:
            topic = await self._failed.hand_over(record, error, attempts, is_final=is_final)
        finally:
            assigned.end()
        self._tell(self._observer.on_moved, record, error, topic)
        assigned.finish(record.offset)

    def _placed(
        self, record: ConsumerRecord, error: BaseException, attempts: int, *, is_final: bool
    ) -> Sequence[ResultRecord]:
        """Returns what is to be committed with a record that has failed.  Raises: As `FailedRecords.place`."""
        placed = self._failed.place(record, error, attempts, is_final=is_final)
        self._tell(self._observer.on_moved, record, error, placed.topic)
        return [placed]

    def _refused(self, record: ConsumerRecord, attempts: int, error: BaseException) -> Sequence[ResultRecord]:
        """Lets a record have failed whose results their topic has refused, when its handler had returned."""
        return self._placed(record, error, attempts, is_final=False)

    def _tell(self, hear: Callable[..., None], *facts: object) -> None:
        """Tells the observer."""
        try:
            hear(*facts)
        except Exception:  # noqa: BLE001 -- whatever it raises is no matter of the record's
            _log.exception("the worker's observer failed, which changes nothing for the record")

    # ---- partitions that go, and the end -------------------------------------------------------------------------------

    async def release(self, partitions: Collection[TopicPartition], *, is_lost: bool) -> None:
        """Ends the work on partitions that go: no handler begins, those that run may end, what is done is committed."""
        for each in partitions:
            if (timer := self._held_back.pop(each, None)) is not None:
                timer.cancel()
        going = [assigned for each in partitions if (assigned := self._assigned.pop(each, None)) is not None]
        for assigned in going:
            assigned.is_lost = is_lost
            assigned.is_gone.set()
        if not is_lost:
            await self._drain(going)
            await self._commit(going)

    async def _drain(self, going: Iterable[Assigned]) -> None:
        """Waits until no handler works on these partitions, for `drain_timeout_ms` at most."""
        working = [assigned for assigned in going if not assigned.is_idle.is_set()]
        try:
            async with asyncio.timeout(self._drain_s):
                for assigned in working:
                    await assigned.is_idle.wait()
        except TimeoutError:
            names = ", ".join(str(assigned.partition) for assigned in working if not assigned.is_idle.is_set())
            _log.warning(
                "handlers of %s still run after %g s: their records will be handled again", names, self._drain_s
            )

    async def _commit_now_and_then(self) -> None:
        is_due = self._commits.is_due
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(is_due.wait(), self._commits.pause_s)
            is_due.clear()
            await self._commit(self._assigned.values())

    async def _commit(self, partitions: Iterable[Assigned]) -> None:
        """Commits what is done with."""
        try:
            if await self._commits.commit(self._consumer, partitions):
                self._has_room.set()
        except ReplogError as error:
            self._fail(error)


class _Listener(AssignmentListener):
    """Tells a worker of partitions that go."""

    def __init__(self, worker: Worker[Any, Any]) -> None:
        self._worker = worker

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._worker.release(partitions, is_lost=False)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._worker.release(partitions, is_lost=True)


def _own_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a worker's consumer; raises ConfigError for one that is the worker's own business."""
    if wrong := given.keys() & {
        "group_id",
        "enable_auto_commit",
        "bootstrap_servers",
        "key",
        "value",
        "on_undecodable",
        "security",
    }:
        raise ConfigError(
            "consumer.settings", min(wrong), f"consumer_settings has {min(wrong)}, which the worker sets itself"
        )
    return {"auto_offset_reset": "earliest", "max_poll_interval_ms": MAX_POLL_INTERVAL_MS, **given}


def _undecodable_or_default(given: Undecodable | None, dead_letter_topic: str | None) -> Undecodable:
    """Returns what to do about records that cannot be decoded.  Raises: ConfigError: There is no such thing, or no topic for it."""
    if given is None:
        return "raise" if dead_letter_topic is None else "dead_letter"
    require_choice("on.undecodable", given, get_args(Undecodable))
    if given == "dead_letter" and dead_letter_topic is None:
        raise ConfigError("on.undecodable", given, 'on_undecodable is "dead_letter": name the dead_letter_topic, too')
    return given


def _how_to_go_on(_: ConsumerRecord) -> str:
    return (
        "The record is not committed. Mend the codec and start the worker again, which begins there; or give it a "
        'dead_letter_topic, or on_undecodable="skip"'
    )


def _size(record: ConsumerRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
