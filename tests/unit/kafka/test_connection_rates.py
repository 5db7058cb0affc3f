"""Connections that come too often: taken in late, in order, or ended late; a flood from one address is nobody else's."""

from __future__ import annotations

import asyncio

import pytest
from served_connections import Client, Served, request, serving

from replog.tcp.connection_rates import (
    ADDRESS,
    AT_ONCE,
    BURST_S,
    ENDS_LATE_S,
    HELD_MAX,
    LISTENER,
    WAIT_MAX_S,
    ConnectionRateLimits,
    ConnectionRates,
    HeldConnection,
    plain_address,
)

RATE = 2
BURST = int(RATE * BURST_S)


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def waits(rates: ConnectionRates, count: int, listener: str = "A", address: str = "10.0.0.1") -> list[float]:
    """How long so many connections are held that are taken in then."""
    found = [rates.judge(listener, address) for _ in range(count)]
    assert not any(verdict.refused for verdict in found)
    return [verdict.wait_s for verdict in found]


def test_a_listener_takes_connections_in_at_its_rate_and_others_do_not_mind() -> None:
    clock = Clock()
    rates = ConnectionRates(ConnectionRateLimits(by_listener={"A": RATE}), clock)
    assert waits(rates, BURST + 3) == [0.0] * BURST + [0.5, 1.0, 1.5]
    assert waits(rates, 1, listener="B") == [0.0]
    clock.now_s = 1.5
    assert waits(rates, 1) == [0.5]
    assert rates.held_counts == {LISTENER: 4}


def test_the_rate_of_all_listeners_together_holds_beside_that_of_each() -> None:
    rates = ConnectionRates(ConnectionRateLimits(RATE, {"A": 1}), Clock())
    assert waits(rates, 12) == [0.0] * 10 + [1.0, 2.0]
    assert waits(rates, 8, listener="B") == [0.0] * 8
    assert waits(rates, 1, listener="B") == [0.5]


def test_a_rate_that_changes_holds_at_once() -> None:
    rates = ConnectionRates(ConnectionRateLimits(), Clock())
    assert waits(rates, 1_000) == [0.0] * 1_000
    rates.limits = ConnectionRateLimits(RATE)
    assert waits(rates, BURST + 1) == [0.0] * BURST + [1 / RATE]
    rates.limits = ConnectionRateLimits()
    assert waits(rates, 1_000) == [0.0] * 1_000


def test_an_address_over_its_quota_is_ended_late_and_takes_nothing_from_others() -> None:
    clock = Clock()
    quotas = {"10.0.0.1": 1.0}
    rates = ConnectionRates(ConnectionRateLimits(by_listener={"A": RATE}, of_address=quotas.get), clock)
    assert waits(rates, 10) == [0.0] * 10
    for _ in range(100):
        verdict = rates.judge("A", "10.0.0.1")
        assert (verdict.wait_s, "10.0.0.1 has come more often" in verdict.refused) == (ENDS_LATE_S, True)
    assert waits(rates, BURST - 10, address="10.0.0.2") == [0.0] * (BURST - 10)
    assert rates.held_counts == {ADDRESS: 100}
    clock.now_s = 1.0
    assert rates.judge("A", "10.0.0.1") == AT_ONCE, "what was ended is not counted against it"


def test_what_would_wait_too_long_ends_at_once_and_is_not_waited_for() -> None:
    rates = ConnectionRates(ConnectionRateLimits(by_listener={"A": 1}), Clock())
    assert waits(rates, 20)[-1] == WAIT_MAX_S
    for _ in range(5):
        verdict = rates.judge("A", "10.0.0.1")
        assert (verdict.wait_s, "max.connection.creation.rate" in verdict.refused) == (0.0, True)


async def test_few_wait_and_half_of_them_of_one_address() -> None:
    rates = ConnectionRates(ConnectionRateLimits(by_listener={"A": 200}), Clock())
    waits(rates, 2_000)
    for address, count in (("10.0.0.1", HELD_MAX // 2), ("10.0.0.2", HELD_MAX // 2 - 1)):
        for _ in range(count):
            rates.hold(HeldConnection(rates, "A", asyncio.BufferedProtocol(), lambda *_: None), address)
    assert rates.judge("A", "10.0.0.1").refused
    assert not rates.judge("A", "10.0.0.2").refused
    rates.hold(HeldConnection(rates, "A", asyncio.BufferedProtocol(), lambda *_: None), "10.0.0.2")
    assert rates.judge("A", "10.0.0.3").refused


@pytest.mark.parametrize(
    ("told", "plain"), [("::ffff:10.0.0.7", "10.0.0.7"), ("10.0.0.7", "10.0.0.7"), ("2001:db8::7", "2001:db8::7")]
)
def test_an_address_has_one_form(told: str, plain: str) -> None:
    assert plain_address(told) == plain


# ---- over a port -----------------------------------------------------------------------------------------------------


async def answered(client: Client, number: int) -> int:
    client.writer.write(request(number))
    (answer,) = await client.answers(1)
    return answer


async def taken_in(it: Served, count: int) -> list[Client]:
    clients = [await it.client() for _ in range(count)]
    assert [await answered(client, number) for number, client in enumerate(clients)] == list(range(count))
    return clients


async def test_a_connection_that_is_taken_in_late_is_served_then() -> None:
    async with serving(rates=ConnectionRateLimits(by_listener={"PLAINTEXT": RATE})) as it:
        it.script.is_open = True
        await taken_in(it, BURST)
        late = await it.client()
        late.writer.write(request(99))
        await asyncio.sleep(0)
        assert len(it.listener) == BURST
        assert await late.answers(1) == [99]
        assert it.listener.held_counts == {LISTENER: 1}


async def test_connections_that_wait_end_with_the_listener_and_leave_nothing() -> None:
    async with serving(rates=ConnectionRateLimits(of_address=lambda _: 1.0)) as it:
        it.script.is_open = True
        await taken_in(it, 10)
        held, gone = await it.client(), await it.client()
        async with asyncio.timeout(60):
            while it.listener.held_counts.get(ADDRESS) != 2:
                await asyncio.sleep(0.01)
        gone.writer.close()
        await it.listener.stop()
        assert await held.until_ended() == b""
        assert it.listener._rates is not None
        assert not it.listener._rates._held


async def test_an_address_over_its_quota_is_ended_late(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(rates=ConnectionRateLimits(of_address=lambda _: 1.0)) as it:
        it.script.is_open = True
        await taken_in(it, 10)
        assert await (await it.client()).until_ended() == b""
        assert len(it.listener) == 10
    assert any("more often than its quota" in message for message in caplog.messages)
