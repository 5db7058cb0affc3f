"""Waiting for what a broker hears of a little later."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60


def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; it fails after a minute."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "what is waited for has not come"
        time.sleep(0.01)
