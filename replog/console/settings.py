"""What a console is told when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from replog.config.kinds import Endpoint, parse_endpoint
from replog.errors import ConfigError

if TYPE_CHECKING:
    from replog.client.security.security import Security

DEFAULT_LISTEN = "127.0.0.1:8090"


class ConsoleSettings(Struct, frozen=True):
    """The settings of one console.

    Attributes:
        bootstrap_servers: The brokers to ask first, as `host:port,host:port`.
        listen: The address for browsers, on loopback; port 0: a free one.
        allow_changes: Whether the page may change anything.
        metadata_dir: The folder with a metadata log on this machine, for the timeline; None: there is none.
        security: How the console and brokers are believed by each other; None: plain text.
    """

    bootstrap_servers: str
    listen: Endpoint
    allow_changes: bool = False
    metadata_dir: Path | None = None
    security: Security | None = None


def listen_endpoint(text: str) -> Endpoint:
    """Parses the address for browsers.

    Raises:
        ConfigError: It is no host:port, or other machines could connect to it.
    """
    try:
        found = parse_endpoint(text)
    except ValueError as error:
        raise ConfigError("--listen", text, f'--listen "{text}" {error}') from None
    if not found.is_loopback:
        raise ConfigError(
            "--listen",
            text,
            f'--listen "{text}" can be reached from other machines, and the console asks nobody who they are. Listen on '
            "127.0.0.1; from another machine come through ssh: `ssh -L 8090:127.0.0.1:8090 THIS-HOST`",
        )
    return found
