"""The suites of `examples/kafka_clients` as a user runs them: copied into a project of its own, by its own pytest.

And the programs that docs/KAFKA_CLIENTS.md shows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "kafka_clients"
SUITES = sorted(path.name for path in EXAMPLES.glob("test_*.py"))
PAGE = (ROOT / "docs" / "KAFKA_CLIENTS.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^### ([\w-]+)\n\n```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
TIMEOUT_S = 180
WARNINGS = ("-W", "error", "-W", "ignore::pytest.PytestDeprecationWarning", "-W", "ignore::DeprecationWarning")
"""Not ours: pytest-asyncio wants a setting of the project, kafka-python reads its schemas in an old way."""


def test_there_are_suites_and_programs() -> None:
    assert list(PROGRAMS) == ["confluent-kafka", "aiokafka", "kafka-python"]
    assert SUITES == ["test_with_aiokafka.py", "test_with_confluent_kafka.py", "test_with_kafka_python.py"]


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_passes_in_a_project_of_its_own(tmp_path: Path, suite: str) -> None:
    shutil.copy(EXAMPLES / suite, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", *WARNINGS, suite]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert re.search(r"^7 passed in", ran.stdout, flags=re.MULTILINE), ran.stdout


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_program_of_the_page(tmp_path: Path, client: str) -> None:
    command = [sys.executable, "-c", PROGRAMS[client]]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (ran.returncode, ran.stdout) == (0, "b'taxi-7' b'ride 1'\n"), ran.stderr[-2000:]
