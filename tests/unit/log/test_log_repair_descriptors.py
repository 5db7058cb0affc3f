"""No descriptor is left at any one moment of a verification or a repair: a typed error that says what holds now."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from descriptor_kit import FewDescriptors
from test_log_repair import DIRECTORY, disk_with_log
from test_log_verification import bases

from replog.errors import CorruptRecordError, TooManyOpenFilesError
from replog.log.file_names import file_path
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import FindingKind, LogVerifier
from replog.testing.simulated_filesystem import SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

Damage = Callable[[SimulatedFileSystem], None]

RECORDS = 25
"""In three segments: a sound one, one to damage, the active one."""


def index_wrong(fs: SimulatedFileSystem) -> None:
    fs.flip_bit(file_path(DIRECTORY, 0, ".index"), 0, 6)


def batch_damaged(fs: SimulatedFileSystem) -> None:
    fs.flip_bit(file_path(DIRECTORY, bases(fs)[1], ".log"), 30)


def middle_gone(fs: SimulatedFileSystem) -> None:
    fs.remove(file_path(DIRECTORY, bases(fs)[1], ".log"))


def nothing(fs: SimulatedFileSystem) -> None:
    pass


@pytest.mark.parametrize("damage", [nothing, index_wrong, batch_damaged, middle_gone])
@pytest.mark.parametrize("count", [1, None], ids=["once", "until there are some"])
def test_a_repair_without_a_descriptor_says_what_holds_and_is_made_again(damage: Damage, count: int | None) -> None:
    refusals: set[bool] = set()
    pristine = disk_with_log(RECORDS, RECORDS)
    damage(pristine)
    expected = repair_log(wanted := pristine.copied(), DIRECTORY, accept_loss=True, now_ms=1)
    for moment in range(500):
        disk = FewDescriptors(pristine.copied())
        disk.refuse(moment, count)
        try:
            report = repair_log(disk, DIRECTORY, accept_loss=True, now_ms=1)
        except TooManyOpenFilesError as error:
            told = str(error)
            refusals.add(is_told_unchanged(told))
            assert is_told_unchanged(told) <= (without_lock(disk.disk) == without_lock(pristine))
            disk.allow()
            report = repair_log(disk, DIRECTORY, accept_loss=True, now_ms=1)
        if report.left:  # an index that found no descriptor is left out, and said so
            assert {finding.kind for finding in report.left} == {FindingKind.DERIVED}
            report = repair_log(disk, DIRECTORY, accept_loss=False, now_ms=1)
        assert (report.left, report.end_offset) == ((), expected.end_offset)
        assert content_of(disk.disk) == content_of(wanted)
        if disk.taken_count <= moment:
            break
    assert 5 < moment < 499
    assert refusals == ({True} if damage is nothing else {True, False})


def is_told_unchanged(told: str) -> bool:
    """Whether an error says that nothing was changed; else it says how to go on."""
    assert "ulimit -n" in told
    assert ("Nothing was changed" in told) != ("another repair ends it" in told)
    return "Nothing was changed" in told


def without_lock(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in fs.image().items() if not path.endswith(".lock")}


def content_of(fs: SimulatedFileSystem) -> dict[str, bytes]:
    """Of the records, and of what says how far they are durable."""
    kept = (".log", "flushed-offset", "recovery-point-offset-checkpoint", "complete-from")
    return {path: data for path, data in fs.image().items() if path.endswith(kept)}


def test_a_refused_repair_leaves_the_directory_free() -> None:
    for moment in range(500):
        disk = FewDescriptors(disk_with_log(RECORDS, RECORDS))
        batch_damaged(disk.disk)
        disk.refuse(moment)
        with pytest.raises((TooManyOpenFilesError, CorruptRecordError)) as raised:
            repair_log(disk, DIRECTORY, accept_loss=False, now_ms=1)
        disk.allow()
        disk.lock("/data/.lock").release()
        if raised.type is CorruptRecordError:
            break
    assert 2 < moment < 499


def test_a_verification_without_a_descriptor_says_so() -> None:
    fs = disk_with_log(RECORDS, RECORDS)
    for moment in range(500):
        disk = FewDescriptors(fs)
        disk.refuse(moment, 1)
        try:
            findings = list(LogVerifier(disk, DIRECTORY, RECORDS).run())
        except TooManyOpenFilesError as error:
            told = str(error)
        else:
            break
    assert findings == []
    assert 10 < moment < 499
    assert "ulimit -n" in told
