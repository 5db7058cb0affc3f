"""The way from plain generators to brokers: a view of one cluster in the thread of an event loop, and ranges read through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from replog.client.cluster.view import ClusterView
from replog.client.ranges.direct_reads import DirectRead, ReplicaFinder
from replog.client.ranges.offset_range import Encoded, OffsetRange, Piece, RangeWords, coalesce
from replog.client.ranges.range_reader import RangeReader
from replog.client.ranges.read_ahead import Stop
from replog.client.ranges.transport import RangeOptions
from replog.client.sync.loop_thread import LoopThread
from replog.errors import BrokerClosedError, ConfigError, InconsistentClusterIdError, RequestTimedOutError

if TYPE_CHECKING:
    from replog.client.security.security import Security

T = TypeVar("T")

CONNECT_TIMEOUT_MS = 5_000
"""How long the first answer of a broker may take: with what Spark adds, a wrong port is told within ten seconds."""

CLOSE_TIMEOUT_S = 5.0
"""How long the end of a range may take, in seconds."""


async def ask_cluster(
    bootstrap_servers: str,
    ask: Callable[[ClusterView], Awaitable[T]],
    *,
    client_id: str,
    words: RangeWords,
    security: Security | None = None,
) -> T:
    """Asks something of a cluster with a view of its own; `ask` opens it.

    Raises:
        ConfigError: No broker answers.
        ReplogError: Whatever else `ask` raises.
    """
    view = ClusterView(bootstrap_servers, security=security, client_id=client_id)
    try:
        return await ask(view)
    except RequestTimedOutError as error:
        if view.cluster_id:
            raise
        raise unreachable(bootstrap_servers, error, words) from None
    finally:
        await view.close()


class RangeClient:
    """Reads ranges from one cluster, for any number of threads that wait.

    Args:
        thread: The thread of the event loop; no call comes from it.
        bootstrap_servers: The brokers to begin with, "host:port,host:port".
        cluster_id: The cluster of the snapshot; another one at the same address is refused.
        client_id: The name of this client in the brokers' logs.
        words: How errors are told.
        security: How this client and brokers are believed by each other; None: plain text.

    Raises:
        ConfigError: No broker answers.
        InconsistentClusterIdError: Another cluster is at that address.
        MalformedFrameError, UnsupportedVersionError: What answers there is no broker, or one that is too old.
    """

    def __init__(
        self,
        thread: LoopThread,
        bootstrap_servers: str,
        cluster_id: str,
        *,
        client_id: str,
        words: RangeWords,
        security: Security | None = None,
    ) -> None:
        self._security = security
        self._bootstrap_servers = bootstrap_servers
        self.cluster_id = cluster_id
        self._readers: set[RangeReader] = set()
        self._client_id = client_id
        self._words = words
        self._thread = thread
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
        view = ClusterView(self._bootstrap_servers, security=self._security, client_id=self._client_id)
        try:
            await view.ready(CONNECT_TIMEOUT_MS)
            self._check_cluster(view.cluster_id)
        except RequestTimedOutError as error:
            await view.close()
            raise unreachable(self._bootstrap_servers, error, self._words) from None
        except BaseException:
            await view.close()
            raise
        view.add_listener(self._handle_metadata)
        return view

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self.cluster_id:
            raise InconsistentClusterIdError(
                f"{self._bootstrap_servers} is cluster {cluster_id} now, and was cluster {self.cluster_id} when "
                f"{self._words.planned}. {self._words.after_loss}"
            )

    async def _open_reader(self, wanted: OffsetRange, options: RangeOptions) -> RangeReader:
        reader = RangeReader(
            self._view,
            wanted,
            fail_on_data_loss=options.fail_on_data_loss,
            words=self._words,
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


def unreachable(bootstrap_servers: str, error: RequestTimedOutError, words: RangeWords) -> ConfigError:
    """Returns the error where no broker has ever answered."""
    return ConfigError(
        "bootstrap.servers",
        bootstrap_servers,
        f"{error}. Check that bootstrap.servers ({bootstrap_servers}) names brokers that run and can be reached from "
        f"{words.reachable_from}.",
    )
