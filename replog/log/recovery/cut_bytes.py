"""Bytes that were cut from a log, kept beside it: nothing is gone without a trace.

    flights-3/00000000000000001024.log.cut-3120     what stood behind byte 3120 of that segment, as it was

Kept are the torn tail that a start after a crash cuts, the segments behind it, and what a follower cuts because its leader
has something else there.  Neither Kafka nor a start reads these files; they go with the folder, and may be removed at any
time.  How many there are is bounded:

| bound                                    | what goes                                                          |
|------------------------------------------|--------------------------------------------------------------------|
| `CUT_FILES_MAX` files, `CUT_BYTES_MAX` bytes a log | the oldest files, before new ones are written            |
| the same bytes for one cut               | only the first bytes of a larger one are kept: those next to the log |
| another cut at the same byte             | replaces the file                                                  |
| no room on the disk                      | nothing is kept; the log says so, and the cut goes on               |

A crash while they are written leaves half of one, and the log uncut: the next start finds the same tail and writes it again.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from replog.log.disk_space import is_disk_full
from replog_checkpoints import FileSystem, OpenMode

CUT_FILES_MAX: Final = 8
CUT_BYTES_MAX: Final = 64 << 20
FOLLOWER_CUT_BYTES_MAX: Final = 1 << 20
"""The most bytes that are kept of a follower's cut: it runs on the event loop, where a second is long."""
_PIECE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"\d{20}\.log\.cut-\d+")

_log = logging.getLogger(__name__)


class CutPiece(NamedTuple):
    """Bytes [position, end) of a file, about to be cut."""

    path: str
    position: int
    end: int

    @property
    def kept_path(self) -> str:
        """The path at which they are kept."""
        return f"{self.path}.cut-{self.position}"


def keep_cut(fs: FileSystem, directory: str, pieces: Sequence[CutPiece], bytes_max: int = CUT_BYTES_MAX) -> int:
    """Copies bytes that are about to be cut, durably; returns how many were kept.

    Args:
        fs: The disk.
        directory: The folder of the log.
        pieces: The pieces that will be cut, in the order of the log.
        bytes_max: How many bytes are kept at most, from 0 to `CUT_BYTES_MAX`.

    Raises:
        OSError: The disk failed; a full one is no error.
    """
    chosen: list[CutPiece] = []
    left = bytes_max
    for piece in pieces:
        count = min(piece.end - piece.position, left)
        if count > 0 and len(chosen) < CUT_FILES_MAX:
            chosen.append(piece._replace(end=piece.position + count))
            left -= count
    if not chosen:
        return 0
    try:
        _make_room(fs, directory, chosen)
        for piece in chosen:
            _copy(fs, piece)
        fs.sync_dir(directory)
    except OSError as error:
        if not is_disk_full(error):
            raise
        for piece in chosen:
            with contextlib.suppress(FileNotFoundError):
                fs.remove(piece.kept_path)
        return 0
    return bytes_max - left


def tell_cut(topic_partition: str, pieces: Sequence[CutPiece], offsets: str, why: str, kept_bytes: int) -> None:
    """Warns of the bytes that were cut; does nothing if there are none.

    Args:
        topic_partition: The name of the log.
        pieces: The pieces that were cut, in the order of the log.
        offsets: The offsets that went, as far as they are known, such as "from 17 on".
        why: The reason.
        kept_bytes: How many of the bytes were kept.
    """
    cut_bytes = sum(piece.end - piece.position for piece in pieces)
    if not cut_bytes:
        return
    first = pieces[0]
    kept = f"the first {kept_bytes} of them are kept in {first.path}.cut-*" if kept_bytes else "they are not kept"
    _log.warning(
        "%s: offsets %s were cut, %d bytes from byte %d of %s on: %s; %s",
        topic_partition, offsets, cut_bytes, first.position, first.path, why, kept,
    )  # fmt: skip


def _make_room(fs: FileSystem, directory: str, chosen: Sequence[CutPiece]) -> None:
    """Removes the oldest files until the new ones fit."""
    new = {piece.kept_path for piece in chosen}
    paths = [f"{directory}/{name}" for name in fs.list_dir(directory) if _NAME.fullmatch(name)]
    old = sorted((fs.modified_ms(path), path) for path in paths if path not in new)
    sizes = {path: fs.size(path) for _, path in old}
    room = CUT_BYTES_MAX - sum(piece.end - piece.position for piece in chosen)
    for _, path in old:
        if len(sizes) <= CUT_FILES_MAX - len(chosen) and sum(sizes.values()) <= room:
            return
        fs.remove(path)
        del sizes[path]


def _copy(fs: FileSystem, piece: CutPiece) -> None:
    source = fs.open(piece.path, OpenMode.READ)
    try:
        target = fs.open(piece.kept_path, OpenMode.REPLACE)
        try:
            for position in range(piece.position, piece.end, _PIECE_BYTES):
                data = source.pread(min(_PIECE_BYTES, piece.end - position), position)
                target.pwrite((data,), position - piece.position)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
