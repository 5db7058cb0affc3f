"""What the commands share: the option for brokers, a check that somebody listens, a sign of life while waiting."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from msgspec import Struct
from msgspec.structs import asdict

from replog.cli import client_config
from replog.cli.terminal.interrupts import GRACE_S, Interrupt

if TYPE_CHECKING:
    from rich.console import Console

    from replog.client import Admin
    from replog.client.consumer.positions import Place
    from replog.cluster import LocalCluster, NodeSpec

T = TypeVar("T")

SERVERS_VARIABLE = "REPLOG_BOOTSTRAP_SERVERS"
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP_SERVERS = f"127.0.0.1:{DEFAULT_PORT}"
INT_MAX = 2**31 - 1
"""Of ids and counts, as they are sent to brokers."""

OFFSET_MAX = 2**63 - 1

DIGITS_MAX = 20
"""Of a number in a text: none that fits has more, and Python refuses to read thousands."""

PIPE_WIDTH = 1_000
"""Columns where stdout is no terminal and COLUMNS is not set: nothing is folded for scripts."""

TIMEOUT_MS = 10_000
"""How long a command waits for brokers that accept connections and do not answer."""

_PROBE_TIMEOUT_S = 2.0

SLOW = f"no answer within {_PROBE_TIMEOUT_S:g} s from"
"""What `trouble_at` says where a connection takes its time, and may yet come."""

BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar=SERVERS_VARIABLE,
        metavar="HOST:PORT,...",
        help="Brokers to ask first.",
        is_eager=True,
    ),
]
_DIRECTORY_WORDS = "Directory of a local cluster, instead of --bootstrap-servers."
ClusterDirectory = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_WORDS)]


def _take_servers(context: typer.Context, directory: Path | None) -> Path | None:
    context.params["bootstrap_servers"] = servers(context.params["bootstrap_servers"], directory)
    return directory


OrDirectory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_WORDS, callback=_take_servers)
]
"""`--dir` of a command that only asks the cluster: its `bootstrap_servers` are those of the cluster in the directory."""

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def servers(bootstrap_servers: str, directory: Path | None) -> str:
    """Returns the brokers to ask first, as the options say.

    Raises:
        UsageError, ConfigError: `local_cluster` raised it.
        CommandFailedError: None of the cluster's nodes runs.
    """
    if directory is None:
        return bootstrap_servers
    from replog.cli.errors import CommandFailedError

    cluster = local_cluster(bootstrap_servers, directory)
    if not any(spec.is_alive for spec in cluster.nodes.values()):
        raise CommandFailedError(
            f"no node runs in {directory}. `replog cluster restart --dir {directory}` starts them again"
        )
    return cluster.bootstrap_servers


def local_cluster(bootstrap_servers: str, directory: Path) -> LocalCluster:
    """Loads the cluster of --dir, whether it runs or not.

    Raises:
        UsageError: --bootstrap-servers is given too (the variable of the environment may be set).
        ConfigError: There is no cluster in the directory.
    """
    from replog.cli.errors import UsageError
    from replog.cluster import LocalCluster

    if bootstrap_servers not in {DEFAULT_BOOTSTRAP_SERVERS, os.environ.get(SERVERS_VARIABLE)}:
        raise UsageError("--dir", directory, "--dir and --bootstrap-servers: give one of them")
    cluster = LocalCluster.load(directory)
    if cluster.certificates.exist and client_config.security() is None:
        client_config.use(cluster.certificates.client_config)
    return cluster


def node_of(cluster: LocalCluster, node_id: int) -> NodeSpec:
    """Returns one node of a local cluster.

    Raises:
        UsageError: There is no such node; the message names those that there are.
    """
    from replog.cli.errors import UsageError

    if node_id not in cluster.nodes:
        known = ", ".join(map(str, cluster.nodes))
        raise UsageError("NODE", node_id, f"there is no node {node_id} in {cluster.directory}; its nodes are {known}")
    return cluster.nodes[node_id]


def export_line(bootstrap_servers: str) -> str:
    """Returns what to type so that every later command finds the cluster."""
    return f"export {SERVERS_VARIABLE}={bootstrap_servers}"


def run(work: Coroutine[Any, Any, T], *, grace_s: float | None = GRACE_S) -> T:
    """Runs a command's coroutine; Ctrl-C cancels it, so that its `finally` blocks run.

    Args:
        work: The work of the command.
        grace_s: The seconds that those blocks have before the process is ended, as at a second Ctrl-C; None for as long
            as they take, in commands that must put things in order again.

    Raises:
        KeyboardInterrupt: Ctrl-C cancelled the work.
    """
    interrupt = Interrupt(grace_s)
    with asyncio.Runner() as runner, interrupt.watched(runner.get_loop()):
        try:
            return runner.run(interrupt.guarded(work))
        except asyncio.CancelledError:
            if interrupt.came:
                raise KeyboardInterrupt from None
            raise


def ask(
    bootstrap_servers: str, work: Callable[[Admin], Coroutine[Any, Any, T]], words: str = "asking the brokers"
) -> T:
    """Runs the work of a command that needs an `Admin`, and returns its result.

    Args:
        bootstrap_servers: The brokers to ask first.
        work: The work.
        words: What is shown while it lasts; "": nothing, as the work shows something itself.

    Raises:
        ConfigError, BrokerNotAvailableError: `admin_of` raised it.
        KeyboardInterrupt: Ctrl-C cancelled the work.
    """

    async def asking() -> T:
        async with await admin_of(bootstrap_servers) as admin:
            with waiting(words) if words else nullcontext():
                return await work(admin)

    return run(asking())


def out_console() -> Console:
    """Makes a console for results on stdout: as wide as the terminal, as COLUMNS says, else as the content."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return Console(highlight=False, width=int(columns))
    return Console(highlight=False, width=PIPE_WIDTH, soft_wrap=True)


