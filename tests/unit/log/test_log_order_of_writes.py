"""What must be on the disk before what: it holds against every power cut, and is missed where it is taken out.

Each needs a few steps in a row and a cut between two of them, which the model hardly ever draws, or a disk that its own is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from log_crash_kit import CONFIG, FOLDER, Replica
from power_cuts import Once, stops

from replog.errors import ReplogError
from replog.log import LogConfig
from replog.log.directories.checkpoints import DirectoryCheckpoints
from replog.log.flush import Flusher, FlushJob
from replog.log.recovery.loader import LogLoader
from replog.log.upkeep import Upkeep
from replog.testing import simulated_disk
from replog.testing.simulated_disk import DirectoryNode, Disk

SEEDS = range(6)


def config(**changes: int) -> LogConfig:
    """The kit's settings with some changes."""
    kept = {
        "segment_bytes": CONFIG.segment_bytes,
        "index_interval_bytes": CONFIG.index_interval_bytes,
        "retention_ms": -1,
    }
    return LogConfig(**{**kept, **changes})


class NotSurvivedError(Exception):
    """A start after a crash does not find what was promised."""


def started(replica: Replica) -> Replica:
    """Starts a machine after a power cut, or kill -9.

    Raises:
        NotSurvivedError: Something that was promised is not there.
    """
    try:
        replica.open().verify()
    except (ReplogError, AssertionError) as error:
        raise NotSurvivedError from error
    return replica


def start_each(stopped: Iterable[Replica], seeds: Iterable[int | None]) -> None:
    """Starts each machine after each power cut, or kill -9 (None).

    Raises:
        NotSurvivedError: Something that was promised is not there.
    """
    once = Once()
    for replica in stopped:
        for crashed in map(replica.after, seeds):
            if once.is_first(crashed.disk, crashed.promised()):
                started(crashed)


def cut_at_each_change(replica: Replica, action: Callable[[Replica], None]) -> list[Replica]:
    """The machine as the power, or a kill, finds it before each change that an action makes, and after the last one."""
    other = replica.after(None).open()
    other.verify()
    other.expected.start_max = other.log.log_end_offset
    return stops(other.disk, lambda: action(other), other.copied)


# ---- a segment is deleted durably before the next one ----------------------------------------------------------------------


def names_in_any_order(disk: Disk, rng: random.Random) -> None:
    """A power cut on a disk that keeps changes of names in any order, as POSIX allows: those of one name stay in order."""
    chance, lost = rng.choice((0.3, 0.6, 0.9)), set[tuple[DirectoryNode, str]]()
    for changes in disk._journal:
        names = {(change.directory, change.name) for change in changes}
        if lost.isdisjoint(names) and rng.random() < chance:
            simulated_disk._make_durable(changes)
        else:
            lost |= names
    disk._journal = []
    simulated_disk._restart_from_durable(disk.root, rng)


def old_segments_are_deleted() -> None:
    replica = Replica(config=config(retention_bytes=700)).open()
    replica.append(24, size_bytes=60)
    replica.flush()
    replica.checkpoint()
    start_each(cut_at_each_change(replica, lambda replica: replica.delete_old_segments()), SEEDS)


def delete_without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    delete_first = Upkeep._delete_first

    def unsynced(upkeep: Upkeep, due_ms: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upkeep._state.fs, "sync_dir", lambda _: None)
            delete_first(upkeep, due_ms)

    monkeypatch.setattr(Upkeep, "_delete_first", unsynced)


# ---- what a kill left in the page cache is fsynced before a recovery point passes the log start ---------------------------------


def a_log_start_is_checkpointed_and_the_recovery_point_is_not() -> None:
    replica = Replica(config=config(segment_bytes=1 << 20)).open()
    replica.append(6)
    replica.flush()
    replica.raise_log_start(5)
    replica.append(4)
    start_each(map(killed_and_checkpointed, cut_at_each_change(replica, raise_and_checkpoint)), SEEDS)


