"""Blocks of Python run that no test of their page runs.

`tests/lint/page_examples.py` says which test runs which page, `page_commands.py` looks at commands, and
`tests/cluster/test_operations_page.py` runs those of operators.
"""

from __future__ import annotations

import pytest

from tests.lint import page_examples


@pytest.mark.parametrize("page", ["docs/OPERATIONS.md", "docs/TESTING.md"])
def test_the_block_of_a_page_runs(page: str) -> None:
    (block,) = page_examples.blocks(page)
    exec(compile(block, page, "exec"), {})
