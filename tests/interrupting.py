"""Raises KeyboardInterrupt at a chosen step of a call: what Ctrl-C does to the main thread at the worst moment.

CPython looks for signals where a function begins, where a loop goes back, and behind a call.  These are the steps; those of
`replog` count, those of the simulated disk do not, whose own state an interrupt would spoil.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Final

import replog

STEPS_MAX: Final = 20_000
"""More steps than any call under test has: a loop over them ends."""

_ROOT: Final = str(PurePath(replog.__file__).parent)
_TESTING: Final = str(PurePath(_ROOT) / "testing")
_NO_CALL: Final = "CALL_INTRINSIC"
"""From Python 3.12 on: what the interpreter does by itself, as when a generator is closed; it looks for no signal behind it."""
_CHECKED_BEHIND: Final = ("CALL", "RESUME", "JUMP_BACKWARD", "FOR_ITER", "CONTAINS_OP", "BINARY_SUBSCR", "STORE_SUBSCR")


class Stepper:
    """Runs a call and interrupts it once.

    Args:
        number: The step at which it is interrupted, counted from 1.

    Attributes:
        steps: How many steps were taken.
        where: The function and line at which it was interrupted; None: it was not.
    """

    def __init__(self, number: int) -> None:
        self.steps = 0
        self.where: str | None = None
        self._number = number
        self._opcodes: dict[CodeType, frozenset[int]] = {}

    def run(self, call: Callable[[], object]) -> bool:
        """Calls `call` in this thread; returns whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except KeyboardInterrupt:
            if self.where is None:
                raise
        finally:
            sys.settrace(before)
        return self.where is not None

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(_ROOT) or path.startswith(_TESTING):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode" and frame.f_lasti in self._steps_of(frame.f_code):
            self.steps += 1
            if self.steps == self._number:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._step

    def _steps_of(self, code: CodeType) -> frozenset[int]:
        known = self._opcodes.get(code)
        if known is None:
            found, is_behind = set(), False
            for instruction in dis.get_instructions(code):
                if is_behind:
                    found.add(instruction.offset)
                is_behind = instruction.opname.startswith(_CHECKED_BEHIND) and not instruction.opname.startswith(
                    _NO_CALL
                )
            known = self._opcodes[code] = frozenset(found)
        return known


def interrupted_at(number: int, call: Callable[[], object]) -> str | None:
    """Runs `call` and interrupts it at its step `number`, counted from 1.

    Returns:
        Where that was; None: it has fewer steps.
    """
    stepper = Stepper(number)
    stepper.run(call)
    return stepper.where
