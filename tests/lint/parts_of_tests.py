"""The parts of `make test` are all of it, and files of tests that share something costly are run by one process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.side_by_side import LONGEST, SHARED, unit_of

ROOT = Path(__file__).parents[2]

ON_REQUEST = ("tests/deploy", "tests/kafka/suites")
"""In no run of all tests."""

STARTED_ONCE = {
    "the Spark session": ("tests/spark", ""),
    "a broker of each kind": ("tests/kafka", r"\b(both: Sides|members: Members|kafka_broker: KafkaNode)\b"),
    "the life of a node of Kafka": ("tests/kafka", r"\bkafka_run: KafkaRun\b"),
    "one JVM for Kafka's programs": ("tests/kafka", r"\bkafka: KafkaInstall\b"),
}
"""What a session starts: where, and how a file of tests says that it uses it; all files of tests/spark do."""

OF_ITS_OWN = {
    "tests/spark/test_spark_examples.py": "starts sessions of its own",
    "tests/kafka/test_kafka_controller_rights_alike.py": "nodes with access control lists of their own",
    "tests/kafka/test_kafka_full_groups_alike.py": "brokers with keys of their own",
    "tests/kafka/test_kafka_rights_alike.py": "brokers with access control lists of their own",
    "tests/kafka/test_kafka_tokens_alike.py": "brokers with users of their own",
    "tests/kafka/test_kafka_patterns.py": "runs no program but the driver of its clients",
    "tests/kafka/test_kafka_mixed_groups.py": "starts consoles that run at the same time",
    "tests/kafka/test_kafka_our_classic_members.py": "starts brokers of other kinds, and a console beside them",
}
"""Files that say so, and use nothing that others have started: why."""


def of_the_makefile(text: str, folders: set[str]) -> Iterator[str]:
    """Yields how the parts of `make test` in a Makefile differ from the folders of tests: each is in one of them.

    Args:
        text: The Makefile.
        folders: The folders of tests, from the root.
    """
    recipes = re.findall(r"^test-[\w-]+:\n(?:\t.*\n)+", text, re.MULTILINE)
    marks = {mark for recipe in recipes for mark in re.findall(r" -m \"?([\w ]+?)\"? tests/unit\b", recipe)}
    if marks != {"exhaustive", "not exhaustive"}:
        yield f"Makefile: tests/unit is run with the marks {sorted(marks)}, not with exhaustive and not exhaustive"
    recipes = [recipe for recipe in recipes if " -m exhaustive " not in recipe]
    named = [folder for recipe in recipes for folder in re.findall(r"tests/[\w/]+", recipe)]
    yield from (f"Makefile: {folder} is in no part of make test" for folder in sorted(folders - {*named}))
    yield from (f"Makefile: {folder} has no tests" for folder in sorted({*named} - folders))
    yield from (f"Makefile: {folder} is in two parts" for folder in sorted({*named}) if named.count(folder) > 1)


def uncollected(folder: str) -> Iterator[str]:
    """Yields why pytest cannot collect the tests of a folder alone; what is in no run of all tests fails only when it is asked for."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = re.findall(r"^E +(.*)", done.stdout, re.MULTILINE) or [f"pytest ended with {done.returncode}"]
        yield f"{folder}: cannot be collected: {'; '.join(said)}"


def violations() -> Iterator[str]:
    """Yields each folder of tests that no part of `make test` runs, or two, and what would be started more than once."""
    files = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in _files()}
    yield from of_the_makefile((ROOT / "Makefile").read_text(encoding="utf-8"), {*map(_part_of, files)})
    marked = [file for file, text in files.items() if "mark.exhaustive" in text and not file.startswith("tests/unit/")]
    yield from (f"{file}: is marked exhaustive, which is for tests/unit" for file in marked)
    for what, (folder, said) in STARTED_ONCE.items():
        users = [file for file, text in files.items() if Path(file).parent == Path(folder) and re.search(said, text)]
        units = {unit_of(f"{file}::test_it[a::b]") for file in users if file not in OF_ITS_OWN}
        if len(units) != 1:
            yield f"tests/side_by_side.py: {what} is started in {len(units)} units, not in one: {sorted(units)}"
    units = {unit_of(file) for file in files}
    yield from (f"tests/side_by_side.py: {unit} has no files" for unit in sorted({*SHARED, *LONGEST} - units))
    yield from (wrong for folder in ON_REQUEST for wrong in uncollected(folder))


def _files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def _part_of(file: str) -> str:
    asked = (folder for folder in ON_REQUEST if Path(file).is_relative_to(folder))
    return next(asked, f"tests/{Path(file).parts[1]}")
