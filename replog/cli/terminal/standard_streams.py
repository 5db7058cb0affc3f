"""The standard streams of a `replog` process, which may be closed, lead to a full disk, or to a reader that has gone.

Why: where descriptor 1 is closed Python has no `sys.stdout`, prints vanish without an error, and the next socket gets
the number 1.  And the error of a write does not say that it was stdout's.

| what                          | what a command does                                 |
|-------------------------------|-----------------------------------------------------|
| stdin or stdout is closed     | `error: stdin: closed` where it is used; status 1   |
| stdout leads to a full disk   | `error: stdout: No space left on device`; status 1  |
| the reader has gone (`head`)  | not a word; status 141, as after SIGPIPE            |
| stderr is closed or full      | goes on without a word there                        |
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

STDIN = "stdin"
STDOUT = "stdout"


class ReaderGoneError(Exception):
    """Nobody reads stdout any more.

    No `OSError`, since typer and rich end the process themselves where they see a broken pipe, with a status of theirs.
    """


def prepare() -> None:
    """Gives this process standard streams whose errors name them.

    To be called once, before anything is read or printed.
    """
    for descriptor in (0, 1, 2):
        _hold_if_closed(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Named(0, "r", STDIN)))
    encoding, errors = ("utf-8", "strict") if sys.stdout is None else (sys.stdout.encoding, sys.stdout.errors)
    sys.stdout = _named_stdout(encoding, errors)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- as long as the process


def discard_unwritten() -> None:
    """Drops what stdout does not take, so that the interpreter does not try again, and complain, when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, ReaderGoneError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _hold_if_closed(descriptor: int) -> None:
    """Puts something there that fails when it is used, so that no file or socket of ours gets the number."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_WRONLY)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        os.set_inheritable(descriptor, True)


def _named_stdout(encoding: str, errors: str | None) -> TextIO:
    raw = _Named(1, "w", STDOUT)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=raw.isatty())


class _Named(io.FileIO):
    """A descriptor whose errors carry its name as their `filename`."""

    def __init__(self, descriptor: int, mode: str, called: str) -> None:
        super().__init__(descriptor, mode, closefd=False)
        self._called = called

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise self._named(error) from None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGoneError from None
        except OSError as error:
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        reason = "closed" if error.errno == errno.EBADF else error.strerror
        return OSError(error.errno, reason, self._called)
