"""The model test's machine: what a broker, its users and the weather do to one log, in any order, against a list.

The list is `Expected` of the crash kit: the batches that the log must hold, the offset below which nothing may be lost, and
where it may start.  Segments are tiny, so that rolls, deletions and snapshots happen all the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_crash_kit import CONFIG, DATA, FOLDER, Replica, check_answers, log_invariants
from log_test_kit import T0, content

from replog.errors import ReplogError
from replog.log import LogConfig, TailCache
from replog.log.flush import FlushJob
from replog.records import parse_header, scan
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import RECOVERY_POINT_FILE, read_offset_checkpoint

CUTS = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 25))
"""When the power goes: after this many changes to the disk, or not during this step."""
SEEDS = st.integers(0, 2**16)
SIZES = st.sampled_from((1, 8, 60, 200))


class LogModel(RuleBasedStateMachine):
    """One replica; see the module."""

    disk_type: type[SimulatedFileSystem] = SimulatedFileSystem

    def __init__(self) -> None:
        super().__init__()
        self.job: FlushJob | None = None
        self.job_ran = False
        self.job_counts = False
        self.power_was_cut = False
        self.sent: list[tuple[bytes, int]] = []  # what producers sent last, with its offset

    @initialize(tail_bytes=st.sampled_from((0, 300, 5_000)))
    def start(self, tail_bytes: int) -> None:
        self.replica = Replica(self.disk_type()).open()
        self.tails = TailCache(tail_bytes)
        self.keep_tail()

    def keep_tail(self) -> None:
        """As a leader does."""
        self.replica.log.keep_tail(self.tails)

    # Growing

    @rule(count=st.integers(1, 5), size_bytes=SIZES, cut=CUTS, seed=SEEDS)
    def append(self, count: int, size_bytes: int, cut: int | None, seed: int) -> None:
        self.attempt(lambda: self.replica.append(count, size_bytes=size_bytes), cut, seed)

    @rule(count=st.integers(1, 6), steps=st.lists(st.booleans(), min_size=6, max_size=6), cut=CUTS, seed=SEEDS)
    def replicate(self, count: int, steps: list[bool], cut: int | None, seed: int) -> None:
        """As a follower that catches up through several epochs."""
        epochs, epoch = [], self.replica.epoch
        for step in steps:
            epoch += step
            epochs.append(epoch)
        self.replica.epoch = epoch
        self.attempt(lambda: self.replica.replicate(count, epochs=epochs), cut, seed)

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """A producer got no answer and sends one of its last five batches again."""
        log, history = self.replica.log, self.replica.expected.history
        recent: dict[int, list[bytes]] = {}
        for one in history.between(log.log_start_offset, log.log_end_offset):
            recent.setdefault(parse_header(one).producer_id, []).append(one)
        candidates = [one for batches in recent.values() for one in batches[-5:]]
        if not candidates:
            return
        again = data.draw(st.sampled_from(candidates))
        original = parse_header(again)
        sent = bytes(8) + again[8:12] + b"\xff\xff\xff\xff" + again[16:]
        info = log.append_as_leader(sent, leader_epoch=self.replica.epoch, now_ms=T0)
        assert (info.duplicate, info.base_offset) == (True, original.base_offset)

    @rule(cut=CUTS, seed=SEEDS)
    def roll(self, cut: int | None, seed: int) -> None:
        self.attempt(self.replica.roll, cut, seed)

    @rule(cut=CUTS, seed=SEEDS)
    def lead(self, cut: int | None, seed: int) -> None:
        self.replica.epoch += 1
        self.attempt(lambda: self.replica.log.assign_epoch_start(self.replica.epoch), cut, seed)

    # Shrinking

    @rule(back=st.integers(1, 4), count=st.integers(1, 6))
    def lose_leadership(self, back: int, count: int) -> None:
        """What was appended last is cut, and another leader's batches come instead."""
        log = self.replica.log
        self.job_counts = False
        self.replica.truncate_to(max(log.log_start_offset, log.log_end_offset - back))
        self.replica.replicate(count)

    @rule(back=st.integers(0, 12), cut=CUTS, seed=SEEDS)
    def truncate(self, back: int, cut: int | None, seed: int) -> None:
        offset = max(self.replica.log.log_start_offset, self.replica.log.log_end_offset - back)
        self.job_counts = False
        self.attempt(lambda: self.replica.truncate_to(offset), cut, seed)

    @rule(delta=st.integers(-20, 20), chance=st.integers(0, 5), cut=CUTS, seed=SEEDS)
    def start_anew(self, delta: int, chance: int, cut: int | None, seed: int) -> None:
        if chance == 0:
            self.job_counts = False
            offset = max(0, self.replica.log.log_end_offset + delta)
            self.attempt(lambda: self.replica.truncate_fully(offset), cut, seed)

    @rule(share=st.floats(0, 1))
    def raise_log_start(self, share: float) -> None:
        log = self.replica.log
        self.replica.raise_log_start(int(log.log_start_offset + share * (log.log_end_offset - log.log_start_offset)))

    @rule(retention_bytes=st.sampled_from((-1, -1, 700, 2000)), cut=CUTS, seed=SEEDS)
    def delete_old_segments(self, retention_bytes: int, cut: int | None, seed: int) -> None:
        replica = self.replica
        replica.log.set_config(
            LogConfig(
                segment_bytes=CONFIG.segment_bytes,
                index_interval_bytes=CONFIG.index_interval_bytes,
                retention_ms=-1,
                retention_bytes=retention_bytes,
            )
        )
        if retention_bytes >= 0:
            replica.expected.start_max = replica.log.log_end_offset
        self.attempt(replica.delete_old_segments, cut, seed)
        replica.expected.start_max = max(self.replica.log.log_start_offset, self.replica.expected.start_min)

    # Durability

    @rule(cut=CUTS, seed=SEEDS)
    def flush(self, cut: int | None, seed: int) -> None:
        self.attempt(self.replica.flush, cut, seed)

    @precondition(lambda self: self.job is None)
    @rule()
    def begin_flush(self) -> None:
        self.job, self.job_ran, self.job_counts = self.replica.log.prepare_flush(), False, True

    @precondition(lambda self: self.job is not None and not self.job_ran)
    @rule(cut=CUTS, seed=SEEDS)
    def run_flush(self, cut: int | None, seed: int) -> None:
        """In another thread, while the owner goes on."""

        def run() -> None:
            if self.job is not None:
                self.job.run()
                self.job_ran = True

        self.attempt(run, cut, seed)

    @precondition(lambda self: self.job_ran)
    @rule()
    def end_flush(self) -> None:
        job, self.job, self.job_ran = self.job, None, False
        if job is not None:
            self.replica.log.complete_flush(job)
            if self.job_counts:
                self.replica.expected.flushed = max(self.replica.expected.flushed, job.end_offset)
                assert self.replica.log.flushed_offset >= job.end_offset

    @precondition(lambda self: self.job is None)
    @rule(meanwhile=st.lists(st.sampled_from(("append", "truncate", "roll")), max_size=4), is_early=st.booleans())
    def flush_slowly(self, meanwhile: list[str], is_early: bool) -> None:
        """The fsync takes its time, and the owner goes on; it covers what was there when it was prepared."""
        self.begin_flush()
        if is_early:
            self.run_flush(None, 0)
        for step in meanwhile:
            match step:
                case "append":
                    self.append(3, 60, None, 0)
                case "truncate":
                    self.truncate(4, None, 0)
                case _:
                    self.roll(None, 0)
        if not is_early:
            self.run_flush(None, 0)
        self.end_flush()

    @rule(cut=CUTS, seed=SEEDS)
    def checkpoint(self, cut: int | None, seed: int) -> None:
        self.attempt(self.replica.checkpoint, cut, seed)

    # Ends and beginnings

    @rule(seed=SEEDS, cut=CUTS)
    def cut_power(self, seed: int, cut: int | None) -> None:
        self.restart(seed, cut)

    @rule(cut=CUTS, seed=SEEDS)
    def kill(self, cut: int | None, seed: int) -> None:
        end_offset = self.replica.log.log_end_offset
        self.restart(None, cut, seed)
        if cut is None:
            assert self.replica.log.log_end_offset == end_offset, "the page cache survives a process"

    @rule(seed=SEEDS)
    def kill_and_flip_a_bit(self, seed: int) -> None:
        """However late a checkpoint is, no bit that changes makes a start cut what was flushed.

        A power cut may take this knowledge away; what the log itself says is flushed counts since.  A bit that no checksum
        covers may be believed, if nothing behind it is lost: the leader epoch of a batch.
        """
        flushed, log = self.replica.expected.flushed, self.replica.log
        if self.power_was_cut:
            flushed = min(flushed, log.flushed_offset)
            if flushed <= log.log_start_offset:
                return  # what is deleted counts as flushed, and may have been on no disk when it was
        damaged = self.replica.after(None)
        if not flip_a_flushed_bit(damaged, flushed, random.Random(seed)):
            return
        try:
            log = damaged.open().log
        except ReplogError:
            return
        assert log.log_end_offset >= flushed, f"flushed to {flushed}, ends at {log.log_end_offset}"
        wanted = [as_sent(one) for one in damaged.expected.history.between(log.log_start_offset, flushed)]
        assert [as_sent(one) for one in content(log)][: len(wanted)] == wanted, "flushed records are gone"

    @rule(cut=CUTS, seed=SEEDS)
    def stop(self, cut: int | None, seed: int) -> None:
        self.finish_job()
        if self.attempt(self.replica.close, cut, seed):
            end_offset = self.replica.expected.flushed
            self.replica.open()
            assert self.replica.directory.was_clean
            assert self.replica.log.log_end_offset == end_offset
            self.replica.verify()
            self.replica.epoch += 1

    # Looking

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 900), ceiling=st.floats(0, 1), whole=st.booleans())
    def read(self, share: float, max_bytes: int, ceiling: float, whole: bool) -> None:
        log = self.replica.log
        start, end = log.log_start_offset, log.log_end_offset
        offset = start + int(share * (end - start))
        end_offset = start + int(ceiling * (end - start))
        data = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=whole)
        expected = b"".join(self.replica.expected.history.between(offset, end_offset))
        assert expected.startswith(data)
        assert len(data) <= max_bytes or (whole and parse_header(data).size_bytes == len(data))
        if whole and expected and offset < end_offset:
            assert data

    @rule()
    def look_up_everything(self) -> None:
        check_answers(self.replica.log)

    @invariant()
    def is_as_expected(self) -> None:
        if hasattr(self, "replica"):
            log, history = self.replica.log, self.replica.expected.history
            assert log.log_end_offset == history.end
            assert content(log) == history.between(log.log_start_offset, history.end)
            log_invariants(log)

    # Parts

    def attempt(self, action: Callable[[], None], cut: int | None, seed: int) -> bool:
        """Does something, perhaps until the power goes; whether it got to its end."""
        if cut is not None:
            self.replica.disk.faults.cut_power_after(cut)
        try:
            action()
        except PowerCutError:
            self.restart(seed, None)
            return False
        self.replica.disk.faults.clear()
        return True

    def restart(self, seed: int | None, cut: int | None, seed_then: int = 0) -> None:
        """Power cut (or kill -9: None), and a start, which may be cut short too."""
        self.job, self.job_ran = None, False
        note(f"restart, seed {seed}")
        self.power_was_cut |= seed is not None or cut is not None
        self.replica = self.replica.after(seed)
        if cut is not None:
            self.replica.disk.faults.cut_power_after(cut)
            try:
                self.replica.open()
            except PowerCutError:
                self.replica = self.replica.after(seed_then)
                self.replica.open()
        else:
            self.replica.open()
        self.replica.disk.faults.clear()
        self.replica.verify()
        self.keep_tail()

    def finish_job(self) -> None:
        """Nobody may close a log beside a running flush."""
        if self.job is not None:
            self.job.run()
            self.replica.log.complete_flush(self.job)
            self.job, self.job_ran = None, False


def flip_a_flushed_bit(replica: Replica, flushed: int, rng: random.Random) -> bool:
    """Flips one bit of a batch that is flushed and that no checkpoint knows of; False: there is none."""
    points = read_offset_checkpoint(replica.disk, f"{DATA}/{RECOVERY_POINT_FILE}") or {}
    places = [
        (path, header.position, header.size_bytes)
        for path, data in replica.disk.image().items()
        if path.startswith(FOLDER) and path.endswith(".log")
        for header in scan(data)
        if points.get(("t", 0), 0) <= header.base_offset and header.next_offset <= flushed
    ]
    if not places:
        return False
    path, position, size_bytes = rng.choice(places)
    replica.disk.flip_bit(path, position + rng.randrange(size_bytes), rng.randrange(8))
    return True


def as_sent(stored: bytes) -> bytes:
    """A batch without its leader epoch."""
    return stored[:12] + stored[16:]
