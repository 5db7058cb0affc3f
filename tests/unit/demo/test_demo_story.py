"""What the demo reads and tells: the source table, changes of leadership, signs of life."""

from __future__ import annotations

import asyncio
import io
import json
from uuid import UUID

import pytest
from rich.console import Console

from examples.demo import display as display_module
from examples.demo.display import Display, Work, WorkOverError
from examples.demo.failover import Failover, describe_changes, leading_most
from examples.demo.source import FAST_STEP, ROWS_TOTAL, load_flights
from replog.rpc.metadata_messages import PartitionInfo, TopicInfo


def topic(*partitions: tuple[int, int, tuple[int, ...]]) -> TopicInfo:
    """Partitions by (leader, leader epoch, isr)."""
    infos = (PartitionInfo(n, leader, epoch, 0, (1, 2, 3), isr) for n, (leader, epoch, isr) in enumerate(partitions))
    return TopicInfo("flights", UUID(int=1), tuple(infos))


def test_the_source_table() -> None:
    counted: list[int] = []
    flights = load_flights(is_fast=True, on_rows=counted.append)
    assert flights.count == sum(counted) == -(-ROWS_TOTAL // FAST_STEP) == 33_678
    first = json.loads(flights.values[0])
    assert (flights.keys[0], first["carrier"], first["origin"], first["dep_delay"]) == (b"UA", "UA", "EWR", 2)
    assert len(first) == 19
    rows = [json.loads(value) for value in flights.values]
    assert sum(stats.flights for stats in flights.groups.values()) == 33_678
    assert sum(stats.delays for stats in flights.groups.values()) == sum(row["dep_delay"] is not None for row in rows)
    assert any(row["dep_delay"] is None for row in rows)
    assert not any(value in {"NA", ""} for row in rows[:5_000] for value in row.values())


def test_who_leads_most() -> None:
    isr = (1, 2, 3)
    assert leading_most(topic((3, 0, isr), (3, 0, isr), (1, 0, isr))) == 3
    assert leading_most(topic((3, 0, isr), (2, 0, isr))) == 2


def test_changes_are_told_once_for_partitions_that_share_them() -> None:
    before = topic((1, 0, (1, 2, 3)), (1, 0, (1, 2, 3)), (2, 0, (2, 3, 1)), (3, 0, (3, 1, 2)))
    after = topic((2, 1, (2, 3)), (2, 1, (2, 3)), (2, 0, (2, 3)), (3, 0, (3, 2, 1)))
    assert describe_changes(before, after) == [
        "partitions 0, 1: new leader node 2, epoch 1; ISR [1, 2, 3] -> [2, 3]",
        "partition 2: ISR [2, 3, 1] -> [2, 3]",
    ]
    assert describe_changes(before, topic((-1, 1, ()))) == [
        "partition 0: new leader none, epoch 1; ISR [1, 2, 3] -> []"
    ]


def test_recovered_counts_only_new_leaders() -> None:
    failover = Failover(victim=1, partitions=frozenset({0, 1}))
    failover.note_acknowledged(0)  # sent before the kill, its answer came after
    assert failover.recovered_s is None
    failover.moved.add(0)
    failover.note_acknowledged(1)
    assert failover.recovered_s is None
    failover.note_acknowledged(0)
    first = failover.recovered_s
    assert first is not None
    failover.note_acknowledged(0)
    assert failover.recovered_s == first


def test_work_measures_itself_and_ends_its_threads() -> None:
    now_s = 0.0
    work = Work("reading", 1_000, "rows", lambda: now_s)
    assert work.measure() == "0 of 1,000 rows, 0/s, 0 s"
    now_s = 2.0
    work.advance(500)
    assert work.measure() == "500 of 1,000 rows, 250/s, 2 s"
    work.end()
    with pytest.raises(WorkOverError):
        work.advance(1)


async def test_a_line_appears_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "QUIET_S_MAX", 0.15)
    out = io.StringIO()
    display = Display(Console(file=out, highlight=False))
    async with display.working("waiting [for] it"):
        async with asyncio.timeout(60):
            while "waiting [for] it: 0 s" not in out.getvalue():
                await asyncio.sleep(0.01)
    display.event("done [/] with it")
    assert out.getvalue().endswith("     done [/] with it\n")


async def test_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, force_terminal=True, highlight=False, width=100))
    async with display.working("reading", 100) as work:
        work.advance(50)
        async with asyncio.timeout(60):
            while "50 of 100 rows" not in out.getvalue():
                await asyncio.sleep(0.01)
        display.event("something happened")
    assert "something happened" in out.getvalue()


async def test_an_interrupt_while_the_display_ends_is_not_swallowed() -> None:
    display = Display(Console(file=io.StringIO(), highlight=False))

    async def work() -> None:
        async with display.working("working"):
            asyncio.get_running_loop().call_soon(task.cancel)  # arrives at the first wait: that for the display

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
