"""Disks of their own for single nodes: a small one that can be filled, and one whose power can be cut.

Both need root and the permission to mount.  Nothing of it touches the disks of this machine: one lives in memory, the other
in a file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from replog.errors import ReplogError

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
EXT4_BYTES = 256 << 20
SMALL_BYTES = 128 << 20
BALLAST = "ballast"
BALLAST_CHUNK_BYTES = 64 * 1024


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
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "tmpfs", str(self.folder))
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _run("umount", "--lazy", str(self.folder))

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


class CuttableDisk:
    """An ext4 file system in a file, mounted for the length of a block.

    Args:
        folder: The mount point; made if it is not there.  The file lies beside it.
        size_bytes: The size of the disk; the file is sparse.
    """

    def __init__(self, folder: Path, size_bytes: int = EXT4_BYTES) -> None:
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.image")
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _run("umount", "--lazy", str(self.folder))

    def cut_power(self) -> None:
        """Lets nothing more reach the file, not even the journal's last transaction; then mounts it again.

        Whoever had files open on it must have ended.

        Raises:
            DiskNotAvailableError: The ioctl is not permitted, or it cannot be mounted again.
        """
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        except OSError as error:
            raise DiskNotAvailableError(f"the shutdown ioctl is not permitted: {error}") from error
        finally:
            os.close(fd)
        _run("umount", str(self.folder))
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))


Disk = SmallDisk | CuttableDisk
_D = TypeVar("_D", SmallDisk, CuttableDisk)


def small_disk_is_missing() -> str:
    """Says why there can be no `SmallDisk`; "" where there can."""
    return _missing(["mount", "umount"], lambda folder: SmallDisk(folder, 1 << 20), lambda _: None)


def cuttable_disk_is_missing() -> str:
    """Says why there can be no `CuttableDisk`; "" where there can."""
    return _missing(
        ["mkfs.ext4", "mount", "umount"], lambda folder: CuttableDisk(folder, 16 << 20), CuttableDisk.cut_power
    )


def _missing(tools: Sequence[str], make: Callable[[Path], _D], use: Callable[[_D], None]) -> str:
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


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 -- commands of this file
    if done.returncode:
        raise DiskNotAvailableError(
            f"{command[0]} is not permitted here: {done.stderr.decode(errors='replace').strip()}"
        )
