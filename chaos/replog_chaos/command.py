"""`replog chaos`: faults on real processes; the steps are in `replog_chaos`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from replog.config.server_keys import InterBrokerTransport
    from replog_chaos.faults import Links
    from replog_chaos.report import Row

app = typer.Typer(help="Break a cluster of real processes, and see what clients see.", no_args_is_help=True)


@app.command("list")
def list_faults(as_json: common.AsJson = False) -> None:
    """Name the faults, one a line, with what each does."""
    from replog_chaos.faults import FAULTS

    for name, fault in FAULTS.items():
        typer.echo(common.json_object({"name": name, "text": fault.text}) if as_json else f"{name:<24} {fault.text}")


@app.command("run")
def run(
    faults: Annotated[
        str, typer.Option("--faults", metavar="NAME,...", help="Default: all; `replog chaos list` names them.")
    ] = "",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often every fault happens.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=3, max=9, help="Brokers that are controllers too.")] = 3,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=100, help="Of the topic that is written.")] = 3,
    rate: Annotated[float, typer.Option("--rate", min=1, max=10_000, help="Records a second.")] = 300,
    links: Annotated[
        str, typer.Option("--links", help="What cuts them: proxies, or namespaces, which need root.")
    ] = "proxies",
    transport: Annotated[
        str, typer.Option("--transport", help="What nodes meet over (inter.broker.transport): grpc, or tcp.")
    ] = "grpc",
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Let librdkafka's clients write and read the topic too, at the same rate.")
    ] = False,
    report: Annotated[Path, typer.Option("--report", help="The page; the same with .json beside it.")] = Path(
        "chaos.html"
    ),
) -> None:
    """Break brokers, their links, disks and clocks under a steady load, and account for every record.

    What this machine does not permit (mounting, strace) or lacks (a C compiler) is skipped, and said.

    Exit status 1 when an acknowledged record is lost or anything else is not as promised.
    """
    from replog_chaos import report as reports
    from replog_chaos.run import run_chaos

    names, links_kind, between_nodes = names_of(faults), links_of(links), transport_of(transport)
    check_that_clients_are_there(kafka=kafka)
    outcome = common.run(
        run_chaos(
            names,
            rounds=rounds,
            nodes=nodes,
            partitions=partitions,
            rate_per_s=rate,
            say=typer.echo,
            links=links_kind,
            transport=between_nodes,
            kafka=kafka,
        ),
        grace_s=None,  # links, disks and processes are put in order first
    )
    typer.echo(reports.sentence(outcome))
    for row in reports.rows(outcome):
        typer.echo(line_of(row))
    page, data = reports.write(outcome, report)
    typer.echo(f"{page} and {data}")
    raise typer.Exit(1 if outcome.anomalies else 0)


@app.command("groups")
def groups(
    restarts: Annotated[int, typer.Option("--restarts", min=1, help="Of members, one after the other.")] = 100,
    members: Annotated[
        str, typer.Option("--members", help="What they read with: replog, confluent or confluent-classic.")
    ] = "replog",
    rate: Annotated[float, typer.Option("--rate", min=1, max=10_000, help="Records a second.")] = 300,
) -> None:
    """Stop and kill members of a group and their coordinators under load, and count how often each record is handled.

    Exit status 1 when an acknowledged record was handled by nobody.
    """
    from replog_chaos.groups import run_groups

    check_client(members)
    outcome = common.run(run_groups(members, restarts=restarts, rate_per_s=rate, say=typer.echo), grace_s=None)
    for line in outcome.lines():
        typer.echo(line)
    raise typer.Exit(1 if outcome.lost else 0)


@app.command("transactions")
def transactions(
    faults: Annotated[
        str, typer.Option("--faults", metavar="NAME,...", help="Default: all that can happen to these brokers.")
    ] = "",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often every fault happens.")] = 3,
    servers: Annotated[
        str,
        typer.Option("--servers", help="Brokers that run, ours or Kafka's; only clients suffer. Default: new ones."),
    ] = "",
    clients: Annotated[
        str, typer.Option("--clients", help="Whose clients write, chain and read: librdkafka or replog.")
    ] = "librdkafka",
) -> None:
    """Kill, stop and fence clients of transactions, and brokers under them; then look for anomalies in all that they did and saw.

    Exit status 1 when a transaction is there in part, an aborted one is read, an input is passed on twice, or the like.
    """
    from replog_chaos.transactions import run_transactions

    check_that_clients_are_there(kafka=True)
    names = transaction_faults_of(faults, servers)
    check_transaction_clients(clients)
    outcome = common.run(
        run_transactions(names, rounds=rounds, servers=servers, clients=clients, say=typer.echo), grace_s=None
    )
    for line in outcome.text():
        typer.echo(line)
    raise typer.Exit(1 if outcome.anomalies else 0)


def transaction_faults_of(faults: str, servers: str) -> list[str]:
    """Reads `--faults` of transactions; all that can happen to the brokers where it is empty.

    Raises:
        UsageError: There is no such fault, or it cannot happen to brokers that somebody else has started.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.process_faults import PROCESS_FAULTS
    from replog_chaos.transactions import CLIENT_FAULTS

    known = [*CLIENT_FAULTS, *(() if servers else PROCESS_FAULTS)]
    names = [name.strip() for name in faults.split(",") if name.strip()] or known
    for name in names:
        if name not in known:
            raise UsageError("--faults", name, f'--faults: there is no "{name}" here; there are {", ".join(known)}')
    return names


