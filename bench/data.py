"""Records to measure with: the same for every system and every run."""

from __future__ import annotations

import random
from typing import TypeAlias

SEED = 20_260_101
TIMESTAMP_MS = 1_700_000_000_000
KEY_BYTES = 8

RecordInput: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""(timestamp in ms, key, value, headers), as `replog.records.encode_batch` takes it."""


def records(count: int, record_bytes: int) -> list[RecordInput]:
    """`count` records with key and value of `record_bytes` together, one millisecond apart, of random bytes."""
    source = random.Random(SEED)
    value_bytes = record_bytes - KEY_BYTES
    return [
        (TIMESTAMP_MS + number, source.randbytes(KEY_BYTES), source.randbytes(value_bytes), ())
        for number in range(count)
    ]


def values(count: int, value_bytes: int) -> list[bytes]:
    """`count` different values of random bytes, for records without keys."""
    source = random.Random(SEED)
    return [source.randbytes(value_bytes) for _ in range(count)]
