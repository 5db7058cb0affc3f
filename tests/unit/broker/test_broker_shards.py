"""Coordinators over real logs: what they append, when they answer, what a new leadership reads."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from broker_kit import KEY, TOPIC_ID, Rig, registered, rig, topic, wait_until

from replog.broker.coordinator.coordinators import ImageTopics
from replog.broker.coordinator.log_pieces import LogPieces
from replog.broker.coordinator.shards import PAUSE_CHECK_MS, Shards
from replog.broker.metrics.readings import read_coordinators
from replog.coordinator.config import ConsumersConfig, ShardConfig
from replog.coordinator.consumers import decisions
from replog.coordinator.consumers.requests import ConsumerHeartbeat, WaitForGroupNews
from replog.coordinator.describing.requests import ListGroups
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import OffsetCommitValue
from replog.coordinator.offsets.cleaner import NEXT_PASS_MS
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    OffsetToCommit,
    TopicToCommit,
    TopicToForget,
)
from replog.coordinator.offsets.state import commit_record
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, CompleteTransaction, GetCommitPermit
from replog.coordinator.runtime.messages import LogRead
from replog.coordinator.runtime.shard import Shard, ShardState
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import (
    BrokerClosedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    DiskFullError,
    GroupIdNotFoundError,
    InvalidProducerEpochError,
    InvariantViolationError,
    NotCoordinatorError,
    RecordTooLargeError,
    ReplogError,
    TransactionCoordinatorFencedError,
    UnknownMemberIdError,
)
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, PartitionRecord, ResourceType, TopicRecord
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.records import BatchHeader, encode_batch, encode_end_transaction_marker, scan
from replog.records.header import CONTROL_BIT

BROKERS = (registered(1), registered(2))
SEGMENT_BYTES = 2048
WRITER = TransactionWriter(7, 3)


def commit(offset: int, *, group: str = "g", partition: int = 0, **member: Any) -> CommitOffsets:
    return CommitOffsets(group, (TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(partition, offset),)),), **member)


class Groups:
    """A rig with coordinators."""

    def __init__(self, it: Rig, config: GroupsConfig | None = None) -> None:
        self.rig = it
        self.config = config or GroupsConfig()
        self.machines: list[GroupMachine] = []
        self.shards = Shards(it.stepper, {OFFSETS_TOPIC: self._shard}, lambda: it.refused, self._wait)

    def _wait(self, run: Callable[[], None]) -> bool:
        return self.rig.wait_for_image(run)

    def _shard(self, name: str) -> Shard:
        def machine(registry: Any, timers: Any) -> GroupMachine:
            view = ImageTopics(lambda: self.rig.stepper.image)
            self.machines.append(GroupMachine(registry, timers, self.config, view, random.Random(1)))
            return self.machines[-1]

        return Shard(name=name, codec=GROUP_RECORDS, make_machine=machine, config=ShardConfig())

    def ask(self, request: Any, timeout_ms: int | None = 5_000) -> asyncio.Task[Any]:
        return asyncio.create_task(self.shards.submit(KEY, request, timeout_ms))

    async def offset(self, group: str = "g") -> dict[int, int]:
        """The offsets of a group by partition of its only topic."""
        found = (await self.ask(FetchOffsets(group))).topics
        return {each.partition: each.offset for one in found for each in one.partitions}

    @property
    def state(self) -> ShardState:
        return self.shards.hosts[KEY].shard.state

    async def active(self) -> None:
        await wait_until(lambda: KEY in self.shards.hosts and self.state is ShardState.ACTIVE)

    def batches(self) -> int:
        """The number of batches in the log."""
        return len(self.headers())

    def headers(self) -> list[BatchHeader]:
        """The headers of the batches in the log."""
        log = self.rig.replica.log
        data = log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)
        return list(scan(data))

    async def lead_anew(self) -> None:
        """Ends the leadership, and begins another one."""
        await written(self)
        await self.active()


@contextlib.asynccontextmanager
async def groups(
    replicas: tuple[int, ...] = (1,), leader: int = 1, of_groups: GroupsConfig | None = None, **config: object
) -> AsyncIterator[Groups]:
    async with rig(**config) as it:
        found = Groups(it, of_groups)
        await it.apply(*BROKERS, *topic(replicas, leader=leader, name=OFFSETS_TOPIC))
        try:
            yield found
        finally:
            await found.shards.stop()


async def test_a_commit_is_answered_when_it_is_on_disk_and_told_from_then_on() -> None:
    async with groups() as it:
        await it.active()
        answer = await it.ask(commit(7))
        assert [each.error for one in answer.topics for each in one.partitions] == [None]
        assert it.rig.replica.high_watermark == it.rig.replica.log.log_end_offset == 1
        assert await it.offset() == {0: 7}
        assert (it.shards.open_requests, it.shards.committed_offsets) == (0, 1)


async def test_a_scrape_reads_some_offsets_and_counts_the_others() -> None:
    async with groups() as it:
        await it.active()
        for partition in range(3):
            await it.ask(commit(7, partition=partition))
        found = await read_coordinators(it.shards, 2)
        assert (list(found.offsets), found.left_out_count) == ([("g", "t", 0, 7), ("g", "t", 1, 7)], 1)
        assert (found.groups, found.committed_offsets) == ({"Empty": 1}, 3)


async def test_a_new_leadership_reads_what_the_ones_before_have_committed() -> None:
    async with groups() as it:
        await it.active()
        await it.ask(commit(7))
        await it.ask(commit(8, partition=1))
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        with pytest.raises(NotCoordinatorError):
            await it.ask(commit(9))
        assert not it.shards.hosts
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        await it.active()
        assert await it.offset() == {0: 7, 1: 8}


async def test_a_broker_that_is_elected_again_goes_on_in_the_new_epoch() -> None:
    async with groups() as it:
        await it.active()
        await it.ask(commit(7))
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        await it.active()
        assert it.shards.hosts[KEY].shard.status().epoch == 1
        await it.ask(commit(8))
        assert await it.offset() == {0: 8}
        assert it.rig.replica.log.last_epoch == 1


async def test_an_answer_waits_for_the_followers_and_fails_with_the_leadership() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        waiting = it.ask(commit(7))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        await it.rig.settle()
        assert not waiting.done()
        it.rig.fetch(1, replica_id=2)
        await waiting
        lost = it.ask(commit(8))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 2)
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        with pytest.raises(NotCoordinatorError, match="may survive"):
            await lost


async def test_a_commit_that_finds_too_few_replicas_is_refused_and_leaves_nothing() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        await it.rig.apply(
            ConfigRecord(ResourceType.TOPIC, OFFSETS_TOPIC, "min.insync.replicas", "2"),
            PartitionChangeRecord(0, TOPIC_ID, isr=(1,)),
        )
        with pytest.raises(CoordinatorNotAvailableError, match="in-sync replicas"):
            await it.ask(commit(7))
        assert it.rig.replica.log.log_end_offset == 0
        await it.rig.apply(ConfigRecord(ResourceType.TOPIC, OFFSETS_TOPIC, "min.insync.replicas", "1"))
        await it.ask(commit(8))
        assert await it.offset() == {0: 8}


async def test_a_broker_that_may_not_serve_answers_nobody() -> None:
    async with groups() as it:
        await it.active()
        it.rig.refused = "the lease has ended"
        with pytest.raises(CoordinatorNotAvailableError, match="the lease has ended"):
            await it.ask(commit(7))
        with pytest.raises(CoordinatorNotAvailableError, match="the lease has ended"):
            await it.offset()


async def test_what_comes_together_is_written_together() -> None:
    async with groups() as it:
        await it.active()
        await asyncio.gather(*(it.ask(commit(number, partition=number)) for number in range(100)))
        assert it.rig.replica.log.log_end_offset == 100
        assert it.batches() < 10
        assert await it.offset() == {number: number for number in range(100)}


async def test_what_comes_while_a_batch_is_replicated_goes_into_the_next_one() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        log = it.rig.replica.log
        first = it.ask(commit(0))
        await wait_until(lambda: log.log_end_offset == 1)
        others = []
        for number in range(1, 10):
            others.append(it.ask(commit(number, partition=number)))
            await it.rig.settle()
        assert log.log_end_offset == 1
        it.rig.fetch(1, replica_id=2)
        await first
        await wait_until(lambda: log.log_end_offset == 10)
        assert it.batches() == 2
        it.rig.fetch(10, replica_id=2)
        await asyncio.gather(*others)
        assert await it.offset() == {number: number for number in range(10)}


async def test_what_waits_for_a_batch_is_refused_where_it_could_not_follow() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        first = it.ask(commit(0))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        held = it.ask(commit(1))
        await it.rig.settle()
        it.rig.refused = "the lease has ended"
        it.shards.hosts[KEY].tick()
        with pytest.raises(CoordinatorNotAvailableError, match="the lease has ended"):
            await held
        it.rig.refused = None
        it.rig.fetch(1, replica_id=2)
        await first
        assert await it.offset() == {0: 0}


async def test_members_that_are_refused_for_longer_than_a_session_are_not_put_out() -> None:
    """Goal: a cluster that was without a controller for a minute does not move all partitions of all groups."""
    session_ms, heartbeat_ms = 1_500, 100
    async with groups(of_groups=GroupsConfig(consumers=ConsumersConfig(session_ms, heartbeat_ms))) as it:
        await it.active()
        told = await it.ask(
            ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=9_000, subscribed_topics=("t",), owned={})
        )
        beat = ConsumerHeartbeat("g", "m", told.member_epoch)
        for _ in range(3):
            it.rig.refused = "the lease has ended"
            for _ in range(2 * session_ms // heartbeat_ms):
                await it.rig.advance(heartbeat_ms)
                it.shards.tick()
                with pytest.raises(CoordinatorNotAvailableError):
                    await it.ask(beat)
            it.rig.refused = None
            for _ in range(session_ms // heartbeat_ms // 2):
                await it.rig.advance(heartbeat_ms)
                it.shards.tick()
            await it.ask(beat)
        for _ in range(session_ms // heartbeat_ms + 1):
            await it.rig.advance(heartbeat_ms)
            it.shards.tick()
        with pytest.raises(UnknownMemberIdError):
            await it.ask(beat)


async def test_members_of_a_broker_that_stood_still_are_not_put_out() -> None:
    """Goal: a process that was stopped for a minute hears its members before it takes them for silent."""
    session_ms = 1_500
    async with groups(of_groups=GroupsConfig(consumers=ConsumersConfig(session_ms, 100))) as it:
        await it.active()
        told = await it.ask(
            ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=9_000, subscribed_topics=("t",), owned={})
        )
        it.rig.refused = "the lease has ended"
        await it.rig.advance(40 * session_ms)
        it.shards.tick()
        it.rig.refused = None
        await it.rig.advance(100)
        it.shards.tick()
        await it.ask(ConsumerHeartbeat("g", "m", told.member_epoch))


async def test_a_broker_that_may_not_serve_looks_now_and_then_whether_it_may() -> None:
    async with groups() as it:
        await it.active()
        it.rig.refused = "the lease has ended"
        with pytest.raises(CoordinatorNotAvailableError):
            await it.ask(commit(0))
        now_ms = it.rig.stepper.clock.now_ms()
        assert it.shards.next_deadline_ms() == now_ms + PAUSE_CHECK_MS
        it.rig.refused = None
        await it.rig.advance(PAUSE_CHECK_MS)
        it.shards.tick()
        assert it.shards.next_deadline_ms() != it.rig.stepper.clock.now_ms() + PAUSE_CHECK_MS


async def test_offsets_of_a_topic_that_is_deleted_while_a_broker_may_not_serve_are_removed() -> None:
    """Goal: a broker that comes back hears of deleted topics before it has a lease again; nobody tells it twice."""
    async with groups() as it:
        await it.active()
        await it.ask(commit(7))
        it.rig.refused = "the lease has ended"
        it.shards.tick()
        it.shards.tell_all(OFFSETS_TOPIC, ForgetTopics(frozenset({"t"})))
        await it.rig.settle()
        assert it.rig.replica.log.log_end_offset == 1
        it.rig.refused = None
        it.shards.tick()
        await it.rig.advance(NEXT_PASS_MS)
        it.shards.tick()
        await it.rig.settle()
        assert await it.offset() == {}


async def test_a_list_that_is_not_done_when_a_broker_may_not_serve_any_more_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: nobody waits through a minute without a controller for what another broker may tell."""
    monkeypatch.setattr("replog.coordinator.describing.describer.VISITS_PER_STEP", 1)
    async with groups() as it:
        await it.active()
        for number in range(3):
            await it.ask(commit(7, group=f"g{number}"))
        waiting = it.ask(ListGroups())
        await it.rig.settle()
        assert not waiting.done()
        it.rig.refused = "the lease has ended"
        it.shards.tick()
        with pytest.raises(CoordinatorNotAvailableError, match="may not serve"):
            await asyncio.wait_for(waiting, 1)


