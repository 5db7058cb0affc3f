"""The port at which nodes meet over gRPC: one server of gRPC, and those before it whose certificates were renewed, until they have ended.

gRPC can renew the certificates of a server (`grpc.dynamic_ssl_server_credentials`), and is not asked to: a handshake that another thread
begins in the same moment reads what has just been freed, and the process dies (grpcio 1.85: with some hundred connections in minutes).  So
each server has its certificates to its end, and the next one takes its place: at the same port (`SO_REUSEPORT`), or behind the port for
both protocols.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from replog.errors import ConfigError
from replog.rpc.grpc.both_protocols import LOOPBACK, BothProtocols
from replog.rpc.grpc.secure import server_credentials
from replog.rpc.node_tls import KEY, NodeTls
from replog.tcp.certificates import PemFiles
from replog.tcp.connection_log import ConnectionLog
from replog.tcp.port import bind as bind_port
from replog.tcp.port import cannot_listen
from replog.waiting.task_ends import end_tasks

LOOK_EVERY_S: Final = 1.0
"""How often it is asked whether the certificates have changed."""

STREAMS_MAX_S: Final = 30 * 86_400.0
"""How long streams go on that began before a certificate was renewed; who has one then opens another."""

FORMER_MAX: Final = 8
"""How many servers there are whose certificates were renewed; of one more the first one's streams end."""

MakeServer = Callable[..., Any]
"""Makes a server of gRPC; ``shares_port``: whether another one may have the same port."""

_log = logging.getLogger(__name__)


class _Server:
    """One server of gRPC."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._has_started = False

    def add_port(self, host: str, port: int, tls: NodeTls | None, files: PemFiles | None) -> int:
        """Takes a port; returns its number; raises ConfigError where it is taken."""
        bound, cause = 0, "no port was bound"
        try:
            if tls is None or files is None:
                bound = self._server.add_insecure_port(f"{host}:{port}")
            else:
                bound = self._server.add_secure_port(f"{host}:{port}", server_credentials(files))
        except RuntimeError as error:
            cause = str(error)
        if not bound:
            raise ConfigError(
                KEY,
                f"{host}:{port}",
                f"cannot listen at {host}:{port}: another process may use the port ({cause}). "
                "Choose another port, or port 0 for a free one.",
            )
        return bound

    async def start(self, handler: Any = None) -> None:
        if handler is not None:
            self._server.add_generic_rpc_handlers((handler,))
        self._has_started = True
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        if not self._has_started:
            await self.start()  # gRPC keeps the port of a server that never began, whatever is said to it
        await self._server.stop(grace_s)


class GrpcPort:
    """Takes a port, and answers there from `start` on.

    Args:
        host: The address to bind.
        port: The port; 0 picks a free one.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.
        log: What says why a connection was ended.
        make_server: The function that makes servers.

    Attributes:
        host: As given.
        port: The number of the port.

    Raises:
        ConfigError: The port is taken.
    """

    def __init__(self, host: str, port: int, tls: NodeTls | None, log: ConnectionLog, make_server: MakeServer) -> None:
        self.host = host
        self._tls = tls
        self._make_server = make_server
        self._files = None if tls is None else tls.certificates.files()
        self._former: dict[asyncio.Task[None], _Server] = {}  # the oldest first
        self._renewing: asyncio.Task[None] | None = None
        self._handler: Any = None
        self._both: BothProtocols | None = None
        with contextlib.ExitStack() as taken:
            if tls is not None and tls.accepts_plain:
                outside = bind_port(host, port, KEY)
                taken.callback(outside.close)
                self.port = outside.port
                self._server, ports = self._open_behind()
                self._both = BothProtocols(outside, *ports, log)
            elif tls is not None:
                taken.enter_context(_only_one(host, port))
                self._server, self.port = self._open(port)
            else:
                self._server, self.port = self._open(port)
            self._taken = taken.pop_all()

    def caller(self, peer: str) -> str:
        """Returns where a call came from, as gRPC writes addresses."""
        return peer if self._both is None else self._both.caller(peer)

    async def start(self, handler: Any) -> None:
        """Begins to answer; connections that came since the port was taken have waited.

        Args:
            handler: The generic handler of gRPC that answers.

        Raises:
            ConfigError: Another process began to listen there after the port was taken.
        """
        self._handler = handler
        await self._server.start(handler)
        if self._both is not None:
            try:
                await self._both.start()
            except OSError as error:
                raise cannot_listen(KEY, self.host, self.port, error) from None
        if self._tls is not None:
            self._renewing = asyncio.create_task(self._renew_certificates(self._tls), name="renew-node-certificates")

    async def stop(self, grace_s: float) -> None:
        """Ends all calls and streams, and gives the port back."""
        await end_tasks(self._renewing)
        servers = [self._server, *self._former.values()]
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
        await end_tasks(*self._former)
        if self._both is not None:
            await self._both.stop()
        self._taken.close()

    def _open(self, port: int) -> tuple[_Server, int]:
        """Makes a server at the port itself; returns it and the number of the port."""
        made = _Server(self._make_server(shares_port=self._tls is not None))
        return made, made.add_port(self.host, port, self._tls, self._files)

    def _open_behind(self) -> tuple[_Server, tuple[int, int]]:
        """Makes a server with two ports on loopback; returns it and their numbers, that of plain text first."""
        made = _Server(self._make_server(shares_port=False))
        return made, (made.add_port(LOOPBACK, 0, None, None), made.add_port(LOOPBACK, 0, self._tls, self._files))

    async def _renew_certificates(self, tls: NodeTls) -> None:
        """Puts another server in the place of the one there is, each time when the files have changed."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            files = tls.certificates.files()
            if files is self._files:
                continue
            self._files = files
            try:
                ports = None
                if self._both is None:
                    server, _ = self._open(self.port)
                else:
                    server, ports = self._open_behind()
            except ConfigError as error:
                _log.error(
                    "the new certificates are not shown at %s:%d: %s. Start the node anew", self.host, self.port, error
                )
                continue
            former, self._server = self._server, server
            try:
                await server.start(self._handler)
                if self._both is not None and ports is not None:
                    self._both.pass_on_to(*ports)
            finally:
                self._end_in_time(former)

    def _end_in_time(self, former: _Server) -> None:
        """Ends a server behind the last of its streams; it takes no more connections."""
        if len(self._former) >= FORMER_MAX:
            first = next(iter(self._former))
            ended = asyncio.create_task(self._former[first].stop(0), name="end-former-server")
            self._former[ended] = self._former.pop(first)
            ended.add_done_callback(self._drop)
        task = asyncio.create_task(former.stop(STREAMS_MAX_S), name="end-former-server")
        self._former[task] = former
        task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[None]) -> None:
        self._former.pop(task, None)


@contextlib.contextmanager
def _only_one(host: str, port: int) -> Iterator[None]:
    """Holds a port against other nodes while servers of this one share it, which the kernel would let others do, too.

    Raises:
        ConfigError: Another process has it.
    """
    if not port:
        yield  # the kernel picks one that nobody has
        return
    bind_port(host, port, KEY).close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            if sys.platform == "linux":
                held.bind(f"\0replog-nodes-{host}:{port}")  # a name without a file, which ends with the process
        except OSError as error:
            raise cannot_listen(KEY, host, port, error) from None
        yield
