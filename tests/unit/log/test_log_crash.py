"""S1, S2, S4, S8: whatever a power cut leaves, opening the directory gives a prefix with everything that was flushed."""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from log_test_kit import T0, batch, content, implied_epochs, stored

from replog.log import Log, LogConfig, LogDirectory
from replog.records import parse_header
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
TOPIC_ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


class Machine:
    """One broker's directory with one log, and what must be in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedFileSystem()
        self.expected: list[bytes] = []  # what the log holds while it runs
        self.survivors = [self.expected]  # contents of which a crash may leave a prefix
        self.flushed = 0  # offset below which nothing may be lost
        self.leader_epoch = 0
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.assigned: dict[tuple[int, int], bytes] = {}  # (epoch, offset) -> batch
        self.start()

    def start(self, *, power_cuts: bool = True) -> None:
        while True:
            if power_cuts and self.rng.random() < 0.2:
                self.disk.faults.cut_power_after(self.rng.randrange(60))
            try:
                self.directory = LogDirectory.open(
                    self.disk, "/data", cluster_id="c", node_id=1, now_ms=T0, config=CONFIG
                )
                self.log: Log = self.directory.open_log("t", 0, TOPIC_ID, CONFIG, now_ms=T0)
            except PowerCutError:
                self.disk.crash(self.rng)
                continue
            self.disk.faults.clear()
            break
        self.check()

    def check(self) -> None:
        assert not self.directory.offline
        found = content(self.log)
        assert any(found == survivor[: len(found)] for survivor in self.survivors)
        assert self.log.log_end_offset >= self.flushed
        assert self.log.log_start_offset <= self.log.recovery_point <= self.log.log_end_offset
        assert self.log.leader_epochs.entries == implied_epochs(self.log)
        self.check_producers(found)
        self.expected = found
        self.flushed = min(self.flushed, self.log.log_end_offset)
        self.leader_epoch += 1

    def check_producers(self, found: list[bytes]) -> None:
        last_five: dict[int, deque[int]] = {}
        for data in found:
            header = parse_header(data)
            last_five.setdefault(header.producer_id, deque(maxlen=5)).append(header.base_offset)
        known = {pid: deque(b.base_offset for b in e.batches) for pid, e in self.log.producers.producers.items()}
        assert known == last_five
        self.sequences = {pid: self.log.producers.producers[pid].last_sequence + 1 if pid in known else 0 for pid in (1, 2, 3)}

    # What a broker does

    def append(self) -> None:
        producer_id = self.rng.choice((1, 2, 3))
        values = [bytes(self.rng.randrange(120)) for _ in range(self.rng.randrange(1, 4))]
        data = batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=self.sequences[producer_id])
        offset = self.log.log_end_offset
        full = [*self.expected, stored(data, offset, self.leader_epoch)]
        self.survivors = [full]
        assert not self.log.append_as_leader(data, leader_epoch=self.leader_epoch, now_ms=T0).duplicate
        self.sequences[producer_id] += len(values)
        self.expected = full
        assert (self.leader_epoch, offset) not in self.assigned
        self.assigned[self.leader_epoch, offset] = data

    def replicate(self) -> None:
        """As a follower: several batches of one earlier epoch in one append."""
        last_epoch = parse_header(self.expected[-1]).partition_leader_epoch if self.expected else 0
        epoch = self.rng.randrange(last_epoch, max(last_epoch + 1, self.leader_epoch))
        producer_id, offset = self.rng.choice((1, 2, 3)), self.log.log_end_offset
        batches: list[bytes] = []
        for _ in range(self.rng.randrange(1, 5)):
            data = batch(bytes(60), producer_id=producer_id, producer_epoch=0, base_sequence=self.sequences[producer_id])
            batches.append(stored(data, offset + len(batches), epoch))
            self.sequences[producer_id] += 1
        self.survivors = [self.expected + batches]
        self.log.append_as_follower(b"".join(batches), now_ms=T0, leader_epoch=epoch)
        self.expected = self.survivors[0]
        assert self.log.leader_epochs.entries == implied_epochs(self.log)

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point
        assert self.flushed == self.log.log_end_offset

    def truncate(self) -> None:
        if not self.expected:
            return
        keep = self.rng.randrange(max(0, len(self.expected) - 6), len(self.expected))
        offset = parse_header(self.expected[keep]).base_offset
        self.flushed = min(self.flushed, offset)
        self.log.truncate_to(offset)
        self.expected = self.expected[:keep]
        self.survivors = [self.expected]
        self.leader_epoch += 1  # offsets above the cut are given again, by another leader
        self.resync()

    def resync(self) -> None:
        assert content(self.log) == self.expected
        self.check_producers(self.expected)

    def roll(self) -> None:
        self.log.roll(T0)

    def checkpoint(self) -> None:
        self.directory.checkpoint_recovery_points()

    def new_epoch(self) -> None:
        self.leader_epoch += 1
        self.log.assign_epoch_start(self.leader_epoch)

    def stop(self) -> None:
        self.directory.close(now_ms=T0, broker_epoch=7)
        self.disk.faults.clear()
        self.flushed = self.log.log_end_offset
        self.start(power_cuts=False)
        assert self.directory.was_clean

    def kill(self) -> None:
        self.disk.faults.clear()
        self.disk.kill()
        end_offset, flushed = self.log.log_end_offset, self.flushed
        self.start(power_cuts=False)
        assert self.log.log_end_offset == end_offset  # the page cache survives a process
        assert self.flushed == flushed

    def step(self) -> None:
        actions = (self.append,) * 6 + (self.replicate,) * 3 + (
            self.flush, self.flush, self.truncate, self.roll, self.checkpoint, self.checkpoint, self.new_epoch, self.stop,
            self.kill,
        )  # fmt: skip
        action = self.rng.choice(actions)
        if self.rng.random() < 0.15:
            self.disk.faults.cut_power_after(self.rng.randrange(12))
        self.survivors = [self.expected]
        try:
            action()
        except PowerCutError:
            self.disk.crash(self.rng)
            self.start()
        self.disk.faults.clear()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_a_crash_leaves_a_prefix_with_everything_flushed(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(60):
        machine.step()