async def test_what_waits_for_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.coordinator.shard_host.BATCH_BYTES", 150)
    async with groups((1, 2)) as it:
        await it.active()
        asked = [it.ask(commit(0))]
        for number in range(1, 30):
            asked.append(it.ask(commit(number, partition=number)))
            await it.rig.settle()
        end_offset = it.rig.replica.log.log_end_offset
        assert 20 < end_offset < 30
        assert it.batches() < end_offset
        it.rig.fetch(end_offset, replica_id=2)
        await it.rig.settle()
        it.rig.fetch(30, replica_id=2)
        await asyncio.gather(*asked)


async def two_of_which_one_waits(it: Groups) -> list[asyncio.Task[Any]]:
    """Commits of offsets: the first one is in the log and has not committed, the second one waits for it."""
    await it.active()
    asked = [it.ask(commit(0))]
    await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
    asked.append(it.ask(commit(1)))
    await it.rig.settle()
    return asked


async def test_what_waits_for_a_batch_fails_with_the_leadership() -> None:
    async with groups((1, 2)) as it:
        lost = await two_of_which_one_waits(it)
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        for each in lost:
            with pytest.raises(NotCoordinatorError, match="may survive"):
                await each
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        await it.active()
        assert it.rig.replica.log.log_end_offset == 1


