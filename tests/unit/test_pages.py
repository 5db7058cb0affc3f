"""Each block of Python on a page runs: in a test of its page, or here.

`tests/unit/cli/test_cli_pages.py` looks at commands, `tests/cluster/test_operations_page.py` runs those of operators.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import replog_quorum

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = {
    path.relative_to(ROOT).as_posix(): BLOCK.findall(path.read_text(encoding="utf-8"))
    for folder in (".", "docs", "bench", "chaos", "examples", "quorum", "timeline", "checkpoints")
    for path in sorted((ROOT / folder).glob("*.md"))
}
RUN_BY = {
    "README.md": "tests/cluster/test_readme.py",
    "docs/GROUPS.md": "tests/cluster/test_groups_page.py",
    "docs/KAFKA_CLIENTS.md": "tests/kafka/test_kafka_examples.py",
    "docs/OPEN_LOG.md": "tests/unit/local/test_local_docs.py",
    "docs/OPERATIONS.md": "tests/unit/test_pages.py",
    "docs/SIMULATION.md": "tests/sim/test_simulation_page.py",
    "docs/SPARK.md": "tests/spark/test_spark_job.py",
    "docs/TESTING.md": "tests/unit/test_pages.py",
    "checkpoints/README.md": "tests/unit/checkpoints/test_checkpoints_readme.py",
    "timeline/README.md": "tests/unit/timeline/test_timeline_readme.py",
}
CALLED_ONLY = {"quorum/README.md": "what its host brings stands there by name"}


def compiled(page: str, block: str) -> Any:
    return compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_each_page_with_python_is_run_by_a_test() -> None:
    assert {page for page, blocks in PAGES.items() if blocks} == RUN_BY.keys() | CALLED_ONLY.keys()
    for page, test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
    for page, blocks in PAGES.items():
        for block in blocks:
            compiled(page, block)


def test_a_quorum_is_made_as_its_page_says() -> None:
    (block,) = PAGES["quorum/README.md"]
    calls = {
        each.func.id: each
        for each in ast.walk(ast.parse(block))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    }
    named = {name for name in calls if name[0].isupper()}
    assert named
    assert named <= set(dir(replog_quorum))
    inspect.signature(replog_quorum.Quorum).bind(**{str(given.arg): None for given in calls["Quorum"].keywords})


@pytest.mark.parametrize("page", ["docs/OPERATIONS.md", "docs/TESTING.md"])
def test_the_block_of_a_page_runs(page: str) -> None:
    (block,) = PAGES[page]
    exec(compiled(page, block), {})
