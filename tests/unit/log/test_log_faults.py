"""A disk that fails at any one operation: full, broken when written, when read, when fsynced; fsyncs that lie.

The fault is enumerated too: first the first change (or look) of a procedure fails, then the second, and so on.  Whatever
happens, the caller gets one of our errors, what was acknowledged as flushed is there after a power cut, and the log is
either as before or after the operation and goes on, or has failed and says so.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

import pytest
from log_crash_kit import History, Replica, check_answers, log_invariants
from log_test_kit import T0, batch, content
from power_cuts import Once
from test_log_crash_points import PROCEDURES, Procedure, checkpointed, flushed, three_epochs

from replog.errors import ReplogError, StorageError
from replog.testing.simulated_faults import Faults, Operation

pytestmark = pytest.mark.exhaustive

ON_AN_OPEN_LOG = [
    name for name in PROCEDURES if not name.startswith(("open", "recover", "close", "delete the", "set the"))
]
OPENING = [name for name in PROCEDURES if name.startswith(("open", "recover"))]
STARTS = [PROCEDURES[name] for name in OPENING]


def failing_at_each(
    procedure: Procedure, fail: Callable[[Faults, int], None]
) -> Iterator[tuple[Replica, ReplogError | None]]:
    """The replica after its first, second, ... operation failed, with what the caller was told (None: nothing)."""
    prepared: Replica | None = None
    for count in range(10_000):
        if prepared is None:
            replica = Replica()
            procedure.prepare(replica)
            if procedure in STARTS:  # nothing is open: each may begin with a copy
                prepared = replica.copied()
        else:
            replica = prepared.copied()
        fail(replica.disk.faults, count)
        error: ReplogError | None = None
        try:
            procedure.run(replica)
        except ReplogError as caught:
            error = caught
        is_over = replica.disk.faults.is_failing
        replica.disk.faults.clear()
        try:
            yield replica, error
        except BaseException as failure:
            failure.add_note(f"operation {count} failed, the caller was told {error!r}")
            raise
        if is_over:
            return


def settle(replica: Replica) -> None:
    """A log that has not failed is as it was before the operation, or after it, or took the first of several batches."""
    end_offset = replica.log.log_end_offset
    found = log_invariants(replica.log)
    check_answers(replica.log, found)
    before = replica.expected.histories[0]
    fitting = [
        history
        for history in replica.expected.histories
        if (history.end == end_offset or (end_offset in history.ends and end_offset >= before.end))
        and history.between(replica.log.log_start_offset, end_offset) == found
    ]
    assert fitting, "neither what was there before the operation nor what should be there after it"
    replica.expected.may_become(fitting[0].until(end_offset))
    replica.expected.flushed = min(replica.expected.flushed, end_offset)
    replica.epoch += 1
    replica.resume_producers()


def check_after(replica: Replica) -> None:
    """There is room again; the log goes on, or says that it cannot; then the process dies, and then the power goes."""
    replica.directory.space.check()
    if not replica.log.failed:
        settle(replica)
        replica.append(2)
        replica.flush()
        replica.checkpoint()
    else:
        with pytest.raises(StorageError):
            replica.log.append_as_leader(batch(), leader_epoch=replica.epoch, now_ms=T0)
    for seed in (None, 1):
        restarted = replica.after(seed)
        if STOPPED.is_first(restarted.disk, restarted.promised()):
            restarted.open().verify()
            restarted.append(1)
            restarted.flush()
            again = restarted.after(seed=3)
            if STOPPED_AGAIN.is_first(again.disk, again.promised()):
                again.open().verify()


STOPPED, STOPPED_AGAIN = Once(), Once()

FAILURES: dict[str, Callable[[Faults, int], None]] = {
    "full": lambda faults, count: faults.fail_change_after(count, error_number=errno.ENOSPC),
    "broken": lambda faults, count: faults.fail_change_after(count, error_number=errno.EIO),
    "unreadable": lambda faults, count: faults.fail_read_after(count, error_number=errno.EIO),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", ON_AN_OPEN_LOG)
def test_an_operation_on_a_failing_disk(name: str, failure: str) -> None:
    procedure = PROCEDURES[name]
    if name.startswith("flush"):  # the job raises what the disk says, to whoever runs it
        run = procedure.run
        procedure = Procedure(procedure.prepare, lambda replica: _with_storage_error(lambda: run(replica)))
    for replica, _ in failing_at_each(procedure, FAILURES[failure]):
        check_after(replica)


def _with_storage_error(run: Callable[[], None]) -> None:
    try:
        run()
    except OSError as error:
        raise StorageError("the flush job") from error


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", OPENING)
def test_opening_on_a_failing_disk(name: str, failure: str) -> None:
    """Refused with one of our errors, then opened as if nothing had been."""
    for replica, error in failing_at_each(PROCEDURES[name], FAILURES[failure]):
        if error is None:
            replica.verify()
        replica.disk.kill()
        for seed in (None, 1):
            restarted = replica.after(seed)
            if STOPPED.is_first(restarted.disk, restarted.promised(), "answers"):
                check_answers(restarted.open().log, restarted.verify())


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", ["close", "delete the log", "set the log aside"])
def test_an_end_on_a_failing_disk(name: str, failure: str) -> None:
    for replica, _ in failing_at_each(PROCEDURES[name], FAILURES[failure]):
        replica.disk.kill()
        for seed in (None, 1):
            restarted = replica.after(seed)
            if STOPPED.is_first(restarted.disk, restarted.promised(), name):
                PROCEDURES[name].check(restarted.open())
                restarted.verify()


@pytest.mark.parametrize("free_bytes", range(0, 400, 7))
def test_a_disk_that_is_full_in_the_middle_of_anything(free_bytes: int) -> None:
    """Not one failing operation but no room at all, from any byte on, until some is made."""
    replica = Replica()
    flushed(replica)
    replica.disk.capacity_bytes = replica.disk.used_bytes() + free_bytes
    for _ in range(3):
        with contextlib.suppress(ReplogError):
            replica.append(4, size_bytes=60)
    with contextlib.suppress(ReplogError):
        replica.truncate_to(16)
    with contextlib.suppress(ReplogError):
        replica.checkpoint()
    replica.disk.capacity_bytes = None
    replica.directory.space.check()  # as the broker does at an interval
    check_after(replica)


# fsync


@pytest.mark.parametrize("operation", [Operation.SYNC, Operation.SYNC_DIR])
@pytest.mark.parametrize("nth", range(1, 8))
def test_an_fsync_that_failed_once_and_then_succeeds_does_not_count(operation: Operation, nth: int) -> None:
    """The kernel forgets what it could not write; a new process that reads and fsyncs must not be fooled by its cache."""
    for seed in range(4):
        replica = Replica()
        three_epochs(replica)
        replica.disk.faults.fail_next(operation, nth=nth)
        with contextlib.suppress(ReplogError):
            replica.roll()
            replica.append(6, size_bytes=60)
            replica.flush()
            replica.checkpoint()
        for _ in range(3):
            with contextlib.suppress(ReplogError):
                replica.flush()
        restarted = replica.after(None).open()  # kill -9: the page cache is still there
        restarted.verify()
        restarted.flush()
        restarted.checkpoint()
        again = restarted.after(seed).open()
        again.verify()


def test_what_lying_fsyncs_can_cost_is_the_part_above_the_last_honest_one() -> None:
    """No software can help against a disk that lies.  What it may cost is bounded, and it is told instead of hidden:
    below the last honest flush nothing is lost; what was promised above it and is gone refuses to open, unless the disk
    kept a later segment and lost the end of an earlier one together with its indexes.
    """
    outcomes = set()
    for seed in range(40):
        replica = Replica()
        checkpointed(replica)
        honest, honest_batches = replica.log.flushed_offset, content(replica.log)
        replica.disk.faults.syncs_lie = True
        replica.append(8, size_bytes=60)
        replica.flush()
        replica.checkpoint()
        restarted = replica.after(seed)
        before = restarted.disk.image()
        try:
            restarted.open()
        except StorageError as error:
            message = str(error)
            assert "Nothing was" in message
            logs = {path: data for path, data in before.items() if path.endswith(".log")}
            assert logs.items() <= restarted.disk.image().items()
            outcomes.add("refused")
            continue
        restarted.expected.flushed = honest
        try:
            restarted.verify()
            outcomes.add("a prefix")
        except AssertionError as error:
            reason = str(error)
            assert "a hole between two batches" in reason
            assert content(restarted.log)[: len(honest_batches)] == honest_batches
            outcomes.add("a hole above it")
    assert {"refused", "a prefix"} <= outcomes


def test_a_slow_fsync_promises_only_what_it_covered() -> None:
    """Appends, a roll and a truncation go on while the fsync takes its time."""
    for seed in range(10):
        replica = Replica()
        three_epochs(replica)
        job = replica.log.prepare_flush()
        assert job is not None
        replica.append(4, size_bytes=60)
        replica.roll()
        job.run()
        replica.append(2)
        replica.log.complete_flush(job)
        replica.expected.flushed = job.end_offset
        assert replica.log.flushed_offset == job.end_offset
        replica.checkpoint()
        replica.after(seed).open().verify()


def test_reads_of_a_failed_log_are_right_or_refused() -> None:
    replica = Replica()
    checkpointed(replica)
    written = replica.expected.history
    replica.append(6, size_bytes=60)
    replica.disk.faults.fail_next(Operation.SYNC)
    with pytest.raises(StorageError):
        replica.log.flush()
    for offset in range(replica.log.log_end_offset):
        try:
            found = replica.log.read(offset, max_bytes=1, end_offset=replica.log.log_end_offset, min_one_batch=True)
        except StorageError:
            assert offset >= written.end
        else:
            assert found in (History(0, replica.expected.history.batches).between(offset, 1 << 60)[0], b"")


def test_every_way_to_read_reports_a_broken_disk_and_changes_nothing() -> None:
    for replica, error in failing_at_each(
        Procedure(_sealed_and_cold, lambda replica: check_answers(replica.log)), FAILURES["unreadable"]
    ):
        assert error is None or isinstance(error, StorageError)
        assert not replica.log.failed
        settle(replica)


def _sealed_and_cold(replica: Replica) -> None:
    checkpointed(replica)
    replica.roll()
    replica.close()
    replica.open()
