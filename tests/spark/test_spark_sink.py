"""Spark writes topics: real Spark, real broker processes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.lint import page_examples
from tests.spark.spark_kit import SparkCluster, wait_until

pytestmark = pytest.mark.spark

Read = Callable[..., Any]
ROWS = 100_000
NUMBERED = "concat(lpad(CAST(id AS STRING), 8, '0'), repeat('x', 300)) value"
"""A column that begins with the number of the row."""

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def write(spark_cluster: SparkCluster) -> Callable[..., None]:
    """`write(frame, topic, option=value)`: appends the rows."""

    def save(frame: Any, topic: str | None = None, mode: str = "append", **options: object) -> None:
        writer = frame.write.format("replog").mode(mode).option("bootstrap.servers", spark_cluster.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", topic)
        for name, value in options.items():
            writer = writer.option(name.replace("_", "."), value)
        writer.save()

    return save


Write = Callable[..., None]


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    """What a read found, in order, with bytes for binary."""
    found = frame.orderBy("partition", "offset").selectExpr(
        "key", "value", "partition", "unix_millis(timestamp) as ms", "headers"
    )
    return [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.partition,
            row.ms,
            row.headers and [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers],
        )
        for row in found.collect()
    ]


@pytest.mark.parametrize("large", [False, True], ids=["plain", "large var types"])
def test_every_column_arrives(spark: Any, read: Read, write: Write, spark_cluster: SparkCluster, large: bool) -> None:
    """Goal: nulls and empties of each column stay two things, and large Arrow types change nothing."""
    topic = spark_cluster.topic(partitions=3, retention_ms=-1)
    frame = spark.createDataFrame(
        [
            (b"k", b"v", topic, 2, 1_700_000_000_123, [("a", b"1"), ("a", None), ("", b"")]),
            (None, None, topic, 2, 0, None),
            (b"", b"", topic, 2, 5, []),
            (None, b"chosen", topic, None, 6, None),
        ],
        f"key binary, value binary, topic string, partition int, ms bigint, headers {HEADERS}",
    ).selectExpr("key", "value", "topic", "partition", "timestamp_millis(ms) as timestamp", "headers")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", str(large).lower())
    try:
        write(frame.coalesce(1))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    found = rows_of(read(topic, includeHeaders="true"))
    (chosen,) = [row for row in found if row[1] == b"chosen"]
    assert chosen[3] == 6
    assert [row for row in found if row != chosen] == [
        (b"k", b"v", 2, 1_700_000_000_123, [("a", b"1"), ("a", None), ("", b"")]),
        (None, None, 2, 0, None),
        (b"", b"", 2, 5, None),
    ]


def test_text_is_utf8_and_keys_are_placed_as_the_client_places_them(
    spark: Any, read: Read, write: Write, spark_cluster: SparkCluster
) -> None:
    topic, other = spark_cluster.topic(partitions=4), spark_cluster.topic(partitions=4)
    frame = spark.range(20_000).selectExpr("CAST(id % 97 AS STRING) key", "concat('zwölf ', id) value")
    write(frame, topic, kafka_compression_type="gzip")
    with spark_cluster.producer() as producer:
        producer.send_many(other, [(b"x", b"%d" % number) for number in range(97)]).result(30)
    found = {
        row.key: row.partition
        for row in read(topic).selectExpr("CAST(key AS STRING) key", "partition").distinct().collect()
    }
    expected = {
        row.key: row.partition for row in read(other).selectExpr("CAST(key AS STRING) key", "partition").collect()
    }
    assert found == expected
    texts = read(topic).selectExpr("CAST(value AS STRING) value").distinct()
    assert texts.exceptAll(frame.select("value")).count() == 0
    assert texts.count() == 20_000


def test_each_row_may_name_its_topic(spark: Any, read: Read, write: Write, spark_cluster: SparkCluster) -> None:
    topics = [spark_cluster.topic() for _ in range(3)]
    listed = ", ".join(f"'{topic}'" for topic in topics)
    named = f"element_at(array({listed}), CAST(id % 3 AS INT) + 1)"
    frame = spark.range(3_000).selectExpr("CAST(id AS STRING) value", f"{named} topic")
    write(frame)
    for number, topic in enumerate(topics):
        found = [int(row.value) for row in read(topic).selectExpr("CAST(value AS STRING) value").collect()]
        assert sorted(found) == list(range(number, 3_000, 3))


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "mode", "options", "text"),
    [
        (["id value"], "append", {}, 'column "value" is bigint; binary or string is accepted'),
        (["'x' valeu"], "append", {}, 'column "valeu" cannot be written. Did you mean "value"?'),
        (["'x' value"], "overwrite", {}, 'mode "overwrite" is refused'),
        (["'x' value"], "error", {}, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        (["'x' value"], "ignore", {}, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        (["'x' value"], "append", {"kafka.acks": "0"}, 'kafka.acks is "0"'),
    ],
)
def test_what_cannot_be_written_is_refused_at_planning(
    spark: Any,
    write: Write,
    spark_cluster: SparkCluster,
    columns: list[str],
    mode: str,
    options: dict[str, str],
    text: str,
) -> None:
    with pytest.raises(Exception) as caught:
        write(spark.range(3).selectExpr(*columns), "nowhere", mode, **options)
    assert text in str(caught.value)


def test_a_row_that_cannot_be_written_is_named_and_what_is_written_is_counted(
    spark: Any, write: Write, spark_cluster: SparkCluster
) -> None:
    topic = spark_cluster.topic()
    frame = spark.range(0, 1000, 1, 1)
    with pytest.raises(Exception) as caught:
        write(frame.selectExpr("'x' value", f"IF(id = 321, NULL, '{topic}') topic"))
    assert 'row 321 of the task (counted from 0): its column "topic" is null' in str(caught.value)
    with pytest.raises(Exception) as caught:
        write(frame.selectExpr("IF(id = 500, repeat('x', 2000000), 'x') value"), topic)
    assert "rows sent were acknowledged" in str(caught.value)
    assert "raise kafka.max.request.size here" in str(caught.value)
    assert f"RecordTooLargeError (among the rows for {topic} from row 0 of the task on): {topic}: row 500" in str(
        caught.value
    )
    with pytest.raises(Exception) as caught:
        write(frame.selectExpr("'x' value"), "nowhere")
    assert 'UnknownTopicOrPartitionError: topic: topic "nowhere" does not exist' in str(caught.value)
    assert "attempt" not in str(caught.value), "no task has been started"


# ---- trouble in the middle ---------------------------------------------------------------------------------------------


def counted(read: Read, topic: str) -> Counter[int]:
    """How often each number was written."""
    rows = (
        read(topic).selectExpr("CAST(substring(CAST(value AS STRING), 1, 8) AS INT) number").groupBy("number").count()
    )
    return Counter({row.number: row["count"] for row in rows.collect()})


def test_a_leader_killed_in_the_middle_loses_no_row(
    spark: Any, read: Read, write: Write, spark_cluster: SparkCluster
) -> None:
    """Goal: every row at least once; within one attempt of a task none twice, for the producer is idempotent."""
    topic = spark_cluster.topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    spark_cluster.admin.wait_until_in_sync(topic)
    leader = spark_cluster.admin.describe_topics([topic])[topic].partitions[0].leader
    frame = spark.range(0, ROWS, 1, 2).selectExpr(NUMBERED)
    is_over = threading.Event()

    def kill_in_the_middle() -> int:
        wait_until(lambda: is_over.is_set() or spark_cluster.end_offset(topic) > 0, 120)
        assert not is_over.is_set(), "the kill came too late"
        written_count = spark_cluster.end_offset(topic)
        spark_cluster.run(spark_cluster.local.kill(leader))
        return written_count

    with ThreadPoolExecutor(1) as pool:  # the write stays in this thread, which Spark knows
        killing = pool.submit(kill_in_the_middle)
        try:
            write(frame, topic)
            is_over.set()
            assert killing.result(60) < ROWS
            found = counted(read, topic)
            assert len(found) == ROWS
            assert sum(found.values()) == ROWS, "an idempotent producer doubles no row"
        finally:
            is_over.set()
            if killing.exception(120) is None:
                spark_cluster.local.start_node(leader)
            spark_cluster.run(spark_cluster.local.wait_until_ready())
            spark_cluster.admin.wait_until_in_sync(topic)


# ---- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_started_again_goes_on(
    spark: Any, read: Read, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Goal: every row of every file at least once, and of the micro-batches that were committed none again."""
    topic = spark_cluster.topic(partitions=2)
    source = tmp_path / "source"
    source.mkdir()

    def run(first: int, mode: str = "append") -> None:
        (source / f"{first}.txt").write_text("".join(f"{number}\n" for number in range(first, first + 1000)))
        stream = spark.readStream.schema("value string").text(str(source))
        counted = stream.groupBy("value").count().selectExpr("value") if mode != "append" else stream
        query = (
            counted.writeStream.format("replog")
            .outputMode(mode)
            .option("bootstrap.servers", spark_cluster.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{mode}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for first in (0, 1000):
        run(first)
        found = [int(row.value) for row in read(topic).selectExpr("CAST(value AS STRING) value").collect()]
        assert sorted(found) == list(range(first + 1000))
    with pytest.raises(Exception) as caught:
        run(2000, "complete")
    assert 'mode "complete" is refused' in str(caught.value)


def test_the_pipeline_of_the_guide_goes_on_where_it_was(
    spark: Any, spark_cluster: SparkCluster, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of docs/guides/SPARK_PIPELINE.md, twice, in this session."""
    (program,) = page_examples.blocks("docs/guides/SPARK_PIPELINE.md")
    rides, by_city = spark_cluster.topic(2), spark_cluster.topic()
    for name, here in (('"rides"', rides), ('"rides-by-city"', by_city), ('"state"', str(tmp_path / "state"))):
        assert name in program
        program = program.replace(name, f'"{here}"')
    monkeypatch.setattr("sys.argv", ["pipeline.py", spark_cluster.bootstrap_servers])
    monkeypatch.setattr("replog.spark.prepare", lambda *, is_local: None)  # it is done: there is a session
    cities: list[tuple[bytes, bytes]] = []
    for batch, expected in (
        (["Bern", "Basel", "Bern"], [(b"Basel", b"1"), (b"Bern", b"2")]),
        (["Bern"], [(b"Bern", b"3")]),
    ):
        spark_cluster.send_values(rides, [b'{"city":"%s"}' % city.encode() for city in batch])
        exec(compile(program, "SPARK_PIPELINE.md", "exec"), {})
        found = [(key, value) for key, value, *_ in rows_of(read(by_city, includeHeaders=True))]
        assert sorted(found[len(cities) :]) == expected
        cities = found