async def test_what_waits_for_a_batch_is_not_appended_in_the_next_epoch() -> None:
    """It was made of a state that the next leadership, of the same broker, does not begin with."""
    async with groups((1, 2)) as it:
        lost = await two_of_which_one_waits(it)
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        for each in lost:
            with pytest.raises(CoordinatorLoadInProgressError, match="may survive"):
                await each
        it.rig.fetch(1, replica_id=2)
        await it.active()
        later = it.ask(commit(2, partition=1))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 2)
        it.rig.fetch(2, replica_id=2)
        await later
        assert await it.offset() == {0: 0, 1: 2}


async def test_an_error_of_the_group_reaches_only_who_asked() -> None:
    async with groups() as it:
        await it.active()
        bad, good = it.ask(commit(1, group="x", member_epoch=3)), it.ask(commit(2))
        await good
        with pytest.raises(GroupIdNotFoundError):
            await bad


async def test_nothing_is_left_of_a_client_that_has_gone() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        waiting = it.ask(commit(7))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert it.shards.open_requests == 0
        it.rig.fetch(1, replica_id=2)
        await wait_until(lambda: it.rig.replica.high_watermark == 1)
        assert await it.offset() == {0: 7}


async def test_what_waits_at_the_end_of_the_node_fails_and_nothing_more_is_taken() -> None:
    async with groups((1, 2)) as it:
        await it.active()
        waiting = it.ask(commit(7))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        await it.shards.stop()
        with pytest.raises(BrokerClosedError):
            await waiting
        with pytest.raises(BrokerClosedError):
            await it.ask(commit(8))


