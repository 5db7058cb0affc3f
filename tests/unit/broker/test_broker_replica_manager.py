"""Replicas follow the metadata: which logs there are, who leads, and what survives a change of role or a crash."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, TOPIC_ID, Rig, batch, registered, rig, server_config, topic, wait_until
from replica_kit import BROKERS, follow, lead, on_driver, stored

from replog.broker.replicas.log_keeper import known_high_watermarks
from replog.broker.replicas.logs import METADATA_TOPIC_ID
from replog.controller.requests import PartitionIsrResult, ReplicaEnd
from replog.errors import ErrorCode, StorageError
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    ConfigRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ResourceType,
)
from replog.replication.follower import Follower, FollowerState
from replog.replication.leader import Leader
from replog.testing import Operation, SimulatedFileSystem

# ---- roles -------------------------------------------------------------------------------------------------------------


async def test_the_metadata_makes_leaders_and_followers() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        assert isinstance(it.replica.role, Leader)
        await follow(it)
        assert isinstance(it.replica.role, Follower)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=-1))
        assert it.replica.role is None
        await lead(it)
        assert it.replica.role.leader_epoch == 3
        assert it.replica.log.last_epoch == 3, "an epoch is in the log before its first record"
        assert it.replica.status().state == "leader"


async def test_a_change_of_the_isr_leaves_a_follower_as_it_is() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2, 3), leader=2))
        role = it.replica.role
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1, 2)))
        assert it.replica.role is role


async def test_the_high_watermark_survives_every_change_of_role() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        await on_driver(it, stored(0, count=3), high_watermark=2)
        assert it.replica.high_watermark == 2
        for change in (lead, follow, lead):
            await change(it)
            assert it.replica.high_watermark == 2


async def test_a_former_leader_steps_nothing_any_more() -> None:
    """What it asked for comes back later: flushes, answers of the controller, deadlines."""
    async with rig(flush_policy="always") as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        it.produce()
        await it.flushed()
        old = it.replica.role
        await follow(it)
        await lead(it)
        new = it.replica.role
        assert isinstance(new, Leader)
        assert new is not old
        await it.stepper.driver.call(
            lambda: it.stepper.handle_isr_answer(KEY, 1, PartitionIsrResult(*KEY, ErrorCode.NONE, 1, 0, 9, (1,)))
        )
        assert new.status().isr == (1, 2)
        await it.advance(60_000)
        assert it.replica.role is new


async def test_a_leader_that_missed_an_epoch_knows_nothing_of_its_followers() -> None:
    """Broker 2 led meanwhile, broker 3 followed it and may have cut what it had here: its old end proves nothing."""
    async with rig(min_insync_replicas=2) as it:
        await it.apply(*BROKERS, *topic((1, 2, 3)))
        waiting = it.produce()
        await it.settle()
        it.fetch(1, replica_id=3)
        await it.settle()
        assert it.replica.high_watermark == 0, "2 has nothing"
        await it.apply(
            PartitionChangeRecord(0, TOPIC_ID, leader=2), PartitionChangeRecord(0, TOPIC_ID, leader=1, isr=(1, 3))
        )
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert it.replica.high_watermark == 0
        it.fetch(1, replica_id=3)
        await it.settle()
        assert it.replica.high_watermark == 1


async def test_a_leader_elected_again_goes_on() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2, 3)))
        waiting = it.produce()
        await it.settle()
        it.fetch(1, replica_id=3)
        await it.settle()
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1, isr=(1, 3)))
        assert (await waiting).error is ErrorCode.NONE


async def test_an_answer_to_an_earlier_leader_says_nothing_to_this_one() -> None:
    """Both have asked for the same; the answer to the first comes when the second waits for its own."""
    async with rig(replica_lag_time_max_ms=10_000) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        it.produce(acks=1)
        await it.advance(20_001)
        (first,) = it.proposals
        await follow(it)
        await lead(it)
        it.produce(acks=1)
        await it.advance(20_001)
        _, second = it.proposals
        refused = PartitionIsrResult(*KEY, ErrorCode.OPERATION_NOT_ATTEMPTED)
        await it.stepper.driver.call(lambda: it.stepper.handle_isr_answer(KEY, first.proposal_id, refused))
        assert isinstance(it.replica.role, Leader)
        assert it.replica.role.isr_change_pending
        await it.stepper.driver.call(lambda: it.stepper.handle_isr_answer(KEY, second.proposal_id, refused))
        assert not it.replica.role.isr_change_pending


async def test_a_flush_of_an_earlier_role_says_nothing_about_what_was_cut_since() -> None:
    """The callback of an fsync runs after a truncation and an election: it must not vouch for other records."""
    async with rig(flush_policy="always") as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        await on_driver(it, stored(0, count=5))
        await it.flushed()

        def cut_and_lead() -> None:
            it.replica.log.truncate_to(0)
            it.replica.log.append_as_follower(stored(0), now_ms=0)

        it.stepper.driver.submit(cut_and_lead)
        it.submit(PartitionChangeRecord(0, TOPIC_ID, leader=1, isr=(1,)))
        it.stepper.driver.submit(lambda: it.stepper.flushes._flushed(it.replica))
        high_watermarks: list[int] = []
        it.stepper.driver.submit(lambda: high_watermarks.append(it.replica.high_watermark))
        await wait_until(lambda: high_watermarks)
        assert high_watermarks == [0]
        await it.flushed()
        assert it.replica.high_watermark == 1


async def test_brokers_that_come_and_go_are_told_to_leaders() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), isr=(1,)))
        await it.apply(registered(2, broker_epoch=500, fenced=True))
        it.fetch(0, replica_id=2, broker_epoch=500)
        await it.settle()
        assert it.proposals == [], "fenced: the controller would refuse"
        await it.apply(registered(2, broker_epoch=500))
        it.fetch(0, replica_id=2, broker_epoch=500)
        await it.settle()
        (proposal,) = it.proposals
        assert proposal.isr == ((1, -1), (2, 500))


async def test_a_replica_that_falls_behind_is_proposed_out() -> None:
    async with rig(replica_lag_time_max_ms=10_000) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        waiting = it.produce()
        await it.advance(20_001)
        (proposal,) = it.proposals
        assert proposal.isr == ((1, -1),)
        result = PartitionIsrResult(*KEY, ErrorCode.NONE, 1, 0, 1, (1,))
        it.stepper.driver.submit(lambda: it.stepper.handle_isr_answer(KEY, proposal.proposal_id, result))
        await it.settle()
        assert not waiting.done(), "it was eligible until the metadata says otherwise"
        await it.apply(PartitionChangeRecord(KEY[1], KEY[0], isr=(1,)))
        assert (await waiting).error is ErrorCode.NONE
        assert it.replica.log.flushed_offset == 1, "alone: what is acknowledged is on disk"


# ---- following ---------------------------------------------------------------------------------------------------------


async def test_a_follower_appends_and_takes_over_the_high_watermark() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        await on_driver(it, stored(0, count=3), high_watermark=7)
        assert (it.replica.log.log_end_offset, it.replica.high_watermark) == (3, 3)


async def test_damage_on_the_way_is_fetched_again() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        damaged = bytearray(stored(0))
        damaged[-1] ^= 1
        await on_driver(it, bytes(damaged), high_watermark=1)
        assert it.replica.log.log_end_offset == 0
        assert it.replica.status().state == f"follower, {FollowerState.BACKING_OFF.value}"
        await it.advance(1_000)
        await on_driver(it, stored(0), high_watermark=1)
        assert it.replica.high_watermark == 1


async def test_a_followers_disk_that_fails_stops_the_node() -> None:
    """Also when it is a fetcher that waits for the result."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        it.fs.faults.fail_next(Operation.WRITE, path_part=f"{TOPIC}-0/")
        with pytest.raises(StorageError):
            await on_driver(it, stored(0))
        assert isinstance(await it.failure(), StorageError)


