"""Clients that speak Kafka's protocol beside our own under simulated faults."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from replog.records import encode_batch
from replog.testing.history import History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.virtual_loop import VirtualLoop
from replog.wire.messages.fetch import FetchResponse
from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.event_log import EventLog
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.kafka_fetcher import KafkaFetcher
from tests.sim.kafka_view import KafkaView, Leader
from tests.sim.simulations import KAFKA as KIND


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_kafka_clients_are_acknowledged_survives_everything(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_fresh_seeds_lose_nothing_either() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)


# ---- what a consumer of the simulation finds -----------------------------------------------------------------------------


def told_to_a_fetcher(high_watermark: int, records: bytes, *, committed_end: int) -> list[str]:
    """What a consumer that was handed these reports."""
    reports: list[str] = []
    loop = VirtualLoop(random.Random(1))
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1,), brokers=(1,))
    rng = random.Random(3)
    fetcher = KafkaFetcher(
        KafkaView(cluster, "consumer", "t", rng),
        "f",
        History(),
        rng,
        committed_end=lambda: committed_end,
        deletable_end=lambda: 0,
        may_meet_damage=lambda: False,
        report=reports.append,
        events=EventLog(loop),
        seen=Counter[str](),
    )
    told = FetchResponse.PartitionData(0, high_watermark=high_watermark, records=records)
    leader: Any = Leader(1, 0, "127.0.0.1", 19_001, topic_id=UUID(int=1))
    connection: Any = None

    async def take() -> None:
        await fetcher._take(told, connection, leader)

    loop.run(take())
    return reports


BATCH = encode_batch([(0, None, b"a", ()), (0, None, b"b", ())])


def test_committed_records_are_fine() -> None:
    assert told_to_a_fetcher(2, BATCH, committed_end=2) == []


def test_records_behind_the_high_watermark_are_reported() -> None:
    (said,) = told_to_a_fetcher(1, BATCH, committed_end=2)
    assert "is handed [0, 2) by node 1, whose high watermark is 1" in said


def test_a_high_watermark_that_no_leader_had_is_reported() -> None:
    (said,) = told_to_a_fetcher(3, BATCH, committed_end=2)
    assert "is told the high watermark 3 by node 1, no leader had one above 2" in said


def test_damage_is_reported_where_nothing_has_rotted() -> None:
    damaged = bytearray(BATCH)
    damaged[-1] ^= 1
    (said,) = told_to_a_fetcher(2, bytes(damaged), committed_end=2)
    assert "damage is there where nothing has rotted" in said
