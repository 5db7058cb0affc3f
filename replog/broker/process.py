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

GC_YOUNG_OBJECTS = 20_000
"""New objects that can be part of a cycle after which the youngest are looked at: a megabyte, and 2 ms."""

GC_OLD_OBJECTS = 20_000
"""Objects that a look at all may leave to the next one.  With the new ones since, it walks over some 80,000: 8 ms, and 30 on a
machine that is busy."""

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
    """Looks for cycles at few objects at a time, however many there are: metadata and replicas are a great many that stay.

    Ten thousand replicas are 800,000 objects, and one look at all of them stopped the loop for a third of a second.  Every
    second look is at what the one before has left, too, and every third at all.  When that leaves many, they are set aside:
    they go when nobody refers to them any more, but a cycle that they come to be after that stays in memory.  So what lives
    long leaves none when it ends (`tests/unit/broker/test_broker_garbage.py`).  What is there now, modules and all, is set
    aside as well; a full pass before that would find nothing (the imports leave some hundred objects) for 25 ms of every
    start.
    """
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 0, 0)
    if _set_many_aside not in gc.callbacks:
        gc.callbacks.append(_set_many_aside)
    gc.enable()


def _set_many_aside(phase: str, info: dict[str, int]) -> None:
    """Sets the objects aside that a look at all of them has left, where they are many."""
    if phase == "stop" and info["generation"] == 2 and len(gc.get_objects(generation=2)) > GC_OLD_OBJECTS:
        gc.freeze()


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
