"""The parts of `make test` are all of it, and what shares something costly is run by one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.side_by_side import unit_of

ROOT = Path(__file__).parents[2]


ON_REQUEST = "tests/deploy"
"""In no run of all tests."""


def test_each_folder_of_tests_is_in_one_part() -> None:
    recipes = re.findall(r"^test-\w+:\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [folder for recipe in recipes for folder in re.findall(r"tests/\w+", recipe)]
    folders = {f"tests/{path.relative_to(ROOT / 'tests').parts[0]}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(recipes) == 4
    assert named.count(ON_REQUEST) == 1
    assert sorted(named) == sorted(folders)


@pytest.mark.parametrize("folder", ["tests/kafka/", "tests/spark/"])
def test_what_takes_long_to_start_is_started_once(folder: str) -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("test_*.py")]
    assert len(files) > 1
    assert {unit_of(f"{file}::test_it[a::b]") for file in files} == {folder}


def test_a_file_is_run_by_one_process() -> None:
    assert unit_of("tests/cluster/test_a.py::TestB::test_c[d::e]") == "tests/cluster/test_a.py"