async def test_the_number_of_open_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.coordinator.shards.OPEN_REQUESTS_MAX", 2)
    async with groups((1, 2)) as it:
        await it.active()
        waiting = [it.ask(commit(7))]
        await wait_until(lambda: it.shards.open_requests == 1)
        with pytest.raises(CoordinatorLoadInProgressError, match="1 requests wait"):  # news can be done without
            await it.ask(WaitForGroupNews("g", "m", 1, 1_000))
        waiting.append(it.ask(commit(8)))
        await wait_until(lambda: it.shards.open_requests == 2)
        with pytest.raises(CoordinatorLoadInProgressError, match="2 requests wait"):
            await it.ask(commit(9))
        for each in waiting:
            each.cancel()


async def test_a_bug_of_the_state_machine_ends_the_node_and_fails_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with groups() as it:
        await it.active()

        def broken(*_: object) -> None:
            raise InvariantViolationError("a bug")

        monkeypatch.setattr(it.machines[0], "handle", broken)
        waiting = it.ask(commit(7))
        assert "a bug" in str(await it.rig.failure())
        await it.shards.stop()
        with pytest.raises(BrokerClosedError):
            await waiting


async def test_somebody_else_who_writes_the_log_ends_the_node() -> None:
    async with groups() as it:
        await it.active()
        it.rig.replica.log.append_as_leader(encode_batch([(1, b"k", b"v", ())]), leader_epoch=0, now_ms=1)
        waiting = it.ask(commit(7))
        assert "its coordinator appends at 0" in str(await it.rig.failure())
        await it.shards.stop()
        with pytest.raises(BrokerClosedError):
            await waiting


