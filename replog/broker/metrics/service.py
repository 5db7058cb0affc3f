"""What a node knows of its metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from replog.broker.driver import Driver
from replog.broker.metrics.collector import NodeCollector
from replog.broker.metrics.paths import Instruments, MeteredFetchPath, MeteredProducePath
from replog.broker.metrics.readings import Readings, ReadParts
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.produce_path import ProducePath
from replog.config.server import Endpoint
from replog.errors import ConfigError, ReplogError
from replog.tcp.certificates import Certificates
from replog.tcp.tls import described

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CLIENT_TIMEOUT_S = 2.0
SCRAPE_S_MAX = 15.0
"""How long a connection may take: more than `READ_TIMEOUT_S`, and what a reader is slow to take."""

SCRAPES_MAX = 8
"""Connections at a time: each has a thread, and asks the event loop."""

TELL_AGAIN_S = 60.0
"""How often at most a line is logged about readers that are not believed, and about such that are too many."""

POLL_S = 0.2
"""How soon the thread sees that it shall end."""


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def setup(self) -> None:
        """Begins; over TLS with the handshake, which may take as long as a client may be silent."""
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(CLIENT_TIMEOUT_S)
            self.request.do_handshake()
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class' name
        """Drops the line: scrapes are not worth one each."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answers each connection in a thread of its own, so that none waits for one that is silent.

    A connection beyond `SCRAPES_MAX` is closed at once, and one that takes longer than `SCRAPE_S_MAX` is cut off.
    """

    certificates: Certificates | None = None
    """What the port proves, and whom it believes; None: it speaks plain text."""

    def __init__(self, *args: Any) -> None:
        self._begun_s: dict[socket.socket, float] = {}  # changed by threads under the lock
        self._told_s: dict[str, float] = {}  # likewise
        self._changing = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begins to answer, unless enough others are being answered."""
        with self._changing:
            is_full = len(self._begun_s) >= SCRAPES_MAX
            if not is_full:
                self._begun_s[request] = time.monotonic()
        if is_full:
            if self._may_tell("full"):
                _log.warning("a scrape was refused: %d connections are open. Scrape less often", SCRAPES_MAX)
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection that has been answered, or is not."""
        with self._changing:
            self._begun_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cuts off those that take too long, as one does that sends its question a byte at a time."""
        super().service_actions()
        self.cut_off(socket.SHUT_RDWR, time.monotonic() - SCRAPE_S_MAX)

    def cut_off(self, how: int, begun_before_s: float = math.inf) -> None:
        """Ends reading, or both ways, of connections that began before a time; the threads that answer them close them."""
        with self._changing:
            for request, begun_s in self._begun_s.items():
                if begun_s < begun_before_s:
                    with contextlib.suppress(OSError):  # it is gone
                        socket.socket.shutdown(request, how)  # not that of TLS, which goes on in plain text

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection; its handshake comes later, as every wait of its own (`_Handler.setup`)."""
        connection, address = super().get_request()
        if self.certificates is None:
            return connection, address
        context = self.certificates.context()
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def server_bind(self) -> None:
        """Binds without the base class' look-up of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 -- the base class' shape
        """Notes for debugging that a client went away or said nothing; that is its own affair."""
        _log.debug("a scrape was not answered", exc_info=True)
        error = sys.exception()
        if isinstance(error, ssl.SSLError) and self._may_tell("stranger"):
            _log.warning("metrics.listener does not know who came from %s: %s", client_address, described(error))

    def _may_tell(self, what: str) -> bool:
        """Whether it is time for a line about something; strangers decide how often there is something to tell."""
        now_s = time.monotonic()
        with self._changing:
            is_time = now_s - self._told_s.get(what, -math.inf) >= TELL_AGAIN_S
            if is_time:
                self._told_s[what] = now_s
        return is_time


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Listens from construction on, answers from `start` on.

    The standard library's WSGI server with Prometheus' application, and a thread for each of at most `SCRAPES_MAX`
    connections.  A client that says nothing is dropped after `CLIENT_TIMEOUT_S`, one that says little after `SCRAPE_S_MAX`.

    Args:
        endpoint: The host and port to listen on; port 0 takes a free one.
        certificates: What the port proves, and whom it believes; None: it speaks plain text.

    Raises:
        ConfigError: The port is taken, or the host is not ours.
    """

    def __init__(self, endpoint: Endpoint, certificates: Certificates | None = None) -> None:
        make = _Server6 if ":" in endpoint.host else _Server
        try:
            self._server = make((endpoint.host, endpoint.port), _Handler)
        except OSError as error:
            raise ConfigError(
                "metrics.listener",
                str(endpoint),
                f"cannot serve metrics on {endpoint}: {error.strerror or error}. Choose another port, or port 0 for a free one.",
            ) from error
        self._server.certificates = certificates
        self.address = str(Endpoint(endpoint.host, self._server.server_port))
        self.url = f"http{'' if certificates is None else 's'}://{self.address}/metrics"
        self._thread: threading.Thread | None = None

    def start(self, registry: CollectorRegistry) -> None:
        """Begins to answer scrapes with what `registry` collects."""
        self._server.set_app(_answering(make_wsgi_app(registry)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="replog-metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the threads and frees the port; blocks until the scrapes under way have their answers."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.cut_off(socket.SHUT_RD)
        self._server.server_close()


def _answering(app: WSGIApplication) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """Wraps the application: a node that is stopping or too busy makes the scrape fail with the reason (503)."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except (ReplogError, TimeoutError) as error:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{str(error) or 'the node is too busy to tell'}\n".encode()]

    return answer


READ_TIMEOUT_S = 5.0
"""A scrape waits for the event loop at most so long."""

_log = logging.getLogger(__name__)


class MetricsService:
    """The metrics of one node; made before its parts, so that a taken port is told before anything is opened.

    Args:
        endpoint: The host and port to serve on.
        certificates: What the port proves, and whom it believes; None: it speaks plain text.

    Raises:
        ConfigError: The port cannot be bound.
    """

    def __init__(self, endpoint: Endpoint, certificates: Certificates | None = None) -> None:
        self._server = MetricsServer(endpoint, certificates)
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
        _log.info("metrics on %s", self._server.url)

    async def stop(self) -> None:
        """Ends the thread and frees the port; the loop must run on meanwhile."""
        await asyncio.get_running_loop().run_in_executor(None, self._server.stop)
