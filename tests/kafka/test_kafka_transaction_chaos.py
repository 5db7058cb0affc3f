"""Transactions of librdkafka's clients and ours that are killed, fenced and stopped: nothing is lost, torn, or there twice.

With Kafka itself this shows that a system that is right passes.
"""

from __future__ import annotations

import asyncio

import pytest
from brokers import Broker

from replog_chaos.transactions import CLIENT_FAULTS, PROGRAMS, TransactionChaos, run_transactions

pytest.importorskip("confluent_kafka", reason="the clients need confluent-kafka")


def judged(broker: Broker, *faults: str, rounds: int = 1, clients: str = "librdkafka") -> TransactionChaos:
    said: list[str] = []
    outcome = asyncio.run(
        run_transactions(faults, rounds=rounds, say=said.append, servers=broker.servers, clients=clients)
    )
    assert not outcome.anomalies, outcome.text()
    assert len(said) == len(faults) * rounds
    return outcome


@pytest.mark.parametrize("clients", PROGRAMS)
def test_a_killed_client_and_a_fenced_one(broker: Broker, clients: str) -> None:
    outcome = judged(broker, "kill-client", "twin", clients=clients)
    assert outcome.lines["fenced"] >= 1
    assert min(outcome.transactions["committed"], outcome.transactions["aborted"], outcome.inputs) > 0


@pytest.mark.campaign
@pytest.mark.parametrize("clients", PROGRAMS)
def test_every_fault_of_clients(broker: Broker, clients: str) -> None:
    outcome = judged(broker, *CLIENT_FAULTS, rounds=5, clients=clients)
    assert outcome.lines["fenced"] >= 5
