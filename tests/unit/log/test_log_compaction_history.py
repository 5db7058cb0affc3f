"""What compaction must keep, whatever the history was.

S11  of every key the newest record below the clean bound survives, and the offsets of all that survive are the same
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from log_compaction_kit import COMPACTED, HORIZON_MS, compact, end_transaction, new_log, put, records, seal
from log_test_kit import T0, content, open_log
from msgspec.structs import replace

from replog.log import CompactionSettings
from replog.records import Codec, parse_header
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.random_examples import examples

KEYS = [b"a", b"b", b"c", b"d", b"e", b"a longer key"]
CONFIG = replace(COMPACTED, segment_bytes=500)


@dataclass
class Written:
    """A record that was appended; `outcome` of its transaction: None while it is open."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int | None
    outcome: str | None


class History:
    """A log, and everything that was ever appended to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedFileSystem()
        self.log = new_log(self.disk, CONFIG)
        self.written: list[Written] = []
        self.sequences = {1: 0, 2: 0}
        self.open_transactions: set[int] = set()
        self.now_ms = T0

    # What happens

    def append(self) -> None:
        pairs = [
            (self.rng.choice(KEYS), None if self.rng.random() < 0.3 else b"%d" % self.rng.randrange(1000))
            for _ in range(self.rng.randrange(1, 4))
        ]
        if self.rng.random() < 0.1:
            pairs.append((None, b"no key"))  # type: ignore[arg-type]  # a topic that became a compacted one later
        producer_id = self.rng.choice((None, 1, 2))
        fields: dict[str, object] = {"codec": self.rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP))}
        is_transactional = False
        if producer_id is not None:
            is_transactional = producer_id in self.open_transactions or self.rng.random() < 0.4
            fields |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": self.sequences[producer_id]}
            fields["is_transactional"] = is_transactional
            self.sequences[producer_id] += len(pairs)
            if is_transactional:
                self.open_transactions.add(producer_id)
        base_offset = put(self.log, *pairs, **fields)
        outcome = None if is_transactional else "committed"
        for number, (key, value) in enumerate(pairs):
            self.written.append(Written(base_offset + number, key, value, producer_id, outcome))

    def end(self) -> None:
        if self.open_transactions:
            producer_id = self.rng.choice(sorted(self.open_transactions))
            self.open_transactions.remove(producer_id)
            is_commit = self.rng.random() < 0.5
            end_transaction(self.log, producer_id, is_commit=is_commit)
            for one in self.written:
                if one.producer_id == producer_id and one.outcome is None:
                    one.outcome = "committed" if is_commit else "aborted"

    def producers(self) -> list[tuple[int, ...]]:
        """Without what may go with a record or a marker, if no snapshot remembers it."""
        return [entry._replace(timestamp=0, coordinator_epoch=0) for entry in sorted(self.log.producers.to_snapshot())]

    def seal(self) -> None:
        seal(self.log)

    def restart(self) -> None:
        found, producers = content(self.log), self.producers()
        recovery_point, first_dirty_offset = self.log.flushed_offset, self.log.first_dirty_offset
        self.disk.kill()
        self.log = open_log(self.disk, config=CONFIG, recovery_point=self.rng.choice((0, recovery_point)))
        self.log.restore_first_dirty_offset(self.rng.choice((0, first_dirty_offset)))
        assert content(self.log) == found
        assert self.producers() == producers
        assert self.log.recovery.bytes_cut == 0
        self.log.flush()

    def compact(self) -> None:
        self.now_ms += self.rng.choice((0, 10, HORIZON_MS))
        small = CompactionSettings(dedupe_buffer_bytes=1024, io_buffer_bytes=4096)
        stats = compact(self.log, now_ms=self.now_ms, settings=small)
        if stats is not None:
            self.check(stats.clean_end_offset)

    # What must hold

    def check(self, clean_end_offset: int) -> None:
        found = {offset: (key, value) for offset, key, value in records(self.log)}
        by_offset = {one.offset: one for one in self.written}
        assert all(found[offset] == (by_offset[offset].key, by_offset[offset].value) for offset in found)
        for one in self.written:
            if one.offset >= clean_end_offset and one.outcome != "aborted":
                assert one.offset in found
        for key in KEYS:
            self.check_key(key, clean_end_offset, found)
        assert not [o for o in found if o < clean_end_offset and by_offset[o].outcome == "aborted"]
        self.check_reads()

    def check_key(self, key: bytes, clean_end_offset: int, found: dict[int, tuple[bytes | None, bytes | None]]) -> None:
        below = [
            one
            for one in self.written
            if one.key == key and one.offset < clean_end_offset and one.outcome == "committed"
        ]
        if below:
            older = [one.offset for one in below[:-1] if one.offset in found]
            assert not older, f"{key!r} is there twice"
            assert below[-1].offset in found or below[-1].value is None, f"the newest record of {key!r} is gone"

    def check_reads(self) -> None:
        headers = [parse_header(data) for data in content(self.log)]
        for offset in range(self.log.log_end_offset):
            data = self.log.read(offset, max_bytes=1, end_offset=self.log.log_end_offset, min_one_batch=True)
            assert parse_header(data) == next(header for header in headers if header.last_offset >= offset)
        bases = self.log.segment_base_offsets
        ends = {header.next_offset for header in headers}
        assert set(bases[1:]) <= ends, "a gap between two segments"


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_the_newest_record_of_every_key_survives(seed: int) -> None:
    history = History(seed)
    actions = [history.append] * 8 + [history.end] * 3 + [history.seal] * 2 + [history.compact] * 3 + [history.restart]
    for _ in range(70):
        history.rng.choice(actions)()
    while history.open_transactions:
        history.end()
    for _ in range(3):
        history.append()
        history.seal()
        history.compact()
