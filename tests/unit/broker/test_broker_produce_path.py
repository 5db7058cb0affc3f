"""Produce: what is appended, what is acknowledged and when, and what a client is told otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic, wait_until

from replog.broker.disk import flusher
from replog.broker.requests import open_produces, produce_path
from replog.errors import ErrorCode, ReplogError, StorageError
from replog.log.flush import FlushJob
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord, ResourceType
from replog.records import BatchHeader, Buffer, Codec, encode_batch
from replog.rpc.messages import ProducePartition, ProduceRequest, ProduceResponse
from replog.testing import Operation

BROKERS = (registered(1), registered(2), registered(3))
OTHER_ID = UUID(int=101)


async def one_replica(it: Rig) -> None:
    await it.apply(*BROKERS, *topic())


async def two_replicas(it: Rig) -> None:
    await it.apply(*BROKERS, *topic((1, 2)))


# ---- when it is acknowledged -------------------------------------------------------------------------------------------


async def test_a_sole_replica_acknowledges_what_is_on_disk() -> None:
    async with rig() as it:
        await one_replica(it)
        acknowledged = await it.produce(batch(b"a", b"b"))
        assert (acknowledged.error, acknowledged.base_offset, acknowledged.leader_id) == (ErrorCode.NONE, 0, 1)
        assert it.replica.log.flushed_offset == it.replica.high_watermark == 2
        assert (await it.produce()).base_offset == 2


async def test_a_sole_replica_whose_fsync_fails_acknowledges_nothing() -> None:
    async with rig() as it:
        await one_replica(it)
        it.fs.faults.fail_next(Operation.SYNC, path_part=".log")
        waiting = it.produce()
        assert isinstance(await it.failure(), StorageError)
        assert not waiting.done()
        assert it.replica.high_watermark == 0


async def test_a_replicated_partition_acknowledges_what_all_in_sync_replicas_have_without_an_fsync() -> None:
    async with rig() as it:
        await two_replicas(it)
        waiting = it.produce()
        it.fetch(0, replica_id=2)
        await it.settle()
        assert not waiting.done()
        it.fetch(1, replica_id=2)
        await it.settle()
        assert (await waiting).error is ErrorCode.NONE
        assert it.replica.log.flushed_offset == 0


async def test_flush_policy_always_waits_for_every_disk() -> None:
    async with rig(flush_policy="always") as it:
        await two_replicas(it)
        waiting = it.produce()
        await it.flushed()
        it.fetch(1, replica_id=2, flushed=0)
        await it.settle()
        assert not waiting.done(), "the follower has it, but not on disk"
        it.fetch(1, replica_id=2, flushed=1)
        assert (await waiting).error is ErrorCode.NONE


@pytest.mark.parametrize("acks", [0, 1])
async def test_fewer_acks_wait_for_nobody(acks: int) -> None:
    async with rig() as it:
        await two_replicas(it)
        assert (await it.produce(acks=acks)).error is ErrorCode.NONE
        assert it.replica.high_watermark == 0


async def test_a_duplicate_is_acknowledged_with_its_original_and_not_earlier() -> None:
    async with rig() as it:
        await two_replicas(it)
        data = batch(producer_id=5, base_sequence=0)
        original, again = it.produce(data), it.produce(data)
        await it.settle()
        assert not original.done()
        assert not again.done()
        it.fetch(1, replica_id=2)
        assert (await original) == (await again)
        assert it.replica.log.log_end_offset == 1
        assert (await it.produce(data)).base_offset == 0, "committed long ago: at once"


async def test_all_partitions_of_a_request_are_answered_together() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), *topic(name="u", topic_id=UUID(int=101)))
        answers: list[ProduceResponse] = []
        partitions = (ProducePartition(TOPIC_ID, 0), ProducePartition(UUID(int=404), 0), ProducePartition(TOPIC_ID, 0))
        it.produce_path.submit(ProduceRequest(8, 1000, -1, partitions, (batch(), batch(), batch())), answers.append)
        await it.flushed()
        (answer,) = answers
        assert answer.correlation_id == 8
        assert [(r.error, r.base_offset) for r in answer.results] == [
            (ErrorCode.NONE, 0), (ErrorCode.UNKNOWN_TOPIC_ID, -1), (ErrorCode.NONE, 1),
        ]  # fmt: skip


async def test_others_have_their_turn_while_many_batches_are_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_produces, "PARTITIONS_AT_ONCE", 2)
    async with rig() as it:
        await one_replica(it)
        answers: list[ProduceResponse] = []
        for count in (5, 1):
            partitions = (ProducePartition(TOPIC_ID, 0),) * count
            it.produce_path.submit(ProduceRequest(count, 1000, 1, partitions, (batch(),) * count), answers.append)
        call, log = it.stepper.driver.call, it.replica.log
        ends = [await call(lambda: log.log_end_offset) for _ in range(4)]
        assert [end for end in (2, 4, 6) if end in ends] == [2, 4, 6], ends
        told = {answer.correlation_id: [result.base_offset for result in answer.results] for answer in answers}
        assert told == {5: [0, 1, 2, 3, 4], 1: [5]}


async def test_clients_have_turns_and_the_batches_of_one_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that names thousands of partitions, again and again, keeps no other one waiting."""
    monkeypatch.setattr(open_produces, "PARTITIONS_AT_ONCE", 2)
    async with rig() as it:
        await one_replica(it)
        offsets: dict[str, list[int]] = {"a1": [], "a2": [], "b": [], "c": []}

        def submit(name: str, count: int) -> None:
            asked = ProduceRequest(1, 1000, 1, (ProducePartition(TOPIC_ID, 0),) * count, (batch(),) * count)
            it.produce_path.submit(
                asked, lambda told: offsets[name].extend(one.base_offset for one in told.results), caller=name[0]
            )

        for name, count in (("a1", 3), ("a2", 3), ("b", 1), ("c", 3)):
            submit(name, count)
        await wait_until(lambda: all(offsets.values()))
        assert offsets == {"a1": [0, 1, 4], "a2": [5, 8, 9], "b": [2], "c": [3, 6, 7]}


