"""`replog storage` and `replog server`: formats the log directories of a node before its first start, and runs it."""

from __future__ import annotations

import base64
import binascii
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, check_user_name
from replog.access.scram import credential_of, new_salt, salted_password
from replog.cli import common
from replog.cli.errors import UsageError
from replog.errors import InvalidRequestError
from replog.metadata.records import UserScramCredentialRecord

if TYPE_CHECKING:
    from replog.config.server import ServerConfig
    from replog.errors import InconsistentClusterIdError


PEER_TIMEOUT_MS = 1_000
"""For a voter that runs already to say which cluster it is of."""

app = typer.Typer(help="Format log directories.", no_args_is_help=True)
server_app = typer.Typer(help="Run one node.", no_args_is_help=True)

_CLUSTER_ID = re.compile("[A-Za-z0-9_-]{1,64}")


@app.command("format")
def format_storage(
    config: Annotated[Path, typer.Option("--config", help="TOML file of the node.")],
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="The same on every node; default: cluster.id of the file, or new."),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="USER",
            help="A user whom a new cluster has: SCRAM-SHA-512=[name=alice,password=...]; - reads one a line from standard input. "
            "On each controller of it; may be given again.",
        ),
    ] = None,
) -> None:
    """Write the identity of the cluster and the node into the log directories of a node.

    Where one of them was formatted before, or another node of the quorum knows another cluster id, all are refused.
    """
    from replog.config.server import ServerConfig

    server = ServerConfig.from_toml(config)
    users = _first_users(server, add_scram or [])
    chosen = _choose_cluster_id(server.cluster_id, cluster_id)
    for path in server.log_dirs:
        _refuse_formatted(path)
    common.run(_refuse_other_cluster(server, chosen))
    for path in server.log_dirs:
        directory_id = _format(path, chosen, server.node_id)
        typer.echo(f"formatted {path} for node {server.node_id}, directory id {directory_id}", err=True)
    if users:
        from replog.broker.node.first_users import write_first_users
        from replog_checkpoints import OsFileSystem

        before = os.umask(0o077)  # by what is in it passwords can be tried
        try:
            write_first_users(OsFileSystem(), server.log_dir, users)
        finally:
            os.umask(before)
    typer.echo(chosen)


@app.command("random-uuid")
def random_uuid() -> None:
    """Print a new cluster id."""
    from replog.metadata.cluster_ids import new_cluster_id

    typer.echo(new_cluster_id())


def _first_users(server: ServerConfig, texts: list[str]) -> list[UserScramCredentialRecord]:
    """Returns the users that `--add-scram` names.

    Raises:
        UsageError: A text names none, or the node begins no metadata log.
    """
    from replog.cli.errors import UsageError

    if not texts:
        return []
    from replog.broker.node.first_users import USERS_MAX

    if not server.is_controller:
        raise UsageError(
            OPTION, "[hidden]", f"{OPTION} is of controllers: this node has another role, and begins no cluster"
        )
    given = [each for text in texts for each in (sys.stdin.read(1 << 20).splitlines() if text == "-" else [text])]
    users = [first_user(text) for text in given if text.strip()]
    if len({(user.name, user.mechanism) for user in users}) < len(users):
        raise UsageError(OPTION, "[hidden]", f"{OPTION} names a user twice for one mechanism")
    if len(users) > USERS_MAX:
        raise UsageError(
            OPTION, "[hidden]", f"{OPTION} names {len(users)} users, at most {USERS_MAX}: add others later"
        )
    return users


def _choose_cluster_id(configured: str | None, given: str | None) -> str:
    from replog.cli.errors import UsageError

    if given is not None and not _CLUSTER_ID.fullmatch(given):
        raise UsageError("--cluster-id", given, f'--cluster-id "{given}" is not 1 to 64 of A-Z a-z 0-9 _ -')
    if configured is not None and given is not None and configured != given:
        raise UsageError(
            "--cluster-id", given, f"--cluster-id is {given}, the file says cluster.id = {configured}. Leave one out"
        )
    from replog.metadata.cluster_ids import new_cluster_id

    return given or configured or new_cluster_id()


def _refuse_formatted(path: str) -> None:
    """Refuses a log directory that is formatted already; changes nothing.

    Raises:
        UsageError: The directory is formatted already.
        CorruptCheckpointError: The file that says so, `meta.properties`, is damaged.
    """
    from replog.cli.errors import UsageError
    from replog.errors import CorruptCheckpointError
    from replog_checkpoints import META_PROPERTIES_FILE, DamagedCheckpointError, OsFileSystem, read_meta_properties

    try:
        found = read_meta_properties(OsFileSystem(), f"{path}/{META_PROPERTIES_FILE}")
    except DamagedCheckpointError as error:
        raise CorruptCheckpointError(error.path, error.line, f"{error.reason}. Nothing was changed") from error
    if found is not None:
        raise UsageError(
            "log.dirs",
            path,
            f"{path} is formatted already, for node {found.node_id} of cluster {found.cluster_id}. "
            "Start the node, or choose another directory",
        )


