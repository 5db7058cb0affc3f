"""Replicas that are deleted or set aside many at a time: what the owner does at once, and what a job does in a thread."""

from __future__ import annotations

import contextlib
import random
from uuid import UUID

import pytest
from log_test_kit import T0, read_file
from test_log_manager_open import TOPIC, open_manager, with_records

from replog.errors import InvariantViolationError, StorageError, UnknownTopicOrPartitionError
from replog.log import LogManager, RetirementJob
from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

COUNT = 6


def retire(logs: LogManager, *, is_kept: bool = False) -> list[RetirementJob]:
    """All but the last of the replicas."""
    return logs.prepare_retirement([logs.retire("t", number, is_kept=is_kept) for number in range(COUNT - 1)])


def run(logs: LogManager, jobs: list[RetirementJob]) -> None:
    for job in jobs:
        job.run()
        logs.complete_retirement(job, None)
        for removal in job.removals():
            removal.run()


def folders(fs: SimulatedFileSystem) -> list[str]:
    return sorted(name for path in ("/a", "/b", "/c") for name in fs.list_dir(path) if name.startswith("t-"))


def test_each_directory_has_one_job_that_leaves_neither_folders_nor_lines() -> None:
    fs, logs = with_records(COUNT)
    logs.checkpoint_recovery_points()
    jobs = retire(logs)
    assert [(job.path, len(job.replicas)) for job in jobs] == [("/a", 2), ("/b", 2), ("/c", 1)]
    assert len(folders(fs)) == COUNT, "nothing has waited for the disk yet"
    assert sorted(logs.logs) == [("t", COUNT - 1)]
    run(logs, jobs)
    assert folders(fs) == ["t-5"]
    assert [read_file(fs, f"{path}/recovery-point-offset-checkpoint") for path in ("/a", "/b")] == [b"0\n0\n"] * 2
    with pytest.raises(UnknownTopicOrPartitionError):
        logs.retire("t", 0, is_kept=False)


def test_what_is_kept_is_set_aside_whole() -> None:
    fs, logs = with_records(COUNT)
    run(logs, retire(logs, is_kept=True))
    kept = [name for name in folders(fs) if name.endswith("-stray")]
    assert len(kept) == COUNT - 1
    assert logs.open_log("t", 0, UUID(int=9), now_ms=T0).log_end_offset == 0


def test_nobody_takes_the_place_of_a_folder_that_is_still_there() -> None:
    _, logs = with_records(COUNT)
    jobs = retire(logs)
    with pytest.raises(InvariantViolationError, match="is created while the folder of an older one is renamed"):
        logs.open_log("t", 0, UUID(int=9), now_ms=T0)
    run(logs, jobs)
    assert logs.open_log("t", 0, UUID(int=9), now_ms=T0).log_end_offset == 0


def test_a_power_cut_anywhere_leaves_each_replica_whole_or_gone() -> None:
    for operation_count in range(60):
        fs, logs = with_records(COUNT)
        for log in logs.logs.values():
            log.flush()
        logs.checkpoint_recovery_points()
        jobs = retire(logs)
        fs.faults.cut_power_after(operation_count)
        has_run = False
        with contextlib.suppress(PowerCutError):
            for job in jobs:
                job.run()
            has_run = True
            for job in jobs:
                for removal in job.removals():
                    removal.run()
        fs.crash(random.Random(operation_count))
        logs = open_manager(fs)
        assert not logs.offline
        assert {log.log_end_offset for log in logs.logs.values()} == {20}
        assert ("t", COUNT - 1) in logs.logs
        if has_run:
            assert len(logs.logs) == 1, "durable once the job has run"
        for number in range(COUNT - 1):
            if ("t", number) not in logs.logs:
                assert logs.open_log("t", number, TOPIC, now_ms=T0).log_end_offset == 0


def test_folders_that_cannot_be_renamed_are_offline_and_in_nobodys_way() -> None:
    fs, logs = with_records(COUNT)
    jobs = retire(logs)
    fs.faults.fail_always(Operation.RENAME, path_part="/b/t-1")
    for job in jobs:
        failure: StorageError | None = None
        try:
            job.run()
        except StorageError as error:
            failure = error
        logs.complete_retirement(job, failure)
    assert sorted(logs.offline) == [("t", 1), ("t", 4)]
    with pytest.raises(StorageError, match="cannot be taken out of the way"):
        logs.open_log("t", 1, UUID(int=9), now_ms=T0)
