"""Spark's Python processes are tuned, and no others."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from replog.spark.python_worker import is_spark_worker, tune_worker

pytest.importorskip("pyspark")

TUNE = """
import gc, importlib.util, sys
import replog.spark.python_worker as python_worker
from replog.spark.reader import ReplogReader
from replog.spark.options import parse_read_options
from replog.spark.snapshot import PinnedOffsets

sys.modules["__main__"].__spec__ = importlib.util.spec_from_loader(sys.argv[1], None)
reader = ReplogReader(parse_read_options({"bootstrap.servers": "a:1", "subscribe": "t"}), PinnedOffsets("c", (), ()), ())
start = gc.get_freeze_count()  # 3.12 begins with some
reader.partitions()
first = gc.get_freeze_count() - start
later = [[] for _ in range(1000)]
python_worker.tune_worker()
print(first, gc.get_freeze_count() - start)
"""


def frozen_counts(main_module: str) -> tuple[int, int]:
    """How many objects are exempt from garbage collection after planning, and after it was tuned again."""
    done = subprocess.run(
        [sys.executable, "-c", TUNE, main_module], capture_output=True, text=True, check=True, timeout=60
    )
    first, again = map(int, done.stdout.split())
    return first, again


def test_the_modules_of_a_worker_are_not_collected_after_each_task() -> None:
    first, again = frozen_counts("pyspark.daemon")
    assert first > 10_000
    assert again <= first, "what a task makes stays under collection"


def test_any_other_process_is_left_as_it_is() -> None:
    assert frozen_counts("job") == (0, 0)
    before = gc.get_freeze_count()
    tune_worker()
    assert not is_spark_worker()
    assert gc.get_freeze_count() <= before  # what is frozen may still be freed, by a thread of another test for example
