"""What consumers of the classic protocol tell each other, written by hand: the code under test only reads it."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def wanting(
    *topics: str, owned: Sequence[int] = (), owned_topic: str = "t", version: int = 2, rack: str | None = None
) -> bytes:
    """What a consumer tells: the topics that it wants, and the partitions of one that it reads."""
    told = struct.pack(">hi", version, len(topics)) + b"".join(_text(each) for each in topics) + struct.pack(">i", -1)
    if version >= 1:
        told += struct.pack(">i", bool(owned))
        if owned:
            told += _text(owned_topic) + struct.pack(f">i{len(owned)}i", len(owned), *owned)
    if version >= 2:
        told += struct.pack(">i", -1)
    if version >= 3:
        told += struct.pack(">h", -1) if rack is None else _text(rack)
    return told


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
