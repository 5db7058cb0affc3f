"""Wall clocks of leaders that jump under load: nobody is elected for it, nothing is lost, and age is what timestamps say.

Skipped with the reason where no clock of a process can be moved.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from cluster_kit import QUICK, Cluster, check_healed, say, until
from cluster_load import Load, Tail

from replog.client import Consumer, ConsumerRecord, Producer
from replog.errors import InvalidTimestampError
from replog.testing.history import History
from replog_chaos.clock_faults import clocks_of
from replog_chaos.clocks import DAY_NS, HOUR_NS, clocks_are_missing
from replog_chaos.fault import Scene, Target
from replog_chaos.scenes import prepared
from tests.quiet import quiet_for

pytestmark = pytest.mark.cluster

TOPIC = "flights"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SESSION_MS = 4_000
CONFIG = {
    **QUICK,
    "broker.session.timeout.ms": SESSION_MS,
    "controller.quorum.fetch.timeout.ms": SESSION_MS,  # a busy machine must not elect anybody either
    "log.retention.check.interval.ms": 100,
}
ROLLS_AT_A_JUMP = {"min.insync.replicas": 2, "segment.ms": HOUR_MS // 2}


@contextlib.asynccontextmanager
async def movable(directory: Path) -> AsyncIterator[tuple[Cluster, Target]]:
    """Three nodes with wall clocks of their own."""
    if reason := clocks_are_missing():
        pytest.skip(reason)
    async with prepared(Scene.CLOCKS, directory / "cluster", 3, CONFIG, TOPIC) as target:
        yield Cluster(target.cluster, target.admin), target


async def led_by(cluster: Cluster, *, controller_leads: bool, configs: Mapping[str, object]) -> int:
    """Creates the topic; who leads it."""
    controller = await cluster.controller_id()
    leader = controller if controller_leads else controller % 3 + 1
    followers = [node_id for node_id in cluster.node_ids if node_id != leader]
    await cluster.admin.create_topic(TOPIC, assignments=[[leader, *followers]], configs=configs)
    return leader


async def elections(cluster: Cluster) -> tuple[int, int]:
    """The epochs of the partition's leader and of the active controller: each election raises one of them."""
    quorum = await cluster.admin.describe_quorum()
    return (await cluster.partitions(TOPIC))[0].leader_epoch, quorum.leader_epoch


async def a_session_passes() -> None:
    """And half of one more: what counts sessions, heartbeats or leases in wall time has failed by then."""
    await quiet_for(1.5 * SESSION_MS / 1000)


async def all_records(cluster: Cluster) -> list[ConsumerRecord]:
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        (partition,) = await consumer.assign_topic(TOPIC)
        end_offset = (await consumer.end_offsets([partition]))[partition]
        records: list[ConsumerRecord] = []
        while consumer.position(partition) < end_offset:
            records += await consumer.poll()
    return records


async def test_a_jump_elects_nobody_and_deletes_nothing(tmp_path: Path) -> None:
    """Back by a day, and then, when the clock is right again, forward; offsets by time are those that the timestamps say.

    The leader is the active controller, too, which counts everybody's sessions.
    """
    offset_ns = -DAY_NS
    history = History()
    async with movable(tmp_path) as (cluster, target):
        configs = {**ROLLS_AT_A_JUMP, "retention.ms": abs(offset_ns) // 1_000_000 + HOUR_MS // 2}
        leader = await led_by(cluster, controller_leads=True, configs=configs)
        async with Load(cluster, TOPIC, history, producers=1) as load, Tail(cluster, TOPIC, history):
            before = await elections(cluster)
            for offset in (offset_ns, 0):
                clocks_of(target).jump(leader, offset)
                await load.more_acknowledged(100)
                await a_session_passes()
                await load.more_acknowledged(100)
                assert await elections(cluster) == before
        await check_healed(cluster, TOPIC, history)
        records = await all_records(cluster)
        assert records[0].offset == 0
        await check_offsets_by_time(cluster, records)
        jumps_ms = [later.timestamp - record.timestamp for record, later in pairwise(records)]
        assert max(jumps_ms) > HOUR_MS - MINUTE_MS, "the clock did jump, once forward"
        assert min(jumps_ms) < -HOUR_MS + MINUTE_MS, "and once back"


async def check_offsets_by_time(cluster: Cluster, records: list[ConsumerRecord]) -> None:
    """Every question for a time finds the first record that is not before it, however times go up and down."""
    now_ms = time.time_ns() // 1_000_000
    for timestamp in (now_ms - 2 * 24 * HOUR_MS, now_ms - HOUR_MS, now_ms + HOUR_MS // 2, records[0].timestamp + 1):
        found = (await cluster.admin.list_offsets({(TOPIC, 0): timestamp}))[TOPIC, 0]
        expected = next((record.offset for record in records if record.timestamp >= timestamp), -1)
        assert found.offset == expected, f"{timestamp - now_ms} ms from now"


async def test_age_is_counted_from_the_clock_of_the_node_that_deletes(tmp_path: Path) -> None:
    """As in Kafka: what is younger than `retention.ms` by the leader's clock stays, and what is older goes."""
    async with movable(tmp_path) as (cluster, target):
        leader = await led_by(
            cluster, controller_leads=False, configs={**ROLLS_AT_A_JUMP, "retention.ms": HOUR_MS + 30 * MINUTE_MS}
        )
        clocks = clocks_of(target)
        async with Producer(cluster.bootstrap_servers) as producer:
            await (await producer.send(TOPIC, b"today"))
            clocks.jump(leader, HOUR_NS)
            await (await producer.send(TOPIC, b"an hour later"))
            await quiet_for(1)  # ten checks of retention
            assert [record.value for record in await all_records(cluster)] == [b"today", b"an hour later"]
            clocks.jump(leader, 2 * HOUR_NS)
            await until(lambda: starts_at(cluster, 1), "what is two hours old is deleted")
            clocks.mend()
            place = await (await producer.send(TOPIC, b"today again"))
        assert place.offset == 2
        assert [record.value for record in await all_records(cluster)] == [b"an hour later", b"today again"]


async def starts_at(cluster: Cluster, offset: int) -> bool:
    async with Consumer(cluster.bootstrap_servers) as consumer:
        partitions = await consumer.assign_topic(TOPIC)
        return list((await consumer.beginning_offsets(partitions)).values()) == [offset]


async def test_a_leader_whose_clock_went_back_refuses_the_times_of_producers(tmp_path: Path) -> None:
    """`message.timestamp.after.max.ms` is an hour, as in Kafka; the same producer goes on when the clock is right again."""
    async with movable(tmp_path) as (cluster, target):
        configs = {"min.insync.replicas": 2, "message.timestamp.type": "CreateTime"}
        leader = await led_by(cluster, controller_leads=False, configs=configs)
        async with Producer(cluster.bootstrap_servers) as producer:
            await (await producer.send(TOPIC, b"today"))
            clocks_of(target).jump(leader, -DAY_NS)
            with pytest.raises(InvalidTimestampError, match="ms after the leader's clock"):
                await (await producer.send(TOPIC, b"tomorrow, to the leader"))
            clocks_of(target).mend()
            place = await (await producer.send(TOPIC, b"today again"))
            say(f"node {leader} has put it at {place.offset}")
        assert [record.value for record in await all_records(cluster)] == [b"today", b"today again"]
