"""The produce and fetch paths with a clock around them.

::

    submit ---- queue ----> the driver takes it up ---- local ----> checked, appended or read ---- remote ----> answer

`remote` is what the answer waits for: other replicas, new records, a cold read; 0 where it left within `local`.  A
follower's incremental fetches wait on purpose until there is news, several requests for one answer: only their total is
measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector

from replog._version import __version__
from replog.broker.requests.fetch_path import FetchPath, Withdraw
from replog.broker.requests.incremental_fetch import IncrementalFetch
from replog.broker.requests.produce_path import ProducePath
from replog.errors import ErrorCode
from replog.replication.fetch_positions import FetchPositions
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from replog.waiting.unread_answers import UnreadAnswer

# What is measured when it happens.  Everything else is read from the state when a scrape asks (`readings`).

PRODUCE = "produce"
FETCH_CONSUMER = "fetch_consumer"
FETCH_FOLLOWER = "fetch_follower"

QUEUE = "queue"
LOCAL = "local"
REMOTE = "remote"
TOTAL = "total"

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """Histograms and counters of one node, in a registry of its own: two nodes of one process share nothing.

    Attributes:
        registry: The registry of everything that is exported.
        request_seconds: The time that requests take, by request and stage.
        fsync_seconds: The time that the flush of one log takes.
        produced_bytes: The bytes of record batches that were appended.
        fetched_bytes: The bytes of record batches that were sent, by reader.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("replog_build", "The version that runs.", registry=self.registry).info({"version": __version__})
        self.request_seconds = Histogram(
            "replog_request_seconds",
            "Time of requests on this broker, by stage.",
            ("request", "stage"),
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.fsync_seconds = Histogram(
            "replog_fsync_seconds",
            "Time to bring one log to stable storage.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.produced_bytes = Counter(
            "replog_produced_bytes", "Bytes of record batches that producers had appended.", registry=self.registry
        )
        self.fetched_bytes = Counter(
            "replog_fetched_bytes", "Bytes of record batches that were sent.", ("reader",), registry=self.registry
        )


class RequestTimes:
    """The stages of one kind of request; looked up once, since requests are many."""

    def __init__(self, instruments: Instruments, request: str) -> None:
        def stage(name: str) -> Histogram:
            return instruments.request_seconds.labels(request, name)

        self.queue = stage(QUEUE)
        self.local = stage(LOCAL)
        self.remote = stage(REMOTE)
        self.total = stage(TOTAL)


Response = TypeVar("Response")

Clock = Callable[[], float]
"""Seconds, monotonic."""


class Timed(Generic[Response]):
    """The answer of one request that notes when its stages end.

    Args:
        answer: The function that takes the response.
        times: The histograms of this kind of request.
        count: The function that is told the response, to count its bytes.
        now_s: The clock.
    """

    __slots__ = ("_answer", "_begun_s", "_count", "_is_answered", "_local_s", "_now_s", "_submitted_s", "_times")

    def __init__(
        self,
        answer: Callable[[Response], None],
        times: RequestTimes,
        count: Callable[[Response], None],
        now_s: Clock,
    ) -> None:
        self._answer = answer
        self._times = times
        self._count = count
        self._now_s = now_s
        self._submitted_s = now_s()
        self._begun_s = self._submitted_s
        self._local_s: float | None = None
        self._is_answered = False

    def begin(self) -> None:
        """Marks that the driver takes the request up."""
        self._begun_s = self._now_s()
        self._times.queue.observe(self._begun_s - self._submitted_s)

    def end_local(self) -> None:
        """Marks that all the driver can do at once is done."""
        now_s = self._local_s = self._now_s()
        self._times.local.observe(now_s - self._begun_s)
        if self._is_answered:
            self._times.remote.observe(0)

    def __call__(self, response: Response) -> None:
        now_s = self._now_s()
        self._is_answered = True
        if self._local_s is not None:
            self._times.remote.observe(now_s - self._local_s)
        self._times.total.observe(now_s - self._submitted_s)
        self._count(response)
        self._answer(response)


class MeteredProducePath:
    """A produce path that is measured."""

    def __init__(self, path: ProducePath, instruments: Instruments, now_s: Clock = time.perf_counter) -> None:
        self._path = path
        self._times = RequestTimes(instruments, PRODUCE)
        self._bytes = instruments.produced_bytes
        self._now_s = now_s
        path.on_begin = _begin_all
        path.on_appended = _end_all

    def submit(
        self,
        request: ProduceRequest,
        answer: Callable[[ProduceResponse], None],
        caller: object = None,
        add_time: Callable[[float], None] | None = None,
    ) -> None:
        def count(response: ProduceResponse) -> None:
            appended = zip(request.batches, response.results, strict=False)
            self._bytes.inc(sum(len(batch) for batch, result in appended if result.error is ErrorCode.NONE))

        self._path.submit(request, Timed(answer, self._times, count, self._now_s), caller, add_time)


def _begin_all(answers: Sequence[Callable[[ProduceResponse], None]]) -> None:
    for answer in answers:
        if isinstance(answer, Timed):
            answer.begin()


def _end_all(answers: Sequence[Callable[[ProduceResponse], None]]) -> None:
    for answer in answers:
        if isinstance(answer, Timed):
            answer.end_local()


class MeteredFetchPath:
    """A fetch path that is measured.

    Args:
        path: The fetch path that does the work.
        on_driver: The function that queues work behind what has been queued; a fetch is one piece of it, so that work
            before and after it sees when it begins and ends.
        instruments: The instruments of the node.
        now_s: The clock.
    """

    def __init__(
        self,
        path: FetchPath,
        on_driver: Callable[[Callable[[], None]], None],
        instruments: Instruments,
        now_s: Clock = time.perf_counter,
    ) -> None:
        self._path = path
        self._on_driver = on_driver
        self._consumer = RequestTimes(instruments, FETCH_CONSUMER)
        self._follower = RequestTimes(instruments, FETCH_FOLLOWER)
        self._consumer_bytes = instruments.fetched_bytes.labels("consumer")
        self._follower_bytes = instruments.fetched_bytes.labels("follower")
        self._now_s = now_s
        self._asked_s: dict[IncrementalFetch, float] = {}

    def submit(
        self,
        request: FetchRequest,
        answer: Callable[[FetchResponse], None],
        unread: UnreadAnswer | None = None,
        session: FetchPositions[FetchPartition] | None = None,
    ) -> Withdraw:
        is_consumer = request.replica_id == CONSUMER_REPLICA_ID
        sent = self._consumer_bytes if is_consumer else self._follower_bytes
        times = self._consumer if is_consumer else self._follower
        timed: Timed[FetchResponse] = Timed(answer, times, lambda response: sent.inc(_size(response)), self._now_s)
        self._on_driver(timed.begin)
        withdraw = self._path.submit(request, timed, unread, session)
        self._on_driver(timed.end_local)
        return withdraw

    @property
    def incremental(self) -> MeteredFetchPath:
        """Where a stream opens an incremental fetch."""
        return self

    def open(self, answer: Callable[[FetchResponse], None], merged: Callable[[], None]) -> IncrementalFetch:
        """Opens an incremental fetch whose answers are measured (see `IncrementalFetches.open`)."""

        def timed(response: FetchResponse) -> None:
            asked_s = self._asked_s.pop(fetch, None)
            if asked_s is not None:
                self._follower.total.observe(self._now_s() - asked_s)
            self._follower_bytes.inc(_size(response))
            answer(response)

        fetch = self._path.incremental.open(timed, merged)
        return fetch

    def submit_incremental(self, fetch: IncrementalFetch, request: FetchRequest) -> None:
        self._asked_s.setdefault(fetch, self._now_s())
        self._path.submit_incremental(fetch, request)

    def close_incremental(self, fetch: IncrementalFetch) -> None:
        self._asked_s.pop(fetch, None)
        self._path.close_incremental(fetch)


def _size(response: FetchResponse) -> int:
    return sum(map(len, response.batches))
