"""Fetches of replicas and consumers that have another history than the log here: they are told where both part."""

from __future__ import annotations

import threading

import pytest
from broker_kit import TOPIC_ID, Rig, batch, registered, rig, topic, wait_until

from replog.broker.disk import cold_reads
from replog.errors import ErrorCode
from replog.log import ReadJob
from replog.log.reading.reader import LogReader
from replog.metadata.records import PartitionChangeRecord
from replog.records import encode_batch
from replog.replication.messages import EpochEnd, FetchAnswered
from replog.rpc.messages import CONSUMER_REPLICA_ID, DivergingEpoch, FetchPartition, FetchRequest, FetchResponse

BROKERS = (registered(1), registered(2), registered(3))


def stored(base_offset: int, count: int, *, epoch: int) -> bytes:
    """As a leader stored it, each record in a batch of its own."""
    offsets = range(base_offset, base_offset + count)
    return b"".join(
        encode_batch([(1, None, b"v", ())], base_offset=offset, partition_leader_epoch=epoch) for offset in offsets
    )


def fetch_from(it: Rig, offset: int, epoch: int, *, replica_id: int, leader_epoch: int) -> list[FetchResponse]:
    """Asks for what follows a log that ends at `offset`, in `epoch`; returns where the answer will be."""
    answers: list[FetchResponse] = []
    partition = FetchPartition(TOPIC_ID, 0, offset, offset, 0, leader_epoch=leader_epoch, last_fetched_epoch=epoch)
    request = FetchRequest(1, 1, replica_id, 102, 500, 1, 1 << 20, (partition,))
    it.fetch_path.submit(request, answers.append)
    return answers


def parting(answers: list[FetchResponse]) -> tuple[ErrorCode, DivergingEpoch | None, int]:
    """Error, where the histories part, and how many bytes came."""
    (answer,) = answers
    (result,) = answer.results
    return result.error, result.diverging, len(answer.batches[0])


async def test_a_follower_of_another_history_is_told_where_they_part() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader_epoch=3))
        it.produce()
        await it.settle()
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        it.produce()
        it.produce()  # there is something at 2
        await it.settle()
        answers = fetch_from(it, 2, 3, replica_id=2, leader_epoch=4)
        await it.settle()
        assert parting(answers) == (ErrorCode.NONE, DivergingEpoch(3, 1), 0)
        assert it.replica.high_watermark == 0, "what it has above 1 is not ours"


async def test_who_waits_while_the_leaders_log_becomes_another_is_told_where_they_part() -> None:
    """It names no leader epoch, so that nothing else tells it that the leader has followed another one meanwhile."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        it.produce(batch(b"1", b"2", b"3"))
        it.produce()
        await it.settle()
        waiting = fetch_from(it, 4, 0, replica_id=2, leader_epoch=-1)
        await it.settle()
        assert (waiting, it.replica.high_watermark) == ([], 4)
        it.submit(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        it.stepper.driver.submit(lambda: it.replica.log.truncate_to(3))
        it.submit(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        it.produce()
        await it.settle()
        assert it.replica.log.log_end_offset == 4
        assert parting(waiting) == (ErrorCode.NONE, DivergingEpoch(0, 3), 0)
        assert it.replica.high_watermark == 3, "what it has above 3 is not ours"


@pytest.mark.parametrize("replaced", [False, True], ids=["cut", "cut and replaced"])
async def test_a_consumer_that_waits_at_a_follower_is_told_when_that_cuts_its_log(replaced: bool) -> None:
    async with rig(replica_selector="rack-aware") as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        old = stored(0, 3, epoch=0)
        steps = [(FetchAnswered(0, 0, ErrorCode.NONE, 1, 0, 3, len(old)), old)]
        await it.stepper.driver.call(lambda: [it.stepper.step_follower(it.replica, *step) for step in steps])
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        waiting = fetch_from(it, 3, 0, replica_id=CONSUMER_REPLICA_ID, leader_epoch=1)
        await it.settle()
        assert waiting == []
        new = stored(1, 2, epoch=1) if replaced else b""
        steps = [
            (FetchAnswered(3, 1, ErrorCode.NONE, 1, 0, 3, 0, EpochEnd(0, 1)), b""),
            (FetchAnswered(1, 1, ErrorCode.NONE, 1, 0, 3, len(new)), new),
        ]
        await it.stepper.driver.call(lambda: [it.stepper.step_follower(it.replica, *step) for step in steps])
        assert it.replica.log.log_end_offset == (3 if replaced else 1)
        await it.settle()
        assert parting(waiting) == (ErrorCode.NONE, DivergingEpoch(0, 1), 0)


async def test_a_consumer_that_has_a_wrong_epoch_from_here_makes_the_damage_known() -> None:
    """No checksum covers it: else each consumer would be told for ever that the log was cut, and no broker why."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        for _ in range(3):
            it.produce()
        await it.settle()
        path = f"{it.replica.log.directory}/{0:020d}.log"
        second = it.replica.log.size_bytes // 3
        it.fs.flip_bit(path, second + 15, 3)
        right = fetch_from(it, 2, 7, replica_id=CONSUMER_REPLICA_ID, leader_epoch=-1)
        await it.settle()
        assert parting(right)[0] is not ErrorCode.OFFSET_OUT_OF_RANGE
        assert f"{path} at byte {second}" in it.stepper.trouble.offline[TOPIC_ID, 0].reason


async def test_what_a_consumer_that_does_not_fit_has_read_before_is_looked_at_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: each partition of a fetch could have a file opened and read by the loop, ten thousand of them in one request."""
    threads: list[int] = []
    run = ReadJob.run

    def noted(job: ReadJob) -> None:
        threads.append(threading.get_ident())
        run(job)

    def on_the_loop(*_: object) -> None:
        raise AssertionError("the loop waits for the disk")

    monkeypatch.setattr(ReadJob, "run", noted)
    monkeypatch.setattr(LogReader, "check_epoch_before", on_the_loop)
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        for _ in range(3):
            it.produce()
        await it.settle()
        answers = fetch_from(it, 2, 7, replica_id=CONSUMER_REPLICA_ID, leader_epoch=-1)
        await wait_until(lambda: bool(answers))
        assert parting(answers) == (ErrorCode.OFFSET_OUT_OF_RANGE, None, 0)
        beyond = fetch_from(it, 9, 7, replica_id=CONSUMER_REPLICA_ID, leader_epoch=-1)
        await wait_until(lambda: bool(beyond))
    assert len(threads) == 1, "none for a position that the log does not have"
    assert threads != [threading.get_ident()]


async def test_a_consumer_is_not_told_that_it_does_not_fit_while_nobody_can_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        it.produce()
        await it.settle()
        monkeypatch.setattr(cold_reads, "COLD_READS_WAITING_MAX", 0)
        answers = fetch_from(it, 1, 7, replica_id=CONSUMER_REPLICA_ID, leader_epoch=-1)
        await it.settle()
        assert parting(answers) == (ErrorCode.OFFSET_NOT_AVAILABLE, None, 0)
