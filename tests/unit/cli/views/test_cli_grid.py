"""Tables on narrow terminals: nothing is cut."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType
from test_cli_health_view import GOOD, broker
from test_cli_partition import FOUND, REPLICA

from replog.cli.commands.partition import _table
from replog.cli.terminal.grid import Grid
from replog.cli.views.health import render
from replog.client.admin.health import BrokerStanding


def shown(what: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_what_fits_is_a_table() -> None:
    grid = Grid((">node", "state"), [["1", "running"], ["12", "[stopped]"]])
    assert shown(grid, 20) == ["node  state", "   1  running", "  12  [stopped]"]


def test_the_last_column_folds() -> None:
    grid = Grid((">node", "state"), [["1", "offline: its disk is full and it waits for room"]])
    assert shown(grid, 30) == [
        "node  state",
        "   1  offline: its disk is",
        "      full and it waits for",
        "      room",
    ]


def test_before_a_number_is_cut_rows_are_blocks() -> None:
    grid = Grid((">node", ">log end", ">flushed", "state"), [["1", "1,024,000,000", "1,000,000,000", "leader"]])
    assert shown(grid, 40) == ["node 1: log end 1,024,000,000; flushed", "1,000,000,000; state leader"]


def test_headers_and_texts_of_several_words_are_not_cut_either() -> None:
    grid = Grid((">replica", ">high watermark", "isr", "state"), [["2", "7", "out, in the elr", "down"]])
    assert shown(grid, 50) == [
        "replica  high watermark  isr              state",
        "      2               7  out, in the elr  down",
    ]
    assert shown(grid, 40) == ["replica 2: high watermark 7; isr out, in", "the elr; state down"]


@pytest.mark.parametrize("width", [80, 60, 200])
def test_a_partition_with_large_offsets_and_a_long_state(width: int) -> None:
    reason = "the log directory /var/lib/replog/disk2/data is offline: [Errno 5] Input/output error"
    sick = replace(
        REPLICA, broker_id=2, log_end_offset=9 * 10**15, flushed_offset=8 * 10**15, state="offline", reason=reason
    )
    lines = shown(_table(replace(FOUND, topic_id=UUID(int=2), replicas=(REPLICA, sick))), width)
    text = " ".join(" ".join(lines).split())
    for word in ("9,000,000,000,000,000", "8,000,000,000,000,000", *reason.split()[:2], "…"):
        assert (word in text) == (word != "…")
    assert max(map(len, lines)) <= width


def test_a_status_with_long_states_at_80_columns() -> None:
    silent = broker(
        2, BrokerStanding.SHUTTING_DOWN, address="broker-two.rack-b.example.org:19092", rack="rack-b", is_drained=True
    )
    lines = shown(render(replace(GOOD, brokers=(broker(1), silent))), 80)
    text = " ".join(" ".join(lines).split())
    assert "…" not in text
    for words in ("broker-two.rack-b.example.org:19092", "rack-b", silent.state.value, "drained"):
        assert words in text
