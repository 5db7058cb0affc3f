"""Requests about transactions, right and wrong, one after another: each answer is the one that Kafka 4.1.1 gave (`transaction_script.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import Broker, broker_of, of_replog
from served_cluster import served_cluster

from tests.kafka.transaction_script import SCRIPTS, differences

EXHAUSTION = "exhaustion.txt"
"""A hundred thousand requests, run by hand: `python -m tests.kafka.transaction_script --ours HOST:PORT tests/data/transactions/exhaustion.txt`."""


@pytest.fixture(
    scope="module", params=["replog", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.campaign])]
)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ours, with one partition of groups as that of Kafka in these tests has: the answers name it."""
    if request.param == "kafka":
        yield broker_of(request)
        return
    with served_cluster(tmp_path_factory.mktemp("scripted") / "cluster", offsets_topic_num_partitions=1) as cluster:
        yield of_replog(cluster)


@pytest.mark.parametrize(
    "path", [each for each in sorted(SCRIPTS.glob("*.txt")) if each.name != EXHAUSTION], ids=lambda path: path.stem
)
def test_answers_are_those_of_kafka(broker: Broker, path: Path) -> None:
    found = differences(broker.servers, path, is_ours=broker.name == "replog")
    assert not found, "\n".join(found)


def test_a_wrong_answer_is_found(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(
        "client new\ninit a t\nend a commit\ndescribe t\n----\nNONE p1/0\nNONE p1/1\nt Empty p1/0 timeout=1\n"
    )
    found = differences(broker.servers, path)
    assert [line.strip() for line in found if "!" in line] == [
        "! end a commit\n      wanted ['NONE p1/1']\n      here   ['INVALID_TXN_STATE none/-1']",
        (
            "! describe t\n      wanted ['t Empty p1/0 timeout=1']\n"
            "      here   ['t Empty p1/0 timeout=60000 start=-1 partitions=']"
        ),
    ]
