"""Chooses the codec: the compiled one where it was built, its pure-Python twin otherwise or with `REPLOG_PURE=1`.

The one place of this package that reads the environment.
"""

from __future__ import annotations

import os  # noqa: TID251 - the switch has to come from outside, before anything is configured
from typing import TYPE_CHECKING

PURE = os.environ.get("REPLOG_PURE") == "1"
"""True forces the pure-Python twin, for comparing the two and where the compiled one is suspected."""

if TYPE_CHECKING or PURE:  # the twin is the typed one; a test holds the compiled one to the same names
    from replog.records import _codec_py, _compaction_py, _scan_py

    codec, scanner, compactor = _codec_py, _scan_py, _compaction_py
else:  # a twin is loaded where it is used: importing all of them would double the time to import this package
    try:
        from replog.records import _codec as codec
    except ImportError:  # no compiler when this was installed, or a big-endian machine
        from replog.records import _codec_py as codec
    try:
        from replog.records import _scan as scanner
    except ImportError:
        from replog.records import _scan_py as scanner
    try:
        from replog.records import _compaction as compactor
    except ImportError:
        from replog.records import _compaction_py as compactor

__all__ = ["PURE", "codec", "compactor", "scanner"]
