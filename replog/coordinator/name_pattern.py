"""Regular expressions that clients send, bounded: what one costs, and how large it may be."""

from __future__ import annotations

from typing import Any, Final

from replog.errors import InvalidRegularExpressionError
from replog.host.extras import install_command

PATTERN_CHARS_MAX: Final = 2_000
"""The characters of a pattern."""
PROGRAM_MAX: Final = 2_000
"""The instructions that a pattern is compiled to: in the worst case each is looked at for each character of a name."""
MEMORY_BYTES: Final = 1 << 20
"""What RE2 may keep to be faster with one pattern."""

_SHOWN_CHARS: Final = 100


class NamePattern:
    """A pattern that a whole name has to match.

    Python's `re` tries one way after the other, so that some patterns take years for a name of 249 characters, and a client that
    sends one would hold the coordinator.  RE2 goes all ways at once; its syntax is that of Kafka's coordinator, which has it in Java.
    What it cannot do, it refuses: references to groups, and to what stands before or behind.

    Args:
        pattern: The regular expression.
        advice: What else one may do, for the error where it cannot be used.

    Raises:
        InvalidRegularExpressionError: It is none, is too large, or the library is not installed.

    Attributes:
        size: The number of instructions.
    """

    __slots__ = ("_program", "size")

    def __init__(self, pattern: str, advice: str) -> None:
        re2 = _library(advice)
        if len(pattern) > PATTERN_CHARS_MAX:
            raise _refused(pattern, advice, f"has {len(pattern)} characters, and may have {PATTERN_CHARS_MAX}")
        options = re2.Options()
        options.log_errors, options.never_capture, options.max_mem = False, True, MEMORY_BYTES
        try:
            self._program = re2.compile(pattern, options)
        except re2.error as error:
            raise _refused(pattern, advice, f"is no regular expression of RE2: {_reason(error)}") from None
        self.size: int = self._program.programsize
        if self.size > PROGRAM_MAX:
            raise _refused(pattern, advice, f"takes {self.size} instructions, and may take {PROGRAM_MAX}: repeat less")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._program.fullmatch(name.encode()) is not None  # of text, it would be counted where characters begin


def _reason(error: Exception) -> str:
    told: object = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)


def _refused(pattern: str, advice: str, why: str) -> InvalidRegularExpressionError:
    shown = pattern if len(pattern) <= _SHOWN_CHARS else pattern[:_SHOWN_CHARS] + "..."
    return InvalidRegularExpressionError(f"the pattern {shown!r} {why}; {advice}")


def _library(advice: str) -> Any:
    """Imports google-re2.

    Raises:
        InvalidRegularExpressionError: It is not installed; the message says what to install.
    """
    try:
        import re2  # pyright: ignore[reportMissingTypeStubs] -- it is shipped without type information
    except ImportError:
        raise InvalidRegularExpressionError(
            "the broker resolves patterns with a library that is not installed there: "
            f"{install_command('patterns')}; {advice}"
        ) from None
    return re2
