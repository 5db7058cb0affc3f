"""Transactions over several real brokers: whatever their coordinators, and those of the groups, go through meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from cluster_kit import PATIENCE_S, QUICK, Cluster, StartCluster, until

from replog.broker.coordinator.internal_topic import partition_of
from replog.client import Admin, Consumer, GroupMetadata, Producer
from replog.client.producer.transaction import PreparedTransaction
from replog.cluster import NodePlace
from replog.errors import FeatureUpdateFailedError, TransactionalIdNotFoundError
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog_chaos.faults import FAULTS
from replog_chaos.scenes import prepared
from tests.quiet import quiet_for

pytestmark = pytest.mark.cluster

LEVEL = "transaction.version"
KEYS = {
    "transaction_state_log_num_partitions": 3,
    "offsets_topic_num_partitions": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
}


def producing(cluster: Cluster, name: str) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id=name, delivery_timeout_ms=int(PATIENCE_S * 1000))


async def committed(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """The values of so many committed records of a topic, in order; there are no more, or the test fails."""
    async with Consumer(cluster.bootstrap_servers) as consumer, asyncio.timeout(PATIENCE_S):
        await consumer.assign_topic(topic)
        found: list[bytes | None] = []
        while len(found) < count:
            found += [each.value for each in await consumer.poll()]
        places = [(topic, each.partition_id) for each in await cluster.partitions(topic)]
        ends = await consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [each.value for each in await consumer.poll(timeout_ms=100)]
    return sorted(found, key=lambda value: value or b"")


async def coordinator(cluster: Cluster, topic: str, name: str) -> int:
    """Who coordinates a group, or a transactional id."""
    return await cluster.leader(topic, partition_of(name, 3))


async def status_is(cluster: Cluster, name: str, status: str) -> None:
    async def reached() -> bool:
        return (await cluster.admin.describe_transactions([name]))[name].state == status

    await until(reached, f"{name} is {status}")


async def restart(cluster: Cluster, node_id: int) -> None:
    await cluster.local.kill(node_id)
    cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready()


def give_up(*, is_wanted: bool) -> None:
    """Raises what nobody here catches."""
    if is_wanted:
        raise KeyError


async def lower(admin: Admin, level: int) -> None:
    await admin.update_features({LEVEL: level}, allow_downgrade=True)


async def test_the_level_is_lowered_beside_transactions_in_each_state(start_cluster: StartCluster) -> None:
    """As in Kafka nothing is refused, and each transaction ends as it was decided; coordinators read records of both versions."""
    cluster = await start_cluster(**KEYS)
    await cluster.admin.create_topic("t", 1, 3)
    async with (
        producing(cluster, "open") as it,
        producing(cluster, "prepared") as other,
        producing(cluster, "late") as third,
    ):
        async with third.transaction():
            await third.send("t", b"0")
        home = await coordinator(cluster, TRANSACTIONS_TOPIC, "late")
        away = next(each for each in cluster.node_ids if each != home)
        await cluster.admin.create_topic("slow", assignments=[[away]])
        async with other.transaction() as txn:
            await other.send("t", b"1")
            prepared = await txn.prepare()
        async with third.transaction():
            await third.send_and_wait("slow", b"decided")
            cluster.local.pause(away)
        async with it.transaction():
            await it.send_and_wait("t", b"2")
            with pytest.raises(FeatureUpdateFailedError):
                await cluster.admin.update_features({LEVEL: 1})
            await lower(cluster.admin, 1)
            await status_is(cluster, "late", "PrepareCommit")
            cluster.local.resume(away)
            await restart(cluster, await coordinator(cluster, TRANSACTIONS_TOPIC, "open"))
        async with it.transaction():
            await it.send_and_wait("t", b"3")
            await lower(cluster.admin, 0)
        for node_id in cluster.node_ids:
            await restart(cluster, node_id)
        await status_is(cluster, "late", "CompleteCommit")
        async with it.transaction(), third.transaction():
            await it.send("t", b"4")
            await third.send("t", b"5")
        assert isinstance(prepared, PreparedTransaction)
        await status_is(cluster, "prepared", "Ongoing")
        await cluster.admin.abort_transaction("prepared")
    assert await committed(cluster, "t", 5) == [b"0", b"2", b"3", b"4", b"5"]
    assert await committed(cluster, "slow", 1) == [b"decided"]
    await cluster.admin.update_features({LEVEL: 2})
    async with producing(cluster, "open") as it, it.transaction():
        await it.send("t", b"6")
    assert len(await committed(cluster, "t", 6)) == 6


async def test_offsets_of_a_group_that_another_broker_coordinates_are_committed_whole_or_not_at_all(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(**KEYS)
    await cluster.admin.create_topic("in", 2, 3)
    await cluster.admin.create_topic("out", 1, 3)
    async with Producer(cluster.bootstrap_servers) as filler:
        await filler.send("in", b"", partition=0)
    async with producing(cluster, "etl-0") as first, first.transaction() as txn:  # which makes both topics
        await first.send("out", b"0")
        await txn.commit_offsets(GroupMetadata("g"), {("in", 0): 0, ("in", 1): 0})
    group_home = await coordinator(cluster, OFFSETS_TOPIC, "g")
    names = [f"etl-{number}" for number in range(20)]
    homes = {each: await coordinator(cluster, TRANSACTIONS_TOPIC, each) for each in names}
    name = next(each for each, home in homes.items() if home != group_home)
    async with producing(cluster, name) as producer:
        for number in range(1, 7):
            group_home = await coordinator(cluster, OFFSETS_TOPIC, "g")
            home = await coordinator(cluster, TRANSACTIONS_TOPIC, name)
            killed = group_home if number % 2 else home
            is_kept = number % 3 != 0
            try:
                async with producer.transaction() as txn:
                    await producer.send("out", b"%d" % number)
                    await txn.commit_offsets(GroupMetadata("g"), {("in", 0): number, ("in", 1): number})
                    await cluster.local.kill(killed)
                    give_up(is_wanted=not is_kept)
            except KeyError:
                assert not is_kept
            wanted = number if is_kept else number - 1

            async def settled(wanted: int = wanted) -> bool:
                told = await cluster.admin.group_offsets("g")
                assert len(set(told.values())) == 1, f"half of a transaction: {told}"
                return set(told.values()) == {wanted}

            await until(settled, f"the offsets are {wanted}")
            cluster.local.start_node(killed)
            await cluster.local.wait_until_ready()
            await cluster.admin.wait_until_in_sync(TRANSACTIONS_TOPIC)
    assert await committed(cluster, "out", 5) == [b"0", b"1", b"2", b"4", b"5"]


async def test_too_few_replicas_of_the_coordinator_hold_up_a_commit_and_lose_nothing(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(**KEYS, transaction_state_log_min_isr=3)
    await cluster.admin.create_topic("t", 1, 3)
    async with producing(cluster, "pay") as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
        home = await coordinator(cluster, TRANSACTIONS_TOPIC, "pay")
        killed = next(each for each in cluster.node_ids if each != home)

        async def pay() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"2")
                await cluster.local.kill(killed)
                left = [each for each in cluster.node_ids if each != killed]
                await cluster.isr_is(left, TRANSACTIONS_TOPIC, partition_of("pay", 3))

        paying = asyncio.create_task(pay())
        await cluster.isr_is([each for each in cluster.node_ids if each != killed], "t")
        await quiet_for(2)
        assert not paying.done()
        await status_is(cluster, "pay", "Ongoing")
        cluster.local.start_node(killed)
        await paying
        async with producer.transaction():
            await producer.send("t", b"3")
    assert await committed(cluster, "t", 3) == [b"1", b"2", b"3"]


async def test_a_full_disk_of_the_coordinator_loses_nothing(tmp_path: Path) -> None:
    fault = FAULTS["full-disk"]
    if reason := fault.missing():
        pytest.skip(reason)
    config = {**QUICK, **{name.replace("_", "."): value for name, value in KEYS.items()}}
    async with prepared(fault.scene, tmp_path / "cluster", 3, config, "t") as target:
        cluster = Cluster(target.cluster, target.admin)
        await cluster.admin.create_topic("t", assignments=[[2, 3]])
        async with producing(cluster, "warm-up") as first, first.transaction():
            await first.send("t", b"0")
        names = [f"pay-{number}" for number in range(20)]
        homes = {each: await coordinator(cluster, TRANSACTIONS_TOPIC, each) for each in names}
        name = next(each for each, home in homes.items() if home == 1)
        async with producing(cluster, name) as producer, asyncio.timeout(PATIENCE_S):
            async with producer.transaction():
                await producer.send("t", b"1")
            async with fault.happens(target) as (node_id,):
                assert node_id == 1
                async with producer.transaction():  # which another broker coordinates then
                    await producer.send("t", b"2")
            async with producer.transaction():
                await producer.send("t", b"3")
        assert await committed(cluster, "t", 4) == [b"0", b"1", b"2", b"3"]


async def test_a_coordinator_is_moved_to_other_brokers_while_a_transaction_is_open(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(4, **KEYS)
    await cluster.admin.create_topic("t", 1, 3)
    number = partition_of("pay", 3)
    async with producing(cluster, "pay") as producer:
        async with producer.transaction():
            await producer.send("t", b"0")
        for attempt in range(1, 4):
            async with producer.transaction():
                await producer.send_and_wait("t", b"%d" % attempt)
                (before,) = [
                    each for each in await cluster.partitions(TRANSACTIONS_TOPIC) if each.partition_id == number
                ]
                target = [each for each in cluster.node_ids if each != before.leader][:3]
                await cluster.admin.reassign_partitions({(TRANSACTIONS_TOPIC, number): target})
                if attempt > 1:  # else it goes on while the partition moves
                    await cluster.leader_other_than(before.leader, TRANSACTIONS_TOPIC, number)
            await cluster.leader_other_than(before.leader, TRANSACTIONS_TOPIC, number)
    assert await committed(cluster, "t", 4) == [b"0", b"1", b"2", b"3"]


async def test_topics_that_are_deleted_keep_no_transaction_open(start_cluster: StartCluster) -> None:
    """Neither one that is open, nor one that is decided and whose marker cannot be written."""
    cluster = await start_cluster(**KEYS)
    await cluster.admin.create_topic("kept", 1, 3)
    async with producing(cluster, "pay") as producer:
        async with producer.transaction():
            await producer.send("kept", b"0")
        home = await coordinator(cluster, TRANSACTIONS_TOPIC, "pay")
        away = next(each for each in cluster.node_ids if each != home)
        await cluster.admin.create_topic("open", 2, 3)
        await cluster.admin.create_topic("decided", assignments=[[away]])
        async with producer.transaction():
            for topic in ("open", "kept", "decided"):
                await producer.send_and_wait(topic, b"1")
            await cluster.admin.delete_topics(["open"])
            await cluster.local.kill(away)
        await status_is(cluster, "pay", "PrepareCommit")
        await cluster.admin.delete_topics(["decided"])
        await status_is(cluster, "pay", "CompleteCommit")
        async with producer.transaction():
            await producer.send("kept", b"2")
    assert await committed(cluster, "kept", 3) == [b"0", b"1", b"2"]


OLDER = """
from pathlib import Path
from replog.rpc import calls

