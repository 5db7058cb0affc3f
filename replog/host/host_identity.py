"""Which machine a process runs on, as far as two processes of one machine have to agree on it.

Why the boot id: the kernel makes it at random at each start and tells it to its own processes only, so a caller that
knows it is on the same machine.  Containers of one machine share it and may still see other files: it says where to
look, not what is there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Returns the id of this machine's start; "" where the system has none (not Linux, no /proc)."""
    try:
        return BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
