"""The suites of `examples/kafka_clients` as a user runs them: copied into a project of their own, by its own pytest.

And the programs that docs/KAFKA_CLIENTS.md shows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "kafka_clients"
SUITES = {"test_with_aiokafka.py": 7, "test_with_confluent_kafka.py": 7, "test_with_kafka_python.py": 7}
"""The files, and how many tests are in each."""
PAGE = (ROOT / "docs" / "KAFKA_CLIENTS.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^### ([\w-]+)\n\n```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
TIMEOUT_S = 180
WARNINGS = ("-W", "error", "-W", "ignore::pytest.PytestDeprecationWarning", "-W", "ignore::DeprecationWarning")
"""Not ours: pytest-asyncio wants a setting of the project, kafka-python reads its schemas in an old way."""


def test_there_are_suites_and_programs() -> None:
    assert list(PROGRAMS) == ["confluent-kafka", "aiokafka", "kafka-python"]
    assert sorted(path.name for path in EXAMPLES.glob("test_*.py")) == list(SUITES)


def test_the_suites_pass_in_a_project_of_their_own(tmp_path: Path) -> None:
    """Goal: each has what it needs in its own file; one pytest, which imports replog and starts a broker once, runs all."""
    for suite in SUITES:
        shutil.copy(EXAMPLES / suite, tmp_path)
    command = [sys.executable, "-m", "pytest", "-v", *WARNINGS, *SUITES]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    passed = Counter(re.findall(r"^([\w.]+)::.* PASSED", ran.stdout, flags=re.MULTILINE))
    assert passed == SUITES, ran.stdout


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_program_of_the_page(tmp_path: Path, client: str) -> None:
    command = [sys.executable, "-c", PROGRAMS[client]]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (ran.returncode, ran.stdout) == (0, "b'taxi-7' b'ride 1'\n"), ran.stderr[-2000:]
