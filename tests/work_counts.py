"""Counts what code does in Python: the same on every machine, however busy."""

from __future__ import annotations

import sys
import threading
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
    if sys.version_info >= (3, 12):  # whose trace functions hear of none in what is called for the first time
        return _monitored_instructions_of(work)
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


def _monitored_instructions_of(work: Callable[[], object]) -> int:
    instructions, thread = 0, threading.get_ident()

    def count_instruction(_code: object, _offset: int) -> None:
        nonlocal instructions
        instructions += threading.get_ident() == thread

    monitoring: Any = vars(sys)["monitoring"]  # PEP 669, which type checkers do not know before Python 3.12
    tool, event = monitoring.OPTIMIZER_ID, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, "work counts")
    try:
        monitoring.register_callback(tool, event, count_instruction)
        monitoring.set_events(tool, event)
        work()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return instructions
