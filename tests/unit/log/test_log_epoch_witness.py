"""A bit that flips in a batch's leader epoch, which no checksum covers, and the witnesses that tell."""

from __future__ import annotations

import pytest
from log_test_kit import append, open_log, read_file, write_file

from replog.errors import CorruptRecordError
from replog.log import LogConfig
from replog.log.file_names import INDEX_SUFFIX, LOG_SUFFIX, file_path
from replog.log.recovery.epoch_witness import contradicts
from replog.log.repair.verification import FindingKind, LogVerifier
from replog.records import scan
from replog.testing.simulated_filesystem import SimulatedFileSystem

FOLDER = "/data/t-0"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
EPOCH_POSITION = 12
EPOCHS = {0: 2, 7: 3, 14: 9}
"""The first offset of each epoch in a log of 21 batches of one record."""


def flushed_log() -> tuple[SimulatedFileSystem, list[int]]:
    """A log of three epochs after kill -9, all of it flushed, no recovery point; and its segments' base offsets."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=SMALL)
    for epoch in EPOCHS.values():
        append(log, 7, leader_epoch=epoch)
    log.flush()
    fs.kill()
    return fs, log.segment_base_offsets


def places(fs: SimulatedFileSystem, bases: list[int]) -> dict[int, tuple[str, int]]:
    """Offset -> file and byte of its batch."""
    paths = [file_path(FOLDER, base, LOG_SUFFIX) for base in bases]
    return {header.base_offset: (path, header.position) for path in paths for header in scan(read_file(fs, path))}


@pytest.mark.parametrize(
    ("epoch_before", "epoch", "offset", "is_wrong"),
    [
        (0, 0, 5, False),
        (0, 2, 5, True),  # the batch before and the checkpoint agree
        (0, 3, 19, False),  # the border to the next epoch may be what is wrong
        (1, 2, 5, False),  # the checkpoint is not confirmed
        (3, 4, 30, False),  # where the last epoch ends the checkpoint does not know
        (-1, 2, 5, False),
    ],
)
def test_the_checkpoint_is_believed_where_the_log_confirms_it(
    epoch_before: int, epoch: int, offset: int, *, is_wrong: bool
) -> None:
    assert contradicts([(0, 0), (3, 20)], epoch_before, epoch, offset) is is_wrong
    assert not contradicts(None, epoch_before, epoch, offset)


@pytest.mark.parametrize("bit", range(31))
def test_a_flipped_epoch_is_refused_wherever_something_else_tells(bit: int) -> None:
    fs, bases = flushed_log()
    believed = set()
    for offset, (path, position) in places(fs, bases).items():
        damaged = fs.copied()
        damaged.flip_bit(path, position + EPOCH_POSITION + 3 - bit // 8, bit % 8)
        try:
            open_log(damaged.copied(), config=SMALL)
        except CorruptRecordError:
            found = next(one for one in LogVerifier(damaged, FOLDER, 21).run() if one.offset is not None)
            assert (found.kind, found.offset in {offset, offset + 1}) == (FindingKind.DAMAGED, True)
        else:
            believed.add(offset)
    at_border = {6} if bit == 0 else set()  # 2 becomes 3, the epoch behind it
    assert believed <= {*EPOCHS, 20} | at_border


def test_an_index_that_is_gone_from_an_early_segment_condemns_no_batch() -> None:
    fs, bases = flushed_log()
    for base in bases:
        damaged = fs.copied()
        path = file_path(FOLDER, base, INDEX_SUFFIX)
        if damaged.exists(path):
            damaged.remove(path)
        log = open_log(damaged, config=SMALL, recovery_point=20)
        assert log.log_end_offset == 21
        assert [epoch for epoch, _ in log.leader_epochs.entries] == [2, 3, 9]


def test_a_flip_in_the_checkpoint_condemns_no_batch() -> None:
    fs, _ = flushed_log()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    text = read_file(fs, path)
    for position in range(len(text)):
        for bit in range(8):
            damaged = fs.copied()
            changed = bytearray(text)
            changed[position] ^= 1 << bit
            write_file(damaged, path, bytes(changed))
            for recovery_point in (0, 10, 21):
                log = open_log(damaged.copied(), config=SMALL, recovery_point=recovery_point)
                assert log.log_end_offset == 21


def test_a_flipped_epoch_at_a_border_is_found_when_the_epochs_are_made_again() -> None:
    """The checkpoint does not fit the last batch of an epoch, and the batches behind it go back."""
    fs, bases = flushed_log()
    path, position = places(fs, bases)[6]
    fs.flip_bit(path, position + EPOCH_POSITION + 3, 3)
    with pytest.raises(CorruptRecordError, match="leader epoch 3 cannot follow epoch 10"):
        open_log(fs, config=SMALL, recovery_point=21, clean=True)


@pytest.mark.parametrize("offset", [7, 8, 16, 20], ids=lambda offset: f"at {offset}")
@pytest.mark.parametrize(
    ("epoch", "is_good"),
    [(-1, True), (-2, False), (-(2**31) + 3, False), (-(2**31), False), (1, False)],
    ids=str,
)
@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["scanned", "epochs made again"])
def test_a_start_and_a_verification_judge_a_negative_epoch_of_a_batch_alike(
    offset: int, epoch: int, *, is_good: bool, is_rebuilt: bool
) -> None:
    fs, bases = flushed_log()
    path, position = places(fs, bases)[offset]
    data = bytearray(read_file(fs, path))
    data[position + EPOCH_POSITION : position + EPOCH_POSITION + 4] = epoch.to_bytes(4, "big", signed=True)
    write_file(fs, path, bytes(data))
    if is_rebuilt:
        fs.remove(f"{FOLDER}/leader-epoch-checkpoint")
    found = [finding for finding in LogVerifier(fs, FOLDER, 21).run() if finding.offset is not None]
    assert [finding.offset for finding in found[:1]] == ([] if is_good else [offset])
    recovery_point = 21 if is_rebuilt else 0
    if is_good:
        assert open_log(fs, config=SMALL, recovery_point=recovery_point).log_end_offset == 21
    else:
        with pytest.raises(CorruptRecordError, match=rf"leader epoch {epoch} cannot .*\(offset {offset}\)"):
            open_log(fs, config=SMALL, recovery_point=recovery_point)


@pytest.mark.parametrize("entry", ["-1 0", "-2 0", "2 -1", f"-{2**31} 0"])
def test_a_start_and_a_verification_make_a_checkpoint_with_a_negative_number_again(entry: str) -> None:
    fs, _ = flushed_log()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    write_file(fs, path, f"0\n3\n{entry}\n3 7\n9 14\n".encode())
    assert [(one.kind, one.path) for one in LogVerifier(fs, FOLDER, 21).run()] == [(FindingKind.DERIVED, path)]
    log = open_log(fs, config=SMALL, recovery_point=21)
    assert log.leader_epochs.entries == [(2, 0), (3, 7), (9, 14)]
    assert read_file(fs, path) == b"0\n3\n2 0\n3 7\n9 14\n"
