"""What a broker tells people of its replicas."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, batch, registered, rig, topic

from replog.broker.replicas import replica_manager
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.views import has_awaited_ends
from replog.log import LogDirectory
from replog.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from replog.rpc.node_messages import LogDirReplica, ReplicaProgress
from replog_checkpoints import TopicPartition

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


async def test_many_replicas_are_told_some_at_a_time_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_manager, "REPLICAS_TOGETHER", 2)
    async with rig() as it:
        for number in range(5):
            await it.apply(*BROKERS, *topic((1, 2), name=f"t{number}", topic_id=UUID(int=200 + number)))
        steps: list[int] = []
        statuses = it.manager.statuses

        def noted(names: Any, keys: Sequence[ReplicaKey]) -> Any:
            steps.append(len(keys))
            return statuses(names, keys)

        monkeypatch.setattr(it.manager, "statuses", noted)
        assert await it.manager.statuses_in_steps(None) == statuses()
        assert steps == [2, 2, 1]
        assert [each.topic for each in await it.manager.statuses_in_steps({("t3", 0)})] == ["t3"]


async def test_log_directories_are_told_with_some_replicas_at_a_time_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: a directory with 100,000 replicas was one step of the driver, of most of a second."""
    monkeypatch.setattr(replica_manager, "REPLICAS_TOGETHER", 2)
    monkeypatch.setattr(replica_manager, "SORTED_AT_ONCE", 4)
    sizes_of, made_of = replica_manager.log_sizes, replica_manager.log_dir_replicas
    steps: list[int] = []
    threads: list[int] = []

    def sizes_noted(directory: LogDirectory, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        steps.append(len(keys))
        return sizes_of(directory, keys)

    def made_noted(sizes: dict[TopicPartition, int]) -> tuple[LogDirReplica, ...]:
        threads.append(threading.get_ident())
        return made_of(sizes)

    monkeypatch.setattr(replica_manager, "log_sizes", sizes_noted)
    monkeypatch.setattr(replica_manager, "log_dir_replicas", made_noted)
    async with rig() as it:
        for number in range(5):
            await it.apply(*BROKERS, *topic((1, 2), name=f"t{number}", topic_id=UUID(int=200 + number)))
        (directory,) = await it.manager.describe_log_dirs()
        assert directory.replicas == tuple(LogDirReplica(f"t{number}", 0, 0) for number in range(5))
    assert steps == [2, 2, 1]
    assert threads
    assert threads != [threading.get_ident()]


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


class Counted(dict[ReplicaKey, Replica]):
    """Replicas that count how often one is looked for."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)


async def test_whether_ends_are_awaited_is_known_from_the_first_of_many() -> None:
    """It is asked after each step of a start, of which there are thousands where thousands of replicas wait."""
    async with rig() as it:
        made = [PartitionRecord(number, TOPIC_ID, (1, 2), (1, 2), 1, 0, 0) for number in range(20)]
        await it.apply(*BROKERS, TopicRecord(TOPIC, TOPIC_ID), *made)
        assert not has_awaited_ends(it.image, 1, it.stepper.replicas)
        lost = {"leader": -1, "isr": (), "elr": (), "last_known_elr": (1, 2)}
        await it.apply(*(PartitionChangeRecord(number, TOPIC_ID, **lost) for number in range(20)))
        replicas = Counted(it.stepper.replicas)
        assert has_awaited_ends(it.image, 1, replicas)
        assert replicas.looks == 1
        assert not has_awaited_ends(it.image, 3, replicas)
        assert not has_awaited_ends(it.image, 1, {})
        assert len(it.manager.awaited_ends()) == 20
