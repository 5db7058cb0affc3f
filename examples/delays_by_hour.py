"""Pipeline 1, batch: a committed snapshot of a topic, aggregated, as Parquet, as a picture.

    python examples/delays_by_hour.py --output pipelines

When does one leave New York late?  The flights are read from a topic as JSON, what is committed when the DataFrame is made and
not a record more; Spark computes the mean delay for each airport, month and hour; the picture is drawn from the Parquet file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from flights import AIRPORTS, FLIGHT_SCHEMA, Place, append, as_json, create_topic, flights, place, session, tell
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

TOPIC = "flights"
HOURS = range(5, 24)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def main() -> None:
    """Fills the topic, aggregates it, and draws the result."""
    with place(__doc__ or "") as where:
        table = flights(where.rows)
        records = list(zip(as_json(table), (carrier.encode() for carrier in table["carrier"]), strict=True))
        asyncio.run(create_topic(where.bootstrap_servers, TOPIC, partitions=4))
        asyncio.run(append(where.bootstrap_servers, TOPIC, records))
        folder = where.output / "delays_by_hour.parquet"
        count = aggregate(where, folder)
        picture = where.output / "delays_by_hour.png"
        draw(pd.read_parquet(folder), picture)
        tell(flights=len(records), read=count, table=str(folder), picture=str(picture))


def aggregate(where: Place, folder: Path) -> int:
    """Writes the delays to a Parquet folder; returns the number of records that were read."""
    spark = session(where)
    try:
        topic = (
            spark.read.format("replog")
            .option("bootstrap.servers", where.bootstrap_servers)
            .option("subscribe", TOPIC)
            .load()
        )
        delays_by_hour(topic).write.mode("overwrite").parquet(str(folder))
        return topic.count()  # of the same snapshot
    finally:
        spark.stop()


def delays_by_hour(topic: DataFrame) -> DataFrame:
    """Returns flights, cancellations and the mean delay in minutes for each airport, month and hour."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    return (
        topic.select(flight)
        .select("flight.*")
        .groupBy("origin", "month", "hour")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay"),
        )
        .orderBy("origin", "month", "hour")
    )


def draw(delays: pd.DataFrame, file: Path) -> None:
    """Draws one heat map for each airport: hours from left to right, months from top to bottom."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(AIRPORTS), figsize=(15, 5), sharey=True, layout="constrained")
    for axis, (code, name) in zip(axes, AIRPORTS.items(), strict=True):
        ours = delays[delays["origin"] == code]
        grid = ours.pivot_table(index="month", columns="hour", values="mean_delay")
        grid = grid.reindex(index=range(1, 13), columns=HOURS)
        image = axis.imshow(grid, cmap="RdYlBu_r", vmin=-5, vmax=50, aspect="auto")
        axis.set_title(f"{name} ({code}), {int(ours['flights'].sum()):,} flights")
        axis.set_xticks(range(0, len(HOURS), 3), [f"{hour}:00" for hour in HOURS[::3]])
        axis.set_yticks(range(12), MONTHS)
        axis.set_xlabel("scheduled departure")
    figure.colorbar(image, ax=axes, label="mean delay, minutes", extend="both")
    figure.suptitle("Delays out of New York, 2013: early in the day is on time")
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
