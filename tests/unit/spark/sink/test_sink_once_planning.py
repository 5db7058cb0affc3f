"""What is refused before a task starts where rows are to be there exactly once, and what tasks and drivers tell one another."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from msgspec.structs import replace
from pyspark.sql.types import BinaryType, StructField, StructType

from replog.errors import ConfigError, ReplogError
from replog.spark import worker_client
from replog.spark.options.writing import OnceOptions, parse_write_options
from replog.spark.sink.once import ledger, others, writer
from replog.spark.sink.once.decisions import Prepared
from replog.spark.sink.once.names import AttemptName, Version
from replog.spark.sink.once.task import TaskPrepared
from replog.spark.sink.once.writer import OnceStreamWriter, OnceWriter, batch_of
from replog.spark.sink.outcome import TaskAttempt, TaskWritten
from replog.spark.sink.writer import ReplogWriter
from replog.spark.source import ReplogDataSource

ONCE = {"bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "EXACTLYONCE"}
ENDS = (5, 0, 7, 1)
WRITTEN = 3
"""The version that has been written already."""

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a cluster was asked."""
    found: list[str] = []

    def plan(_brokers: object, once: OnceOptions) -> OnceOptions:
        found.append("a ledger")
        return replace(once, planned_ends=ENDS)

    monkeypatch.setattr(worker_client, "find_cluster", lambda _servers, topic: found.append(topic) or "id")
    monkeypatch.setattr(ledger, "require_ledger", plan)
    monkeypatch.setattr(others, "look_after", lambda _servers: found.append("a look after others"))
    monkeypatch.setattr(ledger, "is_written", lambda _options, version: version.number == WRITTEN)
    return found


def test_rows_are_there_at_least_once_where_nothing_else_is_said(asked: list[str]) -> None:
    for delivery in ({}, {"delivery": "atLeastOnce"}):
        options = {"bootstrap.servers": "127.0.0.1:1", "topic": "t", **delivery}
        assert parse_write_options(options).once is None
        assert isinstance(ReplogDataSource(options).writer(SCHEMA, overwrite=False), ReplogWriter)
    assert asked == ["t", "t"]


