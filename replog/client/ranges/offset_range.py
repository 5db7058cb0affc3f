"""A range of offsets of one partition, pinned when a read is planned, and the words in which its troubles are told."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct


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
