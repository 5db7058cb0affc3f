"""Whether the model of a log would notice: one safeguard is taken out, or one fsync, and something must be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from log_model import LogModel

from replog.log import Log
from replog.log.epoch_cache import LeaderEpochCache
from replog.log.flush import FlushJob
from replog.log.reading.tail_cache import LogTail
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loader import LogLoader
from replog.log.segments.scan import scan_headers
from replog.log.segments.segment import LogSegment
from replog.testing.simulated_filesystem import SimulatedFileSystem

pytestmark = pytest.mark.campaign


class NoDirectorySync(SimulatedFileSystem):
    """Names in replica directories are never fsynced."""

    def sync_dir(self, path: str) -> None:
        if not path.endswith("/t-0"):
            super().sync_dir(path)


class NoLogSync(SimulatedFileSystem):
    """Segments are never fsynced."""

    def sync_file(self, file: Any) -> None:
        if not file.path.endswith(".log"):
            super().sync_file(file)


class NoCheckpointSync(SimulatedFileSystem):
    """Checkpoints are renamed before they are on the disk."""

    def sync_file(self, file: Any) -> None:
        if not file.path.endswith(".tmp"):
            super().sync_file(file)


def promise_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncation does not lower the recovery point on disk."""
    truncate_to = Log.truncate_to

    def truncate(log: Log, offset: int) -> bool:
        checkpoint, log._state.checkpoint = log._state.checkpoint, None
        try:
            return truncate_to(log, offset)
        finally:
            log._state.checkpoint = checkpoint

    monkeypatch.setattr(Log, "truncate_to", truncate)


def keep_cut_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs above a cut stay in the cache."""
    monkeypatch.setattr(LeaderEpochCache, "truncate_from_end", lambda cache, end_offset: None)


def forget_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a log does not restore who has written what."""
    monkeypatch.setattr("replog.log.recovery.loader.rebuild_producers", lambda *args, **kwargs: None)


def acknowledge_before_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append returns while its bytes wait for the next one."""
    write = LogSegment.write
    waiting: dict[int, list[tuple[LogSegment, int, bytes]]] = {}

    def later(segment: LogSegment, buffers: Sequence[Any]) -> None:
        for owner, position, data in waiting.pop(id(segment), []):
            owner.file.pwrite([data], position)
        if segment.size_bytes % 5 == 0:
            waiting[id(segment)] = [(segment, segment.size_bytes, b"".join(buffers))]
        else:
            write(segment, buffers)

    monkeypatch.setattr(LogSegment, "write", later)


def count_a_flush_from_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that a truncation has overtaken moves the recovery point all the same."""
    complete_flush = Log.complete_flush

    def complete(log: Log, job: FlushJob) -> None:
        job.generation = log._state.generation
        complete_flush(log, job)

    monkeypatch.setattr(Log, "complete_flush", complete)


def believe_every_stop_was_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is checked after a crash."""
    opened: Callable[..., Log] = Log.open.__func__  # type: ignore[attr-defined]  # the function behind the classmethod

    def trusting(cls: type[Log], *args: Any, **kwargs: Any) -> Log:
        return opened(cls, *args, **{**kwargs, "clean": True})

    monkeypatch.setattr(Log, "open", classmethod(trusting))


def answer_from_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was appended and cut off again stays in memory for readers."""
    monkeypatch.setattr(LogTail, "forget", lambda tail: None)


def forget_what_was_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start knows no more than the last checkpoint."""
    monkeypatch.setattr(FlushedOffsetFile, "load", classmethod(lambda cls, fs, directory: cls(fs, directory)))


def cut_below_what_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncation leaves the note of what was flushed as it is."""
    monkeypatch.setattr(FlushedOffsetFile, "lower_to", lambda file, offset: None)


def believe_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose offset has changed hides that what follows was flushed."""

    def plain_end(segment: LogSegment, good_bytes: int, _: int, expected_offset: int, __: int) -> tuple[int, int]:
        ends = [placed.header.next_offset for placed in scan_headers(segment.file, 0, good_bytes)]
        return good_bytes, max(ends, default=max(segment.base_offset, expected_offset))

    monkeypatch.setattr("replog.log.recovery.loader_scan.certain_end", plain_end)
    monkeypatch.setattr("replog.log.recovery.loader_scan.batch_over", lambda segment, offset: None)
    monkeypatch.setattr(LogLoader, "_jump_at_end", lambda *_: None)


BROKEN_DISKS = (NoDirectorySync, NoLogSync, NoCheckpointSync)
BROKEN_ENGINES = (
    promise_too_much,
    keep_cut_epochs,
    forget_producers,
    acknowledge_before_writing,
    count_a_flush_from_before_a_cut,
    believe_every_stop_was_clean,
    answer_from_before_a_cut,
    forget_what_was_flushed,
    cut_below_what_is_noted,
    believe_offsets,
)


def find_fault(machine: type[LogModel]) -> None:
    """Runs until something is wrong; nothing is shrunk or stored.

    What Hypothesis draws depends on the modules that other tests have imported (it collects their constants), so a fault that
    takes 100 examples on average needs room for many more; they are run only where the fault is not found.
    """
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # Hypothesis has no types for it
        machine,
        settings=settings(
            max_examples=4_000,
            stateful_step_count=50,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("disk_type", BROKEN_DISKS)
def test_a_missing_fsync_is_found(disk_type: type[SimulatedFileSystem]) -> None:
    machine = type("Ablated", (LogModel,), {"disk_type": disk_type})
    with pytest.raises(Exception):  # noqa: B017  whatever is noticed first
        find_fault(machine)


@pytest.mark.parametrize("break_engine", BROKEN_ENGINES)
def test_a_missing_safeguard_is_found(
    break_engine: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_engine(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  whatever is noticed first
        find_fault(type("Ablated", (LogModel,), {}))
