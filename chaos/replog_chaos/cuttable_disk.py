"""A disk of its own for a node, whose power can be cut.

It needs root and the permission to mount.  Nothing of it touches the disks of this machine: it lives in a file.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from replog.testing.machines.disks import DiskNotAvailableError, SmallDisk, disk_is_missing, mount_command

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
EXT4_BYTES = 256 << 20


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
        mount_command("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        mount_command("umount", "--lazy", str(self.folder))

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
        mount_command("umount", str(self.folder))
        self._mount()

    def _mount(self) -> None:
        mount_command("mount", "-o", "loop", str(self._image), str(self.folder))


Disk = SmallDisk | CuttableDisk


def cuttable_disk_is_missing() -> str:
    """Says why there can be no `CuttableDisk`; "" where there can."""
    return disk_is_missing(
        ["mkfs.ext4", "mount", "umount"], lambda folder: CuttableDisk(folder, 16 << 20), CuttableDisk.cut_power
    )
