"""What a repair of a killed log gives up, and that the log opens after it, whatever was damaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import PurePosixPath

import pytest
from local_kit import PATH, open_simulated

from replog.errors import CorruptCheckpointError, CorruptRecordError
from replog.local import LocalLog
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.recovery.loader import LogLoader
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import LogVerifier
from replog.records import scan
from replog.testing import SimulatedFileSystem
from replog_checkpoints import FileSystem, OpenMode

FOLDER = f"{PATH}/log-0"
RECORDS = 30


def opened(fs: SimulatedFileSystem) -> LocalLog:
    return open_simulated(fs, segment_bytes=1024, max_batch_bytes=512)


def killed(
    start_offset: int = 0, *, is_checkpointed: bool = True, records: int = RECORDS
) -> tuple[SimulatedFileSystem, list[int]]:
    """A log in several segments after kill -9, and their base offsets."""
    fs, bases = _killed(start_offset, is_checkpointed, records)
    return fs.copied(), list(bases)


@cache
def _killed(start_offset: int, is_checkpointed: bool, records: int) -> tuple[SimulatedFileSystem, list[int]]:
    fs = SimulatedFileSystem()
    log = opened(fs)
    for number in range(records):
        log.append(b"%03d" % number * 66)
    if start_offset:
        log.truncate_before(start_offset)
    bases = list(log._log.segment_base_offsets)
    if is_checkpointed:
        log._folder.write_recovery_point()
    fs.kill()
    log._is_closed = True  # a process that is gone writes no checkpoint
    return fs, bases


def write_file(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, OpenMode.REPLACE)
    file.pwrite([data], 0)
    file.close()


def repaired(fs: SimulatedFileSystem) -> LocalLog:
    repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
    return opened(fs)


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_log_file_that_is_gone_from_the_middle_is_given_up_alone(*, is_checkpointed: bool) -> None:
    fs, bases = killed(is_checkpointed=is_checkpointed)
    fs.remove(file_path(FOLDER, bases[3], LOG_SUFFIX))
    with pytest.raises(CorruptRecordError, match="--accept-loss"):
        opened(fs)
    with repaired(fs) as log:
        assert log.log_end_offset == RECORDS
        kept = [record.value for record in log.iterate(bases[4])]
    assert kept == [b"%03d" % number * 66 for number in range(bases[4], RECORDS)]


def test_damage_below_the_start_of_the_log_can_be_repaired() -> None:
    fs, bases = killed(start_offset=7)
    (base,) = [base for base in bases if base <= 7]
    fs.flip_bit(file_path(FOLDER, base, LOG_SUFFIX), 80, 0)
    with repaired(fs) as log:
        assert log.log_start_offset == log.log_end_offset == 7
        assert log.append(b"on") == 7


def test_a_log_of_an_older_version_claims_nothing_of_what_it_found() -> None:
    """Of a segment that has been missing for long nobody knows why; what is appended from now on is complete."""
    fs, bases = killed()
    for name in fs.list_dir(FOLDER):
        is_lost = name.startswith(f"{bases[3]:020d}") and PurePosixPath(name).suffix != ".snapshot"
        if is_lost or name in {"complete-from", "flushed-offset"}:
            fs.remove(f"{FOLDER}/{name}")
    opened(fs).close()
    with opened(fs) as log:
        assert log.append(b"new") == RECORDS
    with opened(fs) as log:
        assert [record.value for record in log.iterate(RECORDS)] == [b"new"]


def test_a_copy_of_a_live_folder_says_what_it_may_be_and_opens_without_what_it_lacks() -> None:
    """`cp -r` beside a writer copies the end of the log before the file that says how far it was flushed."""
    fs, bases = killed(is_checkpointed=False)
    path = file_path(FOLDER, bases[-1], LOG_SUFFIX)
    size = fs.size(path)
    file = fs.open(path, OpenMode.WRITE)
    file.truncate(size // 2)
    file.close()
    with pytest.raises(CorruptRecordError, match=r"copy of a folder that was being written to: offsets \d+ to 29 are"):
        opened(fs)
    with repaired(fs) as log:
        kept = [record.value for record in log]
    assert bases[-1] < len(kept) < RECORDS
    assert kept == [b"%03d" % number * 66 for number in range(len(kept))]


def test_a_flushed_offset_that_kafka_left_behind_can_be_forgotten_without_a_loss() -> None:
    """Kafka has cut the log, appended a batch over the old border, and was killed."""
    fs, _ = killed(is_checkpointed=False)
    note = fs.image()[f"{FOLDER}/flushed-offset"]
    log = opened(fs)
    log._log.truncate_to(RECORDS - 3)
    log.append_many([b"after"] * 5)
    fs.kill()
    log._is_closed = True  # a process that is gone writes no checkpoint
    write_file(fs, f"{FOLDER}/flushed-offset", note)
    with pytest.raises(CorruptRecordError, match="--forget-flushed-offset"):
        opened(fs)
    repair_log(fs, FOLDER, accept_loss=False, now_ms=1, forget_flushed_offset=True)
    with opened(fs) as log:
        assert [record.value for record in log.iterate(RECORDS - 3)] == [b"after"] * 5


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("is_checkpointed", [False, True], ids=["no checkpoint", "checkpoint"])
@pytest.mark.parametrize("gone", [(), ("complete-from",), ("flushed-offset",), ("complete-from", "flushed-offset")])
def test_a_repair_ends_in_a_log_that_opens_and_verifies_whichever_file_is_gone(
    gone: tuple[str, ...], *, is_checkpointed: bool, is_clean: bool
) -> None:
    _, bases = killed()
    for number, base in enumerate(bases):
        fs, _ = killed(is_checkpointed=is_checkpointed)
        if is_clean:
            opened(fs).close()
        for name in (*gone, f"{base:020d}{LOG_SUFFIX}"):
            fs.remove(f"{FOLDER}/{name}")
        repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
        with opened(fs) as log:
            found = {record.offset: record.value for record in log.iterate(max(log.log_start_offset, base))}
        end = (*bases, RECORDS)[number + 1]
        kept = {offset: b"%03d" % offset * 66 for offset in range(end, RECORDS)}
        may_be_torn = not is_clean and not is_checkpointed and "flushed-offset" in gone
        assert found in ([kept, {}] if may_be_torn else [kept]), base
        assert list(LogVerifier(fs, FOLDER, RECORDS if kept and found else 0, is_closed=True).run()) == [], base


def test_a_damaged_topic_id_is_made_anew_by_a_repair_of_a_local_log() -> None:
    fs, _ = killed()
    write_file(fs, f"{FOLDER}/partition.metadata", b"version: x\n")
    with pytest.raises(CorruptCheckpointError, match=r"`replog log repair /logs/orders/log-0` makes it anew"):
        opened(fs)
    report = repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    assert report.left == ()
    with opened(fs) as log:
        assert len(list(log)) == RECORDS


def raised_by(value: int) -> Callable[[list[bytes], int], list[bytes]]:
    def damage(batches: list[bytes], number: int) -> list[bytes]:
        offset = int.from_bytes(batches[number][:8], "big") + value
        return [*batches[:number], offset.to_bytes(8, "big") + batches[number][8:], *batches[number + 1 :]]

    return damage


def doubled(batches: list[bytes], number: int) -> list[bytes]:
    return [*batches[: number + 1], *batches[number:]]


def swapped(batches: list[bytes], number: int) -> list[bytes]:
    return [*batches[:number], batches[number + 1], batches[number], *batches[number + 2 :]]


def placed_wrong(
    damage: Callable[[list[bytes], int], list[bytes]], number: int, *, is_clean: bool
) -> SimulatedFileSystem:
    """A log in one segment after a clean stop, or kill -9, of which the batches from `number` on were damaged since."""
    fs = SimulatedFileSystem()
    log = open_simulated(fs)
    for value in range(RECORDS):
        log.append(b"%03d" % value)
    log._folder.write_recovery_point()
    if is_clean:
        log.close()
    else:
        fs.kill()
        log._is_closed = True  # a process that is gone writes no checkpoint
    path = file_path(FOLDER, 0, LOG_SUFFIX)
    data = fs.image()[path]
    batches = [data[header.position : header.position + header.size_bytes] for header in scan(data)]
    write_file(fs, path, b"".join(damage(batches, number)))
    return fs


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("gone", [(), ("complete-from",), ("complete-from", "flushed-offset")])
@pytest.mark.parametrize("number", [0, 10, RECORDS - 2])
@pytest.mark.parametrize("damage", [raised_by(1 << 34), raised_by(2), doubled, swapped])
def test_batches_that_contradict_each_other_are_both_given_up_and_what_is_before_them_is_kept(
    damage: Callable[[list[bytes], int], list[bytes]], number: int, gone: tuple[str, ...], *, is_clean: bool
) -> None:
    """No checksum covers the offset of a batch: which of two is wrong nobody can say."""
    fs = placed_wrong(damage, number, is_clean=is_clean)
    for name in gone:
        fs.remove(f"{FOLDER}/{name}")
    before = fs.image()
    with pytest.raises(CorruptRecordError, match="--accept-loss"):
        repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    assert fs.image() == before
    report = repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
    assert (report.left, report.end_offset_before, report.end_offset) == ((), RECORDS, number)
    with open_simulated(fs) as log:
        assert [record.value for record in log] == [b"%03d" % value for value in range(number)]
        assert log.append(b"on") == number


@pytest.mark.parametrize("forget", [False, True])
def test_a_repair_after_which_the_log_would_be_refused_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, *, forget: bool
) -> None:
    fs, bases = killed()
    fs.flip_bit(file_path(FOLDER, bases[1], LOG_SUFFIX), 80, 0)
    fs.flip_bit(file_path(FOLDER, 0, ".timeindex"), 0, 6)
    fs.remove(file_path(FOLDER, bases[3], LOG_SUFFIX))
    before = fs.image()

    def refuse(_: LogLoader) -> None:
        raise CorruptRecordError(FOLDER, 0, "for a reason that verification does not know")

    monkeypatch.setattr(LogLoader, "load", refuse)
    with pytest.raises(CorruptRecordError, match="does not know"):
        repair_log(fs, FOLDER, accept_loss=True, now_ms=1, forget_flushed_offset=forget)
    assert fs.image() == before


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("claim", [None, b"29\n"], ids=["no claim", "a later claim"])
def test_a_sealed_segment_that_lost_what_its_indexes_know_of_is_given_up_only_when_told_to(
    claim: bytes | None, *, is_clean: bool
) -> None:
    """Where no file says that nothing was left out, the indexes are the only witness, and a repair makes them anew."""
    fs, bases = killed()
    if is_clean:
        opened(fs).close()
    fs.remove(f"{FOLDER}/complete-from")
    if claim is not None:
        write_file(fs, f"{FOLDER}/complete-from", claim)
    write_file(fs, file_path(FOLDER, bases[3], LOG_SUFFIX), b"")
    before = fs.image()
    with pytest.raises(
        CorruptRecordError, match=rf"its indexes know of offset \d+.*\(offset {bases[3]}\).*--accept-loss"
    ):
        repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    assert fs.image() == before
    with repaired(fs) as log:
        kept = {record.offset: record.value for record in log.iterate(bases[4])}
    assert kept == {offset: b"%03d" % offset * 66 for offset in range(bases[4], RECORDS)}
    if claim is not None:
        assert fs.image()[f"{FOLDER}/complete-from"] == claim


@pytest.mark.parametrize("raised", [1, 2, 1 << 20, 1 << 34])
def test_a_last_batch_that_has_jumped_since_a_clean_stop_is_damage(raised: int) -> None:
    """Nothing follows that would contradict it; the recovery point does, which a clean stop leaves at the log end."""
    fs = placed_wrong(raised_by(raised), RECORDS - 1, is_clean=True)
    with pytest.raises(CorruptRecordError, match=f"offset {RECORDS - 1}"):
        open_simulated(fs)
    with pytest.raises(CorruptRecordError, match="--accept-loss"):
        repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    report = repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
    assert (report.left, report.end_offset_before, report.end_offset) == ((), RECORDS, RECORDS - 1)
    with open_simulated(fs) as log:
        assert log.append(b"on") == RECORDS - 1
