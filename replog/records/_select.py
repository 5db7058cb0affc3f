"""Chooses the codec: the compiled one where it was built, its pure-Python twin otherwise or with `REPLOG_PURE=1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.records import _codec_py, _compaction_py, _scan_py
from replog.records._switch import PURE

if TYPE_CHECKING or PURE:  # the twin is the typed one; a test holds the compiled one to the same names
    codec = _codec_py
    scanner = _scan_py
    compactor = _compaction_py
else:
    try:
        from replog.records import _codec as codec
    except ImportError:  # no compiler when this was installed, or a big-endian machine
        codec = _codec_py
    try:
        from replog.records import _scan as scanner
    except ImportError:
        scanner = _scan_py
    try:
        from replog.records import _compaction as compactor
    except ImportError:
        compactor = _compaction_py
