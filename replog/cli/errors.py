"""How a command ends that cannot do what it was asked: one line on stderr and an exit status, never a traceback.

| cause                                                | status |
|------------------------------------------------------|--------|
| wrong usage, a configuration value (`ConfigError`)   | 2      |
| any other `ReplogError`, an `OSError`                | 1      |
| Ctrl-C                                               | 130    |
| whoever read stdout has gone (`replog ... | head`)   | 141    |
| a bug of ours                                        | the traceback, on purpose |
"""

from __future__ import annotations

import contextlib
import sys

from replog.errors import ConfigError, ReplogError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
READER_GONE = 141
"""As a shell shows the end by SIGPIPE: nothing is said, since nobody asked for more."""


class CommandFailedError(ReplogError):
    """A command looked at something and found it wanting; the message is all there is to say."""


class UsageError(ConfigError):
    """An argument of a command is not what it should be."""

    def __init__(self, argument: str, value: object, reason: str) -> None:
        super().__init__(argument, value, reason)


def exit_status(error: BaseException) -> int:
    """Returns the exit status for an error that ended a command."""
    return WRONG_USAGE if isinstance(error, ConfigError) else FAILED


def describe(error: BaseException) -> str:
    """Describes an error: cause and next step as one line; what a node logged before it ended follows, indented."""
    text = _os_error(error) if isinstance(error, OSError) and not isinstance(error, ReplogError) else str(error)
    first, *rest = text.strip().splitlines() or [type(error).__name__]
    return "\n".join([f"error: {first}", *(f"  {line}" for line in rest)])


def report(error: BaseException) -> int:
    """Writes the error and returns the exit status."""
    tell(describe(error))
    return exit_status(error)


def tell(text: str) -> None:
    """Writes a line to stderr; where that is on a full disk, the exit status says it alone."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
