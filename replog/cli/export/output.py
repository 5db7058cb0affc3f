"""The file that an export makes: it appears under its name when it is complete, and not before.

    write `<name>.<process id>.tmp` | fsync it | rename to `<name>` | fsync the folder

| crash                                            | what is found                                                |
|--------------------------------------------------|--------------------------------------------------------------|
| before the rename                                | no file, or with --force the old one; a `.tmp` to be removed |
| after the rename, before the fsync of the folder | old or new, both complete                                    |
| after the fsync of the folder                    | the new file                                                 |

An error or Ctrl-C removes the `.tmp`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from replog.cli.errors import CommandFailedError, UsageError
from replog_checkpoints import OsFileSystem


def check_output(path: Path, log_directory: Path | None, *, force: bool) -> None:
    """Refuses an output that cannot be made, before any work is done.

    Raises:
        UsageError: Something is there that must not be replaced, its folder is missing or is the log's own.
    """
    if _is_loop(path):
        raise UsageError("--output", str(path), f"{path} is a loop of symbolic links: name a new file, or - for stdout")
    if path.exists() and not path.is_file():
        raise UsageError("--output", str(path), f"{path} is not a file: name a new file, or - for stdout")
    if path.exists() and not force:
        raise UsageError("--output", str(path), f"{path} exists: name another file, or replace it with --force")
    if not path.parent.is_dir():
        raise UsageError("--output", str(path), f"{path.parent} is not a directory")
    if log_directory is not None and path.resolve().parent == log_directory.resolve():
        raise UsageError("--output", str(path), f"{path.parent} is the log itself: name a file outside of it")


def _is_loop(path: Path) -> bool:
    """Whether `path` leads through symbolic links to itself; resolving it would be a RuntimeError or, later, replace it."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@contextmanager
def replaced_file(path: Path, *, force: bool) -> Generator[BinaryIO]:
    """Opens a file to be written; it takes its name, durably, when the block ends without an error.

    Raises:
        UsageError: Somebody else made the file meanwhile.
        CommandFailedError: The file cannot be written.
    """
    target = path.resolve()
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not force and target.exists():
            raise UsageError("--output", str(path), f"{path} was made by somebody else meanwhile; it was left alone")
        temporary.replace(target)
        OsFileSystem().sync_dir(str(target.parent))
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
