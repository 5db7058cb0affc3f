"""Spark reads topics as streams: real Spark, real broker processes."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replog.spark
from replog.client import SyncAdmin, SyncConsumer, SyncProducer
from replog.errors import ErrorCode, GroupIdNotFoundError
from replog.metadata.records import ElectionType
from tests.spark.spark_kit import SparkCluster, wait_until
from tests.spark.spark_stream_kit import Batches, StreamKit

pytestmark = pytest.mark.spark


@pytest.fixture
def kit(spark: Any, spark_cluster: SparkCluster, tmp_path: Path) -> StreamKit:
    return StreamKit(spark, spark_cluster, tmp_path)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def has_partitions(cluster: SparkCluster, node: int, topic: str, count: int) -> bool:
    """Whether a broker has heard that the topic has so many partitions."""
    with SyncAdmin(cluster.local.nodes[node].address) as admin:
        return len(admin.describe_topics([topic])[topic].partitions) == count


def test_limits_hold_with_a_skewed_backlog_and_each_row_comes_once(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic(partitions=4)
    sizes = {0: 900, 1: 90, 2: 1}
    for partition, size in sizes.items():
        spark_cluster.send_values(topic, numbered(size), partition)
    found = kit.read_to_end(topic, maxOffsetsPerTrigger=500)
    assert found.offsets == [(partition, n) for partition, size in sizes.items() for n in range(size)]
    assert all(row.value == b"%d" % row.offset for row in found.rows)
    assert found.sizes == [500, 491]
    assert {row.partition for row in found.batches[0][1]} == {0, 1, 2}, "nobody starves"
    assert kit.read_to_end(topic).batches == [], "all of it was committed"


def test_a_run_to_the_end_ends_while_records_arrive(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic(partitions=2)
    stop = threading.Event()
    acknowledged = 0

    def produce() -> None:
        nonlocal acknowledged
        with SyncProducer(spark_cluster.bootstrap_servers) as producer:
            for number in itertools.count():
                if stop.is_set():
                    return
                producer.send_many(topic, [b"%d" % number] * 20, partition=number % 2).result(30)
                acknowledged += 20

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        wait_until(lambda: acknowledged >= 200)
        before = acknowledged
        found = kit.read_to_end(topic)
        wait_until(lambda: acknowledged > len(found.rows))
    finally:
        stop.set()
        thread.join()
    assert len(found.rows) >= before
    later = kit.read_to_end(topic)
    counts = [sum(row.partition == partition for row in found.rows + later.rows) for partition in (0, 1)]
    assert sum(counts) == acknowledged
    assert sorted(found.offsets + later.offsets) == [(p, n) for p in (0, 1) for n in range(counts[p])]


def test_the_first_batch_reads_the_same_after_a_failure(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    """Goal: the checkpoint has the end of batch 0 only, and "latest" is another offset by the time it is planned again."""
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, numbered(50))
    with pytest.raises(Exception) as caught:
        kit.read_to_end(topic, fail_at=0, startingOffsets="latest-10")
    assert "the sink fails" in str(caught.value)
    spark_cluster.send_values(topic, numbered(30, 50))
    found = kit.read_to_end(topic, startingOffsets="latest-10")
    assert [(batch_id, [row.offset for row in rows]) for batch_id, rows in found.batches] == [
        (0, list(range(40, 50))), (1, list(range(50, 80))),
    ]  # fmt: skip


def test_a_running_query_follows_partitions_leaders_and_tells_its_lag(
    kit: StreamKit, spark_cluster: SparkCluster
) -> None:
    """Goal: a leader killed in the middle of a query costs time and no row; a new partition is read from its first record."""
    admin, local = spark_cluster.admin, spark_cluster.local
    topic = spark_cluster.topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    spark_cluster.send_values(topic, numbered(100))
    admin.wait_until_in_sync(topic)
    sink = Batches()
    with kit.running(topic, sink, startingOffsets="earliest") as query:
        wait_until(lambda: len(sink.rows) == 100, 180)
        leader = admin.describe_topics([topic])[topic].partitions[0].leader
        spark_cluster.run(local.kill(leader))
        try:
            spark_cluster.send_values(topic, numbered(100, 100))
            wait_until(lambda: len(sink.rows) == 200, 180)
        finally:
            local.start_node(leader)
            spark_cluster.run(local.wait_until_ready())
        admin.create_partitions(topic, 3)
        wait_until(lambda: all(has_partitions(spark_cluster, node, topic, 3) for node in local.nodes))
        spark_cluster.send_values(topic, numbered(10), 2)
        wait_until(lambda: len(sink.rows) == 210, 180)
        wait_until(lambda: replog.spark.lag(query.lastProgress) == {topic: {0: 0, 1: 0, 2: 0}}, 180)
    assert sink.offsets == [(0, n) for n in range(200)] + [(2, n) for n in range(10)]
    assert all(row.value == b"%d" % row.offset for row in sink.rows)


def test_one_batch_of_a_trigger_once_ignores_limits(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, numbered(100))
    found = kit.read_to_end(topic, maxOffsetsPerTrigger=10, trigger={"once": True})
    assert found.sizes == [100]


# ---- what is lost ----------------------------------------------------------------------------------------------------


def create_anew(cluster: SparkCluster, topic: str) -> None:
    cluster.admin.delete_topic(topic)
    cluster.admin.create_topic(topic, 1, 1)
    cluster.send_values(topic, [b"new"] * 3)


def delete_unread(cluster: SparkCluster, topic: str) -> None:
    cluster.send_values(topic, [b"unread"] * 10)
    cluster.admin.delete_records({(topic, 0): 25})


LOSSES: dict[str, tuple[Callable[[SparkCluster, str], None], str, list[int]]] = {
    "created anew": (create_anew, "another one of its name", [0, 1, 2]),
    "deleted by retention": (delete_unread, "offsets [20, 25) were deleted before they were read", [*range(25, 30)]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_lost_fails_the_query_or_is_passed_over(kit: StreamKit, spark_cluster: SparkCluster, name: str) -> None:
    happens, text, left = LOSSES[name]
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, numbered(20))
    assert len(kit.read_to_end(topic).rows) == 20
    happens(spark_cluster, topic)
    with pytest.raises(Exception) as caught:
        kit.read_to_end(topic)
    assert text in str(caught.value)
    assert 'Set failOnDataLoss to "false"' in str(caught.value)
    assert [row.offset for row in kit.read_to_end(topic, failOnDataLoss="false").rows] == left


def is_elected(admin: SyncAdmin, topic: str) -> bool:
    (result,) = admin.elect_leaders([(topic, 0)], election_type=ElectionType.UNCLEAN)
    return result.error is ErrorCode.NONE


@pytest.fixture
def replaced(spark_cluster: SparkCluster, kit: StreamKit) -> str:
    """A topic of which a stream has read 20 records, of which an unclean election has replaced the last 10 by 5 others."""
    admin, local = spark_cluster.admin, spark_cluster.local
    topic = spark_cluster.topic(replication_factor=2, min_insync_replicas=1)
    spark_cluster.send_values(topic, numbered(10))
    info = admin.wait_until_in_sync(topic).partitions[0]
    leader, follower = info.leader, next(each for each in info.replicas if each != info.leader)
    spark_cluster.run(local.kill(follower))
    try:
        spark_cluster.send_values(topic, numbered(10, 10))
        assert len(kit.read_to_end(topic).rows) == 20
        spark_cluster.run(local.kill(leader))
        local.start_node(follower)
        spark_cluster.run(local.wait_until_ready(node_ids=set(local.nodes) - {leader}))
        wait_until(lambda: is_elected(admin, topic))  # the controller has to know first that the leader is dead
        spark_cluster.send_values(topic, [b"new"] * 5)
    finally:
        for node in (leader, follower):
            if not local.nodes[node].is_alive:
                local.start_node(node)
        spark_cluster.run(local.wait_until_ready())
    return topic


def test_a_high_watermark_that_went_back_is_a_loss(kit: StreamKit, replaced: str) -> None:
    with pytest.raises(Exception) as caught:
        kit.read_to_end(replaced)
    assert f"{replaced}-0: offsets [10, 20) were read and are not in the log any more" in str(caught.value)
    found = kit.read_to_end(replaced, failOnDataLoss="false")
    assert [(row.offset, row.value) for row in found.rows] == [(n, b"new") for n in range(10, 15)]


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_source_is_refused(kit: StreamKit, spark_cluster: SparkCluster, tmp_path: Path) -> None:
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, numbered(5))
    kit.read_to_end(topic)
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink()
    log = tmp_path / "checkpoint" / "offsets" / "0"
    *head, _ = log.read_text().splitlines()
    log.write_text("\n".join([*head, json.dumps({topic: {"0": 5}})]))
    with pytest.raises(Exception) as caught:
        kit.read_to_end(topic)
    assert "no offset of a replog stream" in str(caught.value)


def test_a_group_is_told_where_a_query_stands_and_not_asked(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    """Goal: lag tools see a query; what somebody does to the group changes nothing of what is read."""
    topic, group = spark_cluster.topic(partitions=2), "told"
    places = (topic, 0), (topic, 1)
    for partition in (0, 1):
        spark_cluster.send_values(topic, numbered(60), partition)
    admin, sink = spark_cluster.admin, Batches()
    with kit.running(topic, sink, commitOffsetsToGroup=group, startingOffsets="earliest", maxOffsetsPerTrigger=40):
        wait_until(lambda: len(sink.rows) == 120, 180)
        wait_until(lambda: _committed(admin, group) == dict.fromkeys(places, 60), 60)
    assert {each.lag for each in admin.group_lag(group)} == {0}
    admin.alter_group_offsets(group, dict.fromkeys(places, 7))
    spark_cluster.send_values(topic, numbered(5, 60))
    with kit.running(topic, sink, commitOffsetsToGroup=group):
        wait_until(lambda: len(sink.rows) == 125, 180)
        wait_until(lambda: _committed(admin, group).get((topic, 0)) == 65, 60)
    assert sink.offsets == [(0, n) for n in range(65)] + [(1, n) for n in range(60)]


def _committed(admin: SyncAdmin, group: str) -> dict[Any, int]:
    try:
        return dict(admin.group_offsets(group))
    except GroupIdNotFoundError:
        return {}


def test_a_group_with_members_is_refused(kit: StreamKit, spark_cluster: SparkCluster) -> None:
    topic = spark_cluster.topic()
    with SyncConsumer(
        spark_cluster.bootstrap_servers, group_id="used", client_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(timeout_ms=100) is not None and bool(consumer.assignment()))
        with pytest.raises(Exception) as caught:
            kit.read_to_end(topic, commitOffsetsToGroup="used")
    assert 'group "used" has 1 members (billing at 127.0.0.1)' in str(caught.value)