# ---- logs that come and go -------------------------------------------------------------------------------------------------


async def test_a_deleted_topic_takes_its_log_with_it() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(1)
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        assert it.stepper.replicas == {}
        assert not it.fs.is_dir(f"{DIRECTORY}/{TOPIC}-0")


async def test_a_topic_deleted_and_created_again_in_one_image_starts_empty() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(3)
        again = UUID(int=222)
        await it.apply(RemoveTopicRecord(TOPIC_ID), *topic(topic_id=again))
        assert list(it.stepper.replicas) == [(again, 0)]
        replica = it.stepper.replicas[again, 0]
        assert (replica.log.log_end_offset, replica.high_watermark) == (0, 0)


async def test_a_topic_is_deleted_while_its_fsync_runs() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        for round_ in range(20):
            waiting = it.produce()
            await asyncio.sleep(0)
            again = UUID(int=300 + round_)
            it.submit(RemoveTopicRecord(next(iter(it.image.topics_by_id))), *topic(topic_id=again))
            await it.settle()
            if not waiting.done():
                waiting.cancel()
        await it.flushed()
        await wait_until(lambda: not it.manager.retirements.places)  # old folders go out of the way first
        await it.settle()
        assert list(it.stepper.replicas) == [(again, 0)]


async def retire_strays(it: Rig, image: MetadataImage) -> None:
    def retire() -> None:
        it.stepper.image = image
        for _ in it.image_steps.retire_strays(lambda _: False, lambda _: False):
            continue

    await it.stepper.driver.call(retire)
    await wait_until(lambda: not it.manager.retirements.places)


