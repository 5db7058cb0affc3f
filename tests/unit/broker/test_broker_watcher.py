"""What the active controller takes for the death of a broker, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Self
from uuid import UUID

import pytest

from replog.broker.controller import broker_watcher
from replog.broker.controller.broker_watcher import MAX_LOOP_LAG_MS, BrokerWatcher
from replog.controller.messages import BrokerGone, WatchedBroker
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from tests.quiet import quiet_for

BROKER = WatchedBroker(2, broker_epoch=7, incarnation_id=UUID(int=2), host="host", port=9)
OF_BROKER = Hello("c", 2, UUID(int=2))
REFUSED = ConnectionLostError("host:9: refused", refused=True)


class Presence:
    def __init__(self, peer: Hello) -> None:
        self.peer = peer
        self.lost = asyncio.Event()

    async def wait_lost(self) -> None:
        await self.lost.wait()


class Broker:
    """The transport and the one address that there is: who answers, or what happens instead."""

    def __init__(self, *answers: Hello | Exception) -> None:
        self.answers = list(answers)
        self.probes_count = 0
        self.probed = asyncio.Event()
        self.presence: Presence | None = None
        self.closed_count = 0

    def connect(self, address: str, *, purpose: str, node_id: int) -> Broker:
        assert (address, purpose) == ("host:9", "presence")
        return self

    async def open_presence(self, hello: Hello) -> Presence:
        assert hello.node_id == 1
        self.probes_count += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.probed.set()
        if isinstance(answer, Exception):
            raise answer
        self.presence = Presence(answer)
        return self.presence

    async def close(self) -> None:
        self.closed_count += 1

    async def wait_probes(self, count: int) -> None:
        while self.probes_count < count:
            self.probed.clear()
            await asyncio.wait_for(self.probed.wait(), 60)


class Watch:
    """A watcher of `BROKER`, and what it says."""

    def __init__(self, broker: Broker, *, lag_ms: Callable[[], int] = lambda: 0) -> None:
        self.gone: list[BrokerGone] = []
        self.told = asyncio.Event()
        self.failures: list[BaseException] = []
        self.watcher = BrokerWatcher(
            broker,  # type: ignore[arg-type]  # a fake
            lambda: Hello("c", 1, UUID(int=1)),
            SimpleNamespace(worst_ms=lag_ms),  # type: ignore[arg-type]  # a fake
            self._tell,
            self.failures.append,
        )

    def _tell(self, gone: BrokerGone) -> None:
        self.gone.append(gone)
        self.told.set()

    async def __aenter__(self) -> Self:
        self.watcher.watch((BROKER,))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.watcher.stop()
        assert self.failures == []

    async def wait_told(self) -> BrokerGone:
        await asyncio.wait_for(self.told.wait(), 60)
        return self.gone[0]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watcher, "PROBE_PAUSE_S", 0.01)


async def test_a_refusal_is_told_and_told_again_while_the_broker_is_watched() -> None:
    async with Watch(Broker(REFUSED)) as watch:
        gone = await watch.wait_told()
        assert (gone.broker_id, gone.broker_epoch) == (2, 7)
        assert "nobody listens at host:9" in gone.reason
        watch.told.clear()
        await watch.wait_told()
        watch.watcher.watch(())
        await asyncio.sleep(0)
        told_count = len(watch.gone)
        await quiet_for(0.05)
        assert len(watch.gone) == told_count


async def test_a_stream_that_breaks_is_a_hint_only() -> None:
    broker = Broker(OF_BROKER)
    async with Watch(broker) as watch:
        await broker.wait_probes(1)
        assert broker.presence is not None
        broker.presence.lost.set()
        await broker.wait_probes(2)
        assert watch.gone == []
        broker.answers = [REFUSED]
        broker.presence.lost.set()
        assert "nobody listens" in (await watch.wait_told()).reason


async def test_another_incarnation_proves_that_the_one_before_is_gone() -> None:
    async with Watch(Broker(Hello("c", 2, UUID(int=3)))) as watch:
        assert "another incarnation answers" in (await watch.wait_told()).reason


@pytest.mark.parametrize(
    "answer",
    [ConnectionLostError("no route"), TimeoutError(), Hello("c", 3, UUID(int=3))],
    ids=["lost", "silent", "another node"],
)
async def test_what_proves_nothing(answer: Hello | Exception) -> None:
    broker = Broker(answer)
    async with Watch(broker) as watch:
        await broker.wait_probes(1 if isinstance(answer, Hello) else 3)
        assert watch.gone == []


async def test_a_loop_that_lags_has_no_opinion() -> None:
    lag_ms = MAX_LOOP_LAG_MS + 1
    broker = Broker(REFUSED)
    async with Watch(broker, lag_ms=lambda: lag_ms) as watch:
        await broker.wait_probes(3)
        assert watch.gone == []
        lag_ms = MAX_LOOP_LAG_MS
        await watch.wait_told()


@pytest.mark.parametrize(("incarnation", "present"), [(1, {1}), (7, set())], ids=["registered", "new"])
async def test_a_node_does_not_watch_itself_and_knows_whether_it_is_the_one_that_registered(
    incarnation: int, present: set[int]
) -> None:
    broker = Broker(REFUSED)
    async with Watch(broker) as watch:
        watch.watcher.watch((WatchedBroker(1, 7, UUID(int=incarnation), "elsewhere", 9), BROKER))
        assert (await watch.wait_told()).present == present


async def test_who_is_there_is_told() -> None:
    other = WatchedBroker(3, 7, UUID(int=3), "host", 9)
    broker = Broker(OF_BROKER, REFUSED)
    async with Watch(broker) as watch:
        await broker.wait_probes(1)
        watch.watcher.watch((BROKER, other))
        gone = await watch.wait_told()
        assert (gone.broker_id, gone.present) == (3, {2})


async def test_every_connection_is_closed() -> None:
    broker = Broker(OF_BROKER, OF_BROKER)
    async with Watch(broker):
        await broker.wait_probes(1)
    assert broker.closed_count == 1
