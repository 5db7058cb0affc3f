"""A registry of schemas over HTTP, whose state is a topic."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final, Self

from replog.client import Admin
from replog.config.kinds import Endpoint, parse_endpoint
from replog.errors import ConfigError
from replog.errors.choices import require_at_least, require_kind
from replog.host.extras import install_command
from replog.registry.change_log import DEFAULT_TOPIC, ChangeLog
from replog.tcp.port import bind

if TYPE_CHECKING:
    from aiohttp import web

    from replog.client.security.security import Security

DEFAULT_LISTEN: Final = "127.0.0.1:8081"
TIMEOUT_MS: Final = 30_000
STOP_TIMEOUT_S: Final = 5.0
"""How long requests that are under way have at the end."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class RegistryServer:
    """A registry of schemas with Confluent's REST interface; any number of them may run on one topic.

    ::

        async with RegistryServer("127.0.0.1:9092") as server:
            print(server.url)  # http://127.0.0.1:8081
            await server.wait_ended()

    Args:
        bootstrap_servers: The brokers to ask first, ours or Apache Kafka's.
        listen: Where requests are taken, "host:port"; port 0: any that is free.
        topic: The topic of the changes; made where it does not exist.
        timeout_ms: How long a request waits for brokers, milliseconds.
        allow_insecure: Whether other machines may reach it, where everybody may register and delete.
        security: How the registry and brokers are believed by each other; None: plain text.

    Attributes:
        url: Where it is, once it is entered.

    Raises:
        ConfigError: A setting is wrong, or the packages of the extra `registry` are not installed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        listen: str = DEFAULT_LISTEN,
        topic: str = DEFAULT_TOPIC,
        timeout_ms: int = TIMEOUT_MS,
        allow_insecure: bool = False,
        security: Security | None = None,
    ) -> None:
        self._security = security
        require_kind("topic", topic, str)
        require_at_least("timeout.ms", timeout_ms, 1)
        self._make_application = _application_maker()
        self._endpoint = _parsed_listen(listen, allow_insecure=allow_insecure)
        self._servers = bootstrap_servers
        self._log = ChangeLog(bootstrap_servers, topic=topic, timeout_ms=timeout_ms, security=security)
        self._stack = AsyncExitStack()
        self.url = ""

    async def __aenter__(self) -> Self:
        """Reads the topic, and takes requests.

        Raises:
            ConfigError: The port is taken.
            ReplogError: The brokers cannot be asked, or the topic is none for a registry.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._log.close)
            await self._log.start()
            async with Admin(self._servers, security=self._security) as admin:
                cluster_id = (await admin.describe_cluster()).cluster_id
            await self._listen(stack, cluster_id)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Lets requests end that are under way, and closes everything."""
        await self._stack.aclose()

    async def wait_ended(self) -> None:
        """Waits until the topic cannot be followed any more, because it was deleted or records in it were lost; raises why."""
        await self._log.wait_ended()

    async def _listen(self, stack: AsyncExitStack, cluster_id: str) -> None:
        from aiohttp import web

        port = bind(self._endpoint.host, self._endpoint.port, "listen")
        stack.callback(port.close)
        runner = web.AppRunner(
            self._make_application(self._log, cluster_id, self._endpoint.is_loopback),
            access_log=None,
            shutdown_timeout=STOP_TIMEOUT_S,
            handle_signals=False,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, port.socket).start()
        self.url = f"http://{Endpoint(*runner.addresses[0][:2])}"


def serve(
    bootstrap_servers: str | Sequence[str],
    *,
    listen: str = DEFAULT_LISTEN,
    topic: str = DEFAULT_TOPIC,
    allow_insecure: bool = False,
    security: Security | None = None,
    told: Callable[[str], None] | None = None,
) -> None:
    """Runs a registry until the process is told to end (SIGTERM, or Ctrl-C).

    Args:
        bootstrap_servers, listen, topic, allow_insecure, security: As `RegistryServer` takes them.
        told: A function that is told the url, once requests are taken.

    Raises:
        ReplogError: As `RegistryServer`; also where its topic cannot be followed any more.
    """
    server = RegistryServer(
        bootstrap_servers, listen=listen, topic=topic, allow_insecure=allow_insecure, security=security
    )
    asyncio.run(_serve(server, told))


async def _serve(server: RegistryServer, told: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    for number in _SIGNALS:
        with suppress(ValueError, RuntimeError, NotImplementedError):  # only the main thread hears of signals
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.ensure_future(stop.wait())
    running = asyncio.ensure_future(_run(server, told))
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()


async def _run(server: RegistryServer, told: Callable[[str], None] | None) -> None:
    async with server:
        if told is not None:
            told(server.url)
        await server.wait_ended()


def _application_maker() -> Callable[[ChangeLog, str, bool], web.Application]:
    """Loads what the server needs beyond replog itself.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import jsonschema  # noqa: F401 -- it is used when the first schema comes

        from replog.registry.http import application
        from replog.registry.service import RegistryService
    except ModuleNotFoundError as error:
        raise ConfigError("registry", "", f"a registry needs more packages: {install_command('registry')}") from error
    return lambda log, cluster_id, is_local: application(RegistryService(log), cluster_id, is_local=is_local)


def _parsed_listen(listen: str, *, allow_insecure: bool) -> Endpoint:
    require_kind("listen", listen, str)
    try:
        found = parse_endpoint(listen)
    except ValueError as error:
        raise ConfigError("listen", listen, f"listen is {listen!r}: {error}") from error
    if not (found.is_loopback or allow_insecure):
        raise ConfigError(
            "listen",
            listen,
            f"listen is {listen!r}, which other machines reach, and a registry asks nobody for a password. Listen on 127.0.0.1, or "
            "allow it (--allow-insecure, allow_insecure=True) if you trust everybody on that network",
        )
    return found
