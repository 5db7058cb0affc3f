"""Reads the batches of a sealed segment in bounded pieces, for another thread than the owner's.

The owner may delete, cut or exchange the file meanwhile; bytes that are read then are thrown away with the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from replog.errors import CorruptRecordError
from replog.log.compaction.planning import SourceSegment
from replog.log.segments.scan import read_header
from replog_checkpoints import File, FileSystem, OpenMode


class _Worked(Protocol):
    @property
    def size_bytes(self) -> int: ...


WorkedT = TypeVar("WorkedT", bound=_Worked)


def walk_source(
    fs: FileSystem,
    source: SourceSegment,
    io_buffer_bytes: int,
    work: Callable[[bytes, bool], WorkedT],
    account: Callable[[int], None],
) -> Iterator[WorkedT]:
    """Hands the segment to `work` piece by piece, and yields its result for the whole batches in each.

    Args:
        fs: The disk.
        source: The segment.
        io_buffer_bytes: Size of a piece; a larger batch is read whole.
        work: A function: (bytes that begin with a batch, whether the segment ends with them) -> its result, which says
            how many bytes were whole batches; the rest is handed over again with the next piece.
        account: A function that is told the bytes of every read.

    Raises:
        CorruptRecordError: The file does not hold batches to its end.
        OSError: The disk failed, or the file is gone.
    """
    file = fs.open(source.path, OpenMode.READ)
    try:
        position, piece_bytes = 0, io_buffer_bytes
        while position < source.size_bytes:
            buffer = file.pread(min(piece_bytes, source.size_bytes - position), position)
            account(len(buffer))
            try:
                worked = work(buffer, position + len(buffer) == source.size_bytes)
            except CorruptRecordError as error:
                raise CorruptRecordError(source.path, position + error.position, error.reason) from error
            yield worked
            if worked.size_bytes == 0:  # a batch that is larger than the piece
                piece_bytes = _larger_piece(file, position, piece_bytes, source.size_bytes)
                continue
            position += worked.size_bytes
            piece_bytes = io_buffer_bytes
    finally:
        file.close()


def _larger_piece(file: File, position: int, piece_bytes: int, end: int) -> int:
    """Returns the size of the batch at `position`, which did not fit into `piece_bytes`."""
    size_bytes = read_header(file, position).size_bytes
    if size_bytes <= piece_bytes or position + size_bytes > end:
        raise CorruptRecordError(
            file.path, position, f"a batch of {size_bytes} bytes, {end - position} are left in the segment"
        )
    return size_bytes
