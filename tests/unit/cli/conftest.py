"""Runs the `replog` command in this process."""

from __future__ import annotations

import pytest
from cli_kit import Done, Replog

from replog.cli.main import main


@pytest.fixture
def replog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Replog:
    """`replog("topics", "list")` gives status, stdout and stderr."""
    monkeypatch.delenv("REPLOG_BOOTSTRAP_SERVERS", raising=False)

    def run(*arguments: object) -> Done:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return Done(status, *capfd.readouterr())

    return run
