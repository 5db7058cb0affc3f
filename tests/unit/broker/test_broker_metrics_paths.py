"""Requests are measured around their paths: stages, totals, bytes."""

from __future__ import annotations

import pytest
from broker_kit import KEY, TOPIC_ID, batch, registered, rig, topic, wait_until
from metrics_kit import samples

from replog.broker.metrics.paths import Instruments, MeteredFetchPath, MeteredProducePath, RequestTimes, Timed
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)

BROKERS = (registered(1), registered(2))


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stages(instruments: Instruments, request: str) -> dict[str, tuple[float, float]]:
    """Stage -> (how often, seconds together), of those that were seen."""
    found = samples(instruments.registry)
    prefix = f'replog_request_seconds_%s{{request="{request}",stage="%s"}}'
    names = ("queue", "local", "remote", "total")
    seen = {name: (found.get(prefix % ("count", name), 0), found.get(prefix % ("sum", name), 0)) for name in names}
    return {name: values for name, values in seen.items() if values[0]}


def test_an_answer_that_waits_has_a_remote_stage() -> None:
    instruments, clock, answers = Instruments(), Seconds(), list[str]()
    counted: list[str] = []
    timed = Timed(answers.append, RequestTimes(instruments, "produce"), counted.append, clock)
    clock.now += 1
    timed.begin()
    clock.now += 2
    timed.end_local()
    clock.now += 4
    timed("done")
    assert stages(instruments, "produce") == {"queue": (1, 1), "local": (1, 2), "remote": (1, 4), "total": (1, 7)}
    assert answers == counted == ["done"]


def test_an_answer_at_once_waits_for_nothing() -> None:
    instruments, clock, answers = Instruments(), Seconds(), list[str]()
    timed = Timed(answers.append, RequestTimes(instruments, "produce"), lambda _: None, clock)
    timed.begin()
    clock.now += 2
    timed("done")
    clock.now += 1
    timed.end_local()
    assert stages(instruments, "produce") == {"queue": (1, 0), "local": (1, 3), "remote": (1, 0), "total": (1, 2)}


async def test_a_produce_waits_for_its_replicas() -> None:
    async with rig() as it:
        instruments, clock = Instruments(), Seconds()
        path = MeteredProducePath(it.produce_path, instruments, clock)
        await it.apply(*BROKERS, *topic((1, 2)))
        answers: list[ProduceResponse] = []
        for _ in range(2):  # taken up together
            path.submit(ProduceRequest(1, 30_000, -1, (ProducePartition(TOPIC_ID, 0),), (batch(),)), answers.append)
        await it.settle()
        assert set(stages(instruments, "produce")) == {"queue", "local"}
        clock.now += 5
        it.fetch(2, replica_id=2)
        await wait_until(lambda: len(answers) == 2)
        assert stages(instruments, "produce")["remote"] == (2, 10)
        assert stages(instruments, "produce")["total"] == (2, 10)
        assert samples(instruments.registry)["replog_produced_bytes_total"] == 2 * len(batch())


async def test_what_is_refused_was_not_produced() -> None:
    async with rig() as it:
        instruments = Instruments()
        path = MeteredProducePath(it.produce_path, instruments)
        answers: list[ProduceResponse] = []
        path.submit(ProduceRequest(1, 30_000, -1, (ProducePartition(TOPIC_ID, 0),), (batch(),)), answers.append)
        path.submit(ProduceRequest(2, 30_000, -1, (), ()), answers.append)
        await wait_until(lambda: len(answers) == 2)
        await it.settle()
        assert samples(instruments.registry)["replog_produced_bytes_total"] == 0
        assert {name: count for name, (count, _) in stages(instruments, "produce").items()} == dict.fromkeys(
            ("queue", "local", "remote", "total"), 2
        )


@pytest.mark.parametrize(("replica_id", "reader"), [(-1, "consumer"), (2, "follower")])
async def test_a_fetch_is_measured_by_its_reader(replica_id: int, reader: str) -> None:
    async with rig() as it:
        instruments = Instruments()
        path = MeteredFetchPath(it.fetch_path, it.stepper.driver.submit, instruments)
        await it.apply(*BROKERS, *topic((1, 2), isr=(1,)))
        await it.committed(1)
        answers: list[FetchResponse] = []
        asked = (FetchPartition(*KEY, 0),)
        path.submit(FetchRequest(1, 1000, replica_id, 102, 500, 1, 1 << 20, asked), answers.append)
        await wait_until(lambda: answers)
        await it.settle()
        assert samples(instruments.registry)[f'replog_fetched_bytes_total{{reader="{reader}"}}'] == len(batch())
        found = stages(instruments, f"fetch_{reader}")
        assert {name: count for name, (count, _) in found.items()} == dict.fromkeys(
            ("queue", "local", "remote", "total"), 1
        )


async def test_an_incremental_fetch_counts_from_the_first_request_that_waits() -> None:
    async with rig() as it:
        instruments, clock = Instruments(), Seconds()
        path = MeteredFetchPath(it.fetch_path, it.stepper.driver.submit, instruments, clock)
        await it.apply(*BROKERS, *topic((1, 2), isr=(1,)))
        answers: list[FetchResponse] = []
        fetch = path.incremental.open(answers.append, lambda: None)
        asked = FetchRequest(1, 1000, 2, 102, 500, 1, 1 << 20, (FetchPartition(*KEY, 0),), incremental=True)
        path.submit_incremental(fetch, asked)
        await it.settle()
        assert it.fetch_path.incremental.waiting_count == 1
        clock.now += 3
        path.submit_incremental(fetch, FetchRequest(2, 1000, 2, 102, 500, 1, 1 << 20, (), incremental=True))
        await it.settle()
        it.produce()
        await wait_until(lambda: answers)
        assert stages(instruments, "fetch_follower") == {"total": (1, 3)}
        assert samples(instruments.registry)['replog_fetched_bytes_total{reader="follower"}'] == len(batch())
        assert it.fetch_path.incremental.waiting_count == 0
        path.submit_incremental(fetch, asked)
        path.close_incremental(fetch)
        await it.settle()
        assert not path._asked_s
