"""The file that says which nodes a local cluster has and which processes they are, and the lock that guards it.

A node whose process stands in no file would be found by no command, so it is killed again where the file cannot be written.
That must not happen for want of room: `make_room` takes it before a process is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from replog.errors import ConfigError
from replog_checkpoints import allocate

NAME: Final = "cluster.json"
GROWTH_BYTES: Final = 4096
"""More than one started node adds to the file."""


def write(directory: Path, state: Mapping[str, Any]) -> None:
    """Replaces the file; the caller holds the lock of the directory.

    Raises:
        OSError: It cannot be written; there is no want of room behind `make_room`.
    """
    temporary = directory / f"{NAME}.tmp"
    with _opened(temporary) as file:
        file.write(_encoded(state))
        file.truncate()
    temporary.replace(directory / NAME)


def make_room(directory: Path, state: Mapping[str, Any]) -> None:
    """Takes the room that the next `write` needs; the caller holds the lock of the directory.

    Args:
        directory: The directory of the cluster.
        state: What the file says now.

    Raises:
        OSError: There is no room for it.
    """
    with _opened(directory / f"{NAME}.tmp") as file:
        allocate(file.fileno(), len(_encoded(state)) + GROWTH_BYTES)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Waits until no other command changes the nodes of the cluster, and keeps others from it in the block."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone leaves it to a fork of this process, if there is one
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_for_new(directory: Path) -> Iterator[None]:
    """Makes and locks the directory of a cluster that is going to be made there.

    Raises:
        ConfigError: The directory cannot be used, or a cluster exists there.
    """
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory))
        except OSError as error:
            raise unusable(directory, error) from error
        refuse_cluster(directory)
        yield


def refuse_cluster(directory: Path) -> None:
    """Raises ConfigError where a cluster is in the directory, or may be and cannot be seen."""
    try:
        exists = (directory / NAME).exists()
    except OSError as error:
        raise unusable(directory, error) from error
    if exists:
        raise ConfigError(
            "directory",
            str(directory),
            f"{directory} holds a cluster already. `replog cluster restart --dir {directory}` starts it again; a new one needs another directory.",
        )


def unusable(directory: Path, error: OSError) -> ConfigError:
    """Makes the error for a directory in which no cluster can be made."""
    reason = (
        "it is no directory" if directory.exists() and not directory.is_dir() else f"{error.filename}: {error.strerror}"
    )
    return ConfigError(
        "directory", str(directory), f"no cluster can be made in {directory}: {reason}. Name another directory."
    )


def _opened(path: Path) -> BinaryIO:
    """Opens a file at its start, with the room that it has taken."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")


def _encoded(state: Mapping[str, Any]) -> bytes:
    return json.dumps(state, indent=2).encode()
