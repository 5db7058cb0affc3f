"""A sampling profiler for a process with an event loop in its main thread: what its CPU time goes to, line by line.

Why not cProfile: it makes every call dearer, and a loop of small calls then looks like what it is not.  Here the kernel
interrupts the process once per few milliseconds of CPU time, of all its threads together, and the handler notes where
the main thread stands.  A sample in the selector means that the main thread waited while other threads (gRPC's) worked.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import psutil

INTERVAL_S = 0.004
ROOT = Path(__file__).resolve().parents[1]


class Sampler:
    """Counts where the main thread is.  Make it in the main thread; one per process.

    Attributes:
        lines: samples by the line that ran ("file:line function").
        functions: samples by the functions on the stack, each once a sample ("file function").
    """

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        signal.signal(signal.SIGPROF, self._note)

    def start(self) -> None:
        """Counts from zero."""
        self.lines.clear()
        self.functions.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        code = frame.f_code
        self.lines[f"{_short(code.co_filename)}:{frame.f_lineno} {code.co_qualname}"] += 1
        seen: set[str] = set()
        at: FrameType | None = frame
        while at is not None:
            seen.add(f"{_short(at.f_code.co_filename)} {at.f_code.co_qualname}")
            at = at.f_back
        self.functions.update(seen)


def thread_cpu_s(process_id: int) -> Mapping[int, float]:
    """CPU seconds by thread id; the main thread's id is the process id."""
    try:
        return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(process_id).threads()}
    except psutil.NoSuchProcess:
        return {}


def _short(filename: str) -> str:
    """Relative to this checkout, or from the package on."""
    path = Path(filename)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return str(path.relative_to(ROOT))
    return "/".join(path.parts[-2:])
