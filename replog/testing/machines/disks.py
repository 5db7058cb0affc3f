"""Disks of their own for single nodes, which can be filled: in memory, with root and the permission to mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self, TypeVar

from replog.errors import ReplogError

SMALL_BYTES = 128 << 20
BALLAST = "ballast"
BALLAST_CHUNK_BYTES = 64 * 1024

D = TypeVar("D")


class DiskNotAvailableError(ReplogError):
    """This machine does not let us mount what is needed; the message says what it said."""


class SmallDisk:
    """A tmpfs, mounted for the length of a block.

    Args:
        folder: The mount point; made if it is not there.
        size_bytes: The size of the disk.
    """

    def __init__(self, folder: Path, size_bytes: int = SMALL_BYTES) -> None:
        self.folder = folder
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        mount_command("mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "tmpfs", str(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        mount_command("umount", "--lazy", str(self.folder))

    def fill(self) -> None:
        """Takes every byte that is free."""
        chunk = bytes(BALLAST_CHUNK_BYTES)
        with (self.folder / BALLAST).open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(chunk)
                except OSError:
                    return

    def make_room(self) -> None:
        """Gives back what `fill` took, if it did."""
        (self.folder / BALLAST).unlink(missing_ok=True)


def small_disk_is_missing() -> str:
    """Says why there can be no `SmallDisk`; "" where there can."""
    return disk_is_missing(["mount", "umount"], lambda folder: SmallDisk(folder, 1 << 20), lambda _: None)


def disk_is_missing(
    tools: Sequence[str], make: Callable[[Path], AbstractContextManager[D]], use: Callable[[D], None]
) -> str:
    """Says why there can be no disk that needs these programs and privileges; "" where there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    for tool in tools:
        if not shutil.which(tool):
            return f"no {tool} here"
    with tempfile.TemporaryDirectory(prefix="replog-disk-") as directory:
        try:
            with make(Path(directory) / "disk") as disk:
                use(disk)
        except DiskNotAvailableError as error:
            return str(error)
    return ""


def mount_command(*command: str) -> None:
    """Runs a command.  Raises: DiskNotAvailableError: The command fails, or is not permitted."""
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 -- commands of this file
    if done.returncode:
        raise DiskNotAvailableError(
            f"{command[0]} is not permitted here: {done.stderr.decode(errors='replace').strip()}"
        )
