"""Spark reads topics: real Spark, real broker processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from replog.client import SyncProducer
from tests.spark.spark_kit import Sent, SparkCluster, read_directly, wait_until

pytestmark = pytest.mark.spark

Read = Callable[..., Any]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def values(frame: Any) -> list[bytes]:
    """The column `value`, in order of partition and offset."""
    return [bytes(row.value) for row in frame.orderBy("partition", "offset").collect()]


# ---- columns ---------------------------------------------------------------------------------------------------------

RECORDS = [
    Sent(0, b"first", b"k", 1_700_000_000_123, [("a", b"1"), ("a", None), ("", b"")]),
    Sent(0, None, b"tombstone", 1_700_000_000_124),
    Sent(0, b"", None, 0),
    Sent(1, "zwölf".encode(), b"", 1),
    Sent(1, None, None, 2, [("h", b"\x00\xff")]),
]


@pytest.fixture(scope="module")
def mixed(spark_cluster: SparkCluster) -> str:
    topic = spark_cluster.topic(partitions=3, retention_ms=-1)  # the third stays empty
    spark_cluster.send(topic, RECORDS)
    return topic


def expected_rows(topic: str) -> list[tuple[Any, ...]]:
    offsets = [0, 1, 2, 0, 1]
    return [
        (record.key, record.value, topic, record.partition, offset, record.timestamp_ms, 0)
        for record, offset in zip(RECORDS, offsets, strict=True)
    ]


def test_every_column_comes_back_as_it_was_sent(read: Read, mixed: str) -> None:
    """Goal: names, types and values of Spark's Kafka source; null and empty stay two things."""
    frame = read(mixed)
    assert frame.columns == COLUMNS
    assert [field.dataType.simpleString() for field in frame.schema] == [
        "binary", "binary", "string", "int", "bigint", "timestamp", "int",
    ]  # fmt: skip
    rows = frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp) as ms", "timestampType"
    ).orderBy("partition", "offset")
    found = [tuple(bytes(item) if isinstance(item, bytearray) else item for item in row) for row in rows.collect()]
    assert found == expected_rows(mixed)


def test_headers_come_on_request(read: Read, mixed: str) -> None:
    frame = read(mixed, includeHeaders="true")
    assert frame.columns == [*COLUMNS, "headers"]
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    found = [
        row.headers and [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers]
        for row in frame.orderBy("partition", "offset").collect()
    ]
    assert found == [[("a", b"1"), ("a", None), ("", b"")], None, None, None, [("h", b"\x00\xff")]]


def test_a_schema_of_the_user_selects_columns(read: Read, mixed: str) -> None:
    frame = read(mixed, schema="offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert sorted((row.offset, bytes(row.value)) for row in frame.where("value is not null").collect()) == [
        (0, b"first"), (0, "zwölf".encode()), (2, b""),
    ]  # fmt: skip
    assert read(mixed, schema="partition int").groupBy("partition").count().orderBy("partition").collect() == [
        (0, 3),
        (1, 2),
    ]


