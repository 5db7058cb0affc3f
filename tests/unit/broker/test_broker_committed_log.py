"""What is committed is handed over in order, once, from memory or from the log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from broker_kit import FakeClock

from replog.broker.quorum import committed_log
from replog.broker.quorum.committed_log import CommittedLog, LoadedSnapshot
from replog.broker.quorum.metadata_log import MetadataLog
from replog.controller.messages import CommittedRecords
from replog.errors import CorruptRecordError, InvariantViolationError, UnsupportedVersionError
from replog.log import Log, LogConfig
from replog.log.snapshots.files import SnapshotContext, SnapshotId
from replog.metadata.records import FeatureLevelRecord, MetadataRecord
from replog.rpc.metadata_records import encode_metadata_record
from replog.testing import SimulatedFileSystem


class Rig:
    def __init__(self) -> None:
        fs = SimulatedFileSystem()
        log = Log.open(
            fs,
            "/data/__cluster_metadata-0",
            LogConfig(),
            topic_partition="__cluster_metadata-0",
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            now_ms=0,
        )
        self.log = MetadataLog(fs, log, FakeClock(), lambda: False)
        self.seen: list[object] = []
        self.committed = CommittedLog(self.log, self)
        self.log.append_leader_change(1, 1, (1,), (1,))

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.seen.append((snapshot.snapshot_id, tuple(snapshot.replay())))

    def on_committed(self, batch: CommittedRecords) -> None:
        self.seen.append(batch)

    def on_caught_up(self, high_watermark: int) -> None:
        self.seen.append(high_watermark)

    def append(self, records: Sequence[MetadataRecord], *, kept: bool) -> None:
        base_offset = self.log.log_end_offset
        self.log.append_values(1, [encode_metadata_record(record) for record in records])
        if kept:
            self.committed.keep(base_offset, 1, records, size_bytes=10, timestamp_ms=3)


def level(number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord("f", number)


@pytest.mark.parametrize("kept", [True, False])
def test_batches_come_in_order_with_their_records(kept: bool) -> None:
    rig = Rig()
    rig.append([level(1), level(2)], kept=kept)
    rig.append([level(3)], kept=kept)
    rig.committed.advance(3)
    rig.committed.advance(4)
    assert rig.seen == [
        CommittedRecords(0, 1, 1, ()),
        CommittedRecords(1, 3, 1, (level(1), level(2))),
        3,
        CommittedRecords(3, 4, 1, (level(3),)),
        4,
    ]
    assert rig.committed.applied == 4


def test_kept_records_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.committed.advance(1)
    rig.append([level(1)], kept=True)
    monkeypatch.setattr(committed_log, "decode_metadata_record", None)
    rig.committed.advance(2)
    assert rig.seen[-2:] == [CommittedRecords(1, 2, 1, (level(1),)), 2]


def test_what_was_forgotten_is_read_back() -> None:
    """Leadership was lost: another leader's records may stand there now."""
    rig = Rig()
    rig.append([level(1)], kept=True)
    rig.committed.forget_kept()
    rig.append([level(2)], kept=True)
    rig.committed.advance(3)
    while rig.committed.is_behind:
        rig.committed.hand_over()
    assert [batch.records for batch in rig.seen if isinstance(batch, CommittedRecords)] == [
        (),
        (level(1),),
        (level(2),),
    ]


def test_more_than_can_be_kept_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_log, "KEPT_RECORDS_MAX", 2)
    rig = Rig()
    for number in range(5):
        rig.append([level(number)], kept=True)
    rig.committed.advance(6)
    while rig.committed.is_behind:
        rig.committed.hand_over()
    records = [record for batch in rig.seen if isinstance(batch, CommittedRecords) for record in batch.records]
    assert records == [level(number) for number in range(5)]


