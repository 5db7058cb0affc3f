"""`replog demo`: the whole system at work in a minute; the steps are in `replog.cli.demo`."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="A tenth of the rows.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the log directories, and print where.")] = False,
    nodes: Annotated[int, typer.Option("--nodes", min=3, max=9, help="Broker processes.")] = 3,
) -> None:
    """Start brokers, write a year of flights, kill a leader on the way, and read everything back, also with Spark.

    Exit status 1 when a single record differs from what was acknowledged.
    """
    from replog.cli.demo.run import run_demo

    raise typer.Exit(run_demo(is_fast=fast, keep=keep, nodes=nodes))
