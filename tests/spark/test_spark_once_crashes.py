"""Drivers that die at any step of a decision, and attempts that nobody hears of, over real brokers; Spark is not needed for these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra replog[spark] is not installed")
pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from msgspec.structs import replace  # noqa: E402 -- after the checks for libraries

from replog.cli.errors import WRONG_USAGE  # noqa: E402 -- after the checks for libraries
from replog.client import SyncProducer  # noqa: E402
from replog.errors import ProducerFencedError, ReplogError, RequestTimedOutError  # noqa: E402
from replog.spark.options.brokers import Brokers  # noqa: E402
from replog.spark.options.writing import OnceOptions, WriteOptions, parse_write_options  # noqa: E402
from replog.spark.sink.once import ledger, others  # noqa: E402
from replog.spark.sink.once import task as once_task  # noqa: E402
from replog.spark.sink.once.decisions import DECISIONS_TOPIC, Decision, Prepared, partition_of  # noqa: E402
from replog.spark.sink.once.ledger import (  # noqa: E402
    BrokerLedger,
    abort_at_brokers,
    commit_at_brokers,
    end_at_brokers,
    read_standing,
    require_ledger,
)
from replog.spark.sink.once.names import AttemptName, Version, new_run  # noqa: E402
from replog.spark.sink.once.settling import Settled  # noqa: E402
from replog.spark.sink.once.task import write_once  # noqa: E402
from replog.spark.sink.outcome import TaskAttempt  # noqa: E402
from replog.spark.worker_client import close_clients  # noqa: E402
from tests.cluster.cli_runs import replog  # noqa: E402
from tests.spark.spark_kit import SparkCluster  # noqa: E402

pytestmark = pytest.mark.spark

STEPS = ("read", "write", "commit", "open_attempts", "abort", "forget")


class DiedError(BaseException):
    """The driver's process has ended."""


@pytest.fixture
def topic(spark_cluster: SparkCluster) -> Iterator[str]:
    require_ledger(Brokers(spark_cluster.bootstrap_servers), OnceOptions(None, None, None, 60_000))
    yield spark_cluster.topic(partitions=2)
    close_clients()


