"""Where committed batches stand in files: told to whom, and of what."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from types import SimpleNamespace

import pytest
from broker_kit import TOPIC_ID, Rig, registered, rig, topic

from replog.broker.requests import segment_locations
from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
)
from replog.host.host_identity import boot_id
from replog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from replog.records import encode_batch, encode_end_transaction_marker
from replog.replication.messages import FetchAnswered
from replog.rpc.node_messages import STILL_WRITTEN, LocateSegmentsRequest, LocateSegmentsResponse

BROKERS = (registered(1), registered(2), registered(3))


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of these tests is in memory: every file looks the same from outside."""
    status = SimpleNamespace(st_dev=8, st_ino=15, st_mtime_ns=7)
    monkeypatch.setattr(segment_locations, "os", SimpleNamespace(stat=lambda _: status))


async def locate(it: Rig, start: int = 0, end: int = 100, *, epoch: int = -1, boot: str = "") -> LocateSegmentsResponse:
    request = LocateSegmentsRequest(TOPIC_ID, 0, epoch, start, end, boot or boot_id())
    return await it.stepper.driver.call(lambda: it.look_ups.locations.locate(request))


async def leader_with(it: Rig, records: int, committed: int) -> None:
    await it.apply(*BROKERS, *topic((1, 2)))
    waiting = [it.produce() for _ in range(records)]
    it.fetch(committed, replica_id=2, max_wait_ms=0)
    await it.settle()
    await asyncio.gather(*waiting[:committed])
    assert it.replica.high_watermark == committed


@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, None), (3, None), (5, 8), (8, None)])
async def test_nothing_is_told_of_open_and_aborted_transactions(start: int, end: int | None) -> None:
    """Two records; an aborted transaction from 2 to the marker at 4; three records; an open transaction from 8."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(2)

        def data(producer_id: int) -> bytes:
            return encode_batch(
                [(1, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )

        def marker(producer_id: int) -> bytes:
            return encode_end_transaction_marker(
                base_offset=0, leader_epoch=-1, timestamp_ms=1, producer_id=producer_id, producer_epoch=0,
                coordinator_epoch=0, is_commit=False,
            )  # fmt: skip

        for one in (data(7), None, marker(7), None, None, None, data(8), None):
            if one is None:
                await it.committed(1)
            else:
                write = partial(it.replica.log.append_as_leader, one, leader_epoch=0, now_ms=0)
                await it.stepper.driver.call(write)
        found = await locate(it, start)
        assert [span.end_offset for span in found.spans] == ([] if end is None else [end])


async def test_committed_batches_are_told_and_no_others() -> None:
    async with rig() as it:
        await leader_with(it, 5, 3)
        found = await locate(it, 1, epoch=it.replica.registration.leader_epoch)
        (span,) = found.spans
        assert (found.refusal, found.leader_epoch) == ("", it.replica.registration.leader_epoch)
        assert (span.base_offset, span.end_offset) == (1, 3)
        assert 2 * span.position == span.end_position - span.position  # batches of one size: 1 and 2 of 0, 1, 2
        assert (span.device, span.inode, span.modified_ns) == (8, 15, STILL_WRITTEN)
        assert os.path.isabs(span.path)  # noqa: PTH117 -- a name, no file
        assert await locate(it, 3) == LocateSegmentsResponse((), found.leader_epoch, "")


async def test_it_tells_from_where_on_no_offset_may_be_missing() -> None:
    async with rig() as it:
        await leader_with(it, 3, 3)
        assert (await locate(it)).is_complete
        it.replica.log._state.complete.raise_to(2)  # as where older segments are deleted
        assert [(await locate(it, start)).is_complete for start in (1, 2)] == [False, True]
        it.replica.log._state.complete.withdraw()  # as before a compaction
        assert not (await locate(it, 2)).is_complete


@pytest.mark.parametrize("known", ["", "another"])
async def test_paths_are_told_to_this_machine_only(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as it:
        await leader_with(it, 1, 1)
        if not known:
            monkeypatch.setattr(segment_locations, "boot_id", lambda: "")  # a system without one
        found = await locate(it, boot=known or "any")
        assert (found.spans, found.refusal) == ((), "the caller is on another machine")


async def test_a_setting_forbids_it() -> None:
    async with rig(direct_reads_enable=False) as it:
        await leader_with(it, 1, 1)
        assert (await locate(it)).refusal == "direct.reads.enable is false"


async def test_a_follower_in_sync_tells_what_it_knows_to_be_committed() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        stored = b"".join(
            encode_batch([(1, None, b"v", ())], base_offset=n, partition_leader_epoch=0) for n in range(3)
        )
        answer = FetchAnswered(0, 0, ErrorCode.NONE, 2, 0, 3, len(stored))
        await it.stepper.driver.call(lambda: it.stepper.step_follower(it.replica, answer, stored))
        (span,) = (await locate(it)).spans
        assert (span.base_offset, span.end_offset) == (0, 2)
        with pytest.raises(UnknownLeaderEpochError):
            await locate(it, epoch=7)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(2,)))
        with pytest.raises(NotLeaderOrFollowerError):
            await locate(it)


async def test_what_cannot_be_told_is_an_error_by_type() -> None:
    async with rig() as it:
        await leader_with(it, 3, 3)
        it.replica.log.set_log_start_offset(2)
        with pytest.raises(OffsetOutOfRangeError):
            await locate(it, 1)
        it.refused = "the lease has ended"
        with pytest.raises(BrokerNotAvailableError):
            await locate(it, 2)
        it.refused = None
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        with pytest.raises(UnknownTopicIdError):
            await locate(it, 2)


async def test_a_file_that_is_gone_says_nothing_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a refusal is for the whole broker and a minute; a file that retention has just renamed is neither."""

    def stat(path: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(segment_locations, "os", SimpleNamespace(stat=stat))
    async with rig() as it:
        await leader_with(it, 1, 1)
        assert await locate(it) == LocateSegmentsResponse((), it.replica.registration.leader_epoch, "")
