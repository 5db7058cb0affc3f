"""Partitions of ours, one for each shape a log can have, for Kafka to read.

0 codecs        every codec; null, empty, binary keys and values, headers, tombstones, a value of 700 KB
1 rolled        many small segments
2 append-time   LogAppendTime
3 transactions  two producers between each other, committed and aborted
4 open          a transaction that has not ended: nobody reads committed records past it
5 compacted     gaps, a batch without records, a delete horizon
6 epochs        several leader epochs
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.log import Log, LogConfig
from replog.records import (
    Codec,
    TimestampType,
    encode_batch,
    encode_end_transaction_marker,
    with_producer,
)
from replog.records.compression import shrink_batch
from replog_checkpoints import OsFileSystem
from tests.kafka.line_driver import Input
from tests.records_codecs import empty_batch

SHAPES: Final = ("codecs", "rolled", "append-time", "transactions", "open", "compacted", "epochs")
T0: Final = int(time.time()) // 60 * 60_000  # Kafka forgets producers that were idle for a day
CONFIG: Final = LogConfig(segment_bytes=1 << 20, segment_index_bytes=65536, retention_ms=-1)
ROLLING: Final = LogConfig(segment_bytes=20_000, segment_index_bytes=65536, retention_ms=-1)
EMPTY_BATCH_TIMESTAMP: Final = T0 + 40
"""Of the batch that compaction left without records: the largest of its log, so that the time index names it."""
PRODUCED: Final = ((Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.ZSTD, -7), (Codec.ZSTD, 22))
"""Codecs and levels of batches made as a producer makes them: compressed first, its identity put on them afterwards."""
_BIG_BYTES: Final = 700_000


def write_topic(directory: Path, topic: str, topic_id: UUID, *, epochs: Sequence[int]) -> None:
    """Partition folders of ours, one for each of `SHAPES`, closed cleanly.

    Args:
        directory: gets them.
        topic: name.
        topic_id: goes into every `partition.metadata`.
        epochs: leader epochs to use, rising.
    """
    fs = OsFileSystem()
    for number, shape in enumerate(SHAPES):
        folder = directory / f"{topic}-{number}"
        folder.mkdir(parents=True)
        checkpoints.write_partition_metadata(
            fs, str(folder / checkpoints.PARTITION_METADATA_FILE), checkpoints.PartitionMetadata(topic_id, folder.name)
        )
        log = Log.open(
            fs,
            str(folder),
            ROLLING if shape == "rolled" else CONFIG,
            topic_partition=folder.name,
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=T0,
        )
        _WRITERS[shape](log, epochs)
        log.close(T0)


def mixed_records(count: int, seed: int) -> list[Input]:
    """Records of every kind, timestamps out of order."""
    chosen = random.Random(seed)
    keys = (None, b"", b"k1", "ключ-鍵".encode(), b"\xff\x00\xfe\n\t")
    headers: tuple[Sequence[tuple[str, bytes | None]], ...] = (
        (),
        (("h", b"1"),),
        (("a", None), ("a", b""), ("ü", chosen.randbytes(5))),
    )
    return [
        (
            T0 + chosen.randrange(-60, 500) + number,
            chosen.choice(keys),
            chosen.choice((None, b"", b"value", chosen.randbytes(chosen.randrange(900)), b"repeated " * 60)),
            chosen.choice(headers),
        )
        for number in range(count)
    ]


def _append(log: Log, batch: bytes, epoch: int) -> None:
    log.append_as_leader(batch, leader_epoch=epoch, now_ms=T0)


def _codecs(log: Log, epochs: Sequence[int]) -> None:
    sequence = 0
    for number, codec in enumerate(list(Codec) * 4):
        records = mixed_records(1 + 11 * (number % 4), seed=number)
        batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
        _append(log, batch, epochs[0])
        sequence += len(records)
    for codec, level in PRODUCED:
        records = mixed_records(40, seed=level)
        batch = shrink_batch(encode_batch(records), codec, level)
        _append(log, with_producer(batch, 7, 0, sequence), epochs[0])
        sequence += len(records)
    for codec in Codec:
        big = random.Random(codec).randbytes(_BIG_BYTES // 2) + bytes(_BIG_BYTES // 2)
        _append(log, encode_batch([(T0 + 900, b"big", big, ())], codec=codec), epochs[0])


def _rolled(log: Log, epochs: Sequence[int]) -> None:
    for number in range(60):
        records = mixed_records(5, seed=number)
        _append(
            log,
            encode_batch(records, codec=Codec(number % 5), producer_id=8, producer_epoch=1, base_sequence=5 * number),
            epochs[0],
        )
        log.maybe_roll(T0)


def _append_time(log: Log, epochs: Sequence[int]) -> None:
    for number, codec in enumerate(Codec):
        records = [(T0 + number, key, value, headers) for _, key, value, headers in mixed_records(20, seed=number)]
        _append(log, encode_batch(records, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME), epochs[0])


def _transactions(log: Log, epochs: Sequence[int]) -> None:
    sequences = {100: 0, 101: 0}
    for number in range(8):
        for producer_id in sequences:
            _transactional_batch(log, producer_id, sequences, number, epochs[0])
        for producer_id in reversed(sequences):
            _end(log, producer_id, epochs[0], is_commit=(number + producer_id) % 3 != 0)
        _append(log, encode_batch(mixed_records(3, seed=number)), epochs[0])


def _open(log: Log, epochs: Sequence[int]) -> None:
    sequences = {100: 0, 101: 0}
    _transactional_batch(log, 100, sequences, 0, epochs[0])
    _end(log, 100, epochs[0], is_commit=True)
    _transactional_batch(log, 101, sequences, 1, epochs[0])
    _transactional_batch(log, 100, sequences, 2, epochs[0])
    _end(log, 100, epochs[0], is_commit=False)
    _append(log, encode_batch(mixed_records(3, seed=3)), epochs[0])


def _transactional_batch(log: Log, producer_id: int, sequences: dict[int, int], seed: int, epoch: int) -> None:
    records = mixed_records(6, seed=seed)
    sequence = sequences[producer_id]
    batch = encode_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    _append(log, batch, epoch)
    sequences[producer_id] += len(records)


def _end(log: Log, producer_id: int, epoch: int, *, is_commit: bool) -> None:
    marker = encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=epoch,
        timestamp_ms=T0 + 600,
        coordinator_epoch=0,
        is_commit=is_commit,
        producer_id=producer_id,
        producer_epoch=0,
    )
    _append(log, marker, epoch)


def _compacted(log: Log, epochs: Sequence[int]) -> None:
    for batch in _compacted_batches(epochs[0]):
        log.append_as_follower(batch, now_ms=T0)


def _compacted_batches(epoch: int) -> Iterator[bytes]:
    def kept(base_offset: int, count: int, **extra: Any) -> bytes:
        records = [(T0 + n, b"key%d" % n, None if n % 3 == 0 else b"v%d" % n, ()) for n in range(count)]
        return encode_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **extra)

    yield kept(3, 4)
    yield kept(20, 5, producer_id=9, producer_epoch=0, base_sequence=0)
    yield empty_batch(
        base_offset=30,
        last_offset=39,
        max_timestamp=EMPTY_BATCH_TIMESTAMP,
        leader_epoch=epoch,
        producer=(9, 0, 5),
    )
    yield kept(50, 3, delete_horizon_ms=T0 + 86_400_000)
    yield kept(100, 2, codec=Codec.ZSTD)


def _epochs(log: Log, epochs: Sequence[int]) -> None:
    for epoch in epochs:
        for number in range(3):
            _append(log, encode_batch(mixed_records(40, seed=10 * epoch + number)), epoch)


_WRITERS: Final[dict[str, Callable[[Log, Sequence[int]], None]]] = {
    "codecs": _codecs,
    "rolled": _rolled,
    "append-time": _append_time,
    "transactions": _transactions,
    "open": _open,
    "compacted": _compacted,
    "epochs": _epochs,
}
