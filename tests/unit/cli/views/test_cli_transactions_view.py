"""What `replog transactions` prints of transactional ids and hanging transactions."""

from __future__ import annotations

import io
import json

from rich.console import Console

from replog.cli.views.transactions import (
    abort_command,
    aborted,
    as_json,
    described,
    ended,
    ended_json,
    hanging_table,
    listed,
)
from replog.client import HangingTransaction, TopicPartition, TransactionDetails, TransactionListing
from replog.coordinator.transactions.state import NO_TIMEOUT_MS
from replog.spark.sink.once.names import AttemptName, Version, driver_id, writer_named, writer_of
from replog.spark.sink.once.settling import Ended

PLACES = tuple(TopicPartition("t", number) for number in (0, 1, 2))
OPEN = TransactionDetails("pay\x1b[2J", "Ongoing", 7, 3, 60_000, 1_000, PLACES, 2)
EMPTY = TransactionDetails("new", "Empty", 8, 0, 60_000, -1, (), 1)
HANGING = HangingTransaction("rides", 1, 7, 3, -1, 1_200, 1_500_000)


def test_transactional_ids_are_listed_under_one_another() -> None:
    lines = list(listed([TransactionListing("pay\n", 7, "Ongoing", 2), TransactionListing("b", 12, "Empty", 1)]))
    assert [line.split() for line in lines[1:]] == [["'pay\\n'", "7", "2", "Ongoing"], ["b", "12", "1", "Empty"]]
    assert len({line.rindex("  ") for line in lines}) == 1


def test_an_open_transaction_has_an_age_and_partitions() -> None:
    head, places = described(OPEN, 91_000)
    assert head == (
        "'pay\\x1b[2J': Ongoing, open for 1 min 30 s, producer 7 of epoch 3, coordinated by broker 2, aborted after 1 min"
    )
    assert places == "  3 partitions: t:0-2"


def test_where_nothing_is_open_there_is_no_age() -> None:
    (line,) = described(EMPTY, 91_000)
    assert line == "new: Empty, producer 8 of epoch 0, coordinated by broker 1, aborted after 1 min"


def test_json_names_partitions() -> None:
    told = json.loads(as_json(OPEN))
    assert (told["transactional_id"], told["coordinator_id"]) == ("pay\x1b[2J", 2)
    assert told["partitions"][2] == {"topic": "t", "partition": 2}


def test_who_was_fenced_is_told() -> None:
    assert "in 3 partitions is aborted; its producer is fenced" in aborted(OPEN)


def test_hanging_transactions_with_what_ends_one() -> None:
    file = io.StringIO()
    Console(file=file, width=200).print(hanging_table([HANGING]))
    assert file.getvalue().splitlines()[1].split() == ["rides-1", "1,200", "7", "3", "25", "min", "-"]
    assert abort_command(HANGING) == "replog transactions abort --partition rides-1 --start-offset 1200"


def attempt(number: int) -> AttemptName:
    return AttemptName(Version("query:7f", number), "a" * 32, 5)


def test_a_prepared_transaction_of_spark_names_its_query_and_what_ends_it() -> None:
    name = attempt(12).transactional_id
    head, of, _ = described(TransactionDetails(name, "Ongoing", 7, 3, NO_TIMEOUT_MS, 1_000, PLACES, 2), 91_000)
    assert head.endswith("coordinated by broker 2, prepared: no time-out ends it")
    assert (
        of
        == "  written by Spark, as version 12 of query:7f; `replog transactions abort --query query:7f` ends what it has open"
    )


def test_whose_a_transactional_id_is() -> None:
    for name, writer in ((attempt(1).transactional_id, "query:7f"), (driver_id("app:etl"), "app:etl")):
        assert writer_of(name) == writer
    for name in ("billing-1", "spark/", "spark/other", "spark/query:7f/1", "query:7f"):
        assert writer_of(name) is None
    assert [writer_named(text) for text in ("7f", "query:7f", "app:etl", "save:7f")] == ["query:7f", "query:7f", "app:etl", "save:7f"]  # fmt: skip


def test_what_became_of_what_a_query_had_left_open() -> None:
    assert list(ended("query:7f", Ended(None, ()))) == ["query:7f has left nothing open"]
    both = Ended(Version("query:7f", 3), (attempt(4), attempt(4)))
    finished, given_up = ended("query:7f", both)
    assert finished == "version 3 of query:7f had been decided: all its rows are there now"
    assert given_up.startswith("2 transactions of version 4 of query:7f aborted")
    told = json.loads(ended_json("query:7f", both))
    assert (told["writer"], told["finished"], told["aborted"][0]) == ("query:7f", 3, attempt(4).transactional_id)
