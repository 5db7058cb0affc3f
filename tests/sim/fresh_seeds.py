"""A few seeds that nobody has run before, in each run of the tests.

The fixed seeds of a campaign show that what was once found stays repaired; only new ones find something new.  A fresh seed
that fails is a find, also when the next run passes: the failure says so, and how to repeat it.  That a safeguard is missed
when it is taken out is never left to fresh seeds: those are known (docs/SAFEGUARDS.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

FIRST, END = 1_000_000_000, 2**31
"""Above the seeds of campaigns by hand."""

REPEAT = "PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.{simulation} --first {first} --seeds {count}"

FIND = (
    "\nThis is a find and no flakiness: these seeds were drawn for this run, and nobody has seen what they show. Do not run "
    "the tests again in the hope that they pass. Repeat it with\n    {command}\n"
    "and when it is repaired, keep the seed or the shrunk run as a test of its own."
)


@contextmanager
def fresh_seeds(simulation: str, count: int) -> Iterator[range]:
    """Draws seeds for a simulation, a module of tests/sim; an exception in the block says how to repeat them."""
    first = random.SystemRandom().randrange(FIRST, END - count)
    seeds = range(first, first + count)
    command = REPEAT.format(simulation=simulation, first=first, count=count)
    print(f"fresh seeds: {command}")
    try:
        yield seeds
    except Exception as error:
        error.add_note(FIND.format(command=command))
        raise
