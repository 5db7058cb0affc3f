"""Ctrl-C in the sync clients: one KeyboardInterrupt for each signal, at the caller, and nothing else anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interrupted_clients.py")
INTERRUPTS_OF_EACH_USE = 100


@pytest.mark.parametrize("seed", range(2))
def test_signals_at_any_moment(seed: int) -> None:
    path = ":".join(path for path in (str(SCRIPT.parent), *sys.path) if path)
    command = [sys.executable, "-W", "always", str(SCRIPT), str(seed), str(INTERRUPTS_OF_EACH_USE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={"PYTHONPATH": path})
    assert (done.stderr, done.returncode) == ("", 0)
    assert int(done.stdout) >= 3 * INTERRUPTS_OF_EACH_USE