async def test_a_request_waits_for_the_log_that_is_being_created() -> None:
    async with rig() as it:
        found, later = Groups(it), []
        it.wait_for_image = lambda run: later.append(run) is None
        waiting = found.ask(commit(7))
        await wait_until(lambda: later)
        await it.apply(*BROKERS, *topic(name=OFFSETS_TOPIC))
        await found.active()
        later.pop()()
        await waiting


async def test_a_request_does_not_wait_for_ten_thousand_other_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a commit had no answer for more than 30 s while the replicas of another client's new topics were opened."""
    monkeypatch.setattr("replog.broker.coordinator.shards.POSTPONED_MS_MAX", 0)
    async with rig() as it:
        found, later = Groups(it), []
        it.wait_for_image = lambda run: later.append(run) is None
        waiting = found.ask(commit(7))
        await wait_until(lambda: later)
        later.pop()()
        with pytest.raises(CoordinatorLoadInProgressError, match="opens other replicas first"):
            await waiting
        assert later == []
        await found.shards.stop()


async def test_what_waits_for_an_image_is_not_overtaken() -> None:
    """A commit that is carried out after a later one of the same connection would take the group back."""
    async with rig() as it:
        found, later = Groups(it), []
        it.wait_for_image = lambda run: later.append(run) is None
        asked = [found.ask(commit(7))]
        await wait_until(lambda: later)
        await it.apply(*BROKERS, *topic(name=OFFSETS_TOPIC))
        await found.active()
        asked.append(found.ask(commit(8)))
        await it.settle()
        asked.append(found.ask(commit(9)))
        await asyncio.sleep(0)  # it is in the queue of the driver now
        (run,) = later
        run()
        await asyncio.gather(*asked)
        assert await found.offset() == {0: 9}
        await found.shards.stop()


async def test_many_changes_of_one_turn_go_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.coordinator.shard_host.BATCH_BYTES", 1)
    async with groups() as it:
        await it.active()
        await asyncio.gather(*(it.ask(commit(number, partition=number)) for number in range(20)))
        assert it.batches() == 20
        assert await it.offset() == {number: number for number in range(20)}


async def test_what_waits_for_a_batch_fits_into_a_segment() -> None:
    """Goal: what each would fit does not fail because many have met."""
    async with groups((1, 2), log_segment_bytes=SEGMENT_BYTES, message_max_bytes=1024) as it:
        await it.active()
        asked = [it.ask(commit(0))]
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        asked += [it.ask(commit(number, partition=number)) for number in range(1, 80)]
        await it.rig.settle()
        for end_offset in range(1, 81):
            it.rig.fetch(end_offset, replica_id=2)
            await it.rig.settle()
        await asyncio.gather(*asked)
        assert await it.offset() == {number: number for number in range(80)}
        assert 1 < it.batches() < 80


