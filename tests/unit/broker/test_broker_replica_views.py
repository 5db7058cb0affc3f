"""What a broker tells people of its replicas."""

from __future__ import annotations

from broker_kit import TOPIC, batch, registered, rig, topic

from replog.metadata.records import PartitionChangeRecord
from replog.rpc.node_messages import ReplicaProgress

BROKERS = (registered(1), registered(2), registered(3))


async def test_a_named_leader_comes_with_what_it_knows_of_the_others() -> None:
    async with rig(min_insync_replicas=2) as it:
        await it.apply(*BROKERS, *topic((1, 2, 3), isr=(1, 2)))
        it.produce()
        it.fetch(0, replica_id=2)
        await it.advance(700)
        size = len(batch())
        (status,) = it.manager.statuses({(TOPIC, 0)})
        view = status.leader
        assert view is not None
        assert status.size_bytes == size
        assert (view.maximal_isr, view.min_insync_replicas, view.waiting_produces) == ((1, 2), 2, 1)
        assert view.replicas == (
            ReplicaProgress(1, 1, 0, lag_records=0, lag_ms=0, broker_epoch=-1, lag_bytes=0),
            ReplicaProgress(2, 0, 0, lag_records=1, lag_ms=700, broker_epoch=102, lag_bytes=size),
            ReplicaProgress(3, -1, -1, lag_records=1, lag_ms=-1, broker_epoch=-1, lag_bytes=size),
        )


async def test_without_names_all_replicas_are_told_shortly() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        (status,) = it.manager.statuses()
        assert (status.topic, status.state, status.leader) == (TOPIC, "leader", None)
        assert status.size_bytes is None, "not asked for"
        assert it.manager.statuses({("elsewhere", 0)}) == ()
        assert it.manager.statuses(set()) == ()


async def test_a_follower_knows_nothing_of_the_others() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        await it.apply(PartitionChangeRecord(0, it.replica.topic_id, leader=2))
        (status,) = it.manager.statuses({(TOPIC, 0)})
        assert (status.is_leader, status.leader) == (False, None)
