"""The fixtures for pytest, as users have them: a pytest of its own runs the blocks of docs/PYTEST.md, and tests beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import replog
from replog.cli.app import run
from replog.client import SyncAdmin, SyncProducer
from tests.lint import page_examples

ALONGSIDE = """
import pytest
from kafka import KafkaProducer

from replog import Admin, Consumer, Producer


def test_kafka_python(replog_broker, replog_topic, replog_records):
    producer = KafkaProducer(bootstrap_servers=replog_broker.bootstrap_servers)
    producer.send(replog_topic, b"hello").get(10)
    producer.close()
    assert len(replog_records(replog_topic)) == 1


@pytest.mark.anyio
async def test_a_client_of_replog_in_anyio(replog_broker, replog_topic, replog_group):
    async with Producer(replog_broker.bootstrap_servers) as producer:
        await producer.send(replog_topic, value=b"hello")
    async with Consumer(
        replog_broker.bootstrap_servers, group_id=replog_group, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe([replog_topic])
        while not (records := await consumer.poll()):
            pass
    assert [record.value for record in records] == [b"hello"]


def test_too_few_records_are_counted(replog_broker, replog_topic, replog_records):
    with pytest.raises(TimeoutError, match="has 0 committed records after 0.1 s, not 2"):
        replog_records(replog_topic, at_least=2, timeout_s=0.1)


def test_reset_leaves_nothing(replog_broker, replog_group):
    topics = [replog_broker.create_topic(partitions=3) for _ in range(3)]
    replog_broker.admin.alter_group_offsets(replog_group, {(topics[0], 0): 0})
    replog_broker.reset()
    assert set(replog_broker.admin.list_topics()) <= {"__consumer_offsets"}
    assert replog_broker.admin.list_groups() == ()


def test_topics_are_gone_behind_their_tests(replog_broker):
    assert not [name for name in replog_broker.admin.list_topics() if name.startswith("test_kafka_python")]


def test_a_broker_that_is_none(replog_cluster):
    with pytest.raises(ValueError, match="there is no broker 4: their ids are 1, 2, 3"):
        replog_cluster.kill(4)


def test_a_paused_broker_and_one_with_a_full_disk(replog_cluster, replog_topic, replog_records):
    leader = replog_cluster.leader(replog_topic)
    replog_cluster.pause(leader)
    replog_cluster.cut(1, 2)
    replog_cluster.heal()
    try:
        replog_cluster.full_disk(leader)
    except PermissionError as error:
        pytest.skip(str(error))
    with pytest.raises(OSError):
        (replog_cluster.cluster.nodes[leader].directory / "data" / "more").write_bytes(bytes(1 << 20))
    replog_cluster.make_room(leader)


def test_a_paused_broker_that_is_killed(replog_cluster):
    replog_cluster.pause(3)
    replog_cluster.kill(3)


def test_two_brokers_of_three_are_gone(replog_cluster, replog_topic):
    replog_cluster.kill(1)
    replog_cluster.kill(2)


def test_everything_is_whole_behind_a_test(replog_cluster, replog_topic):
    assert {broker.fenced for broker in replog_cluster.admin.describe_cluster().brokers} == {False}
    assert all(spec.is_alive for spec in replog_cluster.cluster.nodes.values())
"""


@pytest.mark.cluster
def test_the_blocks_of_the_page_pass(tmp_path: Path) -> None:
    blocks = page_examples.blocks("docs/PYTEST.md")
    for number, block in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    with replog.embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
        admin.create_topic("flights")
        with SyncProducer(broker.bootstrap_servers) as producer:
            producer.send("flights", b"1545", key=b"UA")
        capture = [
            "capture",
            "--topic",
            "flights",
            "-o",
            str(tmp_path / "flights.replog"),
            "-b",
            broker.bootstrap_servers,
        ]
        assert run(capture) == 0
    (tmp_path / "test_alongside.py").write_text(ALONGSIDE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers = anyio\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "--dist=loadfile", "-p", "no:cacheprovider", "--basetemp=tmp"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "17 passed" in ran.stdout or "16 passed, 1 skipped" in ran.stdout, ran.stdout
