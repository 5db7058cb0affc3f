"""Offsets are committed with the leader epoch of the record before them, so that a member that begins there hears of lost records."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from embedded_group_kit import QUICK, Rig, read

from replog import embedded
from replog.client import Admin, Producer, TopicPartition
from replog.client.groups.commits import Offset
from replog.errors import LogTruncatedError

P = TopicPartition("t", 0)


@contextlib.asynccontextmanager
async def started(path: Path) -> AsyncIterator[Rig]:
    """Runs the broker of a folder; each time its leader epochs are later ones."""
    async with embedded(path, config=QUICK) as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            yield Rig(servers, admin, producer)


async def committed_epochs(rig: Rig, *offsets: int) -> list[int]:
    """Reads all, and returns the epochs that are kept beside offsets that the application commits, and its position."""
    async with rig.consumer(enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 20)
        assert consumer._group is not None
        member, found = consumer._group.member, []
        for offset in (*offsets, None):
            await consumer.commit(None if offset is None else {P: offset})
            kept = (await member.openings.committed(member.held))[P]
            assert kept.offset == (20 if offset is None else offset)
            found.append(kept.leader_epoch)
    return found


async def test_a_commit_names_the_epoch_of_the_last_record_that_it_counts(tmp_path: Path) -> None:
    async with started(tmp_path) as rig:
        await rig.admin.create_topic("t", 1)
        await rig.fill(count=10, partitions=1)
    async with started(tmp_path) as rig:
        await rig.fill(count=10, partitions=1)
        first, second, unknown, last = await committed_epochs(rig, 10, 11, 25)
        assert unknown == -1
        assert 0 <= first < second == last
        async with rig.consumer() as consumer:  # it knows before it has read a record
            await consumer.subscribe(["t"])
            while not consumer.assignment():
                await consumer.poll(timeout_ms=20)
            assert consumer._epoch_before(P, 20) == second


@pytest.mark.parametrize("policy", ["raise", "earliest", "latest"])
async def test_a_member_that_begins_behind_records_that_were_lost_hears_of_it(tmp_path: Path, policy: str) -> None:
    """It has committed 15 offsets of an epoch of which the log has 10: the others were with a leader that is gone."""
    async with started(tmp_path) as rig:
        await rig.admin.create_topic("t", 1)
        await rig.fill(count=10, partitions=1)
        async with rig.consumer() as consumer:
            await consumer.subscribe(["t"])
            await read(consumer, 10)
            assert consumer._group is not None
            epoch = consumer._epoch_before(P, 10)
            await consumer._group.member.commits.commit({P: Offset(15, epoch)})
            consumer.seek(P, 15)
    async with started(tmp_path) as rig:
        await rig.fill(count=10, partitions=1)
        async with rig.consumer(auto_offset_reset=policy) as consumer:
            await consumer.subscribe(["t"])
            if policy == "raise":
                with pytest.raises(LogTruncatedError, match="t-0: records from offset 10 to 15 that were read"):
                    await read(consumer, 1)
                consumer.seek(P, 10)
            assert [record.offset for record in await read(consumer, 10)] == list(range(10, 20))


@pytest.mark.parametrize("policy", ["raise", "earliest", "latest"])
async def test_an_epoch_that_no_leader_can_place_moves_nobody(tmp_path: Path, policy: str) -> None:
    """It was committed by a tool, or by who has read from a leader that is ahead of this one."""
    async with started(tmp_path) as rig:
        await rig.admin.create_topic("t", 1)
        await rig.fill(count=10, partitions=1)
        async with rig.consumer(enable_auto_commit=False) as consumer:
            await consumer.subscribe(["t"])
            await read(consumer, 1)
            assert consumer._group is not None
            await consumer._group.member.commits.commit({P: Offset(5, 99)})
        async with rig.consumer(auto_offset_reset=policy) as consumer:
            await consumer.subscribe(["t"])
            assert (await read(consumer, 1))[0].offset == 5
