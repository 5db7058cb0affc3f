"""For all tests: what the way they were started must not change."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell ignores SIGINT for commands in the background, and children inherit that; tests interrupt theirs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
