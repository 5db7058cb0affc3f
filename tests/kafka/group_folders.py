"""Reads Kafka's folder of `__consumer_offsets`."""

from __future__ import annotations

from pathlib import Path

from replog.coordinator.records import EncodedRecord
from replog.records import decode_batch, scan


def records_of(folder: Path) -> list[EncodedRecord]:
    """The records of its one segment, in order."""
    data = next(iter(sorted(folder.glob("*.log")))).read_bytes()
    found, position = [], 0
    for header in scan(data):
        if not header.is_control:
            found += [(record.key, record.value) for record in decode_batch(data, position)]
        position += header.size_bytes
    return found
