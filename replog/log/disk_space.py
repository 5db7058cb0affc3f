"""Room on the disk of one log directory: a full disk is a state, not an accident.

    free bytes   ok      >= warn  >=  warn  >= read-only  >=  read-only
                 --------------------+-----------------------+---------------------
    appends      yes                  yes, and it is told     DiskFullError, nothing is written
    reads, retention, deletes, checkpoints                    go on: they make room again

The way back: enough free bytes *and* the reserve file made again.  Making it proves that the disk takes writes, which the
number of free bytes alone does not (quotas, no inodes left).

The reserve `.reserve` is a preallocated file, given back to the disk when a checkpoint meets ENOSPC, so that it and leader
epochs, indexes and snapshots still find room when appends have used up everything else.

| crash                                   | what the next start finds                            |
|-----------------------------------------|------------------------------------------------------|
| while the reserve is made               | a shorter file, made anew                            |
| after it was given back                 | no reserve; made when there is room                  |

A limit counts as a share of the disk where the disk is small, so that the defaults also work on one of a megabyte.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator
from enum import Enum
from typing import Final

from msgspec import Struct

from replog.errors import ConfigError, DiskFullError, StorageError, TooManyOpenFilesError
from replog_checkpoints import FileSystem, OpenMode

RESERVE_FILE: Final = ".reserve"
WARN_SHARE: Final = 10  # a tenth of the disk
READ_ONLY_SHARE: Final = 20
RESERVE_SHARE: Final = 50
_BLOCK_BYTES: Final = 4096
_NO_MORE_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *_NO_MORE_FILES})
_MORE_FILES: Final = (
    "Raise the limit of the process (`ulimit -n`, LimitNOFILE of a service, resource.setrlimit in a program), close logs "
    "that are not used, or choose larger segments"
)
_NOTHING_CHANGED: Final = "Nothing was changed"


def is_out_of_files(error: BaseException) -> bool:
    """Whether a file could not be opened because too many are open: the work has not begun."""
    return isinstance(error, OSError) and error.errno in _NO_MORE_FILES


def is_disk_full(error: BaseException) -> bool:
    """Whether a write was refused for want of room, or of descriptors: nothing was changed, and later it may work.

    Never true of an fsync: pages that it could not write are lost (see `lost_in_fsync`).
    """
    return isinstance(error, OSError) and error.errno in _FULL


def disk_full(action: str, directory: str, error: OSError, outcome: str = _NOTHING_CHANGED) -> DiskFullError:
    """Returns the error for a write that the disk refused, or for a file that no descriptor was left to open.

    Args:
        action: The failed work, such as "an append did not begin".
        directory: The directory whose disk it is.
        error: The error of the disk.
        outcome: The state now, a sentence without its full stop.
    """
    if is_out_of_files(error):
        again = "; the same works again as soon as there are descriptors" if outcome == _NOTHING_CHANGED else ""
        return TooManyOpenFilesError(
            f"{action}: {directory}: too many open files ({error.strerror}). {outcome}. {_MORE_FILES}{again}", directory
        )
    return DiskFullError(
        f"{action}: the disk of {directory} is full ({error.strerror}). {outcome}. Delete files or topics, lower "
        "retention.ms or retention.bytes, or enlarge the disk; writing goes on by itself when there is room",
        directory,
    )


def left_unfinished(action: str, directory: str, error: OSError) -> DiskFullError:
    """Returns the error for a change that has begun, and whose rest needs a file that could not be opened."""
    return disk_full(action, directory, error, "It has begun, and the next change of this log ends it first")


def not_closed_in_order(directory: str, error: DiskFullError) -> str:
    """Returns the error for a directory that is closed, and into which not everything could be written."""
    out_of_files = isinstance(error, TooManyOpenFilesError)
    reason = f"too many open files. {_MORE_FILES}" if out_of_files else "the disk is full. Make room"
    return (
        f"{directory} is closed, but not in order: {reason}, then open it again: that checks the logs, makes durable what "
        "was not yet, and writes what is missing"
    )


@contextlib.contextmanager
def disk_full_errors(action: str, directory: str) -> Generator[None]:
    """Turns the error of a refused write within it into ours; any other passes as it is.

    Only for work that changes nothing if the disk refuses it.

    Raises:
        DiskFullError: There was no room, or (`TooManyOpenFilesError`) no descriptor.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(action, directory, error) from error
        raise