async def test_a_change_that_no_segment_takes_is_an_error_of_its_own_alone() -> None:
    async with groups((1, 2), log_segment_bytes=SEGMENT_BYTES, message_max_bytes=1024) as it:
        await it.active()
        before = it.ask(commit(0))
        await wait_until(lambda: it.rig.replica.log.log_end_offset == 1)
        many = TopicToCommit("t", NO_TOPIC_ID, tuple(OffsetToCommit(number, 7) for number in range(100)))
        large, read, behind = it.ask(CommitOffsets("g", (many,))), it.ask(FetchOffsets("g")), it.ask(commit(1))
        await it.rig.settle()
        it.rig.fetch(1, replica_id=2)
        await before
        with pytest.raises(RecordTooLargeError, match=r"segment\.bytes is 2048"):
            await large
        for each in (read, behind):
            with pytest.raises(CoordinatorNotAvailableError, match="ask again"):
                await each
        assert await it.offset() == {0: 0}


async def test_what_a_full_disk_did_not_take_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFullError("no room")

    async with groups() as it:
        await it.active()
        await it.ask(commit(7))
        with monkeypatch.context() as patched:
            patched.setattr("replog.log.log.Log.append_as_leader", full)
            failed = [it.ask(commit(8)), it.ask(commit(9, partition=1)), it.ask(FetchOffsets("g"))]
            for each in failed:
                with pytest.raises(CoordinatorNotAvailableError, match="a disk of this broker is full"):
                    await each
        assert await it.offset() == {0: 7}


async def test_a_log_that_is_damaged_has_no_coordinator_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise CorruptRecordError("/data/x", 0, "damaged")

    async with groups() as it:
        await it.active()
        monkeypatch.setattr("replog.log.log.Log.append_as_leader", damaged)
        with pytest.raises(NotCoordinatorError):
            await it.ask(commit(7))
        assert not it.shards.hosts
        with pytest.raises(NotCoordinatorError, match="offline"):
            await it.ask(commit(7))


# ---- reading --------------------------------------------------------------------------------------------------------------


def stored(*numbers: int, **others: Any) -> bytes:
    """A batch of commits: each number is a partition and its offset."""
    records = (commit_record("g", ("t", number), OffsetCommitValue(number)) for number in numbers)
    return encode_batch([(1, *GROUP_RECORDS.encode(each), ()) for each in records], **others)


async def written(it: Groups, *batches: bytes) -> None:
    """Has batches written by hand before the partition is led anew."""
    await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
    for batch in batches:
        it.rig.replica.log.append_as_leader(batch, leader_epoch=1, now_ms=1)
    await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))


