"""The demo's bookkeeping: it must notice every lost, doubled and altered record, or its last line is worth nothing."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest
from rich.console import Console

from examples.demo.groups import GroupCounter, GroupStats, differing_rows
from examples.demo.ledger import NOBODY, Ledger, ReadCheck, ReadResult
from examples.demo.pauses import Acknowledgements
from examples.demo.report import DemoOutcome, result_table
from examples.demo.spark_step import _checked_mean


def ledger() -> Ledger:
    """Rows 0, 1, 2 at flights-0 offsets 0, 1, 2 (acknowledged out of order) and row 3 at flights-1 offset 5."""
    found = Ledger()
    found.acknowledge(0, 1, [1, 2])
    found.acknowledge(0, 0, [0])
    found.acknowledge(1, 5, [3])
    return found


def read(*places: tuple[int, int]) -> tuple[list[int], ReadResult]:
    check = ReadCheck(ledger())
    rows = [check.expect(*place) for place in places]
    return rows, check.result()


ALL = ((0, 0), (0, 1), (0, 2), (1, 5))


def test_everything_read_once() -> None:
    rows, result = read(*ALL)
    assert rows == [0, 1, 2, 3]
    assert result == ReadResult(read=4, lost=0, duplicated=0, altered=0)
    assert result.is_exact


def test_a_lost_record() -> None:
    _, result = read(*ALL[:3])
    assert result == ReadResult(read=3, lost=1, duplicated=0, altered=0)
    assert not result.is_exact


@pytest.mark.parametrize("extra", [(0, 0), (0, 3), (1, 4), (2, 0), (1, 99)])
def test_a_record_read_twice_or_never_acknowledged(extra: tuple[int, int]) -> None:
    rows, result = read(*ALL, extra)
    assert rows[-1] == NOBODY
    assert result == ReadResult(read=4, lost=0, duplicated=1, altered=0)
    assert not result.is_exact


def test_an_altered_record() -> None:
    check = ReadCheck(ledger())
    for place in ALL:
        check.expect(*place)
    check.differs()
    assert check.result() == ReadResult(read=4, lost=0, duplicated=0, altered=1)
    assert not check.result().is_exact


def test_an_offset_acknowledged_for_two_rows_is_a_conflict_and_a_loss() -> None:
    found = ledger()
    found.acknowledge(0, 2, [4])
    assert found.conflicts == [(0, 2)]
    assert (found.acknowledged, found.offsets_count()) == (5, 4)
    check = ReadCheck(found)
    for place in ALL:
        check.expect(*place)
    assert check.result().lost == 1


def test_groups_leave_missing_delays_out_of_the_mean() -> None:
    counter = GroupCounter()
    for delay in (2, None, -5):
        counter.add("UA", "EWR", delay)
    counter.add("AA", "JFK", None)
    groups = counter.groups()
    assert groups == {("AA", "JFK"): GroupStats(1, 0, 0), ("UA", "EWR"): GroupStats(3, 2, -3)}
    assert groups["UA", "EWR"].mean_delay_minutes == -1.5
    assert groups["AA", "JFK"].mean_delay_minutes is None


def test_groups_that_differ() -> None:
    source = {("UA", "EWR"): GroupStats(3, 2, -3), ("AA", "JFK"): GroupStats(1, 0, 0)}
    assert differing_rows(source, dict(source)) == []
    assert differing_rows(source, {("UA", "EWR"): GroupStats(3, 2, -2)}) == [("AA", "JFK"), ("UA", "EWR")]


def test_a_mean_of_sparks_that_its_sums_do_not_give_is_a_difference() -> None:
    stats = GroupStats(3, 2, -3)
    assert _checked_mean(stats, -1.5) == stats
    assert _checked_mean(stats, -1.4) != stats
    assert _checked_mean(GroupStats(1, 0, 0), None) == GroupStats(1, 0, 0)


def outcome() -> DemoOutcome:
    exact = ReadResult(read=336_776, lost=0, duplicated=0, altered=0)
    groups = {("UA", "EWR"): GroupStats(336_776, 2, -3)}
    return DemoOutcome(336_776, 336_776, 0, groups, groups, groups, groups, exact, exact)


def test_the_last_line_of_a_good_run() -> None:
    assert outcome().is_good
    assert outcome().verdict() == (
        "336,776 acknowledged, 336,776 read by the consumer, 336,776 read by Spark, 336,776 counted by a Spark stream, "
        "0 lost, 0 duplicated; results equal"
    )


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (replace(outcome(), acknowledged=336_775), "1 lost, 1 duplicated; results equal"),
        (replace(outcome(), conflicts=2), "0 lost, 2 duplicated; results equal"),
        (replace(outcome(), consumer_read=ReadResult(336_770, 6, 0, 0)), "6 lost, 0 duplicated; results equal"),
        (replace(outcome(), spark_read=ReadResult(336_776, 0, 3, 0)), "0 lost, 3 duplicated; results equal"),
        (replace(outcome(), spark_read=ReadResult(336_776, 0, 0, 4)), "0 duplicated, 4 altered; results equal"),
        (replace(outcome(), spark={}), "0 lost, 0 duplicated; 1 results differ"),
        (replace(outcome(), consumer={("UA", "EWR"): GroupStats(336_776, 2, 0)}), "1 results differ"),
        (replace(outcome(), stream={("UA", "EWR"): GroupStats(336_776, 2, 0)}), "0 duplicated; 1 results differ"),
        (
            replace(outcome(), stream={("UA", "EWR"): GroupStats(336_774, 2, -3)}),
            "2 lost, 0 duplicated; 1 results differ",
        ),
        (
            replace(outcome(), stream={("UA", "EWR"): GroupStats(336_779, 2, -3)}),
            "0 lost, 3 duplicated; 1 results differ",
        ),
        (replace(outcome(), stream={}), "336,776 lost, 0 duplicated; 1 results differ"),
    ],
)
def test_the_last_line_of_a_bad_run(bad: DemoOutcome, text: str) -> None:
    assert not bad.is_good
    assert bad.verdict().endswith(text)


def test_the_table_shows_what_differs_first() -> None:
    source = {("UA", f"A{number:02}"): GroupStats(100 - number, 1, number) for number in range(20)}
    spark = {**source, ("UA", "A19"): GroupStats(81, 1, 0)}
    console = Console(file=io.StringIO(), record=True, width=120)
    console.print(result_table(replace(outcome(), source=source, consumer=source, spark=spark, stream=source)))
    lines = console.export_text().splitlines()
    assert [line.split()[3] for line in lines if "UA" in line][:2] == ["A19", "A00"]
    assert [line.split()[-2] for line in lines if "UA" in line][:2] == ["differs", "equal"]
    assert "the largest 8 of 20 groups; all were compared" in lines[-1]


async def test_pauses_between_acknowledgements() -> None:
    now_s = 100.0
    acknowledgements = Acknowledgements(lambda: now_s)
    reached = asyncio.create_task(acknowledgements.reached(3))
    for now_s, count in ((100.0, 1), (100.5, 1), (102.75, 1), (103.0, 4)):  # noqa: B007 -- the clock reads it
        acknowledgements.add(count)
    await asyncio.wait_for(reached, 60)
    await acknowledgements.reached(7)
    assert (acknowledgements.count, acknowledgements.longest_pause_s) == (7, 2.25)