def check_transaction_clients(name: str) -> None:
    """Looks for the clients of `--clients`.

    Raises:
        UsageError: There are none of this name.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.transactions import PROGRAMS

    if name not in PROGRAMS:
        raise UsageError("--clients", name, f'--clients: there is no "{name}"; there are {", ".join(PROGRAMS)}')


def check_client(name: str) -> None:
    """Looks for the client of `--members`.

    Raises:
        UsageError: There is none of this name, or it is not installed.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.group_member import CLIENTS, REPLOG
    from replog_chaos.kafka_load import missing

    if name not in CLIENTS:
        raise UsageError("--members", name, f'--members: there is no "{name}"; there are {", ".join(CLIENTS)}')
    if name != REPLOG and (reason := missing()):
        raise UsageError("--members", name, f"--members: {reason}")


def names_of(faults: str) -> list[str]:
    """Reads `--faults`; all of them where it is empty.

    Raises:
        UsageError: There is no such fault.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.faults import FAULTS

    names = [name.strip() for name in faults.split(",") if name.strip()] or list(FAULTS)
    for name in names:
        if name not in FAULTS:
            raise UsageError("--faults", name, f'--faults: there is no "{name}"; there are {", ".join(FAULTS)}')
    return names


def links_of(text: str) -> Links:
    """Reads `--links`.

    Raises:
        UsageError: There is no such way to cut a link.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.faults import Links

    kinds = {kind.value: kind for kind in Links}
    if text not in kinds:
        raise UsageError("--links", text, f"--links is {' or '.join(kinds)}, not {text}")
    return kinds[text]


def transport_of(text: str) -> InterBrokerTransport:
    """Reads `--transport`.

    Raises:
        UsageError: Nodes do not meet over that.
    """
    from replog.cli.errors import UsageError
    from replog.config.server_keys import InterBrokerTransport

    kinds = {kind.value: kind for kind in InterBrokerTransport}
    if text not in kinds:
        raise UsageError("--transport", text, f"--transport is {' or '.join(kinds)}, not {text}")
    return kinds[text]


def check_that_clients_are_there(*, kafka: bool) -> None:
    """Looks for librdkafka where `--kafka` asks for its clients.

    Raises:
        UsageError: It is not there.
    """
    from replog.cli.errors import UsageError
    from replog_chaos.kafka_load import missing

    if kafka and (reason := missing()):
        raise UsageError("--kafka", "", f"--kafka: {reason}")


def line_of(row: Row) -> str:
    """Returns what the terminal shows of one fault."""
    seconds = "   ".join(f"{name} {value:6.2f} s" for name, value in row.unavailable_s.items())
    return (
        f"{row.name:<24} {row.count:>3}x   {row.acknowledged:>7,} acknowledged, {row.lost} lost, "
        f"{row.duplicated} twice   {seconds}"
    )