def error_console() -> Console:
    """Makes a console on stderr for what accompanies a result: progress, counts."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Shows on the terminal that something is being waited for; nothing where stderr is not a terminal.

    Yields:
        A function that shows something else instead; with "" the first text again.
    """
    console = error_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(text) as status:
        yield lambda words: status.update(words or text)


async def admin_of(bootstrap_servers: str) -> Admin:
    """Makes an `Admin` for `async with`, after a check that anything listens there.

    Raises:
        ConfigError: The servers are not a list of host:port.
        BrokerNotAvailableError: Every address refuses connections.
    """
    from replog.client import Admin

    await require_listener(bootstrap_servers)
    return Admin(bootstrap_servers, timeout_ms=TIMEOUT_MS, security=client_config.security())


async def require_listener(bootstrap_servers: str) -> None:
    """Refuses addresses where nothing listens: a wrong port should be an answer at once, not after every retry failed.

    Raises:
        ConfigError: The servers are not a list of host:port.
        BrokerNotAvailableError: No address can be connected to: it refuses, or nobody knows the name of its host.
    """
    from replog.client.cluster.addresses import parse_bootstrap_servers
    from replog.errors import BrokerNotAvailableError

    addresses = parse_bootstrap_servers(bootstrap_servers)
    troubles = await asyncio.gather(*map(trouble_at, addresses))
    if all(trouble and trouble != SLOW for trouble in troubles):  # slow is not wrong
        raise BrokerNotAvailableError(
            f"{_told(addresses, troubles)}. Check --bootstrap-servers (or {SERVERS_VARIABLE}), name a "
            "local cluster with --dir, or start one: `replog cluster start --dir DIR`"
        )


def _told(addresses: Sequence[str], troubles: Sequence[str | None]) -> str:
    """Returns the troubles with the addresses that have each."""
    found: dict[str | None, list[str]] = {}
    for address, trouble in zip(addresses, troubles, strict=True):
        found.setdefault(trouble, []).append(address)
    return "; ".join(f"{trouble} {', '.join(those)}" for trouble, those in found.items())


async def trouble_at(address: str) -> str | None:
    """Returns why nobody can be reached there, as words before the address; None where somebody is."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return SLOW
    except socket.gaierror:
        return "no such host:"
    except OSError:
        return "nothing listens on"
    writer.close()
    return None


def place(text: str, option: str) -> Place:
    """Parses a place in a partition, as `Consumer.seek_to` takes it; a time ago counts from now.

    Raises:
        UsageError: It names none.
    """
    from replog.cli.errors import UsageError
    from replog.client.consumer.positions import parse_place
    from replog.errors import InvalidRequestError

    try:
        return parse_place(text, time.time_ns() // 1_000_000)
    except InvalidRequestError as error:
        raise UsageError(option, text, f"{option}: {error}") from None


def key_values(pairs: list[str], option: str) -> dict[str, str]:
    """Parses `["a=1", "b=2"]` into a mapping.

    Raises:
        UsageError: One of the pairs is not KEY=VALUE.
    """
    from replog.cli.errors import UsageError

    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(option, pair, f'{option} "{pair}" is not KEY=VALUE')
        found[key.strip()] = value
    return found


def is_number(text: str, number_max: int) -> bool:
    """Whether this is a whole number from 0 to `number_max`, in digits alone."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX and int(text) <= number_max


def shown_bytes(data: bytes | None) -> object:
    """Returns what JSON shows for bytes: text where they are UTF-8, else an object with their base64; None for None."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_line(value: Struct, **more: object) -> str:
    """Returns a struct, and more beside its fields, as one line of JSON; ids that are UUIDs as text."""
    return json_object(asdict(value) | more)


def json_object(values: Mapping[str, object]) -> str:
    """Returns a mapping as one line of JSON; other values that JSON does not know than structs become text."""
    return json.dumps(values, default=lambda value: asdict(value) if isinstance(value, Struct) else str(value))


def counted(number: int, noun: str) -> str:
    """Says a number with its noun: `1 node`, `3 nodes`, `336,776 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