async def test_one_request_fills_the_line_for_fsyncs_only_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever comes next waits for some fsyncs, not for one of each of thousands of partitions."""
    monkeypatch.setattr(open_produces, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(flusher, "SHORT", 1)
    gate, keys = threading.Event(), [UUID(int=200 + number) for number in range(12)]
    async with rig() as it:
        for key in keys:
            await it.apply(*BROKERS, *topic(name=f"t{key.int}", topic_id=key))
        monkeypatch.setattr(FlushJob, "run", lambda job, run=FlushJob.run: run(job) if gate.wait(5) else None)
        answers: list[ProduceResponse] = []
        partitions = tuple(ProducePartition(key, 0) for key in keys)
        it.produce_path.submit(ProduceRequest(1, 30_000, -1, partitions, (batch(),) * len(keys)), answers.append, "a")
        appended = [it.stepper.replicas[key, 0].log for key in keys]
        await wait_until(lambda: appended[5].log_end_offset)
        await it.settle()
        assert [log.log_end_offset for log in appended] == [1] * 6 + [0] * 6  # two are flushed, four wait
        gate.set()
        await wait_until(lambda: answers)
        assert {result.error for result in answers[0].results} == {ErrorCode.NONE}


async def test_a_request_for_nothing_is_answered_with_nothing() -> None:
    async with rig() as it:
        answers: list[ProduceResponse] = []
        it.produce_path.submit(ProduceRequest(8, 1000, -1, (), ()), answers.append)
        await it.settle()
        assert answers == [ProduceResponse(8, ())]


# ---- when it is not ------------------------------------------------------------------------------------------------------


async def test_time_runs_out() -> None:
    async with rig() as it:
        await two_replicas(it)
        waiting = it.produce(timeout_ms=100)
        await it.advance(99)
        assert not waiting.done()
        await it.advance(1)
        result = await waiting
        assert (result.error, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert "may still commit" in result.message


async def lose_leadership(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))


async def lose_all_leaders(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=-1))


async def delete_topic(it: Rig) -> None:
    await it.apply(RemoveTopicRecord(TOPIC_ID))


async def stop(it: Rig) -> None:
    await it.manager.stop()


@pytest.mark.parametrize("event", [lose_leadership, lose_all_leaders, delete_topic, stop])
async def test_who_waits_is_told_when_the_leadership_ends(event: Callable[[Rig], Awaitable[None]]) -> None:
    async with rig() as it:
        await two_replicas(it)
        waiting = [it.produce(), it.produce()]
        await it.settle()
        await event(it)
        for result in await asyncio.gather(*waiting):
            assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert it.produce_path._waiting == {}


async def test_in_sync_replicas_that_are_lost_meanwhile_are_told() -> None:
    async with rig(min_insync_replicas=2) as it:
        await two_replicas(it)
        waiting = it.produce()
        await it.settle()
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1,)))
        it.fetch(1, replica_id=2)
        await it.settle()
        assert not waiting.done(), "below min ISR nothing becomes visible"
        assert (await it.produce()).error is ErrorCode.NOT_ENOUGH_REPLICAS
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1, 2)))
        assert (await waiting).error is ErrorCode.NONE


# ---- what is refused -----------------------------------------------------------------------------------------------------


async def test_what_cannot_be_appended_changes_nothing() -> None:
    async with rig(message_max_bytes=1000) as it:
        await one_replica(it)
        damaged = bytearray(batch(b"abc"))
        damaged[-1] ^= 1
        for data, error in [
            (bytes(damaged), ErrorCode.CORRUPT_MESSAGE),
            (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
            (b"", ErrorCode.CORRUPT_MESSAGE),
            (batch() + batch(), ErrorCode.INVALID_RECORD),
            (batch(bytes(2000)), ErrorCode.MESSAGE_TOO_LARGE),
            (batch(producer_id=5, base_sequence=7), ErrorCode.NONE),
            (batch(producer_id=5, base_sequence=9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ]:
            result = await it.produce(data)
            assert result.error is error, result
            assert (result.message == "") == (error is ErrorCode.NONE)
        assert it.replica.log.log_end_offset == 1


@pytest.mark.parametrize("acks", [2, -2])
async def test_there_are_no_such_acks(acks: int) -> None:
    async with rig() as it:
        await one_replica(it)
        assert (await it.produce(acks=acks)).error is ErrorCode.INVALID_REQUIRED_ACKS


async def test_a_leader_epoch_that_is_named_must_be_the_leaders() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(leader_epoch=5))
        assert (await it.produce(leader_epoch=4)).error is ErrorCode.FENCED_LEADER_EPOCH
        assert (await it.produce(leader_epoch=6)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await it.produce(leader_epoch=5)).error is ErrorCode.NONE


async def test_who_does_not_lead_says_who_does() -> None:
    async with rig() as it:
        assert (await it.produce()).error is ErrorCode.UNKNOWN_TOPIC_ID
        await it.apply(*BROKERS, *topic((1, 2), leader=2, leader_epoch=3))
        result = await it.produce()
        assert (result.error, result.leader_id, result.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 3)
        assert "broker 2 does" in result.message
        await it.apply(*topic((2, 3), leader=3, name="u", topic_id=UUID(int=101)))
        answers: list[ProduceResponse] = []
        for partition in (ProducePartition(UUID(int=101), 0), ProducePartition(UUID(int=101), 1)):
            it.produce_path.submit(ProduceRequest(1, 1, 1, (partition,), (batch(),)), answers.append)
        await it.settle()
        elsewhere, nowhere = (answer.results[0] for answer in answers)
        assert (elsewhere.error, elsewhere.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)
        assert nowhere.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_without_its_lease_a_leader_appends_nothing() -> None:
    async with rig() as it:
        await one_replica(it)
        it.refused = "cut off from the controller"
        result = await it.produce()
        assert (result.error, result.message) == (ErrorCode.BROKER_NOT_AVAILABLE, "cut off from the controller")
        assert it.replica.log.log_end_offset == 0


async def test_a_batch_that_waited_for_its_log_is_not_appended_without_the_lease() -> None:
    async with rig() as it:
        later: list[Callable[[], None]] = []
        it.wait_for_image = lambda run: later.append(run) is None
        waiting = it.produce()
        await it.settle()
        it.wait_for_image = lambda _run: False
        await one_replica(it)
        it.refused = "cut off from the controller"
        it.stepper.driver.submit(later.pop())
        assert (await waiting).error is ErrorCode.BROKER_NOT_AVAILABLE
        assert it.replica.log.log_end_offset == 0


async def test_the_waiting_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_path, "MAX_WAITING_PRODUCES", 2)
    async with rig() as it:
        await two_replicas(it)
        waiting = [it.produce(), it.produce()]
        assert (await it.produce()).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert it.replica.log.log_end_offset == 2
        it.fetch(2, replica_id=2)
        await asyncio.gather(*waiting)


async def test_a_full_disk_refuses_and_takes_appends_again_when_there_is_room() -> None:
    async with rig() as it:
        await one_replica(it)
        it.fs.capacity_bytes = it.fs.used_bytes()
        refused = await it.produce(acks=1)
        assert refused.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "a disk of this broker is full" in refused.message
        it.fs.capacity_bytes = None
        again = await it.produce(acks=1)
        assert again.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "until somebody has looked at the disk"
        assert (again.message, DIRECTORY in again.message) == (refused.message, False)
        it.directory.check_disks()
        assert (await it.produce(acks=1)).base_offset == 0


async def test_min_insync_replicas_may_be_raised_while_it_leads() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), isr=(1,)))
        assert (await it.produce()).error is ErrorCode.NONE
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "2"))
        assert (await it.produce()).error is ErrorCode.NOT_ENOUGH_REPLICAS
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "max.message.bytes", "100"))
        assert (await it.produce(batch(bytes(100)), acks=1)).error is ErrorCode.MESSAGE_TOO_LARGE
        assert KEY in it.stepper.replicas


# ---- batches that are looked into ------------------------------------------------------------------------------------------


class Gate:
    """Stands in the way of looks into batches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.is_open = threading.Event()
        self._check = produce_path._failure_of
        monkeypatch.setattr(produce_path, "_failure_of", self._checked)

    def _checked(self, check: Callable[[Buffer], BatchHeader], batch: Buffer) -> ReplogError | None:
        self.threads.append(threading.get_ident())
        self.is_open.wait(60)
        return self._check(check, batch)


