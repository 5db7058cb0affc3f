"""Each block of Python on a page is Python, and a test runs it: one that names the page."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import replog_quorum

ROOT = Path(__file__).parents[2]
FOLDERS = (
    ".",
    "docs",
    "docs/guides",
    "docs/concepts",
    "bench",
    "chaos",
    "examples",
    "quorum",
    "timeline",
    "checkpoints",
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_BY = {
    "README.md": "tests/cluster/test_readme.py",
    "docs/GROUPS.md": "tests/cluster/test_groups_page.py",
    "docs/INSTALL.md": "tests/cluster/test_guides.py",
    "docs/KAFKA_CLIENTS.md": "tests/kafka/test_kafka_examples.py",
    "docs/OPEN_LOG.md": "tests/unit/local/test_local_docs.py",
    "docs/OPERATIONS.md": "tests/unit/test_pages.py",
    "docs/PYTEST.md": "tests/cluster/test_pytest_page.py",
    "docs/RECORDS.md": "tests/cluster/test_typed_records.py",
    "docs/REGISTRY.md": "tests/cluster/test_registry_server.py",
    "docs/SECURITY_CLIENTS.md": "tests/kafka/test_kafka_security_commands.py",
    "docs/SIMULATION.md": "tests/sim/test_simulation_page.py",
    "docs/SPARK.md": "tests/spark/test_spark_job.py",
    "docs/TABLES.md": "tests/cluster/test_tables_page.py",
    "docs/TESTING.md": "tests/unit/test_pages.py",
    "docs/TRANSACTIONS.md": "tests/kafka/test_kafka_our_transactions.py",
    "docs/WORKERS.md": "tests/cluster/test_worker.py",
    "docs/guides/FASTAPI.md": "tests/cluster/test_guides.py",
    "docs/guides/FROM_OTHER_CLIENTS.md": "tests/cluster/test_guides.py",
    "docs/guides/NOTEBOOK.md": "tests/cluster/test_guides.py",
    "docs/guides/SPARK_PIPELINE.md": "tests/spark/test_spark_sink.py",
    "checkpoints/README.md": "tests/unit/checkpoints/test_checkpoints_readme.py",
    "timeline/README.md": "tests/unit/timeline/test_timeline_readme.py",
}
QUORUM = "quorum/README.md"
"""Called only: what its host brings stands there by name."""


def blocks(page: str) -> list[str]:
    """Returns the blocks of Python on a page."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def wrong_calls(block: str) -> list[str]:
    """Returns what is wrong with the calls of the quorum's library in a block: a name that it has not, or an argument."""
    calls = {
        each.func.id: each
        for each in ast.walk(ast.parse(block))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id[0].isupper()
    }
    wrong = [f"replog_quorum has no {name}" for name in sorted(calls.keys() - set(dir(replog_quorum)))]
    if "Quorum" not in calls:
        return [*wrong, "no Quorum is made"]
    try:
        inspect.signature(replog_quorum.Quorum).bind(**{str(given.arg): None for given in calls["Quorum"].keywords})
    except TypeError as error:
        wrong.append(f"Quorum: {error}")
    return wrong


def violations() -> Iterator[str]:
    """Yields each page whose Python no test runs, each block that is no Python, and each call that the quorum does not have."""
    pages = [path.relative_to(ROOT).as_posix() for top in FOLDERS for path in sorted((ROOT / top).glob("*.md"))]
    found = {page: some for page in pages if (some := blocks(page))}
    yield from (f"{page}: no test runs its Python" for page in found.keys() - RUN_BY.keys() - {QUORUM})
    yield from (f"{page}: has no Python, take it out of this rule" for page in {*RUN_BY, QUORUM} - found.keys())
    for page, test in RUN_BY.items():
        if Path(page).name not in (ROOT / test).read_text(encoding="utf-8"):
            yield f"{test}: does not name {page}, whose Python it shall run"
    for page, block in ((page, block) for page, some in found.items() for block in some):
        try:
            compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            yield f"{page}: a block is no Python: {error}"
    yield from (f"{QUORUM}: {wrong}" for block in found.get(QUORUM, ()) for wrong in wrong_calls(block))
