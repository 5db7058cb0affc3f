"""The newest batches of logs that are being written, kept in memory for readers right behind the end.

Why beside the page cache: every in-sync replica fetches the batches of a moment ago.  From here they share one copy,
without looking up a position or asking the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from replog.records import Buffer

TAIL_BYTES_MAX: Final = 16 << 20


FileEnd: TypeAlias = tuple[int, int]
"""The end of something: the segment's base offset, and the byte after it in that segment."""


class _Chunk(Struct, frozen=True):
    """The bytes of one append: whole batches up to `next_offset`, exclusive."""

    tail: LogTail
    base_offset: int
    next_offset: int
    end: FileEnd
    data: bytes


class TailRead(NamedTuple):
    """Whole batches, the first offset after them, and where they end in the files."""

    data: bytes
    next_offset: int
    end: FileEnd


class TailCache:
    """The memory that the tails of several logs hold together.  One owner; no locks.

    Invariants:
        - never more than `bytes_max`: the oldest append goes first, whichever log it belongs to.

    Args:
        bytes_max: Bytes that all tails together may hold; 0 keeps nothing.
    """

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._chunks: deque[_Chunk] = deque()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are held, of logs that were cut or closed meanwhile too."""
        return self._size_bytes

    def add(self, chunk: _Chunk) -> None:
        """Keeps the batches of an append, and lets go of the oldest."""
        self._chunks.append(chunk)
        self._size_bytes += len(chunk.data)
        while self._size_bytes > self._bytes_max:
            oldest = self._chunks.popleft()
            self._size_bytes -= len(oldest.data)
            oldest.tail.let_go(oldest)

    def clear(self) -> None:
        """Lets go of everything: chunks, tails and cache know each other, so that nothing else frees them at once."""
        while self._chunks:
            chunk = self._chunks.popleft()
            chunk.tail.let_go(chunk)
        self._size_bytes = 0


class LogTail:
    """The newest batches of one log.

    Invariants:
        - it answers with the bytes of the file, or not at all.
    """

    __slots__ = ("_cache", "_chunks")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._chunks: dict[int, _Chunk] = {}

    def note(self, base_offset: int, next_offset: int, buffers: Sequence[Buffer], end: FileEnd) -> None:
        """Keeps whole batches that are in the file now, behind everything that was noted before."""
        chunk = _Chunk(self, base_offset, next_offset, end, b"".join(buffers))
        self._chunks[base_offset] = chunk
        self._cache.add(chunk)

    def read(self, offset: int, *, max_bytes: int, ceiling: int) -> TailRead | None:
        """Returns whole batches from `offset` on.

        Args:
            offset: The offset at which an append began; every other one is unknown here.
            max_bytes: Limit of the answer.
            ceiling: Exclusive end: no batch that reaches above it is returned.

        Returns:
            As many appends as fit; None: not one, look into the file.
        """
        found: list[_Chunk] = []
        while (chunk := self._chunks.get(offset)) is not None:
            max_bytes -= len(chunk.data)
            if max_bytes < 0 or chunk.next_offset > ceiling:
                break
            found.append(chunk)
            offset = chunk.next_offset
        if not found:
            return None
        data = found[0].data if len(found) == 1 else b"".join(chunk.data for chunk in found)
        return TailRead(data, found[-1].next_offset, found[-1].end)

    def forget(self) -> None:
        """Forgets every batch, because the content of the file has changed."""
        self._chunks.clear()

    def let_go(self, chunk: _Chunk) -> None:
        """Forgets one append, because the cache has no room for it any more."""
        if self._chunks.get(chunk.base_offset) is chunk:
            del self._chunks[chunk.base_offset]
