"""Wall clocks that jump and, mended, jump back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from replog.errors import InvariantViolationError
from replog_chaos.clocks import DAY_NS, HOUR_NS, Clocks, clocks_are_missing
from replog_chaos.fault import SESSION_MS, Fault, Scene, Target

JUMPED_S = 1.3 * SESSION_MS / 1000
"""Long enough for sessions and heartbeats to go wrong, were they counted in wall time."""


def clocks_of(target: Target) -> Clocks:
    """Returns the movable clocks of the cluster.

    Raises:
        InvariantViolationError: The cluster has none.
    """
    if target.clocks is None:
        raise InvariantViolationError("a clock jumps in a cluster without movable ones")
    return target.clocks


@asynccontextmanager
async def _forward(target: Target) -> AsyncIterator[list[int]]:
    async with _jumped(target, HOUR_NS) as nodes:
        yield nodes


@asynccontextmanager
async def _back(target: Target) -> AsyncIterator[list[int]]:
    async with _jumped(target, -DAY_NS) as nodes:
        yield nodes


@asynccontextmanager
async def _jumped(target: Target, offset_ns: int) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    clocks_of(target).jump(node_id, offset_ns)
    await asyncio.sleep(JUMPED_S)
    yield [node_id]
    clocks_of(target).mend()


CLOCK_FAULTS: Mapping[str, Fault] = {
    "clock-forward": Fault(
        "the wall clock of a leader jumps forward by an hour, and back again",
        _forward,
        scene=Scene.CLOCKS,
        missing=clocks_are_missing,
    ),
    "clock-back": Fault(
        "the wall clock of a leader jumps back by a day, and forward again",
        _back,
        scene=Scene.CLOCKS,
        missing=clocks_are_missing,
    ),
}
