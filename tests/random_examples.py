"""How many examples of a property are tried: a few in each run, `REPLOG_EXAMPLES` times as many in campaigns.

Those that Hypothesis draws are fresh ones each time; seeds begin at `REPLOG_SEED`, which campaigns draw.
"""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("REPLOG_EXAMPLES", "1"))
FIRST_SEED: Final = int(os.environ.get("REPLOG_SEED", "0"))


def examples(usual: int) -> int:
    """Returns how many examples this run tries of a property of which a usual one tries so many."""
    return usual * TIMES


def seeds(usual: int) -> range:
    """Returns the seeds of this run of what a usual one does with so many."""
    return range(FIRST_SEED, FIRST_SEED + examples(usual))
