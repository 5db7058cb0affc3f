"""The parts of `make test` are all of it, and what shares something costly is run by one process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.side_by_side import LONGEST, SHARE_NOTHING, SHARED, Scheduler, in_order, unit_of

ROOT = Path(__file__).parents[2]


ON_REQUEST = ["tests/deploy", "tests/kafka/suites"]
"""In no run of all tests."""


def test_each_folder_of_tests_is_in_one_part() -> None:
    recipes = re.findall(r"^test-[\w-]+:\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    marks = {mark for recipe in recipes for mark in re.findall(r" -m \"?([\w ]+?)\"? tests/unit\b", recipe)}
    assert marks == {"exhaustive", "not exhaustive"}
    assert not _marked_exhaustive(folder for folder in (ROOT / "tests").iterdir() if folder.name != "unit")
    recipes = [recipe for recipe in recipes if " -m exhaustive " not in recipe]
    named = [folder for recipe in recipes for folder in re.findall(r"tests/[\w/]+", recipe)]
    folders = {_part_of(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(recipes) == 5  # and `make test-exhaustive`
    assert {*ON_REQUEST} <= folders
    assert sorted(named) == sorted(folders)


def _marked_exhaustive(folders: Iterable[Path]) -> list[Path]:
    files = (file for folder in folders for file in folder.rglob("test_*.py"))
    return [file for file in files if "mark.exhaustive" in file.read_text()]


def _part_of(path: Path) -> str:
    asked = (folder for folder in ON_REQUEST if path.is_relative_to(folder))
    return next(asked, f"tests/{path.parts[1]}")


STARTED_ONCE = {
    "the Spark session": ("tests/spark", ""),
    "a broker of each kind": ("tests/kafka", r"\b(both: Sides|members: Members|kafka_broker: KafkaNode)\b"),
    "the life of a node of Kafka": ("tests/kafka", r"\bkafka_run: KafkaRun\b"),
    "one JVM for Kafka's programs": ("tests/kafka", r"\bkafka: KafkaInstall\b"),
}
"""What a session starts: where, and how a file of tests says that it uses it; all files of tests/spark do."""

OF_ITS_OWN = {
    "tests/spark/test_spark_examples.py": "starts sessions of its own",
    "tests/kafka/test_kafka_full_groups_alike.py": "brokers with keys of their own",
    "tests/kafka/test_kafka_patterns.py": "runs no program but the driver of its clients",
    "tests/kafka/test_kafka_mixed_groups.py": "starts consoles that run at the same time",
}
"""Files that say so, and use nothing that others have started: why."""


@pytest.mark.parametrize("shared", STARTED_ONCE)
def test_what_takes_long_to_start_is_started_once(shared: str) -> None:
    folder, said = STARTED_ONCE[shared]
    users = [path for path in sorted((ROOT / folder).glob("test_*.py")) if re.search(said, path.read_text())]
    files = {str(path.relative_to(ROOT)) for path in users}.difference(OF_ITS_OWN)
    assert len(files) > 1
    assert len({unit_of(f"{file}::test_it[a::b]") for file in files}) == 1


def test_no_unit_is_without_files() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert {*SHARED, *LONGEST} <= {unit_of(file) for file in files}


def test_a_file_is_run_by_one_process() -> None:
    assert unit_of("tests/cluster/test_a.py::TestB::test_c[d::e]") == "tests/cluster/test_a.py"


def test_what_shares_nothing_is_run_by_a_process_of_its_own() -> None:
    assert [unit_of(f"{file}::test_it") for file in SHARE_NOTHING] == list(SHARE_NOTHING)


def test_what_takes_longest_is_begun_before_what_is_short() -> None:
    """Example: one process would still run the Spark tests while the others have nothing left."""
    short = ["tests/sim/test_c.py", "tests/unit/test_d.py"]
    collected = [
        "tests/cluster/test_a.py::x",
        "tests/kafka/test_kafka_b_alike.py::x",
        *(f"{file}::x" for file in short),
    ]
    collected += [
        "tests/spark/test_b.py::x",
        "tests/kafka/test_kafka_clients.py::x",
        *(f"{file}::x" for file in SHARE_NOTHING),
    ]
    assert in_order(collected) == ["tests/cluster/test_a.py", *LONGEST, *short]


class Process:
    """A process for tests that runs nothing, and keeps what it was told to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_gets_the_units_in_this_order() -> None:
    collected = [f"tests/sim/test_{number}.py::x" for number in range(4)] + ["tests/spark/test_a.py::x"]
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"])
    scheduler, process = Scheduler(config, None), Process()
    scheduler.add_node(process)
    scheduler.add_node_collection(process, collected)
    scheduler.schedule()
    assert process.told[:2] == [4, 0]