LATER = {"write_markers", "join_transaction"}
decode = calls._decode

def decode_as_older(message, oneof, kinds, side):
    known = {name: each for name, each in kinds.items() if oneof != "request" or name not in LATER}
    return decode(message, oneof, known, side)

if Path(__file__).with_name("older").exists():
    calls._decode = decode_as_older
"""
"""What a node runs first that does not know what brokers ask one another about transactions."""


async def test_brokers_are_upgraded_one_after_the_other(start_cluster: StartCluster, tmp_path: Path) -> None:
    """What an older broker does not know waits for its upgrade, and its operator is told; nothing fails, nothing is lost."""
    (tmp_path / "sitecustomize.py").write_text(OLDER, encoding="utf-8")
    is_older = tmp_path / "older"
    is_older.touch()
    older = NodePlace(environment={"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])})
    cluster = await start_cluster(places={3: older}, **KEYS)
    await cluster.admin.create_topic("old", assignments=[[3]])
    await cluster.admin.create_topic("new", assignments=[[1, 2]])
    with pytest.raises(TransactionalIdNotFoundError):
        await cluster.admin.describe_transactions(["none"])  # which makes the topic
    homes = {f"pay-{n}": await coordinator(cluster, TRANSACTIONS_TOPIC, f"pay-{n}") for n in range(30)}
    here, there = (next(name for name, home in homes.items() if (home == 3) is is_there) for is_there in (False, True))
    async with producing(cluster, here) as one, producing(cluster, there) as other:

        async def pay(producer: Producer, topic: str) -> None:
            async with producer.transaction():
                await producer.send(topic, b"paid")

        await pay(one, "new")
        marked, joining = asyncio.create_task(pay(one, "old")), asyncio.create_task(pay(other, "new"))

        async def told() -> bool:
            text = "broker 3 takes no part in transactions until it has the version of this one"
            return any(text in cluster.log_text(node_id) for node_id in (1, 2))

        await until(told, "an operator is told which broker is older")
        await marked  # it is decided, and read once the broker is upgraded
        assert not joining.done()
        is_older.unlink()
        await restart(cluster, 3)
        await joining
    assert await committed(cluster, "old", 1) == [b"paid"]
    assert await committed(cluster, "new", 2) == [b"paid"] * 2
