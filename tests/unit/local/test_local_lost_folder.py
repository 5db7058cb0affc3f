"""A log of `open_log` whose folder is gone: refused, and after a repair it goes on where it ended."""

from __future__ import annotations

import pytest
from local_kit import PATH, open_simulated

from replog.errors import CorruptRecordError
from replog.log.repair.repair import repair_log
from replog.testing import SimulatedFileSystem

FOLDER = f"{PATH}/log-0"


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_log_whose_folder_is_gone_is_no_empty_log(*, is_closed: bool) -> None:
    fs = SimulatedFileSystem()
    log = open_simulated(fs)
    for number in range(30):
        log.append(b"%d" % number)
    if is_closed:
        log.close()
    else:
        log._folder.write_recovery_point()
        fs.kill()
        log._is_closed = True  # a process that is gone writes no checkpoint
    fs.remove_tree(FOLDER)
    with pytest.raises(CorruptRecordError, match=r"below offset 30 was flushed.*--accept-loss"):
        open_simulated(fs)
    with pytest.raises(CorruptRecordError):
        repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    assert repair_log(fs, FOLDER, accept_loss=True, now_ms=1).given_up == ((0, 30),)
    with open_simulated(fs) as log:
        assert (log.log_start_offset, log.log_end_offset) == (30, 30)
        assert log.append(b"on") == 30
    with open_simulated(fs) as log:
        assert [record.value for record in log.iterate(30)] == [b"on"]
