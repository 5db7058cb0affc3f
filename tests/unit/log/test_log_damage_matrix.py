"""Every damaged file of every kind: what the next start makes of it, as docs/RECOVERY.md says.

Write the table of that page anew: `PYTHONPATH=.:checkpoints python tests/unit/log/test_log_damage_matrix.py`.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from log_damage_kit import ALIKE_STRIDE, CONTENT_DAMAGES, DAMAGES, Outcome, machine, outcomes
from log_damage_table import ROWS, Row, as_markdown

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import (
    DamagedCheckpointError,
    OpenMode,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)

pytestmark = pytest.mark.exhaustive

PAGE = Path(__file__).parents[3] / "docs" / "RECOVERY.md"
BEGIN, END = "<!-- table: generated -->\n", "\n<!-- end of table -->"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.stop} {row.title}")
def test_a_damaged_file_has_the_stated_outcome(row: Row) -> None:
    stopped = machine(row.stop)
    expected = {damage: row.expected(damage) for damage in DAMAGES}
    stride = ALIKE_STRIDE if len(expected["bit flipped"]) == 1 else 1
    assert {damage: outcomes(stopped, row.path, damage, flip_stride=stride) for damage in DAMAGES} == expected


@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_no_kind_of_file_is_missing_from_the_table(stop: str) -> None:
    files = {path for path in machine(stop).disk.image() if not path.endswith(("/", ".lock", ".reserve"))}
    assert files == {row.path for row in ROWS if row.stop == stop}


def test_no_single_damage_makes_a_start_cut_what_was_fsynced() -> None:
    """However old the recovery point is; what is lost with `flushed-offset` itself is only this knowledge."""
    cut = {(row.stop, row.title) for row in ROWS for damage in DAMAGES if Outcome.TAIL_CUT in row.expected(damage)}
    assert {stop for stop, _ in cut} == {"unclean"}


def test_what_cannot_be_noticed_is_known_and_short() -> None:
    """A flip that gives another valid value where nothing else says the same; the page explains each."""
    believed = {
        (row.title.partition(",")[0], damage)
        for row in ROWS
        for damage in DAMAGES
        if Outcome.BELIEVED in row.expected(damage)
    }
    assert believed == {(".log", "bit flipped")}


def test_the_page_is_current() -> None:
    assert as_markdown() == PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


@pytest.mark.parametrize("damage", CONTENT_DAMAGES)
def test_a_damaged_quorum_state_is_refused(damage: str) -> None:
    """Never absent: a voter that forgot its vote could vote twice."""
    disk, path = SimulatedFileSystem(), "/quorum-state"
    written = QuorumState(1, 5, 2, UUID(int=500))
    write_quorum_state(disk, path, written)
    data = disk.image()[path]
    for changed in CONTENT_DAMAGES[damage](data, 2):
        file = disk.open(path, OpenMode.REPLACE)
        file.pwrite([changed], 0)
        file.close()
        try:
            state = read_quorum_state(disk, path)
        except DamagedCheckpointError as error:
            named = path in str(error)
            assert named
        else:
            assert state == written  # nothing but the name of the checksum has changed
            assert damage == "bit flipped"


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(head + BEGIN + as_markdown() + END + rest.partition(END)[2])
