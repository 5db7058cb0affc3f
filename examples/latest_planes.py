"""Pipeline 3, change log: the latest state of each key of a compacted topic, as Parquet, as a picture.

    python examples/latest_planes.py --output pipelines

Where is each plane?  Every flight writes the new place of its plane under the plane's number; a plane that does not fly any
more is withdrawn by a record without a value.  The brokers compact the topic, of each plane the newest record stays; Spark takes
the latest of what it finds, so that the result is the same before, while and after the brokers do.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from flights import Place, append, as_json, create_topic, flights, place, session, tell
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from replog import Admin

TOPIC = "planes"
PARTITIONS = 2
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
WITHDRAWN_BEFORE = "2013-07-01"
COMPACTION_SECONDS_MAX = 60
SHOWN_AIRPORTS = 20


def main() -> None:
    """Writes the changes, waits for a compaction, and draws where the planes are."""
    with place(__doc__ or "", {"log.cleaner.backoff.ms": 500}) as where:
        changes = changes_of(flights(where.rows))
        asyncio.run(create_topic(where.bootstrap_servers, TOPIC, partitions=PARTITIONS, **CONFIGS))
        asyncio.run(append(where.bootstrap_servers, TOPIC, changes))
        asyncio.run(wait_for_compaction(where.bootstrap_servers))
        folder = where.output / "latest_planes.parquet"
        read = latest(where, folder)
        planes = pd.read_parquet(folder)
        picture = where.output / "latest_planes.png"
        draw(planes, picture)
        tell(changes=len(changes), read=read, planes=len(planes), table=str(folder), picture=str(picture))


def changes_of(table: pd.DataFrame) -> list[tuple[bytes | None, bytes]]:
    """Returns a (value, key) pair for each flight of a known plane, and (None, key) for each plane that was withdrawn."""
    known = table[table["tailnum"].notna()]
    state = known[["dest", "carrier", "time_hour", "distance"]]
    changes: list[tuple[bytes | None, bytes]] = list(
        zip(as_json(state), map(str.encode, known["tailnum"]), strict=True)
    )
    last_flight = known.groupby("tailnum")["time_hour"].max()
    withdrawn = last_flight[last_flight < WITHDRAWN_BEFORE].index
    return changes + [(None, plane.encode()) for plane in withdrawn]


async def wait_for_compaction(servers: str) -> None:
    """Returns when the brokers hold fewer bytes of the topic than at first, or after a minute: the result is the same."""
    async with Admin(servers) as admin:
        full = size_bytes = await _size_bytes(admin)
        for _ in range(4 * COMPACTION_SECONDS_MAX):
            if size_bytes < full * 3 // 4:
                return
            await asyncio.sleep(0.25)
            size_bytes = await _size_bytes(admin)


async def _size_bytes(admin: Admin) -> int:
    brokers = (await admin.describe_cluster()).brokers
    directories = [each for broker in brokers for each in await admin.describe_log_dirs(broker.broker_id)]
    return sum(replica.size_bytes for each in directories for replica in each.replicas if replica.topic == TOPIC)


def latest(where: Place, folder: Path) -> int:
    """Writes the newest state of each plane to a Parquet folder; returns the number of records that were read for it."""
    spark = session(where)
    try:
        topic = (
            spark.read.format("replog")
            .option("bootstrap.servers", where.bootstrap_servers)
            .option("subscribe", TOPIC)
            .load()
        )
        latest_by_key(topic).write.mode("overwrite").parquet(str(folder))
        return topic.count()
    finally:
        spark.stop()


def latest_by_key(topic: DataFrame) -> DataFrame:
    """Returns a row for each plane in service: where it is, since when, whose it is.

    A key is always in the same partition, so the largest offset is the newest state; one without a value is no plane.
    """
    newest = topic.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("newest"))
    state = F.from_json(F.col("newest.value").cast("string"), "dest string, carrier string, time_hour timestamp")
    return (
        newest.where(F.col("newest.value").isNotNull())
        .select(F.col("key").cast("string").alias("tailnum"), state.alias("state"))
        .select("tailnum", "state.*")
    )


def draw(planes: pd.DataFrame, file: Path) -> None:
    """Draws how many planes are at each airport, in the colours of their airlines."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    airports = planes["dest"].value_counts().head(SHOWN_AIRPORTS).index
    carriers = planes["carrier"].value_counts().head(8).index
    named = planes["carrier"].where(planes["carrier"].isin(carriers), "others")
    grid = pd.crosstab(planes["dest"], named).reindex(index=airports, columns=[*carriers, "others"], fill_value=0)
    figure, axis = plt.subplots(figsize=(11, 7), layout="constrained")
    grid.iloc[::-1].plot.barh(stacked=True, ax=axis, width=0.8, colormap="tab10")
    axis.set_xlabel("planes")
    axis.set_ylabel("")
    axis.set_title(f"Where the {len(planes):,} planes seen in New York in 2013 flew last")
    axis.legend(title="airline", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
