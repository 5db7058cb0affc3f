"""Crashes during a compaction, every step of it; and the leftovers of interrupted swaps, ours and Kafka's."""

from __future__ import annotations

import random

import pytest
from log_compaction_kit import COMPACTED, compact, end_transaction, new_log, put, records, seal
from log_test_kit import T0, content, open_log, read_file, write_file

from replog.errors import CorruptRecordError
from replog.log import Log
from replog.log.compaction.swap import complete_swaps, rename_to_swap
from replog.log.file_names import SWAP_SUFFIX
from replog.records import encode_batch, scan
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import make_durable_dirs

FOLDER = "/data/t-0"


def filled(fs: SimulatedFileSystem) -> Log:
    """Segments that were compacted once and get one more; transactions among them."""
    log = new_log(fs)
    for number in range(7):
        put(log, (b"k%d" % (number % 5), b"%d" % number), (b"gone", b"x"))
        put(log, (b"t", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True)
        end_transaction(log, 1, is_commit=number % 3 > 0)
    seal(log)
    compact(log)
    put(log, (b"k0", b"last"), (b"gone", None))
    seal(log)
    return log


def reopened(fs: SimulatedFileSystem, recovery_point: int) -> Log:
    return open_log(fs, config=COMPACTED, recovery_point=recovery_point)


def pass_over(log: Log) -> None:
    job = log.prepare_compaction(T0, log.log_end_offset)
    assert job is not None
    job.run()
    if job.error is None:
        log.complete_compaction(job, T0)


def outcomes() -> tuple[list[bytes], list[bytes], int]:
    """What the log holds before and after a pass, and how many changing operations the pass makes."""
    fs = SimulatedFileSystem()
    log = filled(fs)
    before, count = content(log), fs.faults.operation_count
    pass_over(log)
    after = content(log)
    assert before != after
    return before, after, fs.faults.operation_count - count


BEFORE, AFTER, STEPS = outcomes()


def test_a_pass_has_many_steps() -> None:
    assert STEPS > 40


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_crash_at_any_step_leaves_all_or_nothing(seed: int | None) -> None:
    """`seed` None: the process is killed, the names and bytes stay as they are.  S11."""
    found_after = 0
    for step in range(STEPS):
        fs = SimulatedFileSystem()
        log = filled(fs)
        recovery_point = log.flushed_offset if step % 2 else 0
        producers, aborted = sorted(log.producers.to_snapshot()), log.aborted_transactions(0, 1 << 40)
        fs.faults.cut_power_after(step)
        with pytest.raises(PowerCutError):
            pass_over(log)
        if seed is None:
            fs.faults.clear()
            fs.kill()
        else:
            fs.crash(random.Random(seed * 1000 + step))
        again = reopened(fs, recovery_point)
        found = content(again)
        assert found in (BEFORE, AFTER), f"step {step}"
        found_after += found == AFTER
        assert again.recovery.bytes_cut == 0
        assert sorted(again.producers.to_snapshot()) == producers
        assert set(again.aborted_transactions(0, 1 << 40)) <= set(aborted)
        names = fs.list_dir(FOLDER)
        assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]
        assert reopened(fs, again.flushed_offset).segment_base_offsets == again.segment_base_offsets
    assert 3 < found_after < STEPS - 3


def test_a_crash_while_a_swap_is_completed_changes_nothing() -> None:
    """Opening is repeated until it gets through; the outcome is decided by then."""
    for step in range(0, STEPS, 3):
        fs = SimulatedFileSystem()
        log = filled(fs)
        fs.faults.cut_power_after(step)
        with pytest.raises(PowerCutError):
            pass_over(log)
        rng = random.Random(step)
        fs.crash(rng)
        expected = content(reopened(fs.copied(), log.flushed_offset))
        for cut in range(60):
            fs.faults.cut_power_after(cut)
            try:
                again = reopened(fs, log.flushed_offset)
            except PowerCutError:
                fs.crash(rng)
                continue
            fs.faults.clear()
            assert content(again) == expected
            break
        else:
            pytest.fail("it was never opened")


# What an interrupted swap leaves (docs/KAFKA.md 3.2 a and b)


def batch_at(offset: int, count: int = 1) -> bytes:
    rows = [(T0, b"k", b"%d" % (offset + i), ()) for i in range(count)]
    return encode_batch(rows, base_offset=offset, partition_leader_epoch=0)


def folder(*names: str) -> SimulatedFileSystem:
    """`0.log:10` holds offsets 0 to 9 in one batch; other files hold their own names."""
    fs = SimulatedFileSystem()
    make_durable_dirs(fs, FOLDER)
    for text in names:
        name, _, end = text.partition(":")
        base, _, suffix = name.partition(".")
        data = text.encode()
        if end:
            data = batch_at(int(base), int(end) - int(base)) if end != base else b""
        write_file(fs, f"{FOLDER}/{int(base):020d}.{suffix}", data)
    fs.sync_dir(FOLDER)
    return fs


