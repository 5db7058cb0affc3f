"""One seed is one run: under any hash seed, alone or after others, down to the last line of its log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.sim.traces import TRACES

ROOT = Path(__file__).parents[2]
FACTS = {"client", "fault", "log", "metadata", "node", "quorum"}


def traces(hash_seed: str, order: str) -> dict[str, list[str]]:
    path = ":".join(str(ROOT / folder) for folder in (".", "timeline", "quorum", "checkpoints"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.traces", order],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_one_seed_is_one_run() -> None:
    forwards, backwards = traces("1", "forwards"), traces("2", "backwards")
    assert forwards.keys() == backwards.keys() == TRACES.keys()
    assert {line.split()[1] for line in forwards["data cluster"]} == FACTS
    for name, trace in forwards.items():
        assert trace == backwards[name], name
