"""Keeps freed memory in this process, so that all systems measured in it allocate at the same price.

Why: glibc hands large freed blocks back to the kernel or keeps them, depending on sizes that differ by a few bytes
between two systems.  Measured: the same 64 MiB decoded from two logs cost 900 page faults or 14,000, and 0.45 or 0.73
CPU seconds per GB.  A process of a user's own, where nobody has set this, may see either figure.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
GIB = 1024**3


def keep_freed_memory() -> str:
    """Sets glibc's thresholds to 1 GiB; returns what was done, for the environment of a result."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return "unchanged (no glibc)"
    done = mallopt(M_MMAP_THRESHOLD, GIB) and mallopt(M_TRIM_THRESHOLD, GIB)
    return "glibc, freed memory kept up to 1 GiB" if done else "unchanged (refused)"