def test_large_var_types_do_not_get_in_the_way(spark: Any, read: Read, mixed: str) -> None:
    """Goal: `spark.sql.execution.arrow.useLargeVarTypes` changes nothing that is read."""
    plain = read(mixed, includeHeaders="true").orderBy("partition", "offset").collect()
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert read(mixed, includeHeaders="true").orderBy("partition", "offset").collect() == plain
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_offsets_say_what_is_read(read: Read, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic(partitions=2)
    for partition in (0, 1):
        spark_cluster.send_values(topic, [b"%d-%d" % (partition, n) for n in range(10)], partition)
    starting = json.dumps({topic: {"0": 7, "1": -2}})
    ending = json.dumps({topic: {"0": -1, "1": 2}})
    assert values(read(topic, startingOffsets=starting, endingOffsets=ending)) == [
        b"0-7", b"0-8", b"0-9", b"1-0", b"1-1",
    ]  # fmt: skip
    assert values(read(None, assign=json.dumps({topic: [1]}))) == [b"1-%d" % n for n in range(10)]


def test_min_partitions_makes_more_tasks(read: Read, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [b"%d" % n for n in range(1000)])
    frame = read(topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [b"%d" % n for n in range(1000)]


def test_an_empty_topic_has_no_rows(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: without any range Spark makes up a partition, and its read yields nothing."""
    assert read(spark_cluster.topic(partitions=2)).count() == 0


def test_a_query_that_stops_early_leaves_the_next_one_alone(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: Spark kills the worker of a `limit`; the next query starts over."""
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [b"%06d" % n * 50 for n in range(60_000)])
    frame = read(topic)
    assert len(frame.limit(1).collect()) == 1
    assert frame.count() == 60_000
    assert frame.selectExpr("sum(length(value))", "count(distinct offset)").first() == (60_000 * 300, 60_000)


# ---- one snapshot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [None, "partition int, offset bigint"])
def test_a_self_join_sees_one_snapshot_while_records_arrive(
    read: Read, spark_cluster: SparkCluster, schema: str | None
) -> None:
    """Goal: what is read is fixed when the DataFrame is made, also where the user gives a schema."""
    topic = spark_cluster.topic(partitions=2)
    stop = threading.Event()
    acknowledged = 0

    def produce() -> None:
        nonlocal acknowledged
        with SyncProducer(spark_cluster.bootstrap_servers) as producer:
            while not stop.is_set():
                for partition in (0, 1):
                    producer.send_many(topic, [b"x"] * 50, partition=partition).result(30)
                acknowledged += 100

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        wait_until(lambda: acknowledged >= 1000)
        before = acknowledged
        frame = read(topic, schema)
        once = frame.count()
        assert once >= before
        left, right = frame.alias("l"), frame.alias("r")
        outer = left.join(right, ["partition", "offset"], "full_outer")
        assert outer.count() == once
        wait_until(lambda: acknowledged > once + 100)
        assert frame.distinct().count() == once
        assert read(topic, schema).count() > once
    finally:
        stop.set()
        thread.join()


def test_never_a_record_at_or_above_the_high_watermark(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: with a follower stopped the high watermark stands still, and what the leader has above it stays unseen."""
    topic = spark_cluster.topic(replication_factor=3)
    spark_cluster.send_values(topic, [b"committed"] * 100)
    admin = spark_cluster.admin
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    controller = admin.describe_cluster().controller_id
    follower = next(node for node in spark_cluster.local.nodes if node not in {leader, controller})
    address = spark_cluster.local.nodes[leader].address

    def ends() -> tuple[int, int]:
        replicas = admin.describe_node(address).replicas
        return next((each.high_watermark, each.log_end_offset) for each in replicas if each.topic == topic)

    spark_cluster.local.pause(follower)
    try:
        spark_cluster.send_values(topic, [b"not committed"] * 50, acks=1)
        frame = read(topic)
        found = frame.groupBy("value").count().collect()
        assert ends() == (100, 150), "the stopped follower was not waited for: nothing was shown"
        assert [(bytes(row[0]), row[1]) for row in found] == [(b"committed", 100)]
    finally:
        spark_cluster.local.resume(follower)
    wait_until(lambda: ends() == (150, 150))
    assert frame.count() == 100
    assert read(topic).count() == 150


def test_after_the_leader_is_killed_nothing_acknowledged_is_missing(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: a new DataFrame waits until the new leader knows its high watermark; an old one, and a task in the middle
    of its range, find the new leader."""
    topic = spark_cluster.topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    for partition in range(3):
        spark_cluster.send_values(topic, [b"v" * 1000] * 20_000, partition)
    admin = spark_cluster.admin
    admin.wait_until_in_sync(topic)
    old = read(topic)
    assert old.count() == 60_000
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    with closing(read_directly(spark_cluster, topic)) as task:
        offsets = next(task)
        spark_cluster.run(spark_cluster.local.kill(leader))
        try:
            assert read(topic).count() == 60_000
            assert old.select("partition", "offset").distinct().count() == 60_000
            for more in task:
                offsets += more
            assert offsets == list(range(20_000))
        finally:
            spark_cluster.local.start_node(leader)
            spark_cluster.run(spark_cluster.local.wait_until_ready())
            admin.wait_until_in_sync(topic)


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "nowhere"}, 'topic "nowhere" does not exist'),
        ({"subscribe": "x", "startingOffset": "earliest"}, 'Did you mean "startingOffsets"?'),
        ({"subscribe": "x", "endingOffsets": "earliest"}, 'endingOffsets cannot be "earliest" here'),
        ({}, 'give the option "subscribe"'),
    ],
)
def test_bad_options_are_refused_at_load(read: Read, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception) as caught:
        read(None, **options)
    assert text in str(caught.value)


def test_a_topic_that_is_gone_is_data_loss(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: a DataFrame never reads a later topic of the same name."""
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [b"old"] * 10)
    strict, lenient = read(topic), read(topic, failOnDataLoss="false")
    spark_cluster.admin.delete_topic(topic)
    spark_cluster.admin.create_topic(topic, 1, 1)
    spark_cluster.send_values(topic, [b"new"] * 20)
    with pytest.raises(Exception) as caught:
        strict.count()
    assert "was deleted or created anew" in str(caught.value)
    assert lenient.count() == 0
    assert read(topic).count() == 20


def test_a_batch_with_options_of_a_stream_is_refused_when_it_is_planned(read: Read, mixed: str) -> None:
    """Goal: at `load()` it may be either; a batch from the latest record on would be empty."""
    frame = read(mixed, startingOffsets="latest")
    with pytest.raises(Exception) as caught:
        frame.count()
    assert 'startingOffsets cannot be "latest" here' in str(caught.value)


def test_values_as_text(read: Read, spark: Any, spark_cluster: SparkCluster, mixed: str) -> None:
    frame = read(mixed, valueFormat="string")
    assert dict(frame.dtypes)["value"] == "string"
    assert [row.value for row in frame.orderBy("partition", "offset").collect()] == ["first", None, "", "zwölf", None]
    assert read(mixed, "value string", valueFormat="string").where("value = 'zwölf'").count() == 1
    topic = spark_cluster.topic()
    spark_cluster.send(topic, [Sent(0, b'{"id": 7}'), Sent(0, b"\xff")])
    json_id = 'from_json(value, "id bigint, city string", map("mode", "FAILFAST")).id'
    assert read(topic, valueFormat="string", endingOffsets=f'{{"{topic}": {{"0": 1}}}}').selectExpr(
        json_id
    ).first() == (7,)
    with pytest.raises(Exception, match=f"{topic}-0: the value at offset 1 is not UTF-8"):
        read(topic, valueFormat="string").collect()
    streamed = spark.readStream.format("replog").option("bootstrap.servers", spark_cluster.bootstrap_servers)
    assert dict(streamed.option("subscribe", mixed).option("valueFormat", "string").load().dtypes)["value"] == "string"


def test_workers_of_spark_are_known_as_such(spark: Any) -> None:
    """Goal: `tune_worker` does something: the name it goes by is Spark's."""

    def look(_number: int) -> bool:
        from replog.spark.python_worker import is_spark_worker

        return is_spark_worker()

    assert spark.sparkContext.parallelize([0], 1).map(look).collect() == [True]
    assert not look(0)