async def _refuse_other_cluster(server: ServerConfig, cluster_id: str) -> None:
    """Refuses another cluster id than the peers': with it the node would never be part of their quorum.

    Raises:
        UsageError: A voter that runs already knows another cluster id.
    """
    import asyncio

    from replog.cli.errors import UsageError

    voters = [voter for voter in server.controller_quorum_voters if voter.voter_id != server.node_id]
    found = await asyncio.gather(*(_refusal_of(str(voter.endpoint), server, cluster_id) for voter in voters))
    for refusal in found:
        if refusal is not None:
            raise UsageError(
                "--cluster-id",
                cluster_id,
                f"{refusal} Nothing was changed: use that cluster's id with --cluster-id, or another controller.quorum.voters",
            )


async def _refusal_of(address: str, server: ServerConfig, cluster_id: str) -> InconsistentClusterIdError | None:
    """Asks a node whether it is of a cluster; returns its refusal, None where it is or nobody answers."""
    from replog.broker.node.environment import peer_network
    from replog.broker.node.resources import node_tls
    from replog.errors import ConfigError, InconsistentClusterIdError, ReplogError
    from replog.rpc.node_messages import DescribeNodeRequest

    try:
        network = peer_network(server.inter_broker_transport, node_tls(server, cluster_id))
    except ConfigError:  # there is no certificate for this cluster yet, and without one nobody answers
        return None
    connection = network.transport.connect(address, purpose="format")
    try:
        await connection.call(DescribeNodeRequest(()), timeout_ms=PEER_TIMEOUT_MS, cluster_id=cluster_id)
    except InconsistentClusterIdError as error:
        return error
    except ReplogError:
        return None
    finally:
        await connection.close()
    return None


def _format(path: str, cluster_id: str, node_id: int) -> str:
    """Formats a log directory and returns its id.

    Raises:
        ReplogError: The directory is in use, or holds replicas without an identity.
    """
    from replog.log import LogDirectory
    from replog_checkpoints import OsFileSystem, uuid_to_text

    now_ms = time.time_ns() // 1_000_000
    directory = LogDirectory.open(OsFileSystem(), path, cluster_id=cluster_id, node_id=node_id, now_ms=now_ms)
    directory_id = uuid_to_text(directory.meta.directory_id)
    directory.close(now_ms=now_ms, broker_epoch=None)
    return directory_id


@server_app.callback()
def _group() -> None:
    """Keeps `start` a command of its own although it is the only one."""


@server_app.command("start")
def start(
    config: Annotated[Path, typer.Option("--config", help="TOML file with Kafka's dotted keys.")],
    accept_empty: Annotated[
        bool,
        typer.Option("--accept-empty", help="Format log directories that hold no data, whatever they should hold."),
    ] = False,
) -> None:
    """Run a node until Ctrl-C or SIGTERM, then stop it in order."""
    from replog.broker.__main__ import main

    raise typer.Exit(main(["--config", str(config), *(["--accept-empty"] if accept_empty else [])]))


OPTION = "--add-scram"

_NAMES = ("name", "password", "iterations", "salt", "saltedpassword")
_SHAPE = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", re.DOTALL)


def first_user(text: str) -> UserScramCredentialRecord:
    """Returns the record of `SCRAM-SHA-256=[name=alice,password=...]`.

    Instead of `password` there may be `salt` and `saltedpassword`, in base64; `iterations` is 4,096 where it is not said.

    Raises:
        UsageError: The text is none; the error repeats nothing of it, for there is a password in it.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise _wrong("is not SCRAM-SHA-256=[name=...,password=...] or the same of SCRAM-SHA-512")
    mechanism = next(each for each in ScramMechanism if each.sasl_name == found[1])
    values = _values(found[2])
    try:
        check_user_name(values.get("name", ""))
    except InvalidRequestError as error:
        raise _wrong(f"names no user: {error}") from None
    iterations = values.get("iterations", str(ITERATIONS_MIN))
    if not re.fullmatch(r"\d{1,6}", iterations) or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise _wrong(f"has iterations that are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = _decoded("salt", values["salt"]) if "salt" in values else new_salt()
    salted = _salted(mechanism, values, salt, int(iterations))
    kept = credential_of(mechanism, salted, salt, int(iterations))
    return UserScramCredentialRecord(
        values["name"], mechanism, kept.salt, kept.stored_key, kept.server_key, kept.iterations
    )


def _salted(mechanism: ScramMechanism, values: Mapping[str, str], salt: bytes, iterations: int) -> bytes:
    if ("password" in values) == ("saltedpassword" in values):
        raise _wrong("needs either password, or salt and saltedpassword")
    if "password" in values:
        if not values["password"]:
            raise _wrong("has an empty password")
        return salted_password(mechanism, values["password"].encode(), salt, iterations)
    if "salt" not in values:
        raise _wrong("has a saltedpassword without its salt")
    salted = _decoded("saltedpassword", values["saltedpassword"])
    if len(salted) != mechanism.key_bytes:
        raise _wrong(f"has a saltedpassword of {len(salted)} bytes; {mechanism.sasl_name} has {mechanism.key_bytes}")
    return salted


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if not separator or name not in _NAMES or name in values:
            raise _wrong(f"has something beside {', '.join(_NAMES)}, or one of them twice")
        values[name] = value
    return values


def _decoded(name: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        found = b""
    if not found:
        raise _wrong(f"has a {name} that is no base64")
    return found


def _wrong(reason: str) -> UsageError:
    return UsageError(OPTION, "[hidden]", f"{OPTION} {reason}")
