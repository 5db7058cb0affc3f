"""Which offsets a log must have: a file in its folder that says from where on no offset was ever left out.

Why: compaction leaves gaps between batches, and so does a follower that copies a compacted log.  A gap alone therefore
does not tell a hole that damage made.  If it is known that no offset was left out, it does.

    00000000000000000000.log  ...
    complete-from                empty: from the first record on;  "1024\n": from offset 1024 on

| file                    | says                                                                                     |
|-------------------------|------------------------------------------------------------------------------------------|
| there                   | every offset from there to the log end is in this folder; one that is not was lost       |
| not there, or not legible | nothing: an older version or Kafka wrote the folder, or gaps are meant to be             |

| step                                              | and the file                              | a crash in between leaves      |
|---------------------------------------------------|-------------------------------------------|--------------------------------|
| a log is made                                     | is made, empty                            | no file                        |
| the oldest segments are deleted, a log is emptied | is raised to the new start first, durably | less is claimed than is true   |
| a follower's append leaves a gap, a compaction    | is removed first, durably                 | less is claimed than is true   |
| `open_log` finds no file                          | is made, from the end of the log on       | no file                        |
| a repair gives up what is missing                 | is raised to behind it first, durably     | repair again                   |

Kafka and older versions know nothing of it.  Their trace when they compact a log is a line in
`cleaner-offset-checkpoint`: a log with one claims nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from replog.errors import CorruptRecordError
from replog.log.disk_space import is_disk_full, is_out_of_files
from replog.log.file_names import DELETED_SUFFIX, LOG_SUFFIX
from replog_checkpoints import FileSystem, OpenMode, replace_file

COMPLETE_FROM_FILE: Final = "complete-from"


class Completeness:
    """The claim of one log.

    Invariants:
        - the claim in the file is true after any crash.

    Args:
        fs: The disk.
        directory: The folder of the log.
        offset: From where on every offset is there, as the file says; None: nothing is claimed.
    """

    __slots__ = ("_directory", "_fs", "offset")

    def __init__(self, fs: FileSystem, directory: str, offset: int | None) -> None:
        self._fs = fs
        self._directory = directory
        self.offset = offset

    def covers(self, offset: int) -> bool:
        """Whether this and every later offset must be there."""
        return self.offset is not None and offset >= self.offset

    def raise_to(self, offset: int) -> None:
        """Raises the claim before the log loses the records below `offset`; durable when it returns.

        A lower `offset` changes nothing.  Where the disk is full the claim is withdrawn instead.

        Raises:
            OSError: The disk failed.
        """
        if self.offset is None or offset <= self.offset:
            return
        try:
            write_complete_from(self._fs, self._directory, offset)
            self.offset = offset
        except OSError as error:
            if is_out_of_files(error) or not is_disk_full(error):
                raise
            self.withdraw()  # deleting makes room, and must not fail for want of it

    def claim(self, offset: int) -> None:
        """Claims for a log of an older version what its owner knows; durable when it returns.

        Raises:
            OSError: The disk failed, or is full.
        """
        write_complete_from(self._fs, self._directory, offset)
        self.offset = offset

    def withdraw(self) -> None:
        """Removes the file before the log gets a gap; durable when it returns.

        Raises:
            OSError: The disk failed.
        """
        if self.offset is None:
            return
        with contextlib.suppress(FileNotFoundError):  # a withdrawal before this one did not come to its end
            self._fs.remove(_path(self._directory))
        self._fs.sync_dir(self._directory)
        self.offset = None


def read_complete_from(fs: FileSystem, directory: str) -> int | None:
    """Returns the offset in the file; None: it is not there, or not legible.

    Raises:
        OSError: The disk failed.
    """
    try:
        file = fs.open(_path(directory), OpenMode.READ)
    except (FileNotFoundError, IsADirectoryError):
        return None
    try:
        text = file.pread(file.size(), 0)
    finally:
        file.close()
    if not text:
        return 0
    digits = text.removesuffix(b"\n")
    return int(digits) if digits.isdigit() and len(text) == len(digits) + 1 <= _TEXT_BYTES_MAX else None


def start_complete(fs: FileSystem, directory: str) -> None:
    """Makes the file of a log without records, durable once the directory is."""
    fs.open(_path(directory), OpenMode.REPLACE).close()


def write_complete_from(fs: FileSystem, directory: str, offset: int) -> None:
    """Replaces the file, durably."""
    replace_file(fs, _path(directory), b"%d\n" % offset)


def hole(path: str, position: int, start_offset: int, end_offset: int) -> CorruptRecordError:
    """Returns the error for the offsets [start_offset, end_offset) that are not where they must be.

    Args:
        path: The file in which they would stand.
        position: The byte at which they would begin.
        start_offset: The first one.
        end_offset: The first one that is there again, or the log end.
    """
    return CorruptRecordError(path, position, hole_reason(start_offset, end_offset))


def hole_reason(start_offset: int, end_offset: int) -> str:
    """Returns the text that says which offsets are missing, with the next step."""
    return (
        f"offsets {start_offset} to {end_offset - 1} are missing, and no compaction took them. Nothing was changed: restore "
        "the segment files from a copy; where the partition has other replicas, this one is fetched from its leader again; or "
        "give the records up with `replog log repair --accept-loss`"
    )


def is_first_lost(
    complete_from: int | None,
    first_base_offset: int,
    epochs: Sequence[tuple[int, int]] | None,
    names: Collection[str],
) -> bool:
    """Whether the files of the oldest segment are gone although the log did not delete them.

    There are two witnesses: a deletion of a segment raises the claim before, and forgets the epochs below the new start after.

    Args:
        complete_from: The claim.
        first_base_offset: The base offset of the oldest segment that is there.
        epochs: The leader-epoch checkpoint, (epoch, start offset), oldest first; None: it cannot be read.
        names: The files in the folder; a `.log.deleted` says that a deletion was under way.
    """
    if complete_from is None or not epochs or any(name.endswith(LOG_SUFFIX + DELETED_SUFFIX) for name in names):
        return False
    return complete_from < first_base_offset and epochs[0][1] < first_base_offset


def _path(directory: str) -> str:
    return f"{directory}/{COMPLETE_FROM_FILE}"


_TEXT_BYTES_MAX: Final = 20
