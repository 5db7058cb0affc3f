"""One node of a local cluster: its files, its process, and what is kept of it between commands."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from replog.cluster.node_processes import NodePlace
from replog.cluster.processes import Child, ProcessId

DATA_FOLDER = "data"
ConfigValue = str | int | bool | list[str]

BOTH_ROLES = ("broker", "controller")


@dataclass(slots=True)
class NodeSpec:
    """One node of a local cluster.

    Attributes:
        port: The port at which it serves clients.
        peer_port: The port at which other nodes reach it.
        process: The process that it has, whoever started it.
        child: The same, where this process started it.
        has_data: Whether its log directories were seen with data: they are never formatted again unasked.
    """

    node_id: int
    port: int
    peer_port: int
    directory: Path
    process: ProcessId | None = None
    roles: tuple[str, ...] = BOTH_ROLES
    place: NodePlace = field(default_factory=NodePlace)
    has_data: bool = False
    child: Child | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The host:port at which it serves clients."""
        return f"{self.place.host}:{self.port}"

    @property
    def peer_address(self) -> str:
        """The host:port at which other nodes reach it."""
        return f"{self.place.host}:{self.peer_port}"

    @property
    def listeners(self) -> dict[str, ConfigValue]:
        """Keys for what it binds and, where that is something else, how it is known."""
        bound = self.place.listens_on or self.place.host
        keys: dict[str, ConfigValue] = {
            "listeners": [f"{bound}:{self.port}"],
            "inter.broker.listener": f"{bound}:{self.peer_port}",
        }
        known: dict[str, ConfigValue] = {
            "advertised.listeners": [self.address],
            "inter.broker.advertised.listener": self.peer_address,
        }
        return keys | known if self.place.listens_on else keys

    def named_listeners(self, name: str) -> dict[str, ConfigValue]:
        """Returns the same of `listeners` where clients come by a listener of this name."""
        keys = ("listeners", "advertised.listeners")
        given = {key: self.listeners[key] for key in keys if key in self.listeners}
        return {key: [f"{name}://{each}" for each in value] for key, value in given.items() if isinstance(value, list)}

    @property
    def config_file(self) -> Path:
        return self.directory / "server.toml"

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    def missing_data(self) -> list[str]:
        """Returns its log directories that should hold data and do not (see `replog.log.directories.expected_data`).

        Raises:
            ConfigError: Its configuration cannot be read.
        """
        from replog.config.server import ServerConfig
        from replog.log.directories.expected_data import missing_data
        from replog_checkpoints import OsFileSystem

        return missing_data(OsFileSystem(), ServerConfig.from_toml(self.config_file).log_dirs, self.node_id)

    @property
    def is_alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process is not None and self.process.is_alive()

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal to its process, if there is one."""
        if self.process is not None:
            self.process.signal(number)

    def write_config(self, cluster_id: str, voters: list[str], config: Mapping[str, ConfigValue]) -> None:
        """Writes its file: what makes it a node of this cluster, and `config` over that.

        Raises:
            OSError: Its folder cannot be made, or not written to.
        """
        values: dict[str, ConfigValue] = {
            "node.id": self.node_id,
            "cluster.id": cluster_id,
            "process.roles": list(self.roles),
            "controller.quorum.voters": voters,
            "log.dirs": [DATA_FOLDER],
            **self.listeners,
            **config,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items()]
        self.config_file.write_text("".join(lines), encoding="utf-8")

    @classmethod
    def from_state(cls, entry: dict[str, Any], cluster_directory: Path) -> NodeSpec:
        """Makes a node from what `to_state` returned.

        Raises:
            KeyError, TypeError: It did not.
        """
        return cls(
            entry["node_id"],
            entry["port"],
            entry["peer_port"],
            cluster_directory / f"node-{entry['node_id']}",
            ProcessId(**entry["process"]) if entry["process"] else None,
            roles=tuple(entry.get("roles", BOTH_ROLES)),
            has_data=entry.get("has_data", True),
        )

    def to_state(self) -> dict[str, Any]:
        """Returns what `cluster.json` says of it."""
        return {
            "node_id": self.node_id,
            "port": self.port,
            "peer_port": self.peer_port,
            "roles": list(self.roles),
            "process": asdict(self.process) if self.process else None,
            "has_data": self.has_data,
        }
