"""`replog log fork` from the command line."""

from __future__ import annotations

from pathlib import Path

import replog
from tests.cluster.cli_runs import replog_here


def test_a_log_is_forked_and_a_copy_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
    done = replog_here("log", "fork", tmp_path / "log", tmp_path / "copy")
    assert done == (0, f"{tmp_path / 'copy'} has all records of {tmp_path / 'log'}, up to offset 2\n", "")
    with replog.open_log(tmp_path / "copy", read_only=True) as copy:
        assert [record.value for record in copy] == [b"a", b"b"]
    again = replog_here("log", "fork", tmp_path / "log", tmp_path / "copy")
    assert (again.status, again.err) == (
        1,
        f"error: {tmp_path / 'copy'} is there already. Name a folder that is not, or remove it\n",
    )
