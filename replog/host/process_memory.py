"""How a process gets memory from the system and gives it back: glibc's thresholds, set once.

Why: left alone, glibc hands a large freed buffer back to the kernel or keeps it, by sizes that differ by a few bytes from one
topic to the next, and what was handed back is mapped, cleared and touched anew for the next fetch.  Measured: the same
64 MiB decoded from two logs cost 900 page faults or 14,000.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3

MMAP_THRESHOLD_BYTES: Final = 64 << 20
"""Larger buffers are mapped for themselves and go back when they are freed; the largest message of a stream is smaller."""

MMAP_THRESHOLD_BYTES_OLD: Final = 32 << 20
"""The most that glibc takes before 2.35."""

TRIM_THRESHOLD_BYTES: Final = 128 << 20
"""Freed memory at the end of the heap that is kept for the next buffer."""

TOP_PAD_BYTES: Final = 1 << 20
"""By how much more than was asked for the heap grows."""


def tune_process() -> bool:
    """Makes this process keep freed buffers for the next ones, up to 128 MiB, instead of handing them back each time.

    For processes that read or write many megabytes a second; brokers, the command line and Spark's workers do it by
    themselves.  It concerns all that the process allocates, so it is never done for you in a process of yours.  Call it
    early, from any thread; calling it again changes nothing.

    Returns:
        True where it was done; False where it cannot be: the system's allocator is not glibc's (macOS, Alpine), and is
        left as it is.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # no such function, or no way to look for it (TypeError: Windows)
        return False
    is_mmap_set = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) or mallopt(
        _M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES_OLD
    )
    is_trim_set = mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    is_pad_set = mallopt(_M_TOP_PAD, TOP_PAD_BYTES)
    return bool(is_mmap_set and is_trim_set and is_pad_set)
