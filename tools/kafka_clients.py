"""Writes the tables of `docs/KAFKA_CLIENTS.md`: what Kafka's clients and tools can do with a broker of ours, as the tests found it.

A test says by the mark `served` which cell it stands for.

    python tools/kafka_clients.py            runs these tests (some ten minutes, as it says first; needs Java, Maven, Go, kcat) and writes what passed
    python tools/kafka_clients.py RESULTS    writes from a JUnit file that such a run has left
    python tools/kafka_clients.py --check    runs nothing: the page must have exactly the cells that tests stand for
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "KAFKA_CLIENTS.md"
TESTS = ("tests/kafka", "tests/spark/test_spark_kafka_connector.py")
PROPERTY = "served"
TOOLS = "tools"
"""The client of those cells that stand in the table of Kafka's tools."""

FUNCTIONS = ROOT / "tests" / "kafka" / "client_functions.py"


def _named(name: str, file: str, before: str) -> str:
    """A name with the version that stands in a file behind a text."""
    _, _, rest = (ROOT / file).read_text(encoding="utf-8").partition(before)
    found = re.match(r"\d[\d.]*", rest)
    if found is None:
        raise SystemExit(f"{file} does not say which version of {name} (looked for {before!r})")
    return f"{name} {found[0]}"


CLIENTS: Mapping[str, str] = {
    "replog": "ours",
    **{
        name: _named(name, "constraints.txt", f"\n{name}==") for name in ("confluent-kafka", "aiokafka", "kafka-python")
    },
    "java-4.1.1": "Java 4.1.1",
    "java-3.9.1": "Java 3.9.1",
    "kcat": "kcat 1.7.1",
    "franz-go": _named("franz-go", "tests/kafka/go/go.mod", "twmb/franz-go v"),
    "sarama": _named("sarama", "tests/kafka/go/go.mod", "IBM/sarama v"),
    "spark-sql-kafka": _named(
        "spark-sql-kafka", "bench/java/spark-kafka-pom.xml", "spark-sql-kafka-0-10_2.13</artifactId><version>"
    ),
}
"""Client in the marks -> what the page calls it."""


class Cell(NamedTuple):
    """What one test or several say of a client.

    Attributes:
        client: A key of CLIENTS, or TOOLS.
        function: What it is used for.
        told: What its user is told where that is refused; None where it works.
    """

    client: str
    function: str
    told: str | None


class Collected:
    """A plugin of pytest: the cells that tests stand for, in the order of the tests."""

    def __init__(self) -> None:
        self.cells: dict[Cell, None] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Takes the cells of what was collected."""
        for item in session.items:
            self.cells |= dict.fromkeys(_cells_of(item.user_properties))


def collected() -> Iterable[Cell]:
    """The cells that tests stand for; none of them is run."""
    plugin, printed = Collected(), io.StringIO()
    arguments = [
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        *(str(ROOT / test) for test in TESTS),
    ]
    with contextlib.redirect_stdout(printed):
        status = pytest.main(arguments, plugins=[plugin])
    if status:
        raise SystemExit(f"the tests cannot be collected:\n{printed.getvalue()[-2000:]}")
    return plugin.cells


def passed(results: Path) -> Iterable[Cell]:
    """The cells of a JUnit file, all of whose tests passed."""
    cells: dict[Cell, None] = {}
    missing: dict[str, str] = {}
    for case in ET.parse(results).iter("testcase"):  # noqa: S314 -- pytest wrote it
        pairs = [(each.get("name", ""), each.get("value", "")) for each in case.iter("property")]
        here = dict.fromkeys(_cells_of(pairs))
        outcome = next((each for each in case if each.tag in {"failure", "error", "skipped"}), None)
        if here and outcome is not None:
            missing[str(case.get("name"))] = f"{outcome.tag}: {outcome.get('message', '')[:200]}"
        cells |= here
    if missing:
        told = "\n".join(f"{name}: {why}" for name, why in missing.items())
        raise SystemExit(f"the page is left as it is, for these tests did not pass:\n{told}")
    return cells


def run() -> Iterable[Cell]:
    """Runs the tests; returns their cells."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *TESTS]
        subprocess.run(command, cwd=ROOT, check=False)  # what failed is told below
        return passed(results)


def _cells_of(properties: Iterable[tuple[str, object]]) -> list[Cell]:
    return [Cell(*json.loads(str(value))) for name, value in properties if name == PROPERTY]


def clients_table(cells: Iterable[Cell]) -> str:
    """A Markdown table: a line for each function, a column for each client."""
    by_place = {(cell.function, cell.client): cell for cell in cells if cell.client != TOOLS}
    functions = re.findall(r'^[A-Z_]+ = "(.+)"$', FUNCTIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    unknown = {client for _, client in by_place} - CLIENTS.keys() | {function for function, _ in by_place} - {
        *functions
    }
    if unknown:
        raise SystemExit(f"no place for {sorted(unknown)}: see CLIENTS in this file, and {FUNCTIONS.name}")
    rows = ["| | " + " | ".join(CLIENTS.values()) + " |", "|---" * (len(CLIENTS) + 1) + "|"]
    for function in functions:
        told = [_shown(by_place.get((function, client))) for client in CLIENTS]
        rows.append(f"| {function} | " + " | ".join(told) + " |")
    return "\n".join(rows)


def tools_table(cells: Iterable[Cell]) -> str:
    """A Markdown table: a line for each tool, and what of it was tried."""
    rows = ["| tool | works | what is not served, and what it says |", "|---|---|---|"]
    tools: dict[str, tuple[list[str], list[str]]] = {}
    for cell in cells:
        if cell.client == TOOLS:
            name, _, what = cell.function.partition(": ")
            works, refused = tools.setdefault(name, ([], []))
            if cell.told is None:
                works.append(what)
            else:
                refused.append(f'{what}: "{cell.told}"')
    rows += [
        f"| `{name}` | {'; '.join(works)} | {'; '.join(refused)} |" for name, (works, refused) in sorted(tools.items())
    ]
    return "\n".join(rows)


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return "yes" if cell.told is None else "refused"


def rewritten(text: str, cells: Iterable[Cell]) -> str:
    """The page with the parts between its marks made anew."""
    cells = list(cells)
    for kind, made in (("clients", clients_table(cells)), ("tools", tools_table(cells))):
        begin, end = f"<!-- {kind}, made by tools/kafka_clients.py: begin -->\n", f"<!-- {kind}: end -->"
        before, rest = text.split(begin)
        text = before + begin + made + "\n" + end + rest.split(end)[1]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", help="a JUnit file")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    arguments = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if arguments.check:
        if rewritten(text, collected()) == text:
            return 0
        sys.stdout.write("docs/KAFKA_CLIENTS.md has other cells than the tests: run `python tools/kafka_clients.py`\n")
        return 1
    if not arguments.results:
        sys.stdout.write(
            f"running {' '.join(TESTS)} first, some ten minutes: RESULTS of a run takes none, --check runs nothing\n"
        )
        sys.stdout.flush()
    PAGE.write_text(rewritten(text, passed(arguments.results) if arguments.results else run()), encoding="utf-8")
    sys.stdout.write("written: docs/KAFKA_CLIENTS.md\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
