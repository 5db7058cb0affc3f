"""How far a log is on stable storage, in a few bytes beside it, written after every fsync.

Why: bad bytes are damage if they were fsynced, else a torn tail.  The recovery point tells the border up to a minute late; by it
alone a bit that flips in that minute's records would look like a torn write, and everything behind it would be cut.

    flights-3/flushed-offset     00 01 | 00 00 00 00 00 00 03 e8 | 4a ed 7e 6f
                                 version 1, offset 1000 (exclusive), CRC-32C of the ten bytes before; big-endian

The file itself is written with one `pwrite` and not fsynced, so it costs an acknowledgement next to nothing.  It is a true
lower bound all the same: it is written after the fsync that it speaks of, and lowered, with an fsync, before anything is cut.

| what happened                                  | what the next start finds                                        |
|------------------------------------------------|------------------------------------------------------------------|
| kill -9                                        | the last value: exactly what was fsynced                          |
| power cut                                      | the last value, an earlier one, or no file: never more than is true |
| power cut inside the write, a flipped bit      | a wrong checksum: nothing is known, the recovery point decides    |
| crash between lowering it and the cut          | a lower bound that is lower than need be                          |
| no room, or no descriptor left, for the write  | an earlier value                                                  |
| the folder was removed or renamed              | the write finds out: the flush fails, and nothing is acknowledged |

After a clean stop it is not looked at: the recovery point is exact then, and another program may have cut the log since.
Kafka does not know the file and leaves it alone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import struct
import threading
from typing import Final

from replog.records._crc32c import crc32c
from replog_checkpoints import File, FileSystem, OpenMode

FLUSHED_OFFSET_FILE: Final = "flushed-offset"
_VERSION: Final = 1
_BODY: Final = struct.Struct(">hq")
_CHECKSUM: Final = struct.Struct(">I")
RECORD_BYTES: Final = _BODY.size + _CHECKSUM.size
_ANYTHING: Final = 2**63 - 1

_log = logging.getLogger(__name__)


def encode_flushed_offset(offset: int) -> bytes:
    """Returns the content of the file."""
    body = _BODY.pack(_VERSION, offset)
    return body + _CHECKSUM.pack(crc32c(body))


def decode_flushed_offset(data: bytes) -> int | None:
    """Returns the offset; None: too short, another version, or a wrong checksum, so nothing is known."""
    if len(data) < RECORD_BYTES:
        return None
    version, offset = _BODY.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _BODY.size)
    is_whole = version == _VERSION and offset >= 0 and checksum == crc32c(data[: _BODY.size])
    return int(offset) if is_whole else None


class FlushedOffsetFile:
    """The file of one log, and the highest offset that it can name.

    Invariants:
        - it never says more than is on stable storage, whenever the power goes;
        - after `close` nothing is written: another log may have the folder's name.

    Args:
        fs: The disk.
        directory: The folder of the log.
        offset: The offset in the file; None: none that can be believed.
        offset_max: More than it may say after a crash; None: there is no file.
    """

    __slots__ = ("_directory", "_era", "_fs", "_is_closed", "_is_told", "_lock", "_offset_max", "offset")

    def __init__(
        self, fs: FileSystem, directory: str, offset: int | None = None, offset_max: int | None = None
    ) -> None:
        self.offset = offset
        self._fs = fs
        self._directory = directory
        self._offset_max = offset_max
        self._era = 0
        self._lock = threading.Lock()  # a flush raises it in a thread of its own, while the owner may want to cut
        self._is_closed = False
        self._is_told = False

    @classmethod
    def load(cls, fs: FileSystem, directory: str) -> FlushedOffsetFile:
        """Reads the file.

        Raises:
            OSError: The disk failed.
        """
        try:
            file = fs.open(f"{directory}/{FLUSHED_OFFSET_FILE}", OpenMode.READ)
        except FileNotFoundError:
            return cls(fs, directory)
        try:
            offset = decode_flushed_offset(file.pread(RECORD_BYTES, 0))
        finally:
            file.close()
        return cls(fs, directory, offset, _ANYTHING if offset is None else offset)

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self._directory}/{FLUSHED_OFFSET_FILE}"

    @property
    def era(self) -> int:
        """Another one after each `lower_to`; a flush remembers the one in which it began."""
        return self._era

    def raise_to(self, offset: int, era: int) -> None:
        """Notes that everything below `offset` is on stable storage.  In any thread.

        A write that fails is told once and otherwise ignored: the old, lower bound stays true.

        Args:
            offset: The exclusive end of the fsynced records.
            era: The one in which that was the end of the log; in a later one the log was cut since.

        Raises:
            FileNotFoundError: The folder is not there any more, so the fsynced files have no name.
        """
        with self._lock:
            if self._is_closed or era != self._era or (self.offset or 0) >= offset:
                return
            self._offset_max = max(offset, self._offset_max or 0)
            try:
                self._write(offset, is_durable=False)
            except FileNotFoundError as error:
                reason = "the folder of the log was removed or renamed while it was open"
                raise FileNotFoundError(errno.ENOENT, reason, self._directory) from error
            except OSError as error:
                self._tell(error)

    def lower_to(self, offset: int) -> None:
        """Makes sure that it says no more than `offset`, durably, before the log is cut there.

        Raises:
            OSError: It may still say more: nothing may be cut.
        """
        with self._lock:
            self._era += 1
            if self._offset_max is None or self._offset_max <= offset:
                return
            self._write(
                min(offset, self.offset or 0), is_durable=True
            )  # never more than the offset that was believed already

    def remove(self) -> None:
        """Deletes the file, durably: nothing is known then, and the recovery point decides.

        Raises:
            OSError: It may still be there.
        """
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(self.path)
        self._fs.sync_dir(self._directory)
        self.offset = self._offset_max = None

    def close(self) -> None:
        """Ends all writing; returns when a write under way has ended."""
        with self._lock:
            self._is_closed = True

    def _write(self, offset: int, *, is_durable: bool) -> None:
        file = self._open_or_create()
        try:
            file.pwrite((encode_flushed_offset(offset),), 0)
            if is_durable:
                file.sync()
        finally:
            file.close()
        self.offset = self._offset_max = offset

    def _open_or_create(self) -> File:
        try:
            return self._fs.open(self.path, OpenMode.WRITE)
        except FileNotFoundError:
            return self._fs.open(self.path, OpenMode.REPLACE)

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("%s cannot be written: %s. A start after a crash knows less until it can be", self.path, error)
