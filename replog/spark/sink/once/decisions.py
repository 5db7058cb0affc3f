"""The records of the topic of decisions: for each writer the last version that was decided, and by which transactions.

The key is the name of the writer, so that compaction keeps its newest decision; all its decisions are in one partition.  The value
is JSON, for people with `kcat` in a hurry::

    {"format": 1, "version": 12, "run": "a0...", "attempts": [[5, 4001, 0], [6, 4002, 0]]}    decided
    {"format": 1, "version": 12, "run": "a0...", "attempts": null}                            done

A driver that has taken over writes one more record, with the key `<writer>/read` and a random value, and reads up to it.

An attempt is Spark's number of it, and the producer id and epoch of its transaction.  A crash between the two leaves the first one,
by which all that is missing can be done.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec
from msgspec import Struct

from replog.errors import InvalidRecordError, RecordTooLargeError
from replog.spark.sink.once.names import AttemptName, Version

DECISIONS_TOPIC: Final = "__replog_spark_writes"
PARTITIONS: Final = 4
"""Of the topic: a driver reads one of them at each decision."""

FORMAT: Final = 1
VALUE_BYTES_MAX: Final = 900_000
"""Of a decision, below what a topic takes without further settings: some 20,000 tasks."""


class Prepared(Struct, frozen=True):
    """A transaction that is prepared: an attempt's number, and the producer that ends the transaction."""

    number: int
    producer_id: int
    producer_epoch: int


class Decision(Struct, frozen=True):
    """What became of a version.

    Attributes:
        version: The version.
        run: The plan whose attempts were decided for.
        attempts: The transactions that are to be committed; None: they are, and all others are aborted.
    """

    version: Version
    run: str
    attempts: tuple[Prepared, ...] | None

    @property
    def is_done(self) -> bool:
        """Whether all of it has been carried out."""
        return self.attempts is None

    def done(self) -> Decision:
        """Returns the decision as one that has been carried out."""
        return Decision(self.version, self.run, None)

    def name_of(self, attempt: Prepared) -> AttemptName:
        """Returns the name of one of its attempts."""
        return AttemptName(self.version, self.run, attempt.number)


class _Value(Struct):
    format: int
    version: int
    run: str
    attempts: list[tuple[int, int, int]] | None


class _AnyFormat(Struct):
    format: int


_values = msgspec.json.Decoder(_Value)
_formats = msgspec.json.Decoder(_AnyFormat)


def partition_of(writer: str) -> int:
    """Returns the partition of the decisions of a writer."""
    return zlib.crc32(writer.encode()) % PARTITIONS


def encode(decision: Decision) -> tuple[bytes, bytes]:
    """Returns key and value of the record of a decision.

    Raises:
        RecordTooLargeError: Too many tasks have written.
    """
    attempts = decision.attempts
    listed = None if attempts is None else [(each.number, each.producer_id, each.producer_epoch) for each in attempts]
    value = msgspec.json.encode(_Value(FORMAT, decision.version.number, decision.run, listed))
    if len(value) > VALUE_BYTES_MAX:
        raise RecordTooLargeError(
            f"{decision.version} was written by {len(listed or ())} tasks, and their list has {len(value)} bytes, of which there may "
            f"be {VALUE_BYTES_MAX}: write with fewer tasks, `.coalesce(1000)`"
        )
    return decision.version.writer.encode(), value


def decode(key: bytes, value: bytes) -> Decision:
    """Returns the decision of a record.

    Raises:
        InvalidRecordError: It is of a newer replog, or of somebody else.
    """
    try:
        found = _formats.decode(value).format
        if found != FORMAT:
            raise InvalidRecordError(
                f"topic {DECISIONS_TOPIC} has a decision in format {found}, and this replog reads {FORMAT}: use the newer version of "
                "replog that wrote it in all jobs"
            )
        read = _values.decode(value)
        attempts = None if read.attempts is None else tuple(Prepared(*each) for each in read.attempts)
        return Decision(Version(key.decode(), read.version), read.run, attempts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRecordError(
            f"topic {DECISIONS_TOPIC} has a record that is no decision ({error}): only Spark's writes may write to that topic"
        ) from error
