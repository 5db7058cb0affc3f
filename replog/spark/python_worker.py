"""What Spark's own Python processes are spared: a full garbage collection after each task, and memory that comes and goes.

Spark's daemon calls `gc.collect()` in a worker behind every task and every step of planning.  It walks all objects of the process,
and nearly all of them are modules: 70,000 objects and 40 ms of CPU time, as long as decoding 150 MB takes.
"""

from __future__ import annotations

import gc
import os
import sys

from replog.host.process_memory import tune_process

_DAEMON = "pyspark.daemon"

_tuned_pid: int | None = None


def is_spark_worker() -> bool:
    """Whether this process was forked by Spark's Python daemon, for tasks or for planning."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


def tune_worker() -> None:
    """Makes a worker of Spark cheaper from task to task; does nothing elsewhere, and nothing when it is called again.

    Call it once everything is imported.  What is there then is not looked at by the garbage collector any more: a
    cycle among these objects that is dropped later stays.  That is done once in a process, so it is bounded.
    """
    global _tuned_pid  # noqa: PLW0603 -- one per process is the point
    if _tuned_pid == os.getpid() or not is_spark_worker():
        return
    _tuned_pid = os.getpid()
    tune_process()
    gc.freeze()
