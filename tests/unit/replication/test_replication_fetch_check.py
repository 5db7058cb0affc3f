"""The leader's answer to a fetch that may not continue its log (docs/KAFKA.md 4.5)."""

from __future__ import annotations

import pytest
from replication_harness import ListLog

from replog.errors import ErrorCode
from replog.replication.fetch_check import FetchCheck, check_fetch
from replog.replication.messages import EpochEnd

OK = FetchCheck()
OUT_OF_RANGE = FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE)


def leader_log() -> ListLog:
    """Offsets 5 to 9: epoch 2 from 5 (its beginning deleted), epoch 4 from 8; log end 10."""
    return ListLog([(2, "f"), (2, "g"), (2, "h"), (4, "i"), (4, "j")], start=5)


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        pytest.param(10, 4, OK, id="at the end"),
        pytest.param(8, 2, OK, id="at the end of an earlier epoch"),
        pytest.param(6, 2, OK, id="within an earlier epoch"),
        pytest.param(9, 2, FetchCheck(diverging=EpochEnd(2, 8)), id="that epoch ended earlier"),
        pytest.param(9, 3, FetchCheck(diverging=EpochEnd(2, 8)), id="unknown epoch between two"),
        pytest.param(11, 4, FetchCheck(diverging=EpochEnd(4, 10)), id="beyond the end of the latest epoch"),
        pytest.param(10, 5, OUT_OF_RANGE, id="epoch later than all"),
        pytest.param(5, 1, OK, id="at the end of an epoch whose records are deleted"),
        pytest.param(6, 1, FetchCheck(diverging=EpochEnd(1, 5)), id="beyond the end of such an epoch"),
        pytest.param(4, 2, OUT_OF_RANGE, id="below the log start"),
        pytest.param(4, 3, OUT_OF_RANGE, id="below the log start comes before divergence"),
        pytest.param(5, -1, OK, id="no epoch, at the start"),
        pytest.param(4, -1, OUT_OF_RANGE, id="no epoch, below the start"),
        pytest.param(10, -1, OK, id="no epoch, at the end"),
        pytest.param(11, -1, OUT_OF_RANGE, id="no epoch, beyond the end"),
    ],
)
def test_check_fetch(fetch_offset: int, last_fetched_epoch: int, expected: FetchCheck) -> None:
    check = check_fetch(fetch_offset, last_fetched_epoch, leader_log())
    assert check == expected
    assert check.ok is (expected == OK)