class Writer:
    """One writer of a topic, as Spark's tasks and drivers do it."""

    def __init__(self, cluster: SparkCluster, topic: str, name: str = "") -> None:
        self.options: WriteOptions = parse_write_options(
            {"bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "delivery": "exactlyOnce"}
        )
        self.name = name or f"app:{topic}"
        self._numbers = iter(range(1_000))

    def plan(self) -> None:
        """Notes where the decisions end, as planning does."""
        once = self.options.once
        assert once is not None
        self.options = replace(self.options, once=require_ledger(self.options.brokers, once))

    def prepare(self, number: int, run: str, values: list[bytes]) -> Prepared:
        """Lets a task write that is in time."""
        prepared = self.write(number, run, values)
        assert prepared is not None
        return prepared

    def write(self, number: int, run: str, values: list[bytes]) -> Prepared | None:
        """Lets a task write."""
        name = AttemptName(Version(self.name, number), run, next(self._numbers))
        batches = [pa.RecordBatch.from_pydict({"value": values})] if values else []
        return write_once(batches, self.options, TaskAttempt(), name, 60_000).prepared

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
    is_decided = step not in {"read", "write"} or (step == "write" and is_behind)
    again = writer.write(0, second, [b"0", b"1"])
    assert (again is None) == is_decided
    settled = writer.commit(0, second, *([again] if again else []))
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


def test_an_attempt_that_wakes_up_behind_the_last_batch_holds_nobody_back(
    spark_cluster: SparkCluster, topic: str
) -> None:
    """Goal: it was stopped before it had asked for a producer id; nobody will look for it any more."""
    writer = Writer(spark_cluster, topic)
    run = new_run()
    assert writer.commit(0, run, writer.prepare(0, run, [b"0"])) is Settled.WRITTEN
    assert writer.write(0, run, [b"late"]) is None
    assert committed(spark_cluster, topic) == [b"0"]


@pytest.mark.parametrize("is_behind", [False, True], ids=["before its look", "behind it"])
def test_an_attempt_that_is_stopped_in_its_transaction_is_aborted_with_its_batch(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch, is_behind: bool
) -> None:
    """Goal: its rows are sent; the batch ends before it looks whether it may prepare, or just behind that look."""
    writer = Writer(spark_cluster, topic)
    run = new_run()
    winner = writer.prepare(0, run, [b"0"])
    look = once_task.read_standing

    async def held_up(*given: Any) -> Any:
        before = await look(*given)
        monkeypatch.setattr(once_task, "read_standing", look)
        assert await asyncio.to_thread(writer.commit, 0, run, winner) is Settled.WRITTEN
        return before if is_behind else await look(*given)

    monkeypatch.setattr(once_task, "read_standing", held_up)
    if is_behind:
        with pytest.raises(ReplogError, match="there is no transactional id"):
            writer.write(0, run, [b"held up"])
    else:
        assert writer.write(0, run, [b"held up"]) is None
    assert committed(spark_cluster, topic) == [b"0"]


def test_an_attempt_reads_no_decisions_before_a_driver_has_come(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what was planned says where they ended; whoever comes to decide moves that, also where it has nothing to decide."""
    writer = Writer(spark_cluster, topic)
    writer.plan()
    run = new_run()
    with monkeypatch.context() as patch:
        patch.setattr(once_task, "read_standing", None)
        attempts = [writer.prepare(0, run, [b"%d" % number]) for number in range(2)]
    assert writer.commit(0, run, *attempts) is Settled.WRITTEN
    assert writer.write(0, run, [b"late"]) is None
    writer.plan()
    assert writer.commit(1, new_run()) is Settled.EMPTY
    monkeypatch.setattr(once_task, "read_standing", None)
    with pytest.raises(TypeError):
        writer.write(1, run, [b"reads"])
    assert committed(spark_cluster, topic) == [b"0", b"1"]


def test_an_attempt_of_a_write_that_has_failed_holds_nobody_back(spark_cluster: SparkCluster, topic: str) -> None:
    writer = Writer(spark_cluster, topic)
    run = new_run()
    writer.prepare(0, run, [b"0"])
    assert abort_at_brokers(writer.options, Version(writer.name, 0), run) is None
    assert writer.write(0, run, [b"late"]) is None
    assert committed(spark_cluster, topic) == []


def test_what_is_decided_is_committed_and_the_rest_aborted_for_a_driver_that_is_gone(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(spark_cluster, topic)
    first, second = new_run(), new_run()
    attempt = writer.prepare(0, first, [b"0"])
    dying(monkeypatch, "commit", is_behind=False)
    with pytest.raises(DiedError):
        writer.commit(0, first, attempt)
    monkeypatch.undo()
    open_one = writer.prepare(1, second, [b"1"])
    ended = spark_cluster.run(end_at_brokers(Brokers(spark_cluster.bootstrap_servers), writer.name))
    assert ended.finished == Version(writer.name, 0)
    assert [each.version.number for each in ended.aborted] == [1]
    with pytest.raises(ReplogError, match="was given up while it was being written"):
        writer.commit(1, second, open_one)
    third = new_run()
    assert writer.commit(1, third, writer.prepare(1, third, [b"1"])) is Settled.WRITTEN
    assert committed(spark_cluster, topic) == [b"0", b"1"]


def test_the_command_commits_what_is_decided_and_aborts_the_rest(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(spark_cluster, topic)
    run = new_run()
    attempts = [writer.prepare(0, run, [b"%d" % number]) for number in range(2)]
    dying(monkeypatch, "commit", is_behind=False)
    with pytest.raises(DiedError):
        writer.commit(0, run, *attempts)
    monkeypatch.undo()
    writer.prepare(1, new_run(), [b"undecided"])
    tid = AttemptName(Version(writer.name, 0), run, attempts[0].number).transactional_id
    at = ("--bootstrap-servers", spark_cluster.bootstrap_servers)
    refused = replog("transactions", "abort", tid, *at)
    assert refused.status == WRONG_USAGE
    assert f"`replog transactions abort --query {writer.name}`" in refused.err
    described = replog("transactions", "describe", tid, *at)
    assert f"prepared: no time-out ends it\n  written by Spark, as version 0 of {writer.name}" in described.out
    assert (
        f"no Spark job that is called query:{topic} has" in replog("transactions", "abort", "--query", topic, *at).err
    )
    done = replog("transactions", "abort", "--query", writer.name, *at)
    assert (done.status, done.err) == (0, "")
    assert f"version 0 of {writer.name} had been decided: all its rows are there now" in done.out
    assert f"1 transaction of version 1 of {writer.name} aborted" in done.out
    assert replog("transactions", "abort", "--query", writer.name, *at).out == f"{writer.name} has left nothing open\n"
    assert committed(spark_cluster, topic) == [b"0", b"1"]


def test_whoever_writes_a_frame_carries_out_what_a_driver_that_is_gone_has_decided(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: of a write that nobody repeats: readers are not held back for good.  A driver that is still at work is left alone."""
    writer = Writer(spark_cluster, topic, "save:" + new_run())
    run = new_run()
    attempt = writer.prepare(0, run, [b"0"])
    dying(monkeypatch, "commit", is_behind=False)
    with pytest.raises(DiedError):
        writer.commit(0, run, attempt)
    monkeypatch.undo()
    brokers = Brokers(spark_cluster.bootstrap_servers)
    others.look_after(brokers)
    assert last_decision(brokers, writer).attempts == (attempt,)
    monkeypatch.setattr(others, "GONE_MS", 0)
    others.look_after(brokers)
    assert last_decision(brokers, writer).is_done
    assert committed(spark_cluster, topic) == [b"0"]


def test_records_of_a_write_without_a_name_go_after_a_while(
    spark_cluster: SparkCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, unnamed = Writer(spark_cluster, topic), Writer(spark_cluster, topic, "save:" + new_run())
    for writer in (named, unnamed):
        run = new_run()
        assert writer.commit(0, run, writer.prepare(0, run, [b"0"])) is Settled.WRITTEN
    brokers = Brokers(spark_cluster.bootstrap_servers)
    others.look_after(brokers)
    assert last_decision(brokers, unnamed).is_done
    monkeypatch.setattr(others, "KEPT_MS", 0)
    others.look_after(brokers)
    assert last_decision(brokers, named).is_done
    assert spark_cluster.run(read_standing(brokers, unnamed.name)).last is None


def last_decision(brokers: Brokers, writer: Writer) -> Decision:
    found = asyncio.run(read_standing(brokers, writer.name)).last
    assert found is not None
    return found


def test_the_coordinator_of_what_is_prepared_dies_and_another_one_ends_it(
    spark_cluster: SparkCluster, topic: str
) -> None:
    target = spark_cluster.topic(replication_factor=3, min_insync_replicas=2)
    spark_cluster.admin.wait_until_in_sync(target)
    writer = Writer(spark_cluster, target)
    run = new_run()
    winner, loser = writer.prepare(0, run, [b"0"]), writer.prepare(0, run, [b"loser"])
    ids = [AttemptName(Version(writer.name, 0), run, each.number).transactional_id for each in (winner, loser)]
    coordinator_id = spark_cluster.admin.describe_transactions(ids)[ids[0]].coordinator_id
    with spark_cluster.killed(coordinator_id):
        assert writer.commit(0, run, winner) is Settled.WRITTEN
    assert committed(spark_cluster, target) == [b"0"]


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
