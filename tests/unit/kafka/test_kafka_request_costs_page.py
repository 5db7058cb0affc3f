"""The page of what requests cost: it has all APIs, and says what is measured."""

from __future__ import annotations

from collections import Counter

import pytest
from request_costs_page import CALLS_NAMES, costliest, rows
from test_kafka_request_costs import CALLS_ABOVE, TURN_CALLS_MAX, TurnCalls

from replog.protocol.served import SERVED

HELD_MS_MAX = 50
HELD_MS_ABOVE = 100
"""Of those that are above the bound (`CALLS_ABOVE`)."""
MORE = 1.25
"""How many times the calls of its line a request may make: what it meets on a node is not always the same."""
FEW_CALLS = 5_000
"""Calls that a line need not tell: a timer of the node, or the rest of a connection."""


def test_each_api_has_a_line_within_the_bound() -> None:
    assert Counter(row.api for row in rows()) == Counter({api.name for api in SERVED})
    above = {row.api for row in rows() if row.held_ms > HELD_MS_MAX or row.calls > TURN_CALLS_MAX}
    assert above == CALLS_ABOVE.keys()
    assert {row.api for row in rows() if row.calls > CALLS_ABOVE.get(row.api, TURN_CALLS_MAX)} == set()
    assert max(row.held_ms for row in rows()) <= HELD_MS_ABOVE


@pytest.mark.campaign
async def test_no_api_makes_many_more_calls_than_its_line_says() -> None:
    """Half a minute."""
    told = {row.api: row.calls for row in rows()}
    found = await costliest(CALLS_NAMES, TurnCalls())
    assert {api: (most, request) for api, (most, request) in found.items() if most > MORE * told[api] + FEW_CALLS} == {}
