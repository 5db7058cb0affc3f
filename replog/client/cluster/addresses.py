"""Where brokers listen: bootstrap lists from users, addresses from metadata."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from replog.errors import ConfigError
from replog.rpc.metadata_messages import BrokerInfo


class LeaderAddress(Struct, frozen=True):
    """Who leads one partition, as the newest metadata says; for a consumer also another replica that it reads from."""

    broker_id: int
    address: str
    leader_epoch: int
    topic_id: UUID


def parse_bootstrap_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """Parses "host:port,host:port", or a sequence of "host:port"; doubles are dropped, the order is kept.

    Raises:
        ConfigError: The list is empty, or an entry is not "host:port" with a port from 1 to 65535.
    """
    entries = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigError(
            "bootstrap.servers",
            servers,
            f'bootstrap.servers is {servers!r} ({type(servers).__name__}); it must be "host:port,host:port" or a list of '
            '"host:port".',
        )
    addresses = tuple(dict.fromkeys(parse_address("bootstrap.servers", entry) for entry in entries if entry.strip()))
    if not addresses:
        raise ConfigError("bootstrap.servers", servers, "bootstrap.servers is empty. Give at least one host:port.")
    return addresses


def address_of(broker: BrokerInfo) -> str:
    """Returns the `host:port` at which a broker serves clients of our listener, with brackets around an IPv6 host.

    A broker of an older version tells none; it is tried where other nodes reach it, and the error there says what it is.
    """
    served = next(iter(broker.endpoints), broker)
    host = f"[{served.host}]" if ":" in served.host and not served.host.startswith("[") else served.host
    return f"{host}:{served.port}"


def parse_address(field: str, text: str) -> str:
    """Checks one "host:port" and returns it without the blanks around it.

    Args:
        field: The name of the setting or argument, for the error.
        text: What was given.

    Raises:
        ConfigError: It is something else, such as a URL.
    """
    entry = text.strip()
    host, _, port = entry.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
    if not host or not is_port or "/" in host or any(character.isspace() for character in host):
        hint = " without a scheme" if "//" in entry else ""
        raise ConfigError(
            field, text, f'{field}: "{entry}" is not host:port{hint} with a port from 1 to 65535, such as broker1:9092.'
        )
    return entry