@pytest.mark.parametrize("is_cold", [False, True])
async def test_a_long_log_is_read_in_pieces(is_cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.broker.coordinator.log_pieces.PIECE_RECORDS", 7)
    monkeypatch.setattr("replog.broker.coordinator.log_pieces.READ_BYTES", 2_000)
    async with groups() as it:
        await it.active()
        if is_cold:
            monkeypatch.setattr("replog.log.log.Log.read_cached", lambda *_, **__: None)
        await written(it, *(stored(*range(start, start + 40)) for start in range(0, 200, 40)))
        await it.active()
        assert await it.offset() == {number: number for number in range(200)}


async def test_large_records_are_few_in_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: the three records of a member of 10,000 topics were one piece, and each of them takes ten milliseconds."""
    pieces: list[int] = []
    take = LogPieces._taken

    def taken(*asked: Any) -> LogRead:
        piece = take(*asked)
        pieces.append(len(piece.records))
        return piece

    async with groups() as it:
        await it.active()
        monkeypatch.setattr(LogPieces, "_taken", taken)
        monkeypatch.setattr("replog.broker.coordinator.log_pieces.PIECE_BYTES", 200)
        await written(it, stored(*range(100)))
        await it.active()
        assert await it.offset() == {number: number for number in range(100)}
    size = sum(map(len, GROUP_RECORDS.encode(commit_record("g", ("t", 1), OffsetCommitValue(1)))))
    assert max(pieces) == -(-200 // size)


async def test_offsets_that_damage_makes_look_like_a_control_batch_are_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told, and another replica may lead: else the group would be told that these offsets were never committed."""
    monkeypatch.setattr("replog.broker.coordinator.log_pieces.READ_BYTES", 2_000)
    damaged = bytearray(stored(*range(80, 120)))
    damaged[22] ^= CONTROL_BIT
    async with groups() as it:
        await it.active()
        await written(it, stored(*range(40)), stored(*range(40, 80)), bytes(damaged))
        await wait_until(lambda: not it.shards.hosts or it.state is ShardState.ACTIVE)
        with pytest.raises(NotCoordinatorError, match="is offline here"):
            await it.offset()
        (offline,) = it.rig.stepper.trouble.offline.values()
        assert re.search(r"/0{20}\.log at byte", offline.reason)


async def test_a_read_for_which_the_disk_has_no_time_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with groups() as it:
        await it.active()
        monkeypatch.setattr("replog.log.log.Log.read_cached", lambda *_, **__: None)
        monkeypatch.setattr("replog.broker.disk.cold_reads.COLD_READS_WAITING_MAX", 0)
        await written(it, stored(1, 2))
        assert it.state is ShardState.LOADING
        with pytest.raises(CoordinatorLoadInProgressError):
            await it.offset()
        monkeypatch.undo()
        await it.rig.advance(100)
        await it.active()
        assert await it.offset() == {1: 1, 2: 2}


async def test_what_was_aborted_or_has_not_ended_does_not_count() -> None:
    async with groups() as it:
        await it.active()
        of_transaction = {"producer_epoch": 0, "is_transactional": True}
        await written(
            it,
            stored(1, producer_id=5, base_sequence=0, **of_transaction),
            stored(2),
            ended(5, is_commit=False),
            stored(3, producer_id=6, base_sequence=0, **of_transaction),
            stored(4),
        )
        await it.active()
        assert await it.offset() == {2: 2, 4: 4}


async def test_what_was_committed_behind_a_transaction_that_never_ends_counts() -> None:
    async with groups() as it:
        await it.active()
        of_transaction = {"producer_epoch": 0, "is_transactional": True}
        await written(
            it,
            stored(1, producer_id=6, base_sequence=0, **of_transaction),
            stored(2, producer_id=7, base_sequence=0, **of_transaction),
            ended(7, is_commit=True),
            stored(3, producer_id=5, base_sequence=0, **of_transaction),
            ended(5, is_commit=False),
            stored(4, producer_id=7, base_sequence=1, **of_transaction),
        )
        await it.active()
        assert await it.offset() == {2: 2}


async def test_a_transaction_is_written_as_kafka_does_and_read_by_the_next_leader() -> None:
    """Its batches have no sequences, and are never mixed with others; the last stable offset waits for its marker."""
    async with groups() as it:
        await it.active()
        permit = await it.ask(GetCommitPermit("g", WRITER))
        in_transaction = CommitTransactionalOffsets("g", commit(8).topics, WRITER, permit.number)
        await asyncio.gather(
            *(it.ask(each) for each in (commit(7), in_transaction, commit(9, partition=1), in_transaction))
        )
        log = it.rig.replica.log
        assert [
            (each.producer_id, each.producer_epoch, each.base_sequence, each.is_transactional) for each in it.headers()
        ] == [(-1, -1, -1, False), (7, 3, -1, True), (-1, -1, -1, False), (7, 3, -1, True)]
        assert (log.last_stable_offset(it.rig.replica.high_watermark), await it.offset()) == (1, {0: 7, 1: 9})
        await it.lead_anew()
        await it.ask(CompleteTransaction(7, 3, 5, is_commit=True))
        assert [each.is_control for each in it.headers()] == [False, False, False, False, True]
        assert (log.last_stable_offset(it.rig.replica.high_watermark), await it.offset()) == (5, {0: 8, 1: 9})
        await it.lead_anew()
        assert await it.offset() == {0: 8, 1: 9}


async def test_an_aborted_transaction_is_in_the_index_of_the_log() -> None:
    async with groups() as it:
        await it.active()
        permit = await it.ask(GetCommitPermit("g", WRITER))
        await it.ask(CommitTransactionalOffsets("g", commit(8).topics, WRITER, permit.number))
        await it.ask(CompleteTransaction(7, 3, 5, is_commit=False))
        assert await it.offset() == {}
        (aborted,) = it.rig.replica.log.aborted_transactions(0, 2)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 1)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (GetCommitPermit("g", TransactionWriter(7, 2)), InvalidProducerEpochError),
        (CommitTransactionalOffsets("g", (), TransactionWriter(7, 2), 1), InvalidProducerEpochError),
        (CompleteTransaction(7, 2, 5, is_commit=True), InvalidProducerEpochError),
        (CompleteTransaction(7, 3, 4, is_commit=True), TransactionCoordinatorFencedError),
    ],
)
async def test_who_comes_too_late_is_refused_and_nobody_else(request_: Any, error: type[ReplogError]) -> None:
    """The log alone knows of a producer that has ended its transaction."""
    async with groups() as it:
        await it.active()
        await it.ask(CompleteTransaction(7, 3, 5, is_commit=True))
        beside = it.ask(commit(9))
        with pytest.raises(error):
            await it.ask(request_)
        await beside
        assert await it.offset() == {0: 9}


