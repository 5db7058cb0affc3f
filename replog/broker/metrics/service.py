"""What a node knows of its metrics."""

from __future__ import annotations

import asyncio
import logging

from replog.broker.driver import Driver
from replog.broker.metrics.collector import NodeCollector
from replog.broker.metrics.instruments import Instruments
from replog.broker.metrics.paths import MeteredFetchPath, MeteredProducePath
from replog.broker.metrics.readings import Readings, ReadParts
from replog.broker.metrics.server import MetricsServer
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.produce_path import ProducePath
from replog.config.server import Endpoint

READ_TIMEOUT_S = 5.0
"""A scrape waits for the event loop at most so long."""

_log = logging.getLogger(__name__)


class MetricsService:
    """The metrics of one node; made before its parts, so that a taken port is told before anything is opened.

    Args:
        endpoint: The host and port to serve on.

    Raises:
        ConfigError: The port cannot be bound.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._server = MetricsServer(endpoint)
        self._instruments = Instruments()

    @property
    def address(self) -> str:
        """host:port."""
        return self._server.address

    def observe_flush(self, seconds: float) -> None:
        """Notes how long an fsync took, in any thread."""
        self._instruments.fsync_seconds.observe(seconds)

    def metered_produce(self, path: ProducePath) -> MeteredProducePath:
        """Returns the produce path that requests must take from now on to be measured."""
        return MeteredProducePath(path, self._instruments)

    def metered_fetch(self, path: FetchPath, driver: Driver) -> MeteredFetchPath:
        """Returns the fetch path that requests must take from now on to be measured; `driver` runs the fetches."""
        return MeteredFetchPath(path, driver.submit, self._instruments)

    def start(self, parts: ReadParts) -> None:
        """Begins to answer scrapes; it must be called on the loop that drives the node."""
        loop = asyncio.get_running_loop()

        def read() -> Readings:
            reading = asyncio.run_coroutine_threadsafe(parts.read(), loop)
            try:
                return reading.result(READ_TIMEOUT_S)
            finally:
                reading.cancel()

        self._instruments.registry.register(NodeCollector(read))
        self._server.start(self._instruments.registry)
        _log.info("metrics on http://%s/metrics", self.address)

    async def stop(self) -> None:
        """Ends the thread and frees the port; the loop must run on meanwhile."""
        await asyncio.get_running_loop().run_in_executor(None, self._server.stop)
