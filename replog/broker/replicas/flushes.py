"""When the logs of a broker's replicas are flushed.  Runs on the replica driver.

An acknowledgement asks for a flush through its leader or follower (`RequestFlush`).  Besides, a log is flushed when a segment is
full, by `flush.messages` and `flush.ms`, and before its files are closed for want of descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from replog.broker.clock import Clock
from replog.broker.disk.flusher import LogFlusher
from replog.broker.disk.write_backs import WriteBacks
from replog.broker.driver import Driver
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.config.kinds import DAY_MS, LONG_MAX
from replog.config.server import ServerConfig
from replog.errors import StorageError
from replog.log import Log

CHECK_MAX_MS = 1_000


class ReplicaFlushes:
    """Asks for fsyncs.

    Args:
        config: The node's configuration.
        clock: The node's clock.
        driver: The replica driver.
        flusher: The flusher, which runs fsyncs in threads.
        replicas: The replicas that can be used.
        on_flushed: Called on the driver after each fsync of a replica's log.
        on_written_back: Called on the driver when a replica's disk has caught up by a part of a dirty window.
        on_failed: Told about a log whose write-back failed.
    """

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        driver: Driver,
        flusher: LogFlusher,
        replicas: Mapping[ReplicaKey, Replica],
        on_flushed: Callable[[Replica], None],
        on_written_back: Callable[[Replica], None],
        on_failed: Callable[[Log, StorageError], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._driver = driver
        self._flusher = flusher
        self._replicas = replicas
        self._on_flushed = on_flushed
        self._on_written_back = on_written_back
        self._write_backs = WriteBacks(driver.submit, on_failed)

    def after_append(self, replica: Replica) -> None:
        """Begins the work that an append makes due, apart from acknowledgements.

        Writes a dirty window back, and asks for a flush if a segment is full or log.flush.interval.messages is reached.
        """
        log = replica.log
        unflushed = log.log_end_offset - log.flushed_offset
        self._write_backs.after_append(log, lambda: self._written_back(replica))
        is_due = log.has_unflushed_segment or unflushed >= log.config.flush_messages
        if is_due and not self._flusher.is_flushing(log):
            self.request(replica)

    def roll_if_due(self, replica: Replica) -> None:
        """Begins a new segment if the active one is too old, without waiting for an append, and flushes the old one."""
        replica.log.maybe_roll(self._clock.wall_ms())
        self.after_append(replica)

    def request_due(self, replicas: Iterable[Replica]) -> int:
        """Asks for an fsync of every log with unflushed records whose last one is `flush.ms` ago.

        Args:
            replicas: The replicas to look at; some may be gone.

        Returns:
            The shortest `flush.ms` among them.
        """
        now, shortest_ms = self._clock.now_ms(), LONG_MAX
        for replica in replicas:
            log = replica.log
            flush_ms = log.config.flush_ms
            shortest_ms = min(shortest_ms, flush_ms)
            is_due = now - replica.last_flush_ms >= flush_ms
            if (
                is_due
                and log.flushed_offset < log.log_end_offset
                and not log.failed
                and self._replicas.get(replica.key) is replica
            ):
                self.request(replica)
        return shortest_ms

    def check_interval_ms(self, shortest_ms: int) -> int:
        """Returns how long until `request_due` should look again (log.flush.scheduler.interval.ms).

        Args:
            shortest_ms: The shortest `flush.ms` that was found last.
        """
        configured_ms = self._config.log_flush_scheduler_interval_ms
        if configured_ms < LONG_MAX:
            return min(configured_ms, DAY_MS)
        return max(1, min(shortest_ms // 2, CHECK_MAX_MS))  # at most: settings may change meanwhile

    def request(self, replica: Replica) -> None:
        """Asks for an fsync of everything that the replica's log holds now."""
        self._flusher.request(replica.log, lambda _: self._driver.submit(lambda: self._flushed(replica)))

    def when_few_wait(self, go_on: Callable[[], None]) -> None:
        """Calls a function once few logs wait for an fsync: at once where that is so."""
        self._flusher.when_few_wait(go_on)

    async def stop(self) -> None:
        """Waits for the write-backs that are under way."""
        await self._write_backs.stop()

    # ---- when the disk has answered ----------------------------------------------------------------------------------------

    def _written_back(self, replica: Replica) -> None:
        """Lets held-back appends go on, unless the disk is still too far behind."""
        if replica.key in self._replicas and replica.log.is_behind_write_back:
            return
        self._on_written_back(replica)

    def _flushed(self, replica: Replica) -> None:
        replica.last_flush_ms = self._clock.now_ms()
        self._on_flushed(replica)
