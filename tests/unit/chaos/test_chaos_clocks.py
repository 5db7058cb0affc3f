"""The clocks of `replog chaos`: the time of day moves, by every way to ask for it, and monotonic time does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from replog_chaos.clocks import DAY_NS, HOUR_NS, OFFSET_VARIABLE, SECOND_NS, Clocks, clocks_are_missing
from replog_chaos.faults import FAULTS

SCRIPT = """
import ctypes, json, time

class Timeval(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("usec", ctypes.c_long)]

libc, timeval = ctypes.CDLL(None), Timeval()
libc.time.restype = ctypes.c_long

def ask():
    libc.gettimeofday(ctypes.byref(timeval), None)
    return {
        "clock_gettime": time.time_ns(),
        "coarse": time.clock_gettime_ns(5),  # CLOCK_REALTIME_COARSE
        "gettimeofday": timeval.sec * 10**9 + timeval.usec * 1000,
        "time": libc.time(None) * 10**9,
        "monotonic": time.monotonic_ns(),
        "boot": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    }

print(json.dumps(ask()), flush=True)
input()
print(json.dumps(ask()))
"""
WALL = {"clock_gettime", "coarse", "gettimeofday", "time"}
SLACK_NS = 60 * SECOND_NS
"""The machine may be slow; offsets are hours."""


def asked_before_and_after(environment: Mapping[str, str], clocks: Clocks, offset_ns: int) -> list[dict[str, int]]:
    """What a process is told, and what the same process is told after a jump."""
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            before = process.stdout.readline()
            clocks.jump(1, offset_ns)
            after, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    return [json.loads(before), json.loads(after)]


@pytest.mark.parametrize("offset_ns", [HOUR_NS, -DAY_NS, -DAY_NS + 999_999_999])
def test_a_running_process_sees_its_wall_clock_jump_and_nothing_else(tmp_path: Path, offset_ns: int) -> None:
    if reason := clocks_are_missing():
        pytest.skip(reason)
    clocks = Clocks(tmp_path / "clocks", [1, 2])
    before, after = asked_before_and_after(os.environ | clocks.environment(1), clocks, offset_ns)
    assert {name for name, told in before.items() if abs(told - time.time_ns()) < SLACK_NS} == WALL
    for name, told in after.items():
        moved_ns = told - before[name] - (offset_ns if name in WALL else 0)
        assert -SECOND_NS <= moved_ns < SLACK_NS, name  # time() counts whole seconds, and the clock is coarse
    assert clocks.environment(1)[OFFSET_VARIABLE] != clocks.environment(2)[OFFSET_VARIABLE]


def test_a_preload_of_the_environment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := clocks_are_missing():
        pytest.skip(reason)
    monkeypatch.setenv("LD_PRELOAD", "/lib/one.so")
    library, *others = Clocks(tmp_path / "clocks", [1]).environment(1)["LD_PRELOAD"].split()
    assert (Path(library).exists(), others) == (True, ["/lib/one.so"])


def test_a_clock_that_cannot_jump_ends_the_process_at_once(tmp_path: Path) -> None:
    if reason := clocks_are_missing():
        pytest.skip(reason)
    environment = os.environ | Clocks(tmp_path / "clocks", [1]).environment(1) | {OFFSET_VARIABLE: str(tmp_path / "no")}
    done = subprocess.run([sys.executable, "-c", ""], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode
    assert "REPLOG_CLOCK_OFFSET: No such file" in done.stderr


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert FAULTS["clock-back"].missing() == "no C compiler here"
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/true")
    assert "LD_PRELOAD" in clocks_are_missing(), "nothing was compiled"
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/false")
    assert clocks_are_missing() == "/bin/false does not compile here: "
