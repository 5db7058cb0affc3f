"""Any order of appends, cuts, flushes, crashes and restarts, against a list.

A long campaign: `REPLOG_MODEL_EXAMPLES=20000 make test TEST_ARGS=tests/unit/log/test_log_model.py` (new examples every time).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from log_model import LogModel

FRESH_EXAMPLES = 5
FIND = (
    "\nThis is a find and no flakiness: the example was drawn for this run, and nobody has seen it before. Do not run the tests "
    "again in the hope that they pass. The falsifying example is told with it, step by step: it becomes a test of its own."
)

CAMPAIGN = int(os.environ.get("REPLOG_MODEL_EXAMPLES", "0"))

TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=CAMPAIGN or 40,
    stateful_step_count=40,
    derandomize=not CAMPAIGN,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_fresh_examples_keep_the_promises_too() -> None:
    try:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]  # Hypothesis has no types for it
            LogModel, settings=settings(TestLogModel.settings, max_examples=FRESH_EXAMPLES, derandomize=False)
        )
    except Exception as error:
        error.add_note(FIND)
        raise
