"""Two consumers of replog's as members of a group (KIP-848) of Apache Kafka and of a replog broker, from joining to taking over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import client_functions as functions
import pytest
from brokers import Broker

from replog.client import Admin, Consumer, Producer, TopicPartition

PARTITIONS = 4
RECORDS = 10
"""Of each partition."""

PATIENCE_S = 60
"""Kafka tells members of changes with their heartbeats, every five seconds."""


def member(broker: Broker, group: str, **settings: Any) -> Consumer:
    given = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    return Consumer(broker.servers, **given)


async def write(broker: Broker, topic: str) -> None:
    async with Producer(broker.servers) as producer:
        for number in range(PARTITIONS):
            for value in range(RECORDS):
                await producer.send(topic, b"%d" % value, partition=number)


async def read_until_shared(*members: Consumer) -> None:
    """Reads with all until each has the same number of partitions."""
    async with asyncio.timeout(PATIENCE_S):
        while {len(each.assignment()) for each in members} != {PARTITIONS // len(members)}:
            for each in members:
                await each.poll(timeout_ms=100)


async def joined_shared_and_taken_over(broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    await write(broker, topic)
    async with member(broker, group) as first:
        await first.subscribe([topic])
        async with member(broker, group) as second:
            await second.subscribe([topic])
            await read_until_shared(first, second)
            kept, gone = first.assignment(), second.assignment()
            everything = sorted([*kept, *gone])
            assert everything == [TopicPartition(topic, number) for number in range(PARTITIONS)]
            await first.commit(dict.fromkeys(kept, 3))
            await second.commit(dict.fromkeys(gone, 4))
        read: dict[TopicPartition, list[int]] = {each: [] for each in gone}  # by the other one had left
        async with asyncio.timeout(PATIENCE_S):
            while sum(map(len, read.values())) < len(gone) * (RECORDS - 4):
                for record in await first.poll(timeout_ms=100):
                    if (found := TopicPartition(record.topic, record.partition)) in read:
                        read[found].append(record.offset)
        assert read == {each: list(range(4, RECORDS)) for each in gone}
        assert [await first.committed(each) for each in (*kept, *gone)] == [3] * len(kept) + [4] * len(gone)
        await told_to_operators(broker, group, first, dict.fromkeys(kept, 3) | dict.fromkeys(gone, 4))


async def told_to_operators(broker: Broker, group: str, member: Consumer, offsets: dict[TopicPartition, int]) -> None:
    """The group as tools of ours see it: with its one member, and after it was emptied of offsets."""
    async with Admin(broker.servers) as admin:
        described = (await admin.describe_groups([group]))[group]
        assert [each.assignment for each in described.members] == [tuple(sorted(offsets))]
        assert [each.client_id for each in described.members] == ["replog-consumer"]
        assert described.state == "Stable"
        assert await admin.group_offsets(group) == offsets
        assert [each.lag for each in await admin.group_lag(group)] == [
            RECORDS - offsets[each] for each in sorted(offsets)
        ]
        assert [each.group_id for each in await admin.list_groups(states=["Stable"]) if each.group_id == group] == [
            group
        ]
        assert (await admin.delete_groups([group]))[group] is not None
        await member.unsubscribe()
        assert await admin.delete_groups([group]) == {group: None}


@pytest.mark.served(functions.ASSIGNED_GROUPS, client="replog")
def test_two_members_share_and_one_takes_over(serving: Broker) -> None:
    asyncio.run(joined_shared_and_taken_over(serving, serving.topic(PARTITIONS)))


async def was_slow_and_has_its_partitions_again(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    group = f"group-of-{topic}"
    await write(broker, topic)
    slow = member(broker, group, group_instance_id="slow", max_poll_interval_ms=1_000)
    async with slow, member(broker, group, group_instance_id="quick") as quick:
        await slow.subscribe([topic])
        await quick.subscribe([topic])
        await read_until_shared(slow, quick)
        had, others = slow.assignment(), quick.assignment()
        async with asyncio.timeout(PATIENCE_S):
            while not any("is silent" in text for text in caplog.messages):
                await quick.poll(timeout_ms=100)
            await slow.poll(timeout_ms=100)  # hears that all is lost, and joins
            while slow.assignment() != had:
                await slow.poll(timeout_ms=100)
                await quick.poll(timeout_ms=100)
                assert quick.assignment() == others


@pytest.mark.served(functions.ASSIGNED_GROUPS, client="replog")
def test_a_static_member_that_was_too_slow_has_its_partitions_again(
    serving: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="replog")
    asyncio.run(was_slow_and_has_its_partitions_again(serving, serving.topic(PARTITIONS), caplog))
