"""What a maintainer asks for first, as files for one archive: `replog debug bundle`.

Each part is asked for by itself: what cannot be had is the text of its error, since a bundle is wanted where something is wrong.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import sys
import urllib.request
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import replog
from replog.cli import common
from replog.config.kinds import Endpoint, names_loopback, parse_endpoint
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.client import Admin
    from replog.cluster import LocalCluster
    from replog.rpc.node_messages import ConfigDescription

PART_BYTES_MAX: Final = 4 << 20
"""Of each file in the bundle; what is longer is cut, and says so at its end."""

LOG_BYTES_MAX: Final = 256 << 10
"""Of the last lines of a node's log."""

NODES_MAX: Final = 50
"""Of which more than the health is told: the first by id."""

METRICS_WAIT_S: Final = 5.0

SECRET: Final = re.compile(r"password|passphrase|secret|token|credential|jaas|private|api[._-]?key", re.IGNORECASE)
"""In the name of a configuration or variable whose value is hidden."""

HIDDEN: Final = "(hidden)"

README: Final = """\
Made by `replog debug bundle`, to be read before it is sent.

versions.json       replog, Python, the machine's system, installed libraries, REPLOG_ variables
health.json         what `replog status` shows
metadata.json       brokers with their addresses, topics with their configurations, partitions
quorum.json         the metadata quorum
node-N.json         what node N says of itself and its replicas
node-N-configs.json its configuration; values with a name like a password's are hidden
node-N-metrics.txt  its metrics, where metrics.listener is set and can be reached from here
node-N-log.txt      the last lines of its log, with --dir, as they are

No records, no keys, no offsets of groups.  Names of topics and groups, addresses and paths are in it.  Each file has at most
4 MiB; one that is longer ends with a line that says so.  A file that begins with `error:` could not be had.
"""


async def parts(admin: Admin | None, cluster: LocalCluster | None) -> dict[str, bytes]:
    """Returns the files of a bundle by name.

    Args:
        admin: The client of the cluster; None: no node runs.
        cluster: The local cluster whose logs are read; None: none is on this machine.
    """
    found = {"README.txt": README.encode(), "versions.json": _json(versions())}
    if admin is not None:
        found |= await _of_cluster(admin)
    for spec in () if cluster is None else cluster.nodes.values():
        name = f"node-{spec.node_id}-log.txt"
        found[name] = await _part(asyncio.to_thread(_last_bytes, spec.log_file))
    return {name: _cut(data) for name, data in found.items()}


async def _of_cluster(admin: Admin) -> dict[str, bytes]:
    from replog.client.admin.health import cluster_health

    found = {
        "health.json": await _part(_shown(cluster_health(admin))),
        "metadata.json": await _part(_shown(admin.describe_cluster())),
        "quorum.json": await _part(_shown(admin.describe_quorum())),
    }
    try:
        known = (await admin.describe_cluster()).brokers
    except ReplogError:
        return found
    brokers = sorted((each.broker_id, str(Endpoint(each.host, each.port))) for each in known)[:NODES_MAX]
    for files in await asyncio.gather(*(_of_node(admin, *each) for each in brokers)):
        found |= files
    return found


async def _of_node(admin: Admin, node: int, address: str) -> dict[str, bytes]:
    configs: tuple[ConfigDescription, ...] = ()

    async def ask_configs() -> bytes:
        nonlocal configs
        configs = await admin.describe_node_configs(node)
        return _json({each.name: _unless_secret(each.name, each.value) for each in configs})

    found = {
        f"node-{node}.json": await _part(_shown(admin.describe_node(node))),
        f"node-{node}-configs.json": await _part(ask_configs()),
    }
    listener = {each.name: each.value for each in configs}.get("metrics.listener")
    if listener:
        found[f"node-{node}-metrics.txt"] = await _part(asyncio.to_thread(_metrics, listener, address))
    return found


def versions() -> dict[str, object]:
    """Returns what is installed here."""
    libraries = {each.name: each.version for each in importlib.metadata.distributions() if each.name in _REQUIRED}
    return {
        "replog": replog.__version__,
        "python": sys.version,
        "system": platform.platform(),
        "libraries": dict(sorted(libraries.items())),
        "variables": {
            name: _unless_secret(name, value) for name, value in os.environ.items() if name.startswith("REPLOG_")
        },
    }


def _names(requirements: Iterable[str]) -> frozenset[str]:
    return frozenset(found[0] for each in requirements if (found := re.match(r"[\w.-]+", each)))


_REQUIRED: Final = _names(importlib.metadata.requires("replog") or ())


def _unless_secret(name: str, value: str | None) -> str | None:
    return HIDDEN if value and SECRET.search(name) else value


async def _shown(asked: Awaitable[object]) -> bytes:
    return _json({"answer": await asked})


def _json(values: Mapping[str, object]) -> bytes:
    return common.json_object(values).encode()


async def _part(asked: Awaitable[bytes]) -> bytes:
    try:
        return await asked
    except (ReplogError, OSError, ValueError) as error:
        return f"error: {type(error).__name__}: {error}\n".encode(errors="backslashreplace")


def _last_bytes(path: Path) -> bytes:
    """Returns the last lines of a file, whole ones."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        data = file.read(LOG_BYTES_MAX)
    return data if size <= LOG_BYTES_MAX else data[data.find(b"\n") + 1 :]


def _metrics(listener: str, address: str) -> bytes:
    """Returns the metrics of a node that serves clients at an address; not by a proxy, which would ask its own machine.

    Raises:
        OSError: It does not answer.
        ValueError: It cannot be reached from here.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{reachable_metrics(listener, address)}/metrics", timeout=METRICS_WAIT_S) as answer:
        data: bytes = answer.read(PART_BYTES_MAX + 1)
    return data


def reachable_metrics(listener: str, address: str) -> Endpoint:
    """Returns where the metrics of a node are reached.

    Args:
        listener: Its `metrics.listener`.
        address: Where it serves clients.

    Raises:
        ValueError: On the loopback of another machine: here the same port is somebody else's.
    """
    found = parse_endpoint(listener)
    if found.is_wildcard:
        return Endpoint(parse_endpoint(address).host, found.port)
    if found.is_loopback and not names_loopback(address):
        raise ValueError(f"metrics.listener is {listener}, which is reached on the machine of {address} only")
    return found


def _cut(data: bytes) -> bytes:
    if len(data) <= PART_BYTES_MAX:
        return data
    return data[:PART_BYTES_MAX] + f"\n(cut: {len(data):,} bytes, of which {PART_BYTES_MAX:,} are here)\n".encode()
