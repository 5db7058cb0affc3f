"""`replog chaos`: faults on real processes; the steps are in `replog_chaos`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common

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
    report: Annotated[Path, typer.Option("--report", help="The page; the same with .json beside it.")] = Path(
        "chaos.html"
    ),
) -> None:
    """Break brokers, their links, disks and clocks under a steady load, and account for every record.

    What this machine does not permit (mounting, strace) or lacks (a C compiler) is skipped, and said.

    Exit status 1 when an acknowledged record is lost or anything else is not as promised.
    """
    from replog.cli.errors import UsageError
    from replog_chaos import report as reports
    from replog_chaos.faults import FAULTS, Links
    from replog_chaos.run import run_chaos

    names = [name.strip() for name in faults.split(",") if name.strip()] or list(FAULTS)
    for name in names:
        if name not in FAULTS:
            raise UsageError("--faults", name, f'--faults: there is no "{name}"; there are {", ".join(FAULTS)}')
    kinds = {kind.value: kind for kind in Links}
    if links not in kinds:
        raise UsageError("--links", links, f"--links is {' or '.join(kinds)}, not {links}")
    outcome = common.run(
        run_chaos(
            names,
            rounds=rounds,
            nodes=nodes,
            partitions=partitions,
            rate_per_s=rate,
            say=typer.echo,
            links=kinds[links],
        ),
        grace_s=None,  # links, disks and processes are put in order first
    )
    typer.echo(reports.sentence(outcome))
    for row in reports.rows(outcome):
        seconds = "   ".join(f"{name} {value:6.2f} s" for name, value in row.unavailable_s.items())
        typer.echo(
            f"{row.name:<24} {row.count:>3}x   {row.acknowledged:>7,} acknowledged, {row.lost} lost, "
            f"{row.duplicated} twice   {seconds}"
        )
    page, data = reports.write(outcome, report)
    typer.echo(f"{page} and {data}")
    raise typer.Exit(1 if outcome.anomalies else 0)
