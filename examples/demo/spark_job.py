"""Step 5, second half, in a process of its own: the topic as a Spark DataFrame, and as a stream.

Why a process: it can be ended at any moment, Java included, and Spark's output stays out of the way.  It is started as
``python -P spark_job.py ARGUMENTS``, from any folder, imports nothing of the demo, writes one JSON object a line to stdout
as it goes on, everything else to stderr, and the marks of all records (partition, offset, CRC-32 of key and value) as an
Arrow file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from replog.broker.process import die_with_parent

FLIGHT_SCHEMA = "carrier string, origin string, dep_delay bigint"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java: what it would gain from its better compiler within a minute is less than that compiler costs."""

STREAM_BATCHES = 2
"""How many parts the stream comes in at least: the second one goes on with what the first one counted."""


def main() -> int:
    """Runs the job; the exit status is 0 when it went through."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", required=True, type=int, help="records in the topic")
    parser.add_argument("--directory", required=True, type=Path, help="for Spark's files and the marks")
    parser.add_argument("--parent-pid", required=True, type=int)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent_pid)
    out = _own_stdout()
    spark = _session(arguments.directory)
    try:
        _tell(out, stage="session", spark=spark.version, java=_java_version(spark))
        options = {"bootstrap.servers": arguments.bootstrap_servers, "subscribe": arguments.topic}
        records = spark.read.format("replog").options(**options).load()
        _tell(out, stage="groups", rows=_rows(_grouped(records)))
        table = _marks(records)
        file = str(arguments.directory / "marks.arrow")
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        _tell(out, stage="marks", count=table.num_rows)
        rows, batches = _streamed(spark, options, arguments.rows, arguments.directory / "checkpoint")
        _tell(out, stage="stream", rows=rows, batches=batches)
    finally:
        spark.stop()
    return 0


def _own_stdout() -> TextIO:
    """Keeps the real stdout for us alone: Java and its children inherit a stdout that is stderr."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


def _session(directory: Path) -> SparkSession:
    java_options = (
        f"{SHORT_LIVED} -XX:-UsePerfData -Djava.io.tmpdir={_quoted(directory)} -Dderby.system.home={_quoted(directory)}"
    )
    session: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("replog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.local.dir", str(directory))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _quoted(directory: Path) -> str:
    return f'"{directory}"'


def _java_version(spark: SparkSession) -> str:
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 -- the only way to ask
    return str(java.System.getProperty("java.version"))


def _grouped(records: DataFrame) -> DataFrame:
    """Computes carrier, origin, flights, delays, delay minutes and mean for each group: of a table or of a stream."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    return (
        records.select(flight)
        .select("flight.*")
        .groupBy("carrier", "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("delays"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
            F.avg("dep_delay").alias("mean"),
        )
    )


def _rows(frame: DataFrame) -> list[list[Any]]:
    return [list(row) for row in frame.collect()]


def _streamed(spark: SparkSession, options: dict[str, str], rows: int, checkpoint: Path) -> tuple[list[list[Any]], int]:
    """Lets a stream read what is there, in parts; returns the groups that it ended with, and the number of the parts."""
    records = (
        spark.readStream.format("replog")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=-(-rows // STREAM_BATCHES))
        .load()
    )
    query = (
        _grouped(records)
        .writeStream.format("memory")
        .queryName("streamed")
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _rows(spark.table("streamed")), sum(progress.numInputRows > 0 for progress in query.recentProgress)


def _marks(records: DataFrame) -> pa.Table:
    """Returns where each record stands and what it says, in 20 bytes."""
    content = F.concat(F.coalesce(F.col("key"), F.lit(b"")), F.coalesce(F.col("value"), F.lit(b"")))
    table: pa.Table = records.select("partition", "offset", F.crc32(content).alias("crc")).toArrow()
    return table


def _tell(out: TextIO, **fields: object) -> None:
    out.write(json.dumps(fields) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
