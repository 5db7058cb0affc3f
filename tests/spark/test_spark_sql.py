"""What SQL and other threads can do with the data source: real Spark, real broker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.spark.spark_kit import SparkCluster

pytestmark = pytest.mark.spark

Read = Callable[..., Any]


@pytest.fixture
def topic(spark_cluster: SparkCluster) -> str:
    name = spark_cluster.topic(partitions=2)
    for partition in (0, 1):
        spark_cluster.send_values(name, [b"%d" % number for number in range(10)], partition)
    return name


@pytest.fixture
def sql(spark: Any, spark_cluster: SparkCluster, topic: str) -> Iterator[Callable[[str], Any]]:
    """Runs a statement in which `{servers}` and `{topic}` stand for those of the test; what it made is dropped."""
    yield lambda text: spark.sql(text.format(servers=spark_cluster.bootstrap_servers, topic=topic))
    for name in ("rides", "sink"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    for name in ("view", "frame"):
        spark.catalog.dropTempView(name)


Sql = Callable[[str], Any]
OPTIONS = "OPTIONS (`bootstrap.servers` '{servers}', subscribe '{topic}')"
WITH = "WITH ('bootstrap.servers' = '{servers}', 'subscribe' = '{topic}')"


def test_a_temporary_view_is_a_snapshot_with_a_name(sql: Sql, spark_cluster: SparkCluster, topic: str) -> None:
    sql(f"CREATE TEMPORARY VIEW view USING replog {OPTIONS}")
    wanted = "SELECT partition, count(*), max(CAST(CAST(value AS STRING) AS INT)) FROM view GROUP BY 1 ORDER BY 1"
    assert [tuple(row) for row in sql(wanted).collect()] == [(0, 10, 9), (1, 10, 9)]
    spark_cluster.send_values(topic, [b"10"] * 5)
    assert [tuple(row) for row in sql(wanted).collect()] == [(0, 10, 9), (1, 10, 9)]
    sql(f"CREATE OR REPLACE TEMPORARY VIEW view USING replog {OPTIONS}")
    assert [tuple(row) for row in sql(wanted).collect()] == [(0, 15, 10), (1, 10, 9)]


def test_a_dataframe_may_be_a_view(sql: Sql, read: Read, topic: str) -> None:
    read(topic).createOrReplaceTempView("frame")
    joined = "SELECT count(*) FROM frame a JOIN frame b USING (partition, offset) WHERE a.value = b.value"
    assert sql(joined).first()[0] == 20


def test_a_table_that_would_lose_its_options_is_refused(sql: Sql) -> None:
    """Goal: Spark keeps the options of a table from its queries; nobody finds that out by a table that says something else."""
    with pytest.raises(Exception) as caught:
        sql(f"CREATE TABLE rides USING replog {OPTIONS}")
    assert "CREATE TABLE ... USING replog OPTIONS is refused" in str(caught.value)
    assert "CREATE TEMPORARY VIEW rides USING replog OPTIONS (`bootstrap.servers`" in str(caught.value)


def test_a_table_with_columns_takes_its_options_with_each_use(spark: Any, sql: Sql, read: Read, topic: str) -> None:
    """Goal: Spark makes it without asking the source; without options in the query the error says what to write."""
    sql(f"CREATE TABLE rides (offset BIGINT, value BINARY) USING replog {OPTIONS}")
    for text in ("SELECT * FROM rides", "INSERT INTO rides VALUES (1L, CAST('v' AS BINARY))"):
        with pytest.raises(Exception) as caught:
            sql(text).collect()
        assert "SELECT ... FROM rides WITH ('bootstrap.servers' = '...', 'subscribe' = 'rides')" in str(caught.value)
    with pytest.raises(Exception) as caught:
        spark.readStream.table("rides").writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    assert "none has arrived" in str(caught.value)
    assert sql(f"SELECT max(offset) FROM rides {WITH}").first()[0] == 9
    sql("CREATE TABLE sink (value STRING) USING replog")
    sql("INSERT INTO sink WITH ('bootstrap.servers' = '{servers}', 'topic' = '{topic}') VALUES ('a'), ('b')")
    assert read(topic).count() == 22


def test_another_thread_reads_and_with_a_session_of_its_own_writes(
    spark: Any, read: Read, spark_cluster: SparkCluster, topic: str
) -> None:
    """Goal: Spark looks up the format of a write in the session of the thread, and a thread of its own has none."""
    rows = spark.range(3).selectExpr("CAST(id AS STRING) value")

    def write() -> None:
        writer = rows.write.format("replog").mode("append").option("bootstrap.servers", spark_cluster.bootstrap_servers)
        writer.option("topic", topic).save()

    def take_session_and_write() -> None:
        spark.createDataFrame([], "x int")  # what docs/SPARK.md says
        write()

    with ThreadPoolExecutor(1) as pool:  # one thread for all: the last step finds what the one before left
        assert pool.submit(lambda: read(topic).count()).result() == 20
        with pytest.raises(Exception) as caught:
            pool.submit(write).result()
        assert "DATA_SOURCE_NOT_FOUND" in str(caught.value)
        pool.submit(take_session_and_write).result()
    assert read(topic).count() == 23
