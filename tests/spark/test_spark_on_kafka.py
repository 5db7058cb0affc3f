"""Spark reads, streams and writes topics of Apache Kafka by our connector: without a JVM connector, committed records only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as OtherProducer

from replog.client import SyncAdmin
from tests.kafka.secure_doors import SecureDoors

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 3
ROWS = 3_000


@pytest.fixture(scope="module")
def servers(doors: SecureDoors) -> str:
    """The bootstrap servers of a real Kafka node, with two topics."""
    found = doors.at("PLAINTEXT")
    with SyncAdmin(found) as admin:
        for topic in ("rides", "copied"):
            admin.create_topic(topic, PARTITIONS, 1)
    return found


def frame(spark: Any, servers: str, topic: str, **options: str) -> Any:
    return spark.read.format("replog").options(**{"bootstrap.servers": servers, "subscribe": topic} | options).load()


@pytest.fixture(scope="module")
def written(spark: Any, servers: str) -> str:
    """A topic that our sink has written: ROWS rows."""
    rows = spark.range(ROWS).selectExpr("concat('k', id % 100) AS key", "concat('ride ', id) AS value")
    rows.write.format("replog").mode("append").option("bootstrap.servers", servers).option("topic", "rides").save()
    return "rides"


def test_a_batch_reads_what_a_batch_wrote(spark: Any, servers: str, written: str) -> None:
    read = frame(spark, servers, written)
    assert read.count() == ROWS
    values = {row.value for row in read.selectExpr("CAST(value AS STRING) value").collect()}
    assert values == {f"ride {number}" for number in range(ROWS)}
    assert read.selectExpr("CAST(key AS STRING) k").distinct().count() == 100


def test_a_range_of_offsets(spark: Any, servers: str, written: str) -> None:
    some = frame(spark, servers, written, startingOffsets='{"rides": {"0": 5, "1": 5, "2": 5}}', endingOffsets='{"rides": {"0": 15, "1": 6, "2": 5}}')  # fmt: skip
    assert sorted((row.partition, row.offset) for row in some.collect()) == [*((0, n) for n in range(5, 15)), (1, 5)]


def test_a_stream_copies_a_topic_and_goes_on_where_it_was(
    spark: Any, servers: str, written: str, tmp_path: Path
) -> None:
    def copy_all() -> None:
        stream = spark.readStream.format("replog").options(
            **{"bootstrap.servers": servers, "subscribe": written, "startingOffsets": "earliest"}
        )
        query = (
            stream.load()
            .selectExpr("key", "value")
            .writeStream.format("replog")
            .options(**{"bootstrap.servers": servers, "topic": "copied", "checkpointLocation": str(tmp_path / "c")})
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    copy_all()
    assert frame(spark, servers, "copied").count() == ROWS
    copy_all()
    assert frame(spark, servers, "copied").count() == ROWS


def test_a_stream_that_runs_hears_of_new_records(spark: Any, servers: str, tmp_path: Path) -> None:
    with SyncAdmin(servers) as admin:
        admin.create_topic("live", 1, 1)
    seen: list[str] = []

    def take(batch: Any, _number: int) -> None:
        seen.extend(row.value for row in batch.selectExpr("CAST(value AS STRING) value").collect())

    stream = spark.readStream.format("replog").options(
        **{"bootstrap.servers": servers, "subscribe": "live", "startingOffsets": "earliest"}
    )
    query = stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        writer = OtherProducer({"bootstrap.servers": servers})
        for number in range(10):
            writer.produce("live", f"{number}".encode())
        writer.flush(30)
        asyncio.run(until(lambda: len(seen) == 10 or query.exception() is not None))
        assert sorted(seen) == sorted(str(number) for number in range(10))
    finally:
        query.stop()


async def until(condition: Any) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.1)


def test_a_write_that_is_to_be_there_once_is_refused_with_the_reason(spark: Any, servers: str) -> None:
    """Kafka ends a transaction by its time-out, even when all of a write depends on it."""
    writer = spark.range(1).selectExpr("'x' AS value").write.format("replog").mode("append")
    with pytest.raises(Exception) as caught:
        writer.option("bootstrap.servers", servers).option("topic", "copied").option("delivery", "exactlyOnce").save()
    assert "needs brokers that can prepare a transaction" in str(caught.value)
    with SyncAdmin(servers) as admin:
        assert "__replog_spark_writes" not in admin.list_topics()


def test_rows_of_aborted_transactions_are_not_read(spark: Any, servers: str) -> None:
    with SyncAdmin(servers) as admin:
        admin.create_topic("moved", 1, 1)
    producer = OtherProducer({"bootstrap.servers": servers, "transactional.id": "of-moved"})
    producer.init_transactions(30)
    for is_committed in (True, False, True, False):
        producer.begin_transaction()
        for number in range(50):
            producer.produce("moved", f"{is_committed} {number}".encode())
        producer.flush(30)
        producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
    read = frame(spark, servers, "moved").selectExpr("CAST(value AS STRING) value").collect()
    assert sorted({row.value for row in read}) == sorted(f"True {number}" for number in range(50))
    assert len(read) == 100
