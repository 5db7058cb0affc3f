"""Truncation (KIP-101), with worked examples in `tests/data/log/truncation.txt`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from log_test_kit import T0, TINY, append, batch, content, filled, implied_epochs, offsets, open_log, stored

from replog.log import Log, LogConfig
from replog.testing.simulated_filesystem import SimulatedFileSystem

SCENARIOS = Path(__file__).parents[2] / "data" / "log" / "truncation.txt"


def scenarios() -> list[tuple[str, str]]:
    """(title, text) of each scenario; a title is a line that begins with "# "."""
    found: list[tuple[str, str]] = []
    for block in SCENARIOS.read_text(encoding="utf-8").split("\n# ")[1:]:
        title, _, text = block.partition("\n")
        found.append((title, text))
    return found


class Replicas:
    """A leader and a follower that are driven line by line."""

    def __init__(self) -> None:
        self.logs: dict[str, Log] = {}

    def run(self, line: str) -> str:
        name, *words = shlex.split(line)
        if name == "follow":
            return self.follow(*words)
        log = self.logs.setdefault(name, open_log(SimulatedFileSystem(), config=LogConfig(segment_bytes=300)))
        match words:
            case ["append", count, "epoch", epoch]:
                append(log, int(count), leader_epoch=int(epoch))
            case ["leads", "epoch", epoch]:
                log.assign_epoch_start(int(epoch))
            case ["copies", source, "to", end]:
                self.copy(log, self.logs[source], int(end))
            case ["truncate", offset]:
                log.truncate_to(int(offset))
            case ["shows"]:
                epochs = " ".join(f"{epoch}@{start}" for epoch, start in log.leader_epochs.entries)
                return f"end {log.log_end_offset} epochs {epochs}"
            case _:
                raise ValueError(line)
        return ""

    @staticmethod
    def copy(target: Log, source: Log, end: int) -> None:
        while target.log_end_offset < end:
            data = source.read(target.log_end_offset, max_bytes=200, end_offset=end, min_one_batch=True)
            target.append_as_follower(data, now_ms=T0)

    def follow(self, follower_name: str, leader_name: str) -> str:
        """What a follower does with the leader's answers (docs/KAFKA.md 4.5), round by round."""
        follower, leader, steps = self.logs[follower_name], self.logs[leader_name], []
        for _ in range(10):
            last_epoch = follower.last_epoch
            if last_epoch is None:
                break
            theirs = leader.end_offset_for_epoch(last_epoch)
            assert theirs is not None
            if theirs.epoch == last_epoch and theirs.end_offset >= follower.log_end_offset:
                break
            ours = follower.end_offset_for_epoch(theirs.epoch)
            assert ours is not None
            cut = min(ours.end_offset, theirs.end_offset) if ours.epoch == theirs.epoch else ours.end_offset
            follower.truncate_to(min(cut, follower.log_end_offset))
            steps.append(f"epoch {theirs.epoch} ends at {theirs.end_offset}: cut at {cut}")
        self.copy(follower, leader, leader.log_end_offset)
        assert content(follower) == content(leader)
        return "\n".join([*steps, f"copied to {follower.log_end_offset}"])


@pytest.mark.parametrize(("title", "text"), scenarios(), ids=lambda value: value[:60])
def test_worked_example(title: str, text: str) -> None:
    replicas = Replicas()
    for block in text.strip().split("\n\n"):
        commands, _, expected = block.partition("\n----\n")
        output = [replicas.run(line) for line in commands.splitlines() if line]
        assert "\n".join(line for line in output if line) == expected.strip(), title


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 15, 29, 30, 31])
@pytest.mark.parametrize("flush", [True, False])
def test_a_cut_leaves_a_prefix_that_can_be_appended_to(offset: int, flush: bool) -> None:
    fs, log = filled(30)
    before = content(log)
    if flush:
        log.flush()
    assert log.truncate_to(offset) == (offset < 30)
    assert content(log) == before[:offset]
    assert log.log_end_offset == min(offset, 30)
    assert log.flushed_offset == (min(offset, 30) if flush else 0)
    append(log, 5, leader_epoch=1)
    assert offsets(log) == list(range(min(offset, 30) + 5))
    fs.kill()
    again = open_log(fs, recovery_point=log.flushed_offset)
    assert content(again) == content_of(before[:offset], 5)
    assert again.leader_epochs.entries == implied_epochs(again)


def content_of(kept: list[bytes], count: int) -> list[bytes]:
    added = range(len(kept), len(kept) + count)
    return kept + [stored(batch(str(o).encode(), timestamp_ms=T0 + o), o, 1) for o in added]


def test_the_batch_that_holds_the_offset_goes_whole() -> None:
    log = open_log(SimulatedFileSystem())
    for _ in range(4):
        log.append_as_leader(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=T0)
    log.truncate_to(7)
    assert log.log_end_offset == 6


def test_the_lowered_recovery_point_is_durable_before_the_cut() -> None:
    fs, seen = SimulatedFileSystem(), []
    log = open_log(fs)
    append(log, 20)
    log.flush()
    log._state.checkpoint = lambda: seen.append((log.flushed_offset, len(content(log))))
    log.truncate_to(12)
    assert seen == [(12, 20)]
    log.truncate_to(12)
    append(log, 4)
    log.truncate_to(14)
    assert len(seen) == 1  # nothing was promised above 12


def test_a_flush_from_before_a_truncation_promises_nothing() -> None:
    _, log = filled(10)
    job = log.prepare_flush()
    assert job is not None
    log.truncate_to(4)
    append(log, 6)
    job.run()
    log.complete_flush(job)
    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 10


def test_starting_anew() -> None:
    fs, log = filled(20)
    log.flush()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    assert (log.last_epoch, log.segment_base_offsets, content(log)) == (None, [100], [])
    append(log, 3, leader_epoch=2)
    assert offsets(log) == [100, 101, 102]
    fs.kill()
    again = open_log(fs)
    assert offsets(again) == [100, 101, 102]


def test_an_epoch_that_never_wrote_is_forgotten_even_when_nothing_is_cut() -> None:
    _, log = filled(5)
    log.assign_epoch_start(3)
    assert not log.truncate_to(5)
    assert log.last_epoch == 0


def test_an_epoch_cut_from_memory_does_not_come_back_from_disk() -> None:
    """Epoch 3 began at 5 and was cut; epoch 0 goes on above 5; after a restart 3 must be unknown."""
    fs, log = filled(5)
    append(log, 2, leader_epoch=3)
    log.truncate_to(5)
    log.append_as_follower(b"".join(stored(batch(), o, 0) for o in range(5, 9)), now_ms=T0, leader_epoch=4)
    log.flush()
    log.roll(T0)
    fs.kill()
    assert open_log(fs, recovery_point=9).leader_epochs.entries == [(0, 0)]


def test_times_are_right_after_a_cut() -> None:
    _, log = filled(40, config=TINY)
    log.truncate_to(21)
    assert log.offset_for_timestamp(T0 + 20, end_offset=40) == (20, T0 + 20)
    assert log.offset_for_timestamp(T0 + 21, end_offset=40) is None
