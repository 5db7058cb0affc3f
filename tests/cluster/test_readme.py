"""The README's examples run as they stand there, and the README stays short enough to read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.cluster
@pytest.mark.parametrize(("number", "said"), [(0, "1000 records, the first:"), (1, "0 b'table-7' b'two coffees'")])
def test_an_example_runs(number: int, said: str, tmp_path: Path) -> None:
    example = EXAMPLES[number]
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(said)


def test_no_example_is_left_out() -> None:
    assert len(EXAMPLES) == 2


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 75
