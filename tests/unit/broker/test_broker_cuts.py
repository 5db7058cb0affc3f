"""A leader tells where the committed part of a partition may be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_kit import KEY, TOPIC_ID, Rig, registered, rig, topic

from replog.broker.requests import look_ups
from replog.errors import ErrorCode, MalformedFrameError
from replog.metadata.records import PartitionChangeRecord
from replog.rpc.messages import FindCutsPartition, FindCutsRequest, FindCutsResult
from replog.rpc.request_limits import MAX_PARTITIONS


async def filled(it: Rig) -> None:
    await it.apply(registered(1), *topic((1,)))
    for _ in range(5):
        await it.produce()


async def find(it: Rig, start: int, end: int, *, target_bytes: int = 1, leader_epoch: int = -1) -> FindCutsResult:
    request = FindCutsRequest((FindCutsPartition(*KEY, start, end, leader_epoch),), target_bytes)
    (result,) = (await it.look_ups.find_cuts(request)).results
    return result


async def test_the_last_cut_is_the_end_and_all_bytes_are_counted() -> None:
    async with rig() as it:
        await filled(it)
        result = await find(it, 0, 5, target_bytes=1 << 20)
        assert result.error is ErrorCode.NONE
        assert [(cut.offset, cut.size_bytes) for cut in result.cuts] == [(5, it.replica.log.size_bytes)]
        assert (await find(it, 3, 3)).cuts == ()


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 6)])
async def test_a_range_that_is_not_committed_is_refused(start: int, end: int) -> None:
    async with rig() as it:
        await filled(it)
        result = await find(it, start, end)
        assert (result.error, result.cuts) == (ErrorCode.OFFSET_OUT_OF_RANGE, ())
        assert f"[{start}, {end}) is not in [0, 5)" in result.message


async def test_who_does_not_lead_says_so() -> None:
    async with rig() as it:
        await filled(it)
        assert (await find(it, 0, 5, leader_epoch=7)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        assert (await find(it, 0, 5)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: however many partitions are named and however small the parts, the answer stays small."""
    monkeypatch.setattr(look_ups, "CUTS_MAX", 3)
    async with rig() as it:
        await filled(it)
        partition = FindCutsPartition(*KEY, 0, 5)
        for count in (1, 2, 5):
            results = (await it.look_ups.find_cuts(FindCutsRequest((partition,) * count, 1))).results
            assert all(1 <= len(result.cuts) <= max(1, 3 // count) for result in results)
        with pytest.raises(MalformedFrameError):
            await it.look_ups.find_cuts(FindCutsRequest((partition,) * (MAX_PARTITIONS + 1), 1))


async def test_cuts_of_many_partitions_are_found_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "LOOK_UPS_AT_ONCE", 2)
    async with rig() as it:
        await filled(it)
        calls = noted_calls(it, monkeypatch)
        request = FindCutsRequest((FindCutsPartition(*KEY, 0, 5),) * 5, 1 << 20)
        results = (await it.look_ups.find_cuts(request)).results
        assert [[cut.offset for cut in result.cuts] for result in results] == [[5]] * 5
        assert len(calls) == 3


def noted_calls(it: Rig, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls that the driver is asked for from here on."""
    calls: list[object] = []
    call = it.stepper.driver.call

    async def noted(function: Callable[[], Any]) -> Any:
        calls.append(function)
        return await call(function)

    monkeypatch.setattr(it.stepper.driver, "call", noted)
    return calls
