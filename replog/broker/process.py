"""What belongs to a process of our own, never to a user's (`embedded`, clients): scheduling, allocator, parent's death."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from replog.host.process_memory import tune_process

_PR_SET_PDEATHSIG = 1

GC_YOUNG_OBJECTS = 50_000
"""New objects that can be part of a cycle after which the youngest are looked at; some megabytes."""

DESCRIPTORS_MAX = 65_536
"""No more than this are used, whatever the system allows."""


def tune_broker_process() -> None:
    """Sets what was measured to matter for a broker's process (docs/OPERATIONS.md).

    The switch interval: disk threads beside a busy loop get the interpreter within half a millisecond.
    """
    sys.setswitchinterval(0.0005)
    tune_garbage_collector()
    raise_descriptor_limit()
    tune_process()


def tune_garbage_collector() -> None:
    """Looks for cycles less often: metadata is a great many small objects that stay, and every look walks over them.

    With the interpreter's own thresholds a fifth of an active controller's time went there, and a full pass over 100,000
    partitions stops the loop.  What is there now, modules and all, is never looked at again; a full pass before that would
    find nothing (the imports leave some hundred objects) for 25 ms of every start.
    """
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 20, 50)
    gc.enable()


def raise_descriptor_limit() -> None:
    """Raises the limit of open descriptors as far as the system allows, up to `DESCRIPTORS_MAX`.

    Each partition in use needs one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError):  # macOS names no limit and has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Returns how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MAX)


def open_descriptors() -> int:
    """Returns how many descriptors this process has open, those of sockets too; 0 where the system does not tell.

    Where no more can be opened, it returns all that may be open.
    """
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- names only, thousands of them
    except OSError as error:
        return descriptor_limit() if error.errno == errno.EMFILE else 0


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel end this process when its parent ends, whatever ended that (Linux).

    Args:
        parent_pid: The process that started this one; if it is gone already, this process ends at once.
    """
    with suppress(AttributeError):  # only Linux has it: elsewhere a node outlives a parent that is killed
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(f"the process that started this one ({parent_pid}) is gone")


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
