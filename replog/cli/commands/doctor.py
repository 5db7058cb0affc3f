"""`replog doctor` and `replog debug`: whether the brokers can be used from here, why not, and what somebody else needs to find out."""

from __future__ import annotations

import asyncio
import os
import resource
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import replog
from replog.cli import client_config, common
from replog.cli.checks.cluster import Diagnosis, Heard, Level, bootstrap_findings, cluster_findings, worst
from replog.cli.errors import FAILED
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.client import Admin
    from replog.client.admin.health import BrokerHealth
    from replog.cluster import LocalCluster

ASK_MS = 3_000
"""Limit of each question to one broker."""

ASKED_AT_ONCE_MAX = 50

debug_app = typer.Typer(help="Find out what is wrong with a cluster.", no_args_is_help=True)


def doctor(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show whether brokers are reached from here, and what they are short of: a line each, ok, warn or wrong, with what to do.

    Addresses as they are advertised, versions, clocks, disks, open files, the controller and the partitions; of Apache Kafka what its
    protocol tells. Exit status 1 if anything is wrong.
    """
    findings = common.run(_look(bootstrap_servers))
    for finding in findings:
        if as_json:
            typer.echo(common.json_line(finding))
        else:
            advice = f". {finding.advice}" if finding.advice else ""
            typer.echo(f"{finding.level.value:<6}{finding.subject}: {finding.text}{advice}")
    if worst(findings) is Level.WRONG:
        raise typer.Exit(FAILED)


async def _look(bootstrap_servers: str) -> list[Diagnosis]:
    from replog.client import Admin
    from replog.client.admin.health import cluster_health
    from replog.client.cluster.addresses import parse_bootstrap_servers

    addresses = parse_bootstrap_servers(bootstrap_servers)
    with common.waiting("asking the brokers") as say:
        troubles = await asyncio.gather(*map(common.trouble_at, addresses))
        findings = list(bootstrap_findings(dict(zip(addresses, troubles, strict=True))))
        if all(troubles):
            return findings
        async with Admin(bootstrap_servers, timeout_ms=common.TIMEOUT_MS, security=client_config.security()) as admin:
            try:
                health = await cluster_health(admin)
            except ReplogError as error:
                advice = "Is it a broker that listens there? Its log says what it waits for"
                return [
                    *findings,
                    Diagnosis(Level.WRONG, "cluster", f"tells no metadata: {str(error).rstrip('.')}", advice),
                ]
            say(f"asking {common.counted(len(health.brokers), 'broker')}")
            limit = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
            known = [broker for broker in health.brokers if broker.address != "-"]
            heard = await asyncio.gather(*(_hear(admin, broker, limit) for broker in known))
        by_id = {broker.broker_id: each for broker, each in zip(known, heard, strict=True)}
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        judged = cluster_findings(
            addresses,
            health,
            by_id,
            own_version=replog.__version__,
            own_files_max=files_max if files_max >= 0 else 1 << 30,
        )
        return [*findings, *judged]


async def _hear(admin: Admin, broker: BrokerHealth, limit: asyncio.Semaphore) -> Heard:
    """Asks one broker; what it does not answer is left out."""
    async with limit:
        trouble = await common.trouble_at(broker.address)
        if trouble is not None:
            return Heard(trouble, None, 0, 0, "it cannot be reached")
        await _answer(admin.describe_node(broker.address, partitions=(), timeout_ms=ASK_MS))  # connects
        began_s = time.perf_counter()
        began_ms = time.time() * 1000
        node = await _answer(admin.describe_node(broker.address, partitions=(), timeout_ms=ASK_MS))
        round_trip_ms = (time.perf_counter() - began_s) * 1000
        directories = await _answer(admin.describe_log_dirs(broker.address, timeout_ms=ASK_MS))
        told = directories if isinstance(directories, tuple) else str(directories)
        return Heard(
            None, None if isinstance(node, ReplogError) else node, began_ms + round_trip_ms / 2, round_trip_ms, told
        )


async def _answer(asked: Any) -> Any:
    """Returns the answer, or the error in its place."""
    try:
        return await asked
    except ReplogError as error:
        return error


@debug_app.callback()
def _group() -> None:
    """Keeps `bundle` a command of a group."""


@debug_app.command("bundle")
def bundle(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write; must not exist.")
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Write an archive with what a maintainer asks for: versions, configuration, status, quorum, metrics, last log lines.

    No records; secrets are hidden. Names, addresses and paths are in it: its README.txt says what is where. It is written also
    while nodes do not answer. With --dir, logs too.
    """
    cluster = None if directory is None else common.local_cluster(bootstrap_servers, directory)
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            found = common.run(_bundle_parts(bootstrap_servers, cluster))
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in found.items():
                    archive.writestr(name, data)
        except BaseException:
            output.unlink(missing_ok=True)
            raise
    missing = [name for name, data in found.items() if data.startswith(b"error:")]
    typer.echo(
        f"{output}: {common.counted(len(found), 'file')}, {output.stat().st_size:,} bytes. Read it before you send it"
    )
    for name in missing:
        typer.echo(f"  {name} could not be had; it says why")


async def _bundle_parts(bootstrap_servers: str, cluster: LocalCluster | None) -> dict[str, bytes]:
    from replog.cli.checks.bundle import parts

    servers = bootstrap_servers if cluster is None else cluster.bootstrap_servers
    with common.waiting("asking the nodes"):
        try:
            admin = await common.admin_of(servers)
        except ReplogError:
            if cluster is None:
                raise
            return await parts(None, cluster)
        async with admin:
            return await parts(admin, cluster)
