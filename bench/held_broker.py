"""A broker process that notes the longest hold of its loop: ``python -m bench.held_broker HOLD_FILE --config FILE ...``.

A hold is the processor time of one step of the loop, in its thread: how long it takes on a core of its own, however busy the machine
is.  The file has eight bytes, the longest one in seconds (`struct` "d"); whoever reads it writes 0 to begin anew.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time
from asyncio import events
from pathlib import Path

from replog.broker.__main__ import main

_longest = struct.Struct("d")

HOLD_BYTES = _longest.size
STEP = "_run"
"""The method of a `Handle` that each step of a loop is a call of."""


class HoldFile:
    """The file, as either process sees it.

    Args:
        path: The path of the file, which has its bytes.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), HOLD_BYTES)

    @property
    def longest_s(self) -> float:
        """The longest hold since the last time that one was set."""
        return float(_longest.unpack_from(self._shared)[0])

    @longest_s.setter
    def longest_s(self, longest_s: float) -> None:
        _longest.pack_into(self._shared, 0, longest_s)


def watch(holds: HoldFile) -> None:
    """Notes the holds of the loop that runs in this thread."""
    run, thread_id = getattr(events.Handle, STEP), threading.get_ident()

    def measured(handle: events.Handle) -> None:
        if threading.get_ident() != thread_id:
            run(handle)
            return
        begun_s = time.thread_time()
        run(handle)
        held_s = time.thread_time() - begun_s
        holds.longest_s = max(holds.longest_s, held_s)

    setattr(events.Handle, STEP, measured)


if __name__ == "__main__":
    watch(HoldFile(Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
