"""Which tests that are marked `campaign` run, and what a run says of seeds that have grown stale: a plugin of pytest.

They run where they are asked for (`pytest -m campaign`, or by name: `pytest FILE`, `pytest FILE::TEST`), and where their file is not proven as
it stands (`proven`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.campaign import proven

STALE = "stale seeds"
"""The property of a test whose seeds do not cover any more; its value says what to do."""


class CampaignMarks:
    """The hooks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out what runs in campaigns only."""
        if "campaign" in config.option.markexpr:
            return
        is_proven = cache(proven.is_proven)
        run, left_out = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            is_left_out = (
                item.get_closest_marker("campaign") and not _is_named(item, config.args) and is_proven(_file_of(item))
            )
            (left_out if is_left_out else run).append(item)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = run

    def pytest_report_header(self) -> str:
        """Says where the tests are that do not run."""
        files = proven.campaign_files()
        unproven = [file for file in files if not proven.is_proven(file)]
        said = f"campaign: the marked tests of {len(files) - len(unproven)} files run in `make campaign` only"
        if unproven:
            said += (
                f"; these have changed, and run until `python -m tests.campaign prove` has run: {' '.join(unproven)}"
            )
        return said

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says which sets of seeds have to be made anew."""
        reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
        said = {value for report in reports for name, value in report.user_properties if name == STALE}
        if said:
            terminalreporter.section(STALE)
            for line in sorted(said):
                terminalreporter.write_line(str(line))


def _file_of(item: pytest.Item) -> str:
    return item.path.relative_to(proven.ROOT).as_posix()


def _is_named(item: pytest.Item, arguments: list[str]) -> bool:
    """Tells whether the command line names the test, or its file; a folder names nothing."""
    name = item.nodeid.partition("::")[2]
    named = (argument.partition("::") for argument in arguments)
    return any(Path(file).resolve() == item.path and name.startswith(test) for file, _, test in named)
