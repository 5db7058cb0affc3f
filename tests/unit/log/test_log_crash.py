"""S1, S2, S4, S8: whatever a power cut leaves, opening the directory gives a prefix with everything that was flushed."""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_test_kit import T0, batch, content, implied_epochs, stored, visible_epochs

from replog.log import Log, LogConfig, LogDirectory
from replog.records import parse_header
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.random_examples import examples

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
TOPIC_ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


class Machine:
    """One broker's directory with one log, and what must be in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedFileSystem()
        self.history: list[bytes] = []  # what the log holds, with what lies below its start since the last crash
        self.survivor = self.history  # of which a crash may leave a part that begins at the log start
        self.flushed = 0  # offset below which nothing may be lost
        self.log_start_max = 0
        self.leader_epoch = 0
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.assigned: dict[tuple[int, int], bytes] = {}  # (epoch, offset) -> batch
        self.start()

    @property
    def expected(self) -> list[bytes]:
        return [data for data in self.history if parse_header(data).last_offset >= self.log.log_start_offset]

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
        if found:
            first = self.survivor.index(found[0])
            assert found == self.survivor[first : first + len(found)]
        assert self.log.log_end_offset >= self.flushed
        assert self.log.log_start_offset <= self.log.flushed_offset <= self.log.log_end_offset
        assert self.log.log_start_offset <= self.log_start_max
        self.history = self.survivor = found
        self.resync()
        self.leader_epoch += 1

    def resync(self) -> None:
        assert content(self.log) == self.expected
        assert visible_epochs(self.log) == implied_epochs(self.log)
        self.check_producers()

    def check_producers(self) -> None:
        """The last five of each producer, as far as the log still has them."""
        last_five: dict[int, deque[int]] = {}
        for data in self.expected:
            header = parse_header(data)
            last_five.setdefault(header.producer_id, deque(maxlen=5)).append(header.base_offset)
        producers = self.log.producers.producers
        for producer_id, base_offsets in last_five.items():
            known = [one.base_offset for one in producers[producer_id].batches]
            assert known[-len(base_offsets) :] == list(base_offsets)
        assert not [entry for entry in producers.values() if entry.batches[-1].last_offset >= self.log.log_end_offset]
        self.sequences = {pid: producers[pid].last_sequence + 1 if pid in producers else 0 for pid in (1, 2, 3)}

    # What a broker does

    def append(self) -> None:
        producer_id = self.rng.choice((1, 2, 3))
        values = [bytes(self.rng.randrange(120)) for _ in range(self.rng.randrange(1, 4))]
        data = batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=self.sequences[producer_id])
        offset = self.log.log_end_offset
        self.survivor = [*self.history, stored(data, offset, self.leader_epoch)]
        assert not self.log.append_as_leader(data, leader_epoch=self.leader_epoch, now_ms=T0).duplicate
        self.sequences[producer_id] += len(values)
        self.history = self.survivor
        assert (self.leader_epoch, offset) not in self.assigned
        self.assigned[self.leader_epoch, offset] = data

    def replicate(self) -> None:
        """As a follower: several batches of one earlier epoch in one append."""
        last_epoch = self.log.leader_epochs.epoch_for_offset(self.log.log_end_offset - 1) or 0
        epoch = self.rng.randrange(last_epoch, max(last_epoch + 1, self.leader_epoch))
        producer_id, offset = self.rng.choice((1, 2, 3)), self.log.log_end_offset
        batches: list[bytes] = []
        for _ in range(self.rng.randrange(1, 5)):
            data = batch(
                bytes(60), producer_id=producer_id, producer_epoch=0, base_sequence=self.sequences[producer_id]
            )
            batches.append(stored(data, offset + len(batches), epoch))
            self.sequences[producer_id] += 1
        self.survivor = self.history + batches
        self.log.append_as_follower(b"".join(batches), now_ms=T0, leader_epoch=epoch)
        self.history = self.survivor
        assert visible_epochs(self.log) == implied_epochs(self.log)

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.flushed_offset
        assert self.flushed == self.log.log_end_offset

    def truncate(self) -> None:
        count = self.rng.randrange(1, 7)
        if len(self.expected) < count:
            return
        offset = parse_header(self.history[-count]).base_offset
        self.flushed = min(self.flushed, offset)
        self.log.truncate_to(offset)
        self.history = self.survivor = self.history[:-count]
        self.leader_epoch += 1  # offsets above the cut are given again, by another leader
        self.resync()

    def start_anew(self) -> None:
        if self.rng.random() < 0.7:
            return
        offset = self.log.log_end_offset + self.rng.randrange(9)
        self.flushed, self.log_start_max = 0, offset
        self.log.truncate_fully_and_start_at(offset)
        self.flushed = offset
        self.history = self.survivor = []
        self.leader_epoch += 1
        self.resync()

    def raise_start(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.log_start_max = offset
        self.log.set_log_start_offset(offset)
        if self.rng.random() < 0.5:
            self.log.delete_old_segments(T0, high_watermark=self.log.log_end_offset)
        self.resync()

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
            self.kill, self.start_anew, self.raise_start,
        )  # fmt: skip
        action = self.rng.choice(actions)
        if self.rng.random() < 0.15:
            self.disk.faults.cut_power_after(self.rng.randrange(12))
        self.survivor = self.history
        try:
            action()
        except PowerCutError:
            self.disk.crash(self.rng)
            self.start()
        self.disk.faults.clear()


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
@example(seed=35613598)  # a log start above the recovery point, and another crash
@example(seed=464540574)  # a producer that only a snapshot above the scanned segment knows
def test_a_crash_leaves_a_prefix_with_everything_flushed(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(60):
        machine.step()