@contextlib.contextmanager
def reading_errors(what: str, directory: str) -> Generator[None]:
    """Turns the errors of the disk within it into ours, around work that only reads.

    Args:
        what: The failed work, such as "verified".
        directory: The path that is read.

    Raises:
        TooManyOpenFilesError: No descriptor was left.
        StorageError: The disk failed.
    """
    try:
        with disk_full_errors(f"it cannot be {what}", directory):
            yield
    except OSError as error:
        raise StorageError(f"{directory} cannot be {what}: {error}. Check the path and the disk") from error


class DiskState(Enum):
    """How much room there is."""

    OK = "ok"
    WARN = "warn"
    READ_ONLY = "read-only"


class DiskLimits(Struct, frozen=True):
    """When a disk counts as full.  0 switches a limit off.

    Raises:
        ConfigError: A value is negative.
    """

    warn_free_bytes: int = 1 << 30
    """Below this it is told, bytes; at most a tenth of the disk."""

    read_only_free_bytes: int = 256 << 20
    """Below this nothing is appended, bytes; at most a twentieth of the disk.  Too small: indexes and checkpoints of the
    segments that are open no longer fit."""

    reserve_bytes: int = 16 << 20
    """Size of the reserve file, bytes; at most a fiftieth of the disk."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, value, f"{name} is {value}; it must be from 0")

    def on(self, total_bytes: int) -> DiskLimits:
        """Returns the limits in force on a disk of this size: each at most its share of the disk."""
        reserve_bytes = min(self.reserve_bytes, total_bytes // RESERVE_SHARE)
        return DiskLimits(
            min(self.warn_free_bytes, total_bytes // WARN_SHARE),
            min(self.read_only_free_bytes, total_bytes // READ_ONLY_SHARE),
            reserve_bytes - reserve_bytes % _BLOCK_BYTES,
        )


NO_LIMITS: Final = DiskLimits(0, 0, 0)
"""Only a write that the disk refuses makes a directory read-only."""


class DiskSpace:
    """The room of one directory.  One owner; `check` may run in another thread while the owner appends.

    Args:
        fs: The disk.
        path: Path of the directory, which exists.
        limits: The limits before they are cut to the size of the disk.

    Attributes:
        state: How much room there is, as far as is known.
        free_bytes: Free bytes at the last look.
        total_bytes: The size of the disk, at the last look.

    Invariants:
        - in READ_ONLY every `admit` raises;
        - READ_ONLY ends only with a whole reserve, made since the disk last refused something.
    """

    def __init__(self, fs: FileSystem, path: str, limits: DiskLimits) -> None:
        self.path = path
        self.state = DiskState.OK
        self.free_bytes = 0
        self.total_bytes = 0
        self._fs = fs
        self._configured = limits
        self._limits = limits
        self._room_bytes = 0
        self._has_reserve = False
        self._is_proven = True  # the disk has refused nothing since the reserve was made

    @property
    def has_reserve(self) -> bool:
        """Whether the reserve file is whole."""
        return self._has_reserve

    @property
    def limits(self) -> DiskLimits:
        """The limits in force at the last look."""
        return self._limits

    def admit(self, size_bytes: int) -> None:
        """Raises where nothing may be appended.  Costs a subtraction; looks at the disk when the room may be used up.

        Args:
            size_bytes: Bytes that are about to be written.

        Raises:
            DiskFullError: The directory is read-only.
        """
        self._room_bytes -= size_bytes
        if self._room_bytes < 0 and self.state is not DiskState.READ_ONLY:
            self._look()
            self._room_bytes -= size_bytes
            self.state = self._state_of(self.free_bytes - size_bytes)
        if self.state is DiskState.READ_ONLY:
            raise DiskFullError(self.describe(), self.path, self.free_bytes)

    def check(self) -> DiskState:
        """Looks at the disk and returns the state now; makes the reserve when it is missing and there is room.

        Raises:
            OSError: The disk does not answer.
        """
        self._look()
        reserve_bytes = 0 if self._has_reserve else self._limits.reserve_bytes
        state = self._state_of(self.free_bytes - reserve_bytes)
        if state is not DiskState.READ_ONLY and not (self._has_reserve and self._is_proven):
            self._make_reserve()
        if self.state is not DiskState.READ_ONLY or (self._has_reserve and self._is_proven):
            self.state = state
        return self.state

    def refuse(self) -> None:
        """Makes the directory read-only, because the disk has refused an append; keeps the reserve for checkpoints."""
        self.state = DiskState.READ_ONLY
        self._is_proven = False
        with contextlib.suppress(OSError):
            self._look()

    def make_room(self) -> bool:
        """Makes the directory read-only and gives the reserve back, because the disk has refused a write that must succeed.

        Returns:
            Whether there was a reserve: then the same write may work now.
        """
        self.refuse()
        return self.release_reserve()

    def release_reserve(self) -> bool:
        """Gives the reserve back to the disk, also one that an earlier process made; returns whether there was one."""
        self._has_reserve = False
        try:
            self._fs.remove(self._reserve_path)
        except OSError:
            return False
        return True

    def describe(self) -> str:
        """Returns the state in a sentence, with the next step."""
        limits = self._limits
        match self.state:
            case DiskState.OK:
                return f"{self.path} has {self.free_bytes:,} bytes free"
            case DiskState.WARN:
                return (
                    f"{self.path} has {self.free_bytes:,} bytes free, below log.dir.warn.free.bytes "
                    f"({limits.warn_free_bytes:,} here). Below {limits.read_only_free_bytes:,} nothing is appended any more: "
                    "delete topics, lower retention.ms or retention.bytes, or enlarge the disk"
                )
            case DiskState.READ_ONLY:
                return (
                    f"{self.path} is read-only: {self.free_bytes:,} bytes free, log.dir.read.only.free.bytes is "
                    f"{limits.read_only_free_bytes:,} here. Nothing was appended. Delete files or topics, lower retention.ms "
                    "or retention.bytes, or enlarge the disk; appends go on by themselves when there is room"
                )

    # Parts

    @property
    def _reserve_path(self) -> str:
        return f"{self.path}/{RESERVE_FILE}"

    def _look(self) -> None:
        usage = self._fs.disk_usage(self.path)
        self._limits = self._configured.on(usage.total_bytes)
        self.free_bytes, self.total_bytes = usage.free_bytes, usage.total_bytes
        # half: indexes, small files and other processes take room too; the nearer the limit, the more often it looks
        self._room_bytes = max(0, usage.free_bytes - self._limits.read_only_free_bytes) // 2

    def _state_of(self, free_bytes: int) -> DiskState:
        if free_bytes < self._limits.read_only_free_bytes:
            return DiskState.READ_ONLY
        return DiskState.WARN if free_bytes < self._limits.warn_free_bytes else DiskState.OK

    def _make_reserve(self) -> None:
        """Makes the reserve, or leaves no half of it behind.  It need not be durable: a start makes it again."""
        if not self._limits.reserve_bytes:
            self._has_reserve = self._is_proven = True
            return
        try:
            file = self._fs.open(self._reserve_path, OpenMode.REPLACE)
            try:
                file.allocate(self._limits.reserve_bytes)
            finally:
                file.close()
        except OSError as error:
            self.release_reserve()
            if not is_disk_full(error):
                raise
        else:
            self._has_reserve = self._is_proven = True
