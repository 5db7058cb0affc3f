"""Runs record tests on both codecs: the compiled one and its pure-Python twin.  Makes the batch that compaction leaves."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType
from typing import Any

import pytest

from replog.records import HEADER_BYTES, _codec_py, batch
from replog.records._crc32c import crc32c

try:
    compiled: ModuleType | None = importlib.import_module("replog.records._codec")
except ImportError:
    compiled = None

NOT_BUILT = "the extension is not built: python setup.py build_ext --inplace"
needs_compiled = pytest.mark.skipif(compiled is None, reason=NOT_BUILT)

IMPLEMENTATIONS = [
    pytest.param(_codec_py, id="python"),
    pytest.param(compiled, id="cython", marks=needs_compiled),
]


def use(monkeypatch: pytest.MonkeyPatch, implementation: Any) -> None:
    """Makes the public functions of `replog.records` work on this codec until the test ends."""
    monkeypatch.setattr(batch, "_codec", implementation)
    monkeypatch.setattr(batch, "BatchBuilder", implementation.BatchBuilder)


def empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp: int,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Returns the header that compaction keeps of a batch whose records are all gone; `producer`: id, epoch, base sequence."""
    span = last_offset - base_offset
    rest = struct.pack(">hiqqqhii", 0, span, -1, max_timestamp, *producer, 0)
    checked = struct.pack(">ib", leader_epoch, 2) + crc32c(rest).to_bytes(4, "big") + rest
    return struct.pack(">qi", base_offset, HEADER_BYTES - 12) + checked
