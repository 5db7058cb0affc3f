"""The parts of `make test` are all of it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_folder_of_tests_is_in_one_part() -> None:
    recipes = re.findall(r"^test-\w+:\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [folder for recipe in recipes for folder in re.findall(r"tests/\w+", recipe)]
    folders = {f"tests/{path.relative_to(ROOT / 'tests').parts[0]}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(recipes) == 3
    assert sorted(named) == sorted(folders)
