"""`LogVerifier` and `repair_log` on transaction indexes: what they must say follows from the log alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_test_kit import T0, TINY, batch, open_log, read_file, write_file
from msgspec.structs import replace
from test_log_compaction_history import History
from test_log_transactions import ABORTED, data, marker, story

from replog.log.file_names import file_path
from replog.log.recovery.completeness import write_complete_from
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/data/t-0"
FIRST, SECOND = ABORTED


def written() -> SimulatedFileSystem:
    """The story in one segment, then one more segment that aborts nothing and is the last."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=replace(TINY, segment_bytes=4000))
    story(log)
    log.roll(T0)
    log.append_as_leader(batch(b"plain"), leader_epoch=0, now_ms=T0)
    log.close(T0)
    return fs


def path(base_offset: int = 0) -> str:
    return file_path(DIRECTORY, base_offset, ".txnindex")


def put(fs: SimulatedFileSystem, *entries: AbortedTransaction, base_offset: int = 0) -> None:
    index = TransactionIndex(0)
    for entry in entries:
        index.append(entry)
    write_file(fs, path(base_offset), index.to_bytes())


def findings(fs: SimulatedFileSystem, *, is_closed: bool = True) -> list[Finding]:
    return list(LogVerifier(fs, DIRECTORY, None, is_closed=is_closed).run())


def test_a_sound_log_has_no_findings() -> None:
    assert findings(written()) == []


WRONG = {
    "one is missing": [FIRST],
    "none is there": [],
    "wrong producer": [FIRST._replace(producer_id=2), SECOND],
    "begins too late": [FIRST._replace(first_offset=1), SECOND],
    "begins too early": [FIRST, SECOND._replace(first_offset=3)],
    "stable too far": [FIRST._replace(last_stable_offset=4), SECOND],
    "stable not far enough": [FIRST, SECOND._replace(last_stable_offset=1)],
    "one that was committed": [FIRST, AbortedTransaction(2, 1, 5, 4), SECOND],
    "one behind the end": [FIRST, SECOND, AbortedTransaction(3, 4, 90, 91)],
}


@pytest.mark.parametrize("entries", WRONG.values(), ids=WRONG)
def test_what_does_not_follow_from_the_log_is_found_and_mended(entries: list[AbortedTransaction]) -> None:
    fs = written()
    good = read_file(fs, path())
    put(fs, *entries)
    found = findings(fs)
    assert {(finding.kind, finding.path) for finding in found} == {(FindingKind.DERIVED, path())}
    report = repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)
    assert (report.left, report.end_offset) == ((), report.end_offset_before)
    assert read_file(fs, path()) == good
    assert findings(fs) == []


@pytest.mark.parametrize("content", [None, b"", bytes(34), b"\0" * 33])
def test_a_file_that_is_missing_or_none(content: bytes | None) -> None:
    fs = written()
    good = read_file(fs, path())
    fs.remove(path())
    if content is not None:
        write_file(fs, path(), content)
    assert {finding.path for finding in findings(fs)} == {path()}
    assert repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0).left == ()
    assert read_file(fs, path()) == good


def test_a_file_where_nothing_was_aborted_is_removed() -> None:
    fs = written()
    put(fs, AbortedTransaction(1, 6, 8, 9), base_offset=8)
    assert [finding.path for finding in findings(fs)] == [path(8)]
    assert repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0).left == ()
    assert not fs.exists(path(8))


@pytest.mark.parametrize("kept", [0, 1])
def test_the_last_segment_of_a_log_in_use_may_lack_the_end_of_its_index(kept: int) -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=replace(TINY, segment_bytes=4000))
    story(log)
    log.close(T0)
    put(fs, *ABORTED[:kept])
    assert findings(fs, is_closed=False) == []
    assert [finding.path for finding in findings(fs, is_closed=True)] == [path()] * (2 - kept)
    put(fs, SECOND)
    assert len(findings(fs, is_closed=False)) == 1


def test_transactions_that_began_before_the_first_segment() -> None:
    """Retention took their data; the snapshot remembers them, and without it what is left cannot contradict the index."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=replace(TINY, segment_bytes=4000))
    log.append_as_leader(data(1, 0), leader_epoch=0, now_ms=T0)
    log.append_as_leader(data(2, 0), leader_epoch=0, now_ms=T0)
    log.roll(T0)
    for one in (data(1, 1), data(3, 0), marker(2, commit=False), marker(3, commit=False), marker(1, commit=False)):
        log.append_as_leader(one, leader_epoch=0, now_ms=T0)
    log.close(T0)
    for suffix in (".log", ".index", ".timeindex"):
        fs.remove(file_path(DIRECTORY, 0, suffix))
    write_complete_from(fs, DIRECTORY, 2)
    assert len(TransactionIndex(2, read_file(fs, path(2))).to_bytes()) == 3 * 34
    assert findings(fs) == []
    fs.remove(file_path(DIRECTORY, 2, ".snapshot"))
    assert findings(fs) == []


def test_behind_damage_nothing_is_said_about_transactions() -> None:
    fs = written()
    fs.flip_bit(file_path(DIRECTORY, 0, ".log"), 80)
    assert [finding.kind for finding in findings(fs)] == [FindingKind.DAMAGED]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_what_compaction_leaves_is_no_finding(seed: int) -> None:
    history = History(seed)
    actions = [history.append] * 6 + [history.end] * 4 + [history.seal] * 2 + [history.compact] * 2
    for _ in range(60):
        history.rng.choice(actions)()
    history.log.close(T0)
    assert findings(history.disk) == []
