"""Freed buffers are kept for the next ones, where the allocator can be told to."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

import replog
from replog.host import process_memory

FREED_AND_TAKEN_AGAIN = """
import resource, sys
size = 33 << 20
if sys.argv[1] == "tuned":
    import replog
    assert replog.tune_process()
    assert replog.tune_process(), "again"
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    b"x" * size
before = faults()
for _ in range(10):
    b"x" * size
print(faults() - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FREED_AND_TAKEN_AGAIN, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc")
def test_large_buffers_are_used_again() -> None:
    assert page_faults("as it is") > 10_000
    assert page_faults("tuned") < 1_000


@pytest.mark.parametrize("problem", [OSError, TypeError])
def test_another_allocator_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, problem: type[Exception]) -> None:
    def no_library(_name: object) -> object:
        raise problem

    monkeypatch.setattr(process_memory.ctypes, "CDLL", no_library)
    assert replog.tune_process() is False


def test_a_library_without_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda _name: object())
    assert replog.tune_process() is False


def test_an_old_glibc_takes_less_and_is_given_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Old:
        def mallopt(self, what: int, value: int) -> int:
            asked.append((what, value))
            return int(what != -3 or value <= 32 << 20)

    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda _name: Old())
    assert replog.tune_process() is True
    assert (-3, 32 << 20) in asked
