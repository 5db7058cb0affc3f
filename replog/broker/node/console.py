"""The console that a node starts beside itself (`console.listener`)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from replog.broker.companion import Companion
from replog.config.server import ServerConfig
from replog.errors import ConfigError
from replog.host.extras import install_command

_LIBRARIES: Final = ("aiohttp", "typer", "rich")


def open_console(config: ServerConfig, servers: str) -> Companion | None:
    """Makes the console of a node, not started yet; None where none is wanted.

    Args:
        config: The configuration of the node.
        servers: The host:port at which the node serves clients on this machine.

    Raises:
        ConfigError: A library that it needs is missing.
    """
    listener = config.console_listener
    if listener is None:
        return None
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            "console.listener",
            str(listener),
            f"console.listener needs {' and '.join(missing)}: {install_command('console')}, or leave the key out",
        )
    changes = ["--allow-changes"] if config.console_allow_changes else []
    folder = ["--metadata-dir", config.log_dir]
    arguments = ["--bootstrap-servers", servers, "--listen", str(listener), *folder, *changes]
    return Companion("console", [sys.executable, "-P", "-m", "replog.console", *arguments])