async def test_replicas_that_are_no_longer_ours_are_deleted_at_the_start() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="u", topic_id=UUID(int=101)))
        it.directory.open_log("__cluster_metadata", 0, METADATA_TOPIC_ID, now_ms=0)
    async with rig(fs) as it:
        it.submit(*BROKERS, *topic((1, 2), leader=2))
        image = it.image
        await retire_strays(it, image)
        assert sorted(it.directory.logs) == [("__cluster_metadata", 0), (TOPIC, 0)]
        strays = [name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-stray")]
        assert len(strays) == 1, "kept, in case it was the metadata that was lost"


async def test_a_damaged_replica_that_is_no_longer_ours_makes_way_too() -> None:
    """Else a new topic of that name would be offline for it."""
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(3)
        await it.flushed()
    fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", 8, 7)  # the length of the first batch
    async with rig(fs) as it:
        assert list(it.directory.offline) == [(TOPIC, 0)]
        it.submit(*BROKERS)
        image = it.image
        await retire_strays(it, image)
        assert [name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-stray")] != []
        await it.apply(*topic(topic_id=UUID(int=101)))
        assert list(it.stepper.replicas) == [(UUID(int=101), 0)]
        assert it.stepper.trouble.reported() == ()


# ---- settings --------------------------------------------------------------------------------------------------------------


async def test_changed_settings_reach_the_log() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "segment.bytes", "2000000"))
        assert it.replica.log.config.segment_bytes == 2_000_000
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "segment.bytes", None))
        assert it.replica.log.config.segment_bytes == it.config.log_segment_bytes


async def test_what_was_acknowledged_before_is_flushed_when_the_policy_becomes_always() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        waiting = it.produce()
        await it.settle()
        it.fetch(1, replica_id=2)
        assert (await waiting).error is ErrorCode.NONE
        assert it.replica.log.flushed_offset == 0, "two have it in memory"
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "flush.policy", "always"))
        await wait_until(lambda: it.replica.log.flushed_offset == 1)


async def test_a_changed_flush_policy_is_in_force_with_the_next_role() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "flush.policy", "always"))
        await follow(it)
        await lead(it)
        it.produce()
        await it.flushed()
        assert it.replica.log.flushed_offset == 1


# ---- after a crash -----------------------------------------------------------------------------------------------------


async def restarted(fs: SimulatedFileSystem, *, isr: tuple[int, ...]) -> None:
    """A killed process's data: three records, nothing flushed, high watermark checkpoint says 3."""
    it = Rig(server_config(), fs)
    await it.apply(*BROKERS, *topic((1, 2), isr=isr, leader=2))
    await on_driver(it, stored(0, count=3), high_watermark=3)
    it.directory.checkpoint_high_watermarks(known_high_watermarks(it.stepper.replicas.values()))
    assert it.replica.log.flushed_offset == 0
    await it.stepper.driver.stop()
    it.executor.shutdown()
    fs.kill()