def killed_and_checkpointed(replica: Replica) -> Replica:
    again = started(replica.after(None))
    again.checkpoint()
    return again


def raise_and_checkpoint(replica: Replica) -> None:
    replica.append(6)
    replica.flush()
    replica.raise_log_start(replica.log.log_end_offset - 1)
    replica.append(4)
    replica.checkpoint()


def believe_what_a_kill_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsynced(loader: Any, segments: Any, log_start_offset: int, log_end_offset: int) -> int:
        if loader.clean:
            return log_end_offset
        recovery_point = max(min(loader.recovery_point, log_end_offset), segments.active.base_offset)
        return int(recovery_point) if recovery_point >= log_start_offset else log_end_offset

    monkeypatch.setattr(LogLoader, "_recovery_point_after", unsynced)


# ---- a flush fsyncs what was written beside the sealed segments --------------------------------------------------------------


def a_flush_leaves_nothing_beside_sealed_segments_to_chance() -> None:
    """A transaction index that ends between two entries, 17 sectors or 256 entries long, would hide that later ones were aborted."""
    replica = Replica().open()
    replica.append(12, size_bytes=60)
    active = replica.log.segment_base_offsets[-1]
    replica.flush()
    for path, content in replica.disk.image().items():
        is_sealed = path.startswith(f"{FOLDER}/0") and not path.startswith(f"{FOLDER}/{active:020d}.")
        if is_sealed and replica.disk.durable_content(path) != content:
            raise NotSurvivedError(path)


def flush_only_records(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_flush = Flusher.prepare_flush

    def prepared(flusher: Flusher) -> FlushJob | None:
        job = prepare_flush(flusher)
        if job is not None:
            job.files = [file for file in job.files if file not in job.beside]
        return job

    monkeypatch.setattr(Flusher, "prepare_flush", prepared)


SAFEGUARDS: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "a segment is deleted durably before the next one": (old_segments_are_deleted, delete_without_fsync),
    "what a kill left is fsynced before the recovery point passes a log start": (
        a_log_start_is_checkpointed_and_the_recovery_point_is_not,
        believe_what_a_kill_left,
    ),
    "a flush fsyncs sealed indexes and snapshots": (
        a_flush_leaves_nothing_beside_sealed_segments_to_chance,
        flush_only_records,
    ),
}


# ---- log starts and recovery points: either may be on the disk before the other ---------------------------------------------


def cut_at_the_start(replica: Replica) -> None:
    replica.truncate_to(replica.log.log_start_offset + 1)
    replica.append(3)
    replica.flush()
    replica.checkpoint()


def begin_anew_lower(replica: Replica) -> None:
    replica.truncate_fully(3)
    replica.append(3)
    replica.flush()
    replica.checkpoint()


@pytest.mark.parametrize("is_reversed", [False, True], ids=["starts first", "points first"])
@pytest.mark.parametrize("action", [raise_and_checkpoint, cut_at_the_start, begin_anew_lower])
def test_log_starts_and_recovery_points_go_in_either_order(
    action: Callable[[Replica], None], is_reversed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits for the other: a start is no higher than what is flushed, and what it lies above of is fsynced at a start."""
    prepare = DirectoryCheckpoints.prepare_recovery_points
    if is_reversed:
        monkeypatch.setattr(DirectoryCheckpoints, "prepare_recovery_points", lambda self: prepare(self)[::-1])
    replica = Replica(config=config(segment_bytes=1 << 20)).open()
    replica.append(8)
    replica.flush()
    replica.raise_log_start(5)
    replica.checkpoint()
    start_each(cut_at_each_change(replica, action), (None, *SEEDS))


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "crash", names_in_any_order)


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_it_holds(safeguard: str) -> None:
    SAFEGUARDS[safeguard][0]()


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_without_it_something_is_gone(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, take_out = SAFEGUARDS[safeguard]
    take_out(monkeypatch)
    with pytest.raises(NotSurvivedError):
        story()
