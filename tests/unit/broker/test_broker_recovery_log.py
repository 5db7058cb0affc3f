"""A start that takes long says how far it is, and one that does not is quiet."""

from __future__ import annotations

import pytest

from replog.broker.node.recovery_log import RECOVERING, RecoveryLog
from replog.log import RecoveryProgress


def progress(directory: str, elapsed_ms: int, logs_done: int = 1) -> RecoveryProgress:
    return RecoveryProgress(directory, logs_done, 4, 250_000_000, 1_000_000_000, elapsed_ms, 3 * elapsed_ms)


def test_one_line_a_second_and_directory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="replog")
    tell = RecoveryLog()
    for elapsed_ms in range(100, 3_000, 100):
        for directory in ("/a", "/b"):
            tell(progress(directory, elapsed_ms))
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == f"{RECOVERING}/a: 1 of 4 logs open, 250 of 1,000 MB checked, about 3 s left"
    tell(progress("/a", 3_000, logs_done=4))
    assert "4 of 4 logs open" in caplog.messages[-1]


def test_a_short_start_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="replog")
    tell = RecoveryLog()
    tell(progress("/a", 500))
    tell(progress("/a", 999, logs_done=4))
    assert caplog.messages == []