async def test_a_recovered_log_vouches_for_nothing_that_is_not_on_disk() -> None:
    fs = SimulatedFileSystem()
    await restarted(fs, isr=(1, 2))
    async with rig(fs, flush_policy="always") as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2, leader_epoch=1))
        role = it.replica.role
        assert isinstance(role, Follower)
        assert it.replica.log.log_end_offset == 3
        if it.replica.log.flushed_offset < 3:
            assert role.fetch_position(it.clock.now_ms()) is None, "a fetch acknowledges what lies below its offset"
        await it.flushed()
        position = role.fetch_position(it.clock.now_ms())
        assert position is not None
        assert position.flushed_offset == 3


async def test_a_leader_alone_after_a_crash_flushes_before_it_shows_more() -> None:
    fs = SimulatedFileSystem()
    await restarted(fs, isr=(1,))
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2), isr=(1,), leader_epoch=1))
        await it.flushed()
        assert it.replica.log.flushed_offset == it.replica.high_watermark == 3


async def test_a_high_watermark_checkpoint_above_what_the_log_holds_is_cut() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(2)
        it.directory.checkpoint_high_watermarks({(TOPIC, 0): 1000})
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        assert it.replica.high_watermark == 2


async def test_without_a_checkpoint_the_high_watermark_starts_at_the_log_start() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        assert it.replica.high_watermark == 0


# ---- checkpoints, retention, reports -----------------------------------------------------------------------------------


async def test_checkpoints_are_read_back() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(3)
        it.directory.checkpoint_high_watermarks(known_high_watermarks(it.stepper.replicas.values()))
        it.directory.checkpoint_recovery_points()
        it.directory.checkpoint_log_start_offsets()
        fs.kill()
        it.has_failed = True  # killed: nothing of it is closed in order
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        assert it.replica.high_watermark == 3
        assert it.replica.log.recovery.bytes_cut == 0


async def test_retention_keeps_what_is_not_committed() -> None:
    async with rig(message_max_bytes=20_000, log_segment_bytes=20_000, log_retention_ms=1_000) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        for _ in range(4):
            it.produce(batch(bytes(15_000)))
        await it.settle()
        it.clock.wall_clock_ms += 10_000_000
        await it.stepper.driver.call(lambda: it.stepper.delete_old_segments(it.replica))
        assert it.replica.log.log_start_offset == 0
        it.fetch(2, replica_id=2)
        await it.settle()
        await it.stepper.driver.call(lambda: it.stepper.delete_old_segments(it.replica))
        assert it.replica.log.log_start_offset == 2


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_quiet_partition_is_emptied_by_leader_and_follower(leader: int) -> None:
    async with rig(log_retention_ms=1_000) as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=leader))
        if leader == 1:
            it.produce()
            await it.settle()
            it.fetch(1, replica_id=2)
            await it.settle()
        else:
            await on_driver(it, stored(0), high_watermark=0)
            await it.stepper.driver.call(lambda: it.stepper.delete_old_segments(it.replica))
            assert it.replica.log.log_start_offset == 0, "it is not committed as far as this broker knows"
            await on_driver(it, b"", high_watermark=1)
        it.clock.wall_clock_ms += 10_000_000
        await it.stepper.driver.call(lambda: it.stepper.delete_old_segments(it.replica))
        assert (it.replica.log.log_start_offset, it.replica.log.log_end_offset) == (1, 1)
        assert it.replica.high_watermark == 1


async def test_how_far_replicas_reach_is_told_when_the_controller_waits_for_it() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader_epoch=4))
        it.produce()
        await it.settle()
        assert it.manager.awaited_ends() == ()
        await it.apply(
            PartitionChangeRecord(
                0, TOPIC_ID, leader=-1, isr=(), elr=(), last_known_elr=(1, 2),
                leader_recovery_state=LeaderRecoveryState.RECOVERED,
            )
        )  # fmt: skip
        assert it.manager.awaited_ends() == (ReplicaEnd(TOPIC_ID, 0, 4, 1),)
        assert it.manager.statuses()[0].state == "waiting for a leader"


async def test_segments_that_are_full_are_flushed_beside_the_way() -> None:
    async with rig(message_max_bytes=20_000, log_segment_bytes=20_000) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        for _ in range(3):
            it.produce(batch(bytes(15_000)), acks=1)
            await it.settle()
        await it.flushed()
        assert it.replica.log.flushed_offset >= 1
