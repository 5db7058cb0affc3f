"""Whole batches, checked byte by byte: for recovery (`SegmentScan`) and for a follower's append (`scan_checked`).

`consecutive_end` looks at the order of headers alone, for readers whose decoder checks the bytes.

Compiled where that was built; see `_scan_py` for the rules and for what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.records._scan_py import ScannedBatch, describe_epoch
from replog.records._select import scanner

if TYPE_CHECKING:  # the compiled one has the same names
    from replog.records._scan_py import SegmentScan, consecutive_end, scan_checked
else:
    SegmentScan = scanner.SegmentScan
    consecutive_end = scanner.consecutive_end
    scan_checked = scanner.scan_checked

SCAN_IMPLEMENTATION: str = scanner.IMPLEMENTATION
"""Which of the two is loaded: "cython" or "python"."""

__all__ = ["SCAN_IMPLEMENTATION", "ScannedBatch", "SegmentScan", "consecutive_end", "describe_epoch", "scan_checked"]
