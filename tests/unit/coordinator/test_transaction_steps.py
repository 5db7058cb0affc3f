"""Requests of producers one after the other, and Kafka's answers, as a table that a test beside Kafka may send, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transaction_kit import Producer, TransactionHost

from replog.coordinator.runtime.messages import ReplyError
from replog.coordinator.transactions.requests import AddPartitionsResponse, Incarnation, TransactionPartition

STEPS = Path(__file__).parents[2] / "data" / "coordinator" / "transaction_steps.txt"
SCENARIOS = {
    title.strip(): lines.strip().splitlines()
    for title, _, lines in (each.partition("\n") for each in STEPS.read_text(encoding="utf-8").split("\n== ")[1:])
}


def request_of(producer: Producer, words: list[str]) -> Any:
    """The request that a line asks for."""
    named = [each.rpartition("-") for each in words[1:]]
    partitions = [TransactionPartition(topic, int(number)) for topic, _, number in named]
    match words[0]:
        case "init" | "again":
            return producer.init(knows=words[0] == "again")
        case "add":
            return producer.add(*partitions)
        case "verify":
            return producer.verify(*partitions)
        case "commit":
            return producer.commit()
        case _:
            assert words[0] == "abort"
            return producer.abort()


def told(answer: Any) -> str:
    """An answer as the lines have it."""
    if isinstance(answer, ReplyError):
        return answer.error.code.name
    if isinstance(answer.response, AddPartitionsResponse):
        return next((each.code.name for each in answer.response.errors if each is not None), "NONE")
    return str(answer.response.producer.producer_epoch)


@pytest.mark.parametrize("title", SCENARIOS)
def test_what_is_answered(title: str) -> None:
    host = TransactionHost()
    host.cluster.transaction_version = 2 if title.startswith("v2") else 1
    host.lead()
    processes: dict[str, Producer] = {}
    for line in SCENARIOS[title]:
        asked, _, expected = line.partition(" => ")
        name, *words = asked.split(" ")
        answer, *marks = expected.split(" ")
        producer = processes.setdefault(name, Producer(bumps=title.startswith("v2")))
        request_id = host.submit(request_of(producer, words))
        host.commit()
        assert told(host.answers[request_id]) == answer, line
        if answer.isdecimal() and "?" not in marks:
            producer.at = Incarnation(host.response(request_id).producer.producer_id, int(answer))
        if "!" in marks:
            host.write_markers()


def test_each_kind_of_request_is_in_the_table() -> None:
    words = {line.split(" ")[1] for lines in SCENARIOS.values() for line in lines}
    assert words == {"init", "again", "add", "verify", "commit", "abort"}
