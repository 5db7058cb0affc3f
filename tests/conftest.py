"""For all tests: what the way they were started must not change, and what would slow all of them down."""

from __future__ import annotations

import gc
import signal


def pytest_configure() -> None:
    """A shell ignores SIGINT for commands in the background, and children inherit that; tests interrupt theirs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay: no look for garbage needs to walk over them again."""
    gc.collect()
    gc.freeze()
