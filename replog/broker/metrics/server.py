"""The HTTP port of the metrics: one thread, one request at a time, so that scrapes cost one connection and no more.

The standard library's WSGI server with Prometheus' application.  A client that says nothing is dropped after
`CLIENT_TIMEOUT_S`; others wait in the listen queue meanwhile.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from replog.config.server import Endpoint
from replog.errors import ConfigError, ReplogError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CLIENT_TIMEOUT_S = 2.0
POLL_S = 0.2
"""How soon the thread sees that it shall end."""

_log = logging.getLogger(__name__)


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class' name
        """Drops the line: scrapes are not worth one each."""


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """Binds without the base class' look-up of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 -- the base class' shape
        """Notes for debugging that a client went away or said nothing; that is its own affair."""
        _log.debug("a scrape was not answered", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Listens from construction on, answers from `start` on.

    Args:
        endpoint: The host and port to listen on; port 0 takes a free one.

    Raises:
        ConfigError: The port is taken, or the host is not ours.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        make = _Server6 if ":" in endpoint.host else _Server
        try:
            self._server = make((endpoint.host, endpoint.port), _Handler)
        except OSError as error:
            raise ConfigError(
                "metrics.listener",
                str(endpoint),
                f"cannot serve metrics on {endpoint}: {error.strerror or error}. Choose another port, or port 0 for a free one.",
            ) from error
        self.address = str(Endpoint(endpoint.host, self._server.server_port))
        self._thread: threading.Thread | None = None

    def start(self, registry: CollectorRegistry) -> None:
        """Begins to answer scrapes with what `registry` collects."""
        self._server.set_app(_answering(make_wsgi_app(registry)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="replog-metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and frees the port; blocks until a scrape under way has its answer."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
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
