"""Drivers that die at any step of a decision, and attempts that nobody hears of, over real brokers; Spark is not needed for these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra replog[spark] is not installed")
pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from replog.client import SyncProducer  # noqa: E402 -- after the checks for libraries
from replog.errors import ProducerFencedError, ReplogError, RequestTimedOutError  # noqa: E402
from replog.spark.options.writing import WriteOptions, parse_write_options  # noqa: E402
from replog.spark.sink.once import ledger  # noqa: E402
from replog.spark.sink.once.decisions import DECISIONS_TOPIC, Prepared, partition_of  # noqa: E402
from replog.spark.sink.once.ledger import (  # noqa: E402
    BrokerLedger,
    abort_at_brokers,
    commit_at_brokers,
    require_ledger,
)
from replog.spark.sink.once.names import AttemptName, Version, new_run  # noqa: E402
from replog.spark.sink.once.settling import Settled  # noqa: E402
from replog.spark.sink.once.task import write_once  # noqa: E402
from replog.spark.sink.outcome import TaskAttempt  # noqa: E402
from replog.spark.worker_client import close_clients  # noqa: E402
from tests.spark.spark_kit import SparkCluster  # noqa: E402

pytestmark = pytest.mark.spark

STEPS = ("read", "write", "commit", "open_attempts", "abort", "forget")


class DiedError(BaseException):
    """The driver's process has ended."""


@pytest.fixture
def topic(spark_cluster: SparkCluster) -> Iterator[str]:
    require_ledger(spark_cluster.bootstrap_servers)
    yield spark_cluster.topic(partitions=2)
    close_clients()


class Writer:
    """One writer of a topic, as Spark's tasks and drivers do it."""

    def __init__(self, cluster: SparkCluster, topic: str) -> None:
        self.options: WriteOptions = parse_write_options(
            {"bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "delivery": "exactlyOnce"}
        )
        self.name = f"app:{topic}"
        self._numbers = iter(range(1_000))

    def prepare(self, number: int, run: str, values: list[bytes]) -> Prepared:
        """Lets a task write."""
        name = AttemptName(Version(self.name, number), run, next(self._numbers))
        batches = [pa.RecordBatch.from_pydict({"value": values})] if values else []
        written = write_once(batches, self.options, TaskAttempt(), name, 60_000)
        assert written.prepared is not None
        return written.prepared

    def commit(self, number: int, run: str, *attempts: Prepared) -> Settled:
        return commit_at_brokers(self.options, Version(self.name, number), run, attempts)


def committed(cluster: SparkCluster, topic: str) -> list[bytes]:
    return sorted(cluster.committed_values(topic))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_driver_dies_and_the_version_is_there_once(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch, step: str, is_behind: bool
) -> None:
    """Goal: the first driver dies at a step, before or behind what it does; the batch runs again, other tasks with other rows."""
    writer = Writer(spark_cluster, topic)
    first, second = new_run(), new_run()
    writer.prepare(0, first, [b"loser"])
    attempts = [writer.prepare(0, first, [b"%d" % number]) for number in range(2)]
    dying(monkeypatch, step, is_behind=is_behind)
    with pytest.raises(DiedError):
        writer.commit(0, first, *attempts)
    monkeypatch.undo()
    settled = writer.commit(0, second, writer.prepare(0, second, [b"0", b"1"]))
    is_decided = step not in {"read", "write"} or (step == "write" and is_behind)
    assert settled is (Settled.WAS_WRITTEN if is_decided else Settled.WRITTEN)
    assert committed(spark_cluster, topic) == [b"0", b"1"]


def dying(monkeypatch: pytest.MonkeyPatch, step: str, *, is_behind: bool) -> None:
    """Lets the driver die the first time that it does something."""
    do = getattr(BrokerLedger, step)

    async def die(*given: Any) -> None:
        if is_behind:
            await do(*given)
        raise DiedError

    monkeypatch.setattr(BrokerLedger, step, die)


def test_the_second_driver_fences_the_first(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers on one checkpoint: while the first one reads, the second one decides."""
    writer = Writer(spark_cluster, topic)
    runs = [new_run(), new_run()]
    attempts = [writer.prepare(0, run, [b"%d" % number]) for number, run in enumerate(runs)]
    read = BrokerLedger.read

    async def held_up(ledger: BrokerLedger) -> Any:
        found = await read(ledger)
        monkeypatch.setattr(BrokerLedger, "read", read)
        assert await asyncio.to_thread(writer.commit, 0, runs[1], attempts[1]) is Settled.WRITTEN
        return found

    monkeypatch.setattr(BrokerLedger, "read", held_up)
    with pytest.raises(ProducerFencedError):
        writer.commit(0, runs[0], attempts[0])
    assert abort_at_brokers(writer.options, Version(writer.name, 0), runs[0]) is Settled.WAS_WRITTEN
    assert committed(spark_cluster, topic) == [b"1"]


def test_an_open_transaction_of_somebody_else_hides_no_decision(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a driver that cannot read all decisions decides nothing: its own last one may be behind what it can read."""
    writer = Writer(spark_cluster, topic)
    run = new_run()
    attempt = writer.prepare(0, run, [b"0"])
    partition = partition_of(writer.name)
    servers = spark_cluster.bootstrap_servers
    with SyncProducer(servers, transactional_id="somebody") as other, other.transaction():
        other.send(DECISIONS_TOPIC, b"x", b"somebody", partition=partition).result(30)
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "LIMIT_MS", 3_000)
            with pytest.raises(RequestTimedOutError, match="an open transaction is in the way"):
                writer.commit(0, run, attempt)
    assert writer.commit(0, run, attempt) is Settled.WRITTEN
    assert writer.commit(0, run, attempt) is Settled.WAS_WRITTEN
    assert committed(spark_cluster, topic) == [b"0"]


def test_an_attempt_that_comes_too_late_is_aborted_with_the_next_version(
    spark_cluster: SparkCluster, topic: str
) -> None:
    writer = Writer(spark_cluster, topic)
    runs = [new_run(), new_run()]
    assert writer.commit(0, runs[0], writer.prepare(0, runs[0], [b"0"])) is Settled.WRITTEN
    writer.prepare(0, runs[0], [b"late"])
    assert writer.commit(1, runs[1], writer.prepare(1, runs[1], [b"1"])) is Settled.WRITTEN
    assert committed(spark_cluster, topic) == [b"0", b"1"]


def test_a_task_that_fails_leaves_nothing_open(spark_cluster: SparkCluster, topic: str) -> None:
    writer = Writer(spark_cluster, topic)
    name = AttemptName(Version(writer.name, 0), new_run(), 0)

    def batches() -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"value": [b"0"]})
        raise ReplogError("the source is gone")

    with pytest.raises(ReplogError, match="no reader of committed records will see them"):
        write_once(batches(), writer.options, TaskAttempt(), name, 60_000)
    assert committed(spark_cluster, topic) == []


def test_a_decided_transaction_that_somebody_aborted_is_told(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(spark_cluster, topic)
    run = new_run()
    attempt = writer.prepare(0, run, [b"0"])
    dying(monkeypatch, "commit", is_behind=False)
    with pytest.raises(DiedError):
        writer.commit(0, run, attempt)
    monkeypatch.undo()
    tid = AttemptName(Version(writer.name, 0), run, attempt.number).transactional_id
    with SyncProducer(spark_cluster.bootstrap_servers, transactional_id=tid) as other, other.transaction():
        other.send(topic, b"other")
    with pytest.raises(ReplogError, match="can no longer be committed"):
        writer.commit(0, run)
    assert DECISIONS_TOPIC in spark_cluster.admin.list_topics()
