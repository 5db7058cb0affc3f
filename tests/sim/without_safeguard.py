"""A plugin of pytest: takes a safeguard out while each test runs, so that one which is said to show that it is missing has to fail.

::

    REPLOG_WITHOUT="tests.sim.transaction_ablations:a marker ends what the coordinator was asked before" \
        python -m pytest -p tests.sim.without_safeguard tests/unit/log/test_log_transaction_rules.py
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.ablation_table import taken_out

ROOT = Path(__file__).parents[2]
VARIABLE = "REPLOG_WITHOUT"


@pytest.fixture(autouse=True)
def _without_safeguard() -> Iterator[None]:
    module, _, safeguard = os.environ[VARIABLE].partition(":")
    (ablation,) = (each for each in importlib.import_module(module).ABLATIONS if each.safeguard == safeguard)
    with taken_out(ablation.patches):
        yield


def does_fail(test: str, module: str, safeguard: str) -> bool:
    """Whether a test fails without a safeguard.

    Args:
        test: The test, as pytest names it.
        module: The module whose `ABLATIONS` have the safeguard.
        safeguard: The name of it.

    Raises:
        RuntimeError: The test could not be run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", __name__, test]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, VARIABLE: f"{module}:{safeguard}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise RuntimeError(f"{' '.join(command)} ends with {ended.returncode}: {ended.stdout[-2_000:]}{ended.stderr}")
    return ended.returncode == pytest.ExitCode.TESTS_FAILED
