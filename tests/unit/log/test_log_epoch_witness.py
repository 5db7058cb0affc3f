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
    with pytest.raises(CorruptRecordError, match="leader epoch 3 after epoch 10"):
        open_log(fs, config=SMALL, recovery_point=21, clean=True)
