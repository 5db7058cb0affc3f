"""Counts what code does in Python: the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    """Returns how many calls of Python functions `work` makes in this thread."""
    calls = 0

    def count_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def instructions_of(work: Callable[[], object]) -> int:
    """Returns how many instructions of the interpreter `work` takes in this thread, loops within one call too.

    Costs microseconds for each: for small work.
    """
    instructions = 0

    def count_instruction(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal instructions
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        instructions += event == "opcode"
        return count_instruction

    before = sys.gettrace()
    sys.settrace(count_instruction)
    try:
        work()
    finally:
        sys.settrace(before)
    return instructions
