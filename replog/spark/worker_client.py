"""The way from Spark's Python processes to brokers: one loop thread and one view of the cluster per process.

Spark reuses its worker processes, so what is opened here serves many tasks; it is opened after the fork, in the worker,
and never pickled.  Everything asynchronous stays in the loop's thread: a task is a plain generator.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec.structs import replace

from replog.client.cluster.view import ClusterView
from replog.client.sync.loop_thread import LoopThread
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    InconsistentClusterIdError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.spark.direct_reads import DirectRead, ReplicaFinder
from replog.spark.options import ReadOptions
from replog.spark.pieces import Encoded, Piece, coalesce
from replog.spark.python_worker import tune_worker
from replog.spark.range_reader import RangeReader
from replog.spark.read_ahead import Stop
from replog.spark.snapshot import CONNECT_TIMEOUT_MS, OffsetRange, PinnedOffsets, resolve_snapshot
from replog.spark.transport import RangeOptions

T = TypeVar("T")

CLIENT_ID = "replog-spark"
CLOSE_TIMEOUT_S = 5.0


def fetch_snapshot(options: ReadOptions) -> PinnedOffsets:
    """Resolves a snapshot with a view of its own: what a process remembers of a cluster may be of an earlier one.

    Raises:
        ConfigError: No broker answers, or the options do not fit the cluster.
        ReplogError: Whatever else `resolve_snapshot` raises.
    """

    async def resolve(view: ClusterView) -> PinnedOffsets:
        return await resolve_snapshot(view, options, now_ms())

    pinned = ask_cluster(options.bootstrap_servers, resolve)
    tune_worker()
    return pinned


def require_topic(bootstrap_servers: str, topic: str) -> None:
    """Looks whether the topic exists that a write names.

    Raises:
        ConfigError: No broker answers.
        UnknownTopicOrPartitionError: It does not.
        ReplogError: Whatever else an answer raises.
    """

    async def look(view: ClusterView) -> None:
        await view.ready(CONNECT_TIMEOUT_MS)
        await view.topic_or_raise(topic)

    try:
        ask_cluster(bootstrap_servers, look)
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicOrPartitionError(f"topic: {error}") from None


def now_ms() -> int:
    """Returns the time by this machine's clock, in milliseconds since 1970."""
    return int(time.time() * 1000)


def ask_cluster(bootstrap_servers: str, ask: Callable[[ClusterView], Awaitable[T]]) -> T:
    """Asks something of a cluster with a view of its own; `ask` opens it.

    Raises:
        ConfigError: No broker answers.
        ReplogError: Whatever else `ask` raises.
    """

    async def run() -> T:
        view = ClusterView(bootstrap_servers, client_id=CLIENT_ID)
        try:
            return await ask(view)
        except RequestTimedOutError as error:
            if view.cluster_id:
                raise
            raise unreachable(bootstrap_servers, error) from None
        finally:
            await view.close()

    return loop_thread().run(run)