def keyed(key: bytes | None, codec: Codec = Codec.GZIP) -> bytes:
    return encode_batch([(1, key, b"v", ())], codec=codec)


@asynccontextmanager
async def compacted() -> AsyncIterator[Rig]:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), ConfigRecord(ResourceType.TOPIC, TOPIC, "cleanup.policy", "compact"))
        yield it


async def test_compressed_batches_of_compacted_topics_are_looked_into_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Example: 218 KB became a quarter of a gigabyte on the loop, the broker was silent for 8 s, and was fenced."""
    gate = Gate(monkeypatch)
    async with compacted() as it:
        await it.apply(*topic(name="other", topic_id=OTHER_ID))
        first, second = it.produce(keyed(b"a")), it.produce(keyed(b"b"))
        plain = it.produce(keyed(b"c", Codec.NONE))
        await wait_until(lambda: gate.threads)
        assert (await it.produce(batch(), topic_id=OTHER_ID)).base_offset == 0, "others go on"
        assert not plain.done(), "the order of a partition is kept"
        refused = it.produce(keyed(None))
        gate.is_open.set()
        assert [(await one).base_offset for one in (first, second, plain)] == [0, 1, 2]
        assert (await refused).error is ErrorCode.INVALID_RECORD
        assert (await refused).keyless == (0,)
        assert (await it.produce(keyed(b"d"))).base_offset == 3
        assert threading.get_ident() not in gate.threads


async def test_who_waits_for_a_look_hears_that_leadership_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with compacted() as it:
        waiting = it.produce(keyed(b"a"))
        await wait_until(lambda: gate.threads)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2), isr=(2,), leader=2))
        gate.is_open.set()
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_stops_beside_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with compacted() as it:
        waiting = [it.produce(keyed(b"a")) for _ in range(3)]
        await wait_until(lambda: gate.threads)
        asyncio.get_running_loop().call_later(0.05, gate.is_open.set)
    assert not any(one.done() and one.result().error is ErrorCode.NONE for one in waiting)
