"""The types of records in Kafka's topic of consumer groups, `__consumer_offsets`, and the versions that Kafka writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replog.coordinator.messages import RECORD_TYPES, OffsetCommitKey
from replog.coordinator.offset_commit_codec import write_offset_commit
from replog.coordinator.records import CoordinatorRecord, RecordCodec

GROUP_RECORDS: Final = RecordCodec(RECORD_TYPES, {OffsetCommitKey.RECORD_TYPE: write_offset_commit})

OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION: Final = 1
"""The only version that holds a time of expiry, which old clients choose for themselves."""
GROUP_METADATA_VERSION: Final = 3


def packed(records: Iterable[CoordinatorRecord]) -> tuple[CoordinatorRecord, ...]:
    """Returns records with their bytes, which are not made again."""
    return tuple(each._replace(packed=GROUP_RECORDS.encode(each)) for each in records)


def size_of_records(records: Iterable[CoordinatorRecord]) -> int:
    """Returns the bytes of records."""
    encoded = map(GROUP_RECORDS.encode, records)
    return sum(len(key) + len(value or b"") for key, value in encoded)