@pytest.mark.parametrize("kept", [True, False])
def test_a_long_row_of_batches_comes_in_pieces(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """Trap: those that were kept came all at once, ten thousand records of one change among them."""
    monkeypatch.setattr(committed_log, "PIECE_BYTES", 200)
    monkeypatch.setattr(committed_log, "RECORDS_TOGETHER", 3)
    rig = Rig()
    rig.committed.advance(1)
    for number in range(10):
        rig.append([level(number)], kept=kept)
    rig.committed.advance(11)
    assert rig.committed.is_behind
    assert 11 not in rig.seen, "nobody is told that all is there before it is"
    turns = 0
    while rig.committed.is_behind:
        rig.committed.hand_over()
        turns += 1
    assert turns > 1
    assert rig.seen[-1] == 11
    assert rig.committed.applied == 11


def test_a_large_batch_is_decoded_in_steps_and_handed_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the thousands of records of one new topic do not hold the loop, and nobody sees half of it."""
    monkeypatch.setattr(committed_log, "DECODED_TOGETHER", 10)
    decoded: list[int] = []
    decode = committed_log.decode_metadata_record
    monkeypatch.setattr(
        committed_log,
        "decode_metadata_record",
        lambda value, *, offset: (decoded.append(offset), decode(value, offset=offset))[1],
    )
    rig = Rig()
    rig.append([level(0)], kept=False)
    records = [level(number) for number in range(35)]
    rig.append(records, kept=False)
    rig.append([level(99)], kept=False)
    rig.committed.advance(38)
    steps = [(len(decoded), rig.committed.applied)]
    while rig.committed.is_behind:
        rig.committed.hand_over()
        steps.append((len(decoded), rig.committed.applied))
    assert decoded == list(range(1, 38))
    assert steps == [(11, 2), (21, 2), (31, 2), (36, 37), (37, 38)]
    assert rig.seen[1:] == [
        CommittedRecords(1, 2, 1, (level(0),)),
        CommittedRecords(2, 37, 1, tuple(records)),
        CommittedRecords(37, 38, 1, (level(99),)),
        38,
    ]


def test_records_that_damage_makes_look_like_a_control_batch_are_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node ends: else its metadata would lack these records for good."""
    monkeypatch.setattr(committed_log, "PIECE_BYTES", 1)
    rig = Rig()
    rig.append([level(1)], kept=False)
    position = rig.log.log.size_bytes
    rig.append([level(2)], kept=False)
    rig.log._fs.flip_bit(f"{rig.log.log.directory}/{0:020d}.log", position + 22, 5)
    rig.committed.advance(3)
    rig.committed.hand_over()
    with pytest.raises(CorruptRecordError, match=rf"{0:020d}\.log at byte {position}: checksum"):
        rig.committed.hand_over()
    assert rig.seen == [CommittedRecords(0, 1, 1, ()), CommittedRecords(1, 2, 1, (level(1),))]


def test_a_snapshot_takes_the_place_of_a_batch_that_is_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_log, "DECODED_TOGETHER", 10)
    rig = Rig()
    rig.append([level(number) for number in range(35)], kept=False)
    rig.append([level(99)], kept=False)
    rig.committed.advance(37)
    snapshot_id = write_snapshot(rig, 36)
    rig.committed.load(snapshot_id)
    while rig.committed.is_behind:
        rig.committed.hand_over()
    assert rig.seen[1:] == [(snapshot_id, (level(9),)), CommittedRecords(36, 37, 1, (level(99),)), 37]


def write_snapshot(rig: Rig, end_offset: int) -> SnapshotId:
    snapshot_id = SnapshotId(end_offset, 1)
    values = [encode_metadata_record(level(9))]
    job = rig.log.snapshots.prepare_write(snapshot_id, SnapshotContext(77, ()), values, timestamp_ms=1)
    assert job is not None
    job.run()
    rig.log.snapshots.add(snapshot_id)
    return snapshot_id


def test_a_snapshot_comes_first() -> None:
    rig = Rig()
    snapshot_id = write_snapshot(rig, 1)
    rig.committed.load(snapshot_id)
    assert rig.seen == [(snapshot_id, (level(9),))]
    assert (rig.committed.applied, rig.committed.applied_timestamp_ms) == (1, 77)
    rig.append([level(1)], kept=False)
    rig.committed.advance(2)
    assert rig.seen[1:] == [CommittedRecords(1, 2, 1, (level(1),)), 2]


def test_a_hole_in_the_committed_log_is_a_bug() -> None:
    rig = Rig()
    rig.committed.advance(1)
    with pytest.raises(InvariantViolationError, match="missing from the log"):
        rig.committed.advance(5)


def test_a_record_of_an_unknown_kind_stops_the_node() -> None:
    rig = Rig()
    rig.log.append_values(1, [b"\x80\xfa\x7f\x00"])
    with pytest.raises(UnsupportedVersionError, match="Upgrade this node"):
        rig.committed.advance(2)
