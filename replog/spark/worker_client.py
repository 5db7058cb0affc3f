"""The way from Spark's Python processes to brokers: one loop thread and one view of the cluster per process.

Spark reuses its worker processes, so what is opened here serves many tasks; it is opened after the fork, in the worker,
and never pickled.  Everything asynchronous stays in the loop's thread: a task is a plain generator.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from replog.client.cluster.view import ClusterView
from replog.client.ranges import range_client
from replog.client.ranges.range_client import CONNECT_TIMEOUT_MS, RangeClient
from replog.client.sync.loop_thread import LoopThread
from replog.errors import UnknownTopicOrPartitionError
from replog.spark.options import ReadOptions
from replog.spark.options.brokers import Brokers
from replog.spark.python_worker import tune_worker
from replog.spark.snapshot import PinnedOffsets, resolve_snapshot
from replog.spark.words import WORDS

if TYPE_CHECKING:
    from replog.client.producer.producer import Producer

T = TypeVar("T")

CLIENT_ID = "replog-spark"


def fetch_snapshot(options: ReadOptions) -> PinnedOffsets:
    """Resolves a snapshot with a view of its own: what a process remembers of a cluster may be of an earlier one.

    Raises:
        ConfigError: No broker answers, or the options do not fit the cluster.
        ReplogError: Whatever else `resolve_snapshot` raises.
    """

    async def resolve(view: ClusterView) -> PinnedOffsets:
        return await resolve_snapshot(view, options, now_ms())

    pinned = ask_cluster(options.brokers, resolve)
    tune_worker()
    return pinned


def find_cluster(brokers: Brokers, topic: str | None) -> str:
    """Returns the id of the cluster to which rows are to be written.

    Args:
        brokers: Its brokers.
        topic: The topic that has to exist there; None: any.

    Raises:
        ConfigError: No broker answers.
        UnknownTopicOrPartitionError: There is no such topic.
        ReplogError: Whatever else an answer raises.
    """

    async def look(view: ClusterView) -> str:
        await view.ready(CONNECT_TIMEOUT_MS)
        if topic is not None:
            await view.topic_or_raise(topic)
        return view.cluster_id

    try:
        return ask_cluster(brokers, look)
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicOrPartitionError(f"topic: {error}") from None


def now_ms() -> int:
    """Returns the time by this machine's clock, in milliseconds since 1970."""
    return int(time.time() * 1000)


def ask_cluster(brokers: Brokers, ask: Callable[[ClusterView], Awaitable[T]]) -> T:
    """Asks something of a cluster with a view of its own, as `range_client.ask_cluster` does."""
    return loop_thread().run(
        lambda: range_client.ask_cluster(
            brokers.servers, ask, client_id=CLIENT_ID, words=WORDS, security=brokers.security
        )
    )


class _Process:
    """What this process keeps open between tasks."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.thread = LoopThread.acquire(self)  # kept for good: the next task needs it
        self.clients: dict[Brokers, RangeClient] = {}
        self.views: dict[Brokers, ClusterView] = {}
        self.producer: tuple[object, Producer] | None = None


_process: _Process | None = None
_lock = threading.RLock()


def _this_process() -> _Process:
    global _process  # noqa: PLW0603 -- one per process is the point
    if _process is None or _process.pid != os.getpid():  # a fork: the parent's threads and connections are not ours
        _process = _Process()
    return _process


def loop_thread() -> LoopThread:
    """Returns the loop thread of this process."""
    with _lock:
        return _this_process().thread


def client_for(brokers: Brokers, cluster_id: str) -> RangeClient:
    """Returns this process's client of that cluster, made on first use.

    Raises:
        ReplogError: Whatever `RangeClient` raises.
    """
    with _lock:
        clients = _this_process().clients
        former = clients.get(brokers)
        if former is not None and former.cluster_id == cluster_id:
            return former
        client = clients[brokers] = RangeClient(
            _this_process().thread,
            brokers.servers,
            cluster_id,
            client_id=CLIENT_ID,
            words=WORDS,
            security=brokers.security,
        )
        if former is not None:
            former.close()
        return client


@asynccontextmanager
async def kept_view(brokers: Brokers) -> AsyncIterator[ClusterView]:
    """Lends this process's view of a cluster for short questions, made on first use; in the loop's thread.

    One with which a question has failed is not kept: what a process remembers of a cluster may be of an earlier one.

    Raises:
        RequestTimedOutError: No broker answers.
    """
    views = _this_process().views
    view = views.pop(brokers, None) or ClusterView(brokers.servers, security=brokers.security, client_id=CLIENT_ID)
    try:
        await view.ready(CONNECT_TIMEOUT_MS)
        yield view
    except BaseException:
        await view.close()
        raise
    former = views.setdefault(brokers, view)
    if former is not view:  # another question at the same time has made one
        await view.close()


async def lent_producer(terms: object, make: Callable[[], Producer]) -> Producer:
    """Lends this process's producer, or a new one where it has none on these terms; in the loop's thread.

    Whoever has it hands it back to `keep_producer` if all that it was given is acknowledged, and closes it otherwise: what is left of a
    task that has failed must not be sent by the next one, and what a process remembers of a cluster may be of an earlier one.

    Args:
        terms: What the producer is for, and how it is set up.
        make: The function that makes one.
    """
    process = _this_process()
    kept, process.producer = process.producer, None
    if kept is not None and kept[0] == terms:
        return kept[1]
    if kept is not None:
        await kept[1].close(timeout_ms=0)
    return make()


async def keep_producer(terms: object, producer: Producer) -> None:
    """Keeps a producer that `lent_producer` has lent for the next task, instead of the one that is there; in the loop's thread."""
    process = _this_process()
    former, process.producer = process.producer, (terms, producer)
    if former is not None:
        await former[1].close(timeout_ms=0)


def close_clients() -> None:
    """Closes all that was opened in this process; for tests and tools that clean up after themselves."""
    global _process  # noqa: PLW0603 -- see above
    with _lock:
        if _process is None:
            return
        for client in _process.clients.values():
            client.close()
        for view in _process.views.values():
            _process.thread.run(view.close)
        if _process.producer is not None:
            _process.thread.run(_process.producer[1].close)
        LoopThread.release(_process)
        _process = None
