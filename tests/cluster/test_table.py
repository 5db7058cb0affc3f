"""`replog.Table`: the newest values of a topic, at its end, at a past place, and as they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import replog
from replog.client import Admin, Producer, SyncAdmin, SyncProducer
from replog.errors import (
    BrokerClosedError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from replog.tables import TableChange

T0 = 1_700_000_000_000


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    """A broker with a compacted topic `users` of two partitions: 300 records of 30 keys, the last three of them tombstones."""
    async with replog.embedded() as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topic("users", 2, configs={"cleanup.policy": "compact"})
        async with Producer(broker.bootstrap_servers) as producer:
            for number in range(300):
                key, value = b"k%d" % (number % 30), None if number >= 297 else b"%d" % number
                await producer.send("users", value, key, number % 2, T0 + number)
        yield broker.bootstrap_servers


async def test_the_newest_value_of_each_key(servers: str) -> None:
    async with replog.Table("users", bootstrap_servers=servers) as users:
        assert dict(users) == {b"k%d" % n: b"%d" % (270 + n) for n in range(27)}
        assert (users.get(b"k28"), b"k3" in users, users.positions()) == (None, True, {0: 150, 1: 150})
        async with Producer(servers) as producer:
            await (await producer.send("users", b"new", b"k28", 0))
        assert b"k28" not in users
        await users.refresh()
        assert users[b"k28"] == b"new"
    assert users[b"k28"] == b"new", "also when it is closed"


@pytest.mark.parametrize(
    ("at", "expected"),
    [(15, {b"k%d" % n: b"%d" % n for n in range(30)}), ({0: 1, 1: 0}, {b"k0": b"0"}), ("earliest", {}), ("-1s", None)],
)
async def test_as_it_was(servers: str, at: object, expected: dict[bytes, bytes] | None) -> None:
    async with replog.Table("users", bootstrap_servers=servers, at=at) as users:
        assert len(users) == 27 if expected is None else dict(users) == expected
        with pytest.raises(InvalidRequestError, match="past place"):
            await users.refresh()
        with pytest.raises(InvalidRequestError, match="past place"):
            await anext(users.watch())


async def test_changes_are_told_and_taken_in(servers: str) -> None:
    async with replog.Table("users", bootstrap_servers=servers) as users, Producer(servers) as producer:
        changes = users.watch()
        for value in (b"x", None):
            waiting = asyncio.ensure_future(anext(changes))
            await (await producer.send("users", value, b"new", 0, T0))
            change = await waiting
            assert change == TableChange(b"new", value, 0, 151 - (value is not None), T0)
            assert users.get(b"new") == value
        await changes.aclose()


async def test_a_cancelled_restore_and_a_cancelled_watch_lose_nothing(servers: str) -> None:
    async with replog.Table("users", bootstrap_servers=servers) as users, Producer(servers) as producer:
        for number in range(30):
            waiting = asyncio.ensure_future(anext(users.watch()))
            await producer.send("users", b"%d" % number, b"n%d" % number, 1)
            for _ in range(number):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        await producer.flush()
        await users.refresh()
        assert {key: users.get(key) for key in users if key.startswith(b"n")} == {
            b"n%d" % n: b"%d" % n for n in range(30)
        }
    for turns in range(0, 60, 7):
        entering = asyncio.ensure_future(replog.Table("users", bootstrap_servers=servers).__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        if not entering.cancelled():
            await entering.result().close()


async def test_what_is_no_table_is_told(servers: str) -> None:
    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topic("plain", 1)
        await (await producer.send("plain", b"x"))
    with pytest.raises(InvalidRecordError, match="plain-0 has a record without a key at offset 0"):
        async with replog.Table("plain", bootstrap_servers=servers):
            pass
    with pytest.raises(UnknownTopicOrPartitionError):
        async with replog.Table("nowhere", bootstrap_servers=servers):
            pass
    with pytest.raises(OffsetOutOfRangeError, match=r"at: offset 151 of users-0 is outside of \[0, 150\]"):
        async with replog.Table("users", bootstrap_servers=servers, at=151):
            pass
    with pytest.raises(InvalidRequestError, match="at: 'soon' is no place"):
        replog.Table("users", bootstrap_servers=servers, at="soon")


def test_without_async_it_is_the_same() -> None:
    with replog.embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
        servers = broker.bootstrap_servers
        admin.create_topic("users", 1, configs={"cleanup.policy": "compact"})
        with SyncProducer(servers) as producer, replog.SyncTable("users", bootstrap_servers=servers) as users:
            producer.send("users", b"first", b"ann").result()
            assert (dict(users), users.positions()) == ({}, {0: 0})
            users.refresh()
            assert (users[b"ann"], len(users), users.positions()) == (b"first", 1, {0: 1})
            producer.send("users", None, b"ann", timestamp_ms=T0).result()
            assert next(users.watch()) == TableChange(b"ann", None, 0, 1, T0)
            assert b"ann" not in users
        with replog.SyncTable("users", bootstrap_servers=servers, at=1) as past:
            assert dict(past) == {b"ann": b"first"}
            with pytest.raises(InvalidRequestError, match="past place"):
                past.refresh()
        with pytest.raises(BrokerClosedError):
            users.refresh()
        with pytest.raises(UnknownTopicOrPartitionError), replog.SyncTable("nowhere", bootstrap_servers=servers):
            pass
