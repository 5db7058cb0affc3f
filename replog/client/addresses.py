"""Where brokers listen: bootstrap lists from users, addresses from metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from replog.errors import ConfigError
from replog.rpc.metadata_messages import BrokerInfo


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads one partition, as the newest metadata says; for a consumer also another replica that it reads from."""

    broker_id: int
    address: str
    leader_epoch: int
    topic_id: UUID


def parse_bootstrap_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """ "host:port,host:port", or a sequence of "host:port"; doubles are dropped, the order is kept.

    Raises:
        ConfigError: the list is empty, or an entry is not "host:port" with a port from 1 to 65535.
    """
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(dict.fromkeys(_checked(entry.strip()) for entry in entries if entry.strip()))
    if not addresses:
        raise ConfigError("bootstrap.servers", servers, "bootstrap.servers is empty. Give at least one host:port.")
    return addresses


def address_of(broker: BrokerInfo) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    host = f"[{broker.host}]" if ":" in broker.host and not broker.host.startswith("[") else broker.host
    return f"{host}:{broker.port}"


def _checked(entry: str) -> str:
    host, separator, port = entry.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigError(
            "bootstrap.servers", entry, f'bootstrap.servers: "{entry}" is not host:port with a port from 1 to 65535.'
        )
    return entry
