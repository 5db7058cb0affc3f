"""Pipeline 2, stream: delays in windows of a week, with a watermark, from one topic to another, through a crash.

    python examples/delay_windows.py --output pipelines

The stream runs in a process of its own, which is killed with -9 while it works and started again: Spark's checkpoint says
where it was.  The sink writes at least once, so the reader takes the newest record of each key (airport and week).  The
picture shows the stream's windows as dots on the line that a batch query over the same flights gives; they must be equal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from flights import AIRPORTS, FLIGHT_SCHEMA, Place, append, as_json, create_topic, flights, place, session, tell
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

FLIGHTS, WINDOWS = "departures", "delay-windows"
MICRO_BATCHES = 5
KILLED_AFTER = 2
"""Micro-batches that are complete when the stream is killed."""
START_SECONDS_MAX = 300
WINDOW_SCHEMA = "origin string, week timestamp, flights bigint, mean_delay double"
LATER_THAN_ALL = b'{"time_hour":"2014-03-01T00:00:00Z"}'
"""An event after the last window: the watermark passes it, and the stream emits what it still holds."""


def main() -> None:
    """Fills the topic, runs the stream with a crash in its middle, and compares it with a batch query."""
    if sys.argv[1:2] == ["stream"]:
        stream(sys.argv[2:])
        return
    with place(__doc__ or "") as where:
        table = flights(where.rows)
        records = list(zip(as_json(table), (carrier.encode() for carrier in table["carrier"]), strict=True))
        asyncio.run(create_topic(where.bootstrap_servers, FLIGHTS, partitions=4))
        asyncio.run(create_topic(where.bootstrap_servers, WINDOWS, partitions=1))
        asyncio.run(append(where.bootstrap_servers, FLIGHTS, records))
        batches_before = run_with_a_crash(where, 1 + len(records) // MICRO_BATCHES)
        compare(where, batches_before)


def run_with_a_crash(where: Place, records_per_trigger: int) -> int:
    """Runs the stream, kills it in the middle, runs it to its end; returns how many micro-batches the first run completed."""
    checkpoint = where.scratch / "checkpoint"
    command = [sys.executable, __file__, "stream", where.bootstrap_servers, str(checkpoint), str(records_per_trigger)]
    with subprocess.Popen(command, start_new_session=True) as first:
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while committed(checkpoint) < KILLED_AFTER and first.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            os.killpg(first.pid, signal.SIGKILL)  # Python and Java, in the middle of a micro-batch
    batches_before = committed(checkpoint)
    if batches_before < KILLED_AFTER:
        raise SystemExit(f"the stream completed {batches_before} micro-batches: its output above says why")
    subprocess.run(command, check=True)
    return batches_before


def committed(checkpoint: Path) -> int:
    """Counts the micro-batches that Spark's checkpoint calls complete."""
    return sum(1 for file in checkpoint.glob("commits/*") if file.name.isdigit())


def stream(arguments: Sequence[str]) -> None:
    """Is the stream's own process: reads what is there, then closes the last windows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("records_per_trigger", type=int)
    options = parser.parse_args(arguments)
    where = Place(options.bootstrap_servers, Path(), 0, options.checkpoint.parent)
    spark = session(where)
    try:
        run_to_the_end(spark, options)
        asyncio.run(append(options.bootstrap_servers, FLIGHTS, [(LATER_THAN_ALL, b"end")]))
        run_to_the_end(spark, options)
    finally:
        spark.stop()


def run_to_the_end(spark: SparkSession, options: argparse.Namespace) -> None:
    """Takes up the stream where its checkpoint says, and reads to what is committed now."""
    flights_stream = (
        spark.readStream.format("replog")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.records_per_trigger)
        .load()
    )
    windows = windows_of(flights_stream, watermark="14 days")
    (
        windows.select(
            F.concat_ws(" ", "origin", "week").cast("binary").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
        )
        .writeStream.format("replog")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("topic", WINDOWS)
        .option("checkpointLocation", str(options.checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def windows_of(topic: DataFrame, watermark: str | None = None) -> DataFrame:
    """Returns flights and their mean delay in minutes for each airport and week."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    rows = topic.select(flight).select("flight.*")
    if watermark is not None:
        rows = rows.withWatermark("time_hour", watermark)
    windows = rows.groupBy(F.window("time_hour", "7 days").alias("window"), "origin").agg(
        F.count("*").alias("flights"), F.avg("dep_delay").alias("mean_delay")
    )
    return windows.select("origin", F.col("window.start").alias("week"), "flights", "mean_delay")


def compare(where: Place, batches_before: int) -> None:
    """Compares the stream's windows with those of a batch query, and draws both.

    Raises:
        SystemExit: They differ.
    """
    spark = session(where)
    try:
        batch = sorted_rows(windows_of(read(spark, where, FLIGHTS)).where("origin is not null"))
        written = read(spark, where, WINDOWS)
        newest = written.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
        value = F.from_json(F.col("value").cast("string"), WINDOW_SCHEMA).alias("window")
        streamed = sorted_rows(newest.select(value).select("window.*"))
        twice = written.count() - len(streamed)
    finally:
        spark.stop()
    if not streamed.equals(batch):
        raise SystemExit(f"the stream has {len(streamed)} windows, the batch {len(batch)}, and they differ")
    picture = where.output / "delay_windows.png"
    draw(batch, streamed, picture)
    tell(windows=len(streamed), written_twice=twice, batches_before_the_crash=batches_before, picture=str(picture))


def read(spark: SparkSession, where: Place, topic: str) -> DataFrame:
    """Returns what is committed of a topic now."""
    reader = spark.read.format("replog").option("bootstrap.servers", where.bootstrap_servers)
    return reader.option("subscribe", topic).load()


def sorted_rows(windows: DataFrame) -> pd.DataFrame:
    """Returns the windows in the order of airport and week."""
    return windows.orderBy("origin", "week").toPandas()


def draw(batch: pd.DataFrame, streamed: pd.DataFrame, file: Path) -> None:
    """Draws a line for each airport from the batch query, and a dot for each window of the stream."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(12, 5), layout="constrained")
    for code, name in AIRPORTS.items():
        (line,) = axis.plot("week", "mean_delay", data=batch[batch["origin"] == code], label=name, linewidth=1.5)
        ours = streamed[streamed["origin"] == code]
        axis.scatter(ours["week"], ours["mean_delay"], s=26, color=line.get_color(), zorder=3)
    axis.set_ylabel("mean delay, minutes")
    axis.set_title(
        "Weekly delays out of New York, 2013: dots from the stream that was killed, lines from a batch query"
    )
    axis.legend(frameon=False)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