async def test_the_log_tells_a_marker_that_comes_late_from_that_of_the_open_transaction() -> None:
    """The offsets of the open one are gone with their topic, so that the state of the group knows of none."""
    async with groups() as it:
        await it.active()
        await it.ask(CompleteTransaction(7, 3, 5, is_commit=True, bumps_epochs=True))
        permit = await it.ask(GetCommitPermit("g", WRITER))
        await it.ask(CommitTransactionalOffsets("g", commit(8).topics, WRITER, permit.number))
        await it.ask(DeleteOffsets("g", (TopicToForget("t", (0,)),)))
        with pytest.raises(InvalidProducerEpochError):
            await it.ask(CompleteTransaction(7, 3, 5, is_commit=True, bumps_epochs=True))
        await it.ask(CompleteTransaction(7, 4, 5, is_commit=True, bumps_epochs=True))


async def test_a_marker_that_another_one_of_the_same_turn_fences_is_not_appended() -> None:
    async with groups() as it:
        await it.active()
        later, late = (
            it.ask(CompleteTransaction(7, 3, 5, is_commit=True)),
            it.ask(CompleteTransaction(7, 3, 4, is_commit=True)),
        )
        await later
        with pytest.raises(TransactionCoordinatorFencedError):
            await late
        assert len(it.headers()) == 1
        await it.ask(commit(9))


def ended(producer_id: int, *, is_commit: bool) -> bytes:
    return encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        is_commit=is_commit,
    )


async def test_a_log_that_cannot_be_understood_is_told_and_led_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with groups() as it:
        await it.active()
        await written(it, encode_batch([(1, b"\0\1", b"v", ())]))
        await wait_until(lambda: it.state is ShardState.FAILED)
        with pytest.raises(CoordinatorNotAvailableError, match="could not be read"):
            await it.offset()
        assert "cannot be replayed" in caplog.text


# ---- beside the loop --------------------------------------------------------------------------------------------------------


async def test_the_targets_of_a_large_group_are_decided_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: an assignment of 9,900 topics held the loop for a fifth of a second, with all that the broker serves."""
    threads: list[int] = []
    decide = decisions.decide_targets

    def noted(*question: Any) -> Any:
        threads.append(threading.get_ident())
        return decide(*question)

    monkeypatch.setattr(decisions, "DECIDED_AT_ONCE", 0)
    monkeypatch.setattr(decisions, "decide_targets", noted)
    async with groups() as it:
        await it.rig.apply(TopicRecord("t", UUID(int=70)), PartitionRecord(0, UUID(int=70), (1,), (1,), 1, 0, 0))
        await it.active()
        joining = ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=9_000, subscribed_topics=("t",), owned={})
        assert (await it.ask(joining)).assignment == {}
        news = await it.ask(WaitForGroupNews("g", "m", 1, 60_000), None)
        assert news is not None
        answer = await it.ask(ConsumerHeartbeat("g", "m", 1, owned={}))
        assert (answer.member_epoch, answer.assignment) == (2, {UUID(int=70): {0}})
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
