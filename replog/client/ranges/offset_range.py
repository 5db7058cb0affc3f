"""A range of offsets of one partition, pinned when a read is planned, and the words in which its troubles are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from replog.records import Buffer


class RangeWords(Struct, frozen=True):
    """How the errors of a read are told to whoever asked for it.

    Attributes:
        planned: What was done when the ranges were pinned, as in "since the scan began".
        after_loss: What to do where records are gone, a sentence.
        wait_longer: How to wait longer, as in "or wait longer with timeout_ms".
        reachable_from: From where brokers must be reached.
    """

    planned: str
    after_loss: str
    wait_longer: str
    reachable_from: str


class OffsetRange(Struct, frozen=True):
    """Offsets [start_offset, end_offset) of one partition, `end_offset` at most the high watermark.

    The topic id tells a topic from a later one of the same name, the leader epoch its log from one that an unclean election
    put in its place (`epochs`); -1: it is not known.  Metadata up to `metadata_offset` have shown the topic, so older ones do not
    tell that it is gone; -1: it is not known.
    """

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    end_offset: int
    leader_epoch: int = -1
    metadata_offset: int = -1

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"

    @property
    def offsets_count(self) -> int:
        return self.end_offset - self.start_offset


# ---- what a read of a range brings, before it is decoded: record batches in order, put together to sizes that are worth decoding


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
