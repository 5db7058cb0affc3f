"""Damaged files: a stopped machine with every kind of file, ways to damage one of them, and what the next start makes of it.

The machine has one replica in three segments::

    00000000000000000000   sealed, below the recovery point
    00000000000000000009   holds the recovery point
    0000000000000000001x   active: above the recovery point after an unclean stop, all flushed after a clean one

"Flushed" is an unclean stop after an fsync of everything that no checkpoint knows of; only the log's `flushed-offset` does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice

from log_crash_kit import CONFIG, DATA, TOPIC_ID, Replica, check_answers_once, log_invariants, open_replica
from log_test_kit import T0, content, stored, write_file
from power_cuts import Once

from replog.errors import ReplogError
from replog.log import LogDirectory
from replog.log.recovery.flushed_offset import RECORD_BYTES
from replog.records import encode_batch
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem

Damaged = Iterator[bytes]
INTERESTING_BYTES = 64
"""From the start of a file, each of them is flipped; further on, some."""

ALIKE_STRIDE = 1 if os.environ.get("REPLOG_DAMAGE") == "all" else 4
"""Where all flips of a file have one outcome, every fourth is tried, after the next stop others; campaigns try all."""


class Outcome(Enum):
    """What a start makes of a damaged file.  The value is what RECOVERY.md says."""

    IGNORED = "ignored"
    REBUILT = "rebuilt"
    TAIL_CUT = "tail cut"
    QUARANTINED = "quarantined"
    REFUSED = "refused"
    FOUND_WHEN_READ = "found when read"
    BELIEVED = "believed"


@dataclass(frozen=True)
class Machine:
    """A stopped machine.

    Attributes:
        stop: one of `STOPS`.
        disk: its disk, copied before it is damaged.
        replica: what must be on it.
        flushed_offset: nothing below it may be lost.
    """

    stop: str
    disk: SimulatedFileSystem
    replica: Replica
    flushed_offset: int


STOPS = ("clean", "unclean", "flushed")


@cache
def machine(stop: str) -> Machine:
    """A machine after one of `STOPS`."""
    replica = Replica().open()
    replica.append(8)
    replica.epoch = 1
    replica.append(2)
    abort_a_transaction(replica)
    replica.append(2)
    replica.raise_log_start(2)
    replica.flush()
    replica.directory.checkpoint_high_watermarks({("t", 0): 9})
    replica.checkpoint()
    replica.append(3)
    replica.epoch = 2
    replica.append(4)
    write_file(replica.disk, f"{DATA}/cleaner-offset-checkpoint", b"0\n1\nt 0 5\n")
    if stop == "clean":
        replica.close()
    elif stop == "flushed":
        replica.flush()
    replica.disk.kill()
    return Machine(stop, replica.disk, replica, replica.expected.flushed)


def abort_a_transaction(replica: Replica) -> None:
    """One batch of producer 9, and the marker that aborts it."""
    data = encode_batch(
        [(T0, None, b"aborted", ())], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = encode_batch(
        [(T0, bytes(4), bytes(6), ())], producer_id=9, producer_epoch=0, is_transactional=True, is_control=True
    )
    for one in (data, marker):
        history = replica.expected.history.plus(stored(one, replica.log.log_end_offset, replica.epoch))
        replica.log.append_as_leader(one, leader_epoch=replica.epoch, now_ms=T0)
        replica.expected.became(history)


# Ways to damage the bytes of a file


def truncated(data: bytes, width: int) -> Damaged:
    """At several places, entry borders among them."""
    places = {1, len(data) // 2, len(data) - 1, len(data) - width, width, len(data) - width - 1}
    yield from (data[:place] for place in sorted(places) if 0 < place < len(data))


def zeroed(data: bytes, width: int) -> Damaged:
    """All of it, its second half, its last entry."""
    yield bytes(len(data))
    half = len(data) // 2
    yield data[:half] + bytes(len(data) - half)
    yield data[:-width] + bytes(width)


def flipped(data: bytes, width: int) -> Damaged:
    """One bit, in each of the first bytes and in some of the others."""
    places = [*range(min(len(data), INTERESTING_BYTES)), *range(INTERESTING_BYTES, len(data), 23)]
    for place in places:
        for bit in range(8) if len(data) < 20 else (place * 5 % 8,):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            yield bytes(changed)


def appended(data: bytes, width: int) -> Damaged:
    """Zeros, noise, whole entries of zeros, its own beginning again."""
    for garbage in (
        b"\0",
        bytes(width),
        bytes(4096),
        b"\xff" * width,
        random.Random(1).randbytes(61),
        data[:width],
        b"x\n",
    ):
        yield data + garbage


def emptied(data: bytes, width: int) -> Damaged:
    """Nothing is left, but the name."""
    yield b""


def from_the_future(data: bytes, width: int) -> Damaged:
    """A version or magic number that nobody has defined yet."""
    head, newline, rest = data.partition(b"\n")
    if head == b"0" and newline:
        yield b"1\n" + rest
        yield b"99\n" + rest
    for known, later in ((b"version: 0", b"version: 9"), (b'version":0', b'version":9'), (b"version=1", b"version=9")):
        if known in data:
            yield data.replace(known, later)
    if width == MAGIC_AT:  # a batch: its magic number
        yield data[:16] + b"\x03" + data[17:]
        yield data[:16] + b"\x01" + data[17:]
    if width in {SNAPSHOT_BYTES, RECORD_BYTES}:
        yield b"\x00\x02" + data[2:]


ABORTED_END = 17
"""Offset after the marker."""

MAGIC_AT = 61
SNAPSHOT_BYTES = 46

CONTENT_DAMAGES: dict[str, Callable[[bytes, int], Damaged]] = {
    "truncated": truncated,
    "zero-filled": zeroed,
    "bit flipped": flipped,
    "garbage appended": appended,
    "empty": emptied,
    "from the future": from_the_future,
}
OTHER_DAMAGES = ("missing", "a directory", "unreadable")
DAMAGES = (*CONTENT_DAMAGES, *OTHER_DAMAGES)


def damaged_disks(
    stopped: Machine, path: str, damage: str, width: int, flip_stride: int
) -> Iterator[SimulatedFileSystem]:
    """Copies of the disk on which one file is damaged."""
    if damage in CONTENT_DAMAGES:
        data = stopped.disk.image()[path]
        changes = CONTENT_DAMAGES[damage](data, width)
        if damage == "bit flipped":
            changes = islice(changes, STOPS.index(stopped.stop) % flip_stride, None, flip_stride)
        for changed in changes:
            if changed != data:
                disk = stopped.disk.copied()
                write_file(disk, path, changed)
                yield disk
        return
    disk = stopped.disk.copied()
    if damage == "unreadable":
        disk.faults.fail_always(Operation.READ, path_part=path)
        disk.faults.fail_always(Operation.OPEN, path_part=path)
    else:
        disk.remove(path)
        if damage == "a directory":
            disk.make_dirs(path)
    yield disk


# What the next start makes of it


def judge(stopped: Machine, disk: SimulatedFileSystem, path: str) -> Outcome:
    """Starts on a damaged disk and says what came of it; an AssertionError is a lie: something is missing or wrong.

    Raises:
        AssertionError: flushed records are gone, records differ, or a refusal has changed something.
    """
    before = disk.image()
    quarantined = False
    try:
        directory = LogDirectory.open(disk, DATA, cluster_id="c", node_id=1, now_ms=T0, config=CONFIG)
        quarantined = ("t", 0) in directory.offline
        log = directory.open_log("t", 0, TOPIC_ID, CONFIG, now_ms=T0)
    except ReplogError as error:
        _check_refusal(error, before, disk.image())
        return Outcome.QUARANTINED if quarantined else Outcome.REFUSED
    expected = stopped.replica.expected
    history, end = expected.history, log.log_end_offset
    assert log.log_start_offset <= expected.start_max, "the log start has risen: records are hidden"
    assert end >= stopped.flushed_offset, f"flushed to {stopped.flushed_offset}, ends at {end}"
    assert end in history.ends
    try:
        found = log_invariants(log)
        check_answers_once(disk, log, found)
        assert found == history.between(log.log_start_offset, end)
        assert [one.producer_id for one in log.aborted_transactions(0, end)] == [9] * (end >= ABORTED_END)
    except ReplogError:
        return Outcome.FOUND_WHEN_READ
    disk.faults.clear()
    directory.close(now_ms=0, broker_epoch=1)
    _check_fixpoint(stopped, disk, end)
    if end < history.end:
        return Outcome.TAIL_CUT
    return Outcome.IGNORED if disk.image().get(path) == before.get(path) else Outcome.REBUILT


def _check_fixpoint(stopped: Machine, disk: SimulatedFileSystem, end: int) -> None:
    batches = stopped.replica.expected.history.batches
    if not MENDED.is_first_image(disk, batches, end):
        return
    _, log = open_replica(disk.copied())
    assert log.log_end_offset == end
    assert log.recovery.bytes_cut == 0
    assert content(log) == stopped.replica.expected.history.between(log.log_start_offset, end)


MENDED = Once()
"""Most damage is mended, so that most disks are alike afterwards."""


def _check_refusal(error: ReplogError, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """It says where, and no record and no checkpoint was changed; the lock, the marker, notes and indexes may be."""
    notes = ("flushed-offset", "complete-from")
    own = (".lock", ".kafka_cleanshutdown", ".index", ".timeindex", ".snapshot", ".tmp", ".reserve", *notes)
    kept = {path: data for path, data in before.items() if not path.endswith(own)}
    assert kept.items() <= after.items(), "a refusal has changed something"
    assert DATA in str(error), f"the error does not say where: {error}"


def outcomes(stopped: Machine, path: str, damage: str, *, flip_stride: int = 1) -> set[Outcome]:
    """What a start makes of every form of a damage to one file; of flips of every so manyth."""
    width = next((width for suffix, width in WIDTHS.items() if path.endswith(suffix)), 2)
    found = set()
    for disk in damaged_disks(stopped, path, damage, width, flip_stride):
        try:
            found.add(judge(stopped, disk, path))
        except AssertionError:
            found.add(Outcome.BELIEVED)
    return found


WIDTHS = {
    "flushed-offset": RECORD_BYTES,
    ".log": MAGIC_AT,
    ".timeindex": 12,
    ".index": 8,
    ".txnindex": 34,
    ".snapshot": SNAPSHOT_BYTES,
}
"""Bytes of an entry, by the end of the name."""