def names_in(fs: SimulatedFileSystem) -> list[str]:
    found = []
    for name in fs.list_dir(FOLDER):
        base, _, suffix = name.partition(".")
        found.append(f"{int(base)}.{suffix}")
    return sorted(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["0.log:10", "0.log.cleaned:10", "0.index.cleaned"], ["0.log"]),
        (["0.log:10", "5.log:10", "0.log.swap:10", "0.index.swap", "0.index"], ["0.index", "0.log"]),
        (["0.log:10", "0.index", "0.txnindex", "0.log.swap:10"], ["0.log"]),
        (["0.log:10", "10.log:20", "0.log.swap:10"], ["0.log", "10.log"]),
        (["0.log.swap:10", "0.log.deleted:10", "10.log:20"], ["0.log", "0.log.deleted", "10.log"]),
        (["0.log:10", "0.index.swap", "10.log:20"], ["0.index", "0.log", "10.log"]),
        (["0.log:10", "0.log.cleaned:5", "5.log.swap:10", "5.index.swap"], ["0.log"]),
        (["0.log:10", "20.log:30", "0.log.swap:10", "20.log.cleaned:30"], ["0.log", "20.log"]),
        (["0.log:10", "0.log.swap:0", "10.log:20"], ["0.log", "10.log"]),
        (["0.log:5", "5.log.swap:10", "10.log.swap:20"], ["0.log", "10.log", "5.log"]),
        (["0.log:10", "10.snapshot"], ["0.log", "10.snapshot"]),
    ],
    ids=[
        "cleaned is dropped", "swap replaces two", "old indexes go", "neighbours stay", "old ones were renamed before",
        "index still to be renamed", "half a split is dropped", "a later pass was being written", "an empty segment",
        "the rest of several", "nothing to do",
    ],
)  # fmt: skip
def test_leftovers(before: list[str], after: list[str]) -> None:
    fs = folder(*before)
    complete_swaps(fs, FOLDER)
    assert names_in(fs) == sorted(after)
    fs.crash(random.Random(1))
    complete_swaps(fs, FOLDER)
    assert names_in(fs) == sorted(after)


def test_the_new_segment_is_what_is_left() -> None:
    fs = folder("0.log:10", "5.log:10", "0.log.swap:10")
    expected = read_file(fs, f"{FOLDER}/{0:020d}.log.swap")
    write_file(fs, f"{FOLDER}/{0:020d}.log", b"old")
    complete_swaps(fs, FOLDER)
    assert read_file(fs, f"{FOLDER}/{0:020d}.log") == expected


@pytest.mark.parametrize("position", [8, 30, 70])
def test_a_damaged_new_segment_is_refused_and_nothing_is_changed(position: int) -> None:
    fs = folder("0.log:10", "5.log:10", "0.log.swap:10", "20.log.cleaned:30")
    path = f"{FOLDER}/{0:020d}.log.swap"
    fs.flip_bit(path, position)
    before = names_in(fs)
    with pytest.raises(CorruptRecordError, match="Nothing was changed") as caught:
        complete_swaps(fs, FOLDER)
    assert caught.value.path == path
    assert names_in(fs) == before


def test_a_new_segment_that_was_cut_between_two_batches_is_refused() -> None:
    """Every batch that is left is whole; the indexes know better, up to their last entry."""
    fs = swapped()
    path = next(f"{FOLDER}/{name}" for name in fs.list_dir(FOLDER) if name.endswith(f".log{SWAP_SUFFIX}"))
    data = read_file(fs, path)
    known = int.from_bytes(read_file(fs, path.replace(".log", ".index"))[-4:], "big")
    cuts = [header.position for header in scan(data) if header.position <= known]
    assert len(cuts) > 1
    for cut in cuts:
        write_file(fs, path, data[:cut])
        before = fs.list_dir(FOLDER)
        with pytest.raises(CorruptRecordError, match="its indexes know"):
            complete_swaps(fs, FOLDER)
        assert fs.list_dir(FOLDER) == before


def swapped() -> SimulatedFileSystem:
    """A pass that was stopped after its decision."""
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = log.prepare_compaction(T0, log.log_end_offset)
    assert job is not None
    job.run()
    rename_to_swap(fs, FOLDER, job.segments)
    return fs


def test_a_stray_cleaned_file_cannot_undo_a_later_swap() -> None:
    """It is swept before the swap is decided: with it, the next start would drop the new segments."""
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = log.prepare_compaction(T0, log.log_end_offset)
    assert job is not None
    job.run()
    stray = f"{FOLDER}/{7:020d}.log.cleaned"
    write_file(fs, stray, b"of another time")
    log.complete_compaction(job, T0)
    assert not fs.exists(stray)
    assert content(log) == AFTER
    assert records(log)
