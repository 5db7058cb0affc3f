"""What a read of a range brings, before it is decoded: record batches in order, put together to sizes that are worth decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from replog.records import Buffer

COALESCE_BYTES = 2 << 20
"""Replies smaller than this (a log's tail, many small segments) are put together before they are decoded."""


class Piece(NamedTuple):
    """Whole record batches.  Records below `start_offset` in the first of them are not wanted."""

    start_offset: int
    base_offset: int
    data: Buffer


class Encoded(NamedTuple):
    """Record batches to decode together, from `start_offset` on.

    Attributes:
        is_checked: Whether somebody has looked at the checksums, or nobody is to.
    """

    start_offset: int
    data: Buffer
    is_checked: bool = False


def coalesce(pieces: Iterable[Piece], *, is_checked: bool = False) -> Iterator[Encoded]:
    """Puts small pieces together up to COALESCE_BYTES; large ones pass as they are."""
    waiting: list[Piece] = []
    size_bytes = 0
    for piece in pieces:
        reaches_back = piece.base_offset < piece.start_offset  # its first records are not wanted
        if waiting and (reaches_back or size_bytes + len(piece.data) > COALESCE_BYTES):
            yield _joined(waiting, is_checked=is_checked)
            waiting, size_bytes = [], 0
        waiting.append(piece)
        size_bytes += len(piece.data)
    if waiting:
        yield _joined(waiting, is_checked=is_checked)


def _joined(pieces: Sequence[Piece], *, is_checked: bool) -> Encoded:
    if len(pieces) == 1:
        return Encoded(pieces[0].start_offset, pieces[0].data, is_checked)
    return Encoded(pieces[0].start_offset, b"".join(piece.data for piece in pieces), is_checked)