def test_the_options_of_a_write_that_is_there_once(asked: list[str]) -> None:
    assert parse_write_options(ONCE).once == OnceOptions(None, None, None, 900_000)
    named = {**ONCE, "txnAppId": "etl", "txnVersion": "7", "kafka.transaction.timeout.ms": "1000"}
    assert parse_write_options(named).once == OnceOptions("etl", 7, None, 1_000)
    assert parse_write_options({**ONCE, "writeId": "monday"}).once == OnceOptions(None, None, "monday", 900_000)
    assert isinstance(ReplogDataSource(ONCE).writer(SCHEMA, overwrite=False), OnceWriter)
    assert isinstance(ReplogDataSource(ONCE).streamWriter(SCHEMA, overwrite=False), OnceStreamWriter)
    assert asked == ["t", "a ledger", "a look after others", "t", "a ledger"]


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"delivery": "twice"}, "delivery", 'give one of "atLeastOnce", "exactlyOnce"'),
        ({"delivery": "atLeastOnce", "writeId": "a"}, "writeId", 'needs "delivery" "exactlyOnce"'),
        ({"delivery": "atLeastOnce", "kafka.transaction.timeout.ms": "1"}, "kafka.transaction.timeout.ms", "needs"),
        ({"txnAppId": "a"}, "txnVersion", "give both"),
        ({"txnVersion": "1"}, "txnAppId", "give both"),
        ({"txnAppId": "a", "txnVersion": "1", "writeId": "b"}, "writeId", "not both"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "txnAppId", "give such a name"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion", "from 0 to"),
        ({"writeId": ""}, "writeId", "give such a name"),
        ({"kafka.acks": "1"}, "kafka.acks", "cannot do with"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence", "cannot do with"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, str], field: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_write_options({**ONCE, **options})
    assert caught.value.field == field


@pytest.mark.parametrize("options", [{"txnAppId": "a", "txnVersion": "1"}, {"writeId": "a"}])
def test_a_stream_has_names_already(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="whose batches have names"):
        ReplogDataSource({**ONCE, **options}).streamWriter(SCHEMA, overwrite=False)


def test_what_is_planned_knows_where_the_decisions_ended() -> None:
    made = ReplogDataSource(ONCE).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(made, OnceStreamWriter)
    once = pickle.loads(pickle.dumps(made))._options.once
    assert once.planned_ends == ENDS


def test_a_write_without_a_name_is_another_one_each_time_and_the_same_for_all_its_tasks() -> None:
    first, second = (ReplogDataSource(ONCE).writer(SCHEMA, overwrite=False) for _ in range(2))
    assert isinstance(first, OnceWriter)
    assert isinstance(second, OnceWriter)
    copy = pickle.loads(pickle.dumps(first))
    assert (copy._version, copy._run) == (first._version, first._run)
    assert first._version != second._version


def test_the_tasks_of_a_write_that_is_there_write_nothing() -> None:
    """Nobody is connected to here."""
    made = ReplogDataSource({**ONCE, "txnAppId": "etl", "txnVersion": f"{WRITTEN}"}).writer(SCHEMA, overwrite=False)
    rows = iter(["a batch", "another one"])
    message = made.write(rows)
    assert isinstance(message, TaskPrepared)
    assert (message.records_count, message.prepared) == (0, None)
    assert list(rows) == []


def test_the_number_of_a_batch_is_that_of_the_version() -> None:
    assert batch_of(TaskAttempt("q", "7")) == Version("query:q", 7)
    with pytest.raises(ReplogError, match="foreachBatch"):
        batch_of(TaskAttempt())


def told(number: int, *, run: str = "a" * 32, batch: int = 7, rows: int = 1) -> TaskPrepared:
    name = AttemptName(Version("query:q", batch), run, number)
    return TaskPrepared(TaskAttempt("q", str(batch), number), rows, name, Prepared(number, 1, 0) if rows else None)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What was decided, and aborted."""
    found: list[tuple[object, ...]] = []
    monkeypatch.setattr(ledger, "commit_at_brokers", lambda _, *given: found.append(("commit", *given)))
    monkeypatch.setattr(ledger, "abort_at_brokers", lambda _, *given: found.append(("abort", *given)))
    return found


def stream_writer() -> OnceStreamWriter:
    made = ReplogDataSource(ONCE).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(made, OnceStreamWriter)
    return made


def test_the_driver_decides_for_what_tasks_have_told(
    decided: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [told(1), None, pickle.loads(pickle.dumps(told(2))), told(3, rows=0)]
    monkeypatch.setattr(ledger, "commit_at_brokers", lambda _, *given: decided.append(given) or ledger.Settled.WRITTEN)
    stream_writer().commit(messages, 7)
    assert decided == [(Version("query:q", 7), "a" * 32, [Prepared(1, 1, 0), Prepared(2, 1, 0)])]


def test_a_batch_whose_tasks_have_told_nothing_is_left_to_the_next_one(decided: list[tuple[object, ...]]) -> None:
    stream_writer().abort([None, None], 7)
    stream_writer().commit([], 7)
    assert decided == []
    stream_writer().abort([None, told(1)], 7)
    assert decided == [("abort", Version("query:q", 7), "a" * 32)]


@pytest.mark.parametrize("messages", [[told(1), told(2, run="b" * 32)], [told(1, batch=6)]])
def test_tasks_of_different_plans_decide_nothing(
    decided: list[tuple[object, ...]], messages: list[TaskPrepared]
) -> None:
    with pytest.raises(ReplogError, match="nothing was decided"):
        stream_writer().commit(list(messages), 7)
    assert decided == []


def test_what_other_writes_tell_is_nothing_here() -> None:
    assert writer.prepared_of([TaskWritten(TaskAttempt(), 1), told(1), None]) == [told(1)]