class WorkerClient:
    """Reads ranges from one cluster, for the tasks of this process.

    Args:
        bootstrap_servers: The brokers to begin with, "host:port,host:port".
        cluster_id: The cluster of the snapshot; another one at the same address is refused.

    Raises:
        ConfigError: No broker answers.
        InconsistentClusterIdError: Another cluster is at that address.
        MalformedFrameError, UnsupportedVersionError: What answers there is no broker, or one that is too old.
    """

    def __init__(self, bootstrap_servers: str, cluster_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.cluster_id = cluster_id
        self._readers: set[RangeReader] = set()
        self._thread = loop_thread()
        self._view = self._thread.run(self._connect)
        self._finder = ReplicaFinder(self._view)

    def close(self) -> None:
        """Closes the connections; no range may be open."""
        self._thread.run(self._view.close)

    @contextmanager
    def open_range(self, wanted: OffsetRange, options: RangeOptions, stop: Stop) -> Iterator[Iterator[Encoded]]:
        """Reads the record batches of `wanted`: from files where they can be read here, else fetched ahead within a bound.

        What the iterator yields has to be decoded before the next is asked for.  `stop` ends its waiting for brokers.

        Raises:
            ReplogError: Whatever `RangeReader` raises, from the iterator.
        """
        pieces = self._pieces(wanted, options, stop)
        try:
            yield pieces
        finally:
            pieces.close()

    def _pieces(self, wanted: OffsetRange, options: RangeOptions, stop: Stop) -> Generator[Encoded, None, None]:
        position = wanted.start_offset
        if options.transport.direct_reads:
            direct = DirectRead(
                wanted,
                lambda offset: self._thread.run(lambda: self._finder.locate(wanted, offset)),
                is_checked=options.transport.verify_crc,
            )
            yield from direct.pieces()
            position = direct.position
        if position < wanted.end_offset:
            fetched = self._fetched(replace(wanted, start_offset=position), options, stop)
            try:
                yield from coalesce(fetched, is_checked=not options.transport.verify_crc)
            finally:
                fetched.close()

    def _fetched(self, wanted: OffsetRange, options: RangeOptions, stop: Stop) -> Generator[Piece, None, None]:
        reader = self._thread.run(lambda: self._open_reader(wanted, options))
        try:
            with stop.waking(lambda: self._give_up(reader)):
                while (piece := self._thread.run(reader.next_piece)) is not None:
                    yield piece
        finally:
            with suppress(TimeoutError):  # the process may be ending, and the loop's thread with it
                self._thread.run(lambda: self._close_reader(reader), CLOSE_TIMEOUT_S)

    def _give_up(self, reader: RangeReader) -> None:
        with suppress(BrokerClosedError):  # the loop's thread has ended, and the waiting with it
            self._thread.post(reader.give_up)

    # ---- in the loop's thread ----------------------------------------------------------------------------------------

    async def _connect(self) -> ClusterView:
        view = ClusterView(self._bootstrap_servers, client_id=CLIENT_ID)
        try:
            await view.ready(CONNECT_TIMEOUT_MS)
            self._check_cluster(view.cluster_id)
        except RequestTimedOutError as error:
            await view.close()
            raise unreachable(self._bootstrap_servers, error) from None
        except BaseException:
            await view.close()
            raise
        view.add_listener(self._handle_metadata)
        return view

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self.cluster_id:
            raise InconsistentClusterIdError(
                f"{self._bootstrap_servers} is cluster {cluster_id} now, the DataFrame was made from cluster "
                f"{self.cluster_id}. Make the DataFrame anew."
            )

    async def _open_reader(self, wanted: OffsetRange, options: RangeOptions) -> RangeReader:
        reader = RangeReader(
            self._view,
            wanted,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_timeout_ms=options.poll_timeout_ms,
            client_rack=options.transport.client_rack,
        )
        try:
            await reader.start()
        except BaseException:
            await reader.close()
            raise
        self._readers.add(reader)
        return reader

    async def _close_reader(self, reader: RangeReader) -> None:
        self._readers.discard(reader)
        await reader.close()

    def _handle_metadata(self) -> None:
        for reader in list(self._readers):
            reader.handle_metadata()


class _Process:
    """What this process keeps open between tasks."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.thread = LoopThread.acquire(self)  # kept for good: the next task needs it
        self.clients: dict[str, WorkerClient] = {}


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


def client_for(bootstrap_servers: str, cluster_id: str) -> WorkerClient:
    """Returns this process's client of that cluster, made on first use.

    Raises:
        ReplogError: Whatever `WorkerClient` raises.
    """
    with _lock:
        clients = _this_process().clients
        former = clients.get(bootstrap_servers)
        if former is not None and former.cluster_id == cluster_id:
            return former
        client = clients[bootstrap_servers] = WorkerClient(bootstrap_servers, cluster_id)
        if former is not None:
            former.close()
        return client


def close_clients() -> None:
    """Closes all that was opened in this process; for tests and tools that clean up after themselves."""
    global _process  # noqa: PLW0603 -- see above
    with _lock:
        if _process is None:
            return
        for client in _process.clients.values():
            client.close()
        LoopThread.release(_process)
        _process = None


def unreachable(bootstrap_servers: str, error: RequestTimedOutError) -> ConfigError:
    """Returns the error where no broker has ever answered."""
    return ConfigError(
        "bootstrap.servers",
        bootstrap_servers,
        f"{error}. Check that bootstrap.servers ({bootstrap_servers}) names brokers that run and can be reached from "
        "where Spark runs.",
    )
