"""Serves a console until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from replog.console.app import console_app
from replog.console.settings import ConsoleSettings
from replog.errors import ConfigError

STOP_S: Final = 0.3
"""What requests that are under way may take at the end; then they are cancelled."""


async def serve(settings: ConsoleSettings, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Listens, says the address of the page, and ends when `stop` is set.

    Raises:
        ConfigError: The port is taken.
    """
    # cancelled with its browser: a search whose page is closed must not read on
    runner = web.AppRunner(
        console_app(settings), handler_cancellation=True, access_log=None, shutdown_timeout=STOP_S, keepalive_timeout=30
    )
    await runner.setup()
    try:
        listen = settings.listen
        site = web.TCPSite(runner, listen.host, listen.port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(
                "--listen",
                str(listen),
                f"the console cannot listen on {listen}: {error.strerror or error}. Choose another port, or port 0 for a free one",
            ) from error
        host, port = runner.addresses[0][:2]
        say(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
        await stop.wait()
    finally:
        await runner.cleanup()
