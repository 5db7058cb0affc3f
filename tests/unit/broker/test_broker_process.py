"""What a process of our own sets for itself."""

from __future__ import annotations

import subprocess
import sys

LOOKS = """
import gc
from replog.broker.process import tune_garbage_collector
tune_garbage_collector()
walked = []
def note(phase, info):
    if phase == "start":
        walked.append(sum(len(gc.get_objects(generation=each)) for each in range(info["generation"] + 1)))
gc.callbacks.append(note)
kept = [[number] for number in range(400_000)]
grown, walked[:] = max(walked), []
for _ in range(50_000):
    ring = []
    ring.append(ring)
found = sum(each["collected"] for each in gc.get_stats())
kept[:] = [[number] for number in range(400_000)]
print(grown, found, max(walked))
"""


def test_no_look_for_cycles_walks_over_many_objects_however_many_there_are() -> None:
    """Trap: one look walked over all that had been made since the start, and ten thousand replicas held the loop for 350 ms."""
    told = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    grown, found, replaced = map(int, told.stdout.split())
    assert grown < 100_000
    assert found > 20_000, "what is garbage at once is still found"
    assert replaced < 100_000
