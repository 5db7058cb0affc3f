"""The records of the topic of decisions: for each writer the last version that was decided, and by which transactions.

The key is the name of the writer, so that compaction keeps its newest decision; all its decisions are in one partition.  The value
is JSON, for people with `kcat` in a hurry::

    {"format": 1, "version": 12, "run": "a0...", "attempts": [[5, 4001, 0], [6, 4002, 0]]}    decided
    {"format": 1, "version": 12, "run": "a0...", "attempts": null}                            done

A driver that has taken over writes one more record, with the key `<writer>/read` and a random value, and reads up to it.

What will never be decided for is in the record with the key `<writer>/given-up`: runs of versions that are not written yet, whose
tasks have failed, or which somebody has given up in the place of a driver that is gone.  It is there before the first of their
transactions is aborted::

    {"format": 1, "runs": [[12, "b1..."]]}

An attempt is Spark's number of it, and the producer id and epoch of its transaction.  A crash between the two leaves the first one,
by which all that is missing can be done.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from replog.errors import InvalidRecordError, RecordTooLargeError
from replog.spark.sink.once.names import AttemptName, Version

T = TypeVar("T")

DECISIONS_TOPIC: Final = "__replog_spark_writes"
PARTITIONS: Final = 4
"""Of the topic: a driver reads one of them at each decision."""

FORMAT: Final = 1
VALUE_BYTES_MAX: Final = 900_000
"""Of a decision, below what a topic takes without further settings: some 20,000 tasks."""


GIVEN_UP_MAX: Final = 1_000
"""Runs of a writer that are known to be given up: those of the one version that is not written yet, each of which failed."""


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


class WriterStanding(Struct, frozen=True):
    """Where a writer stands.

    Attributes:
        last: The last decision; None: there is none yet.
        given_up: Versions and runs that nobody will decide for.
    """

    last: Decision | None = None
    given_up: tuple[tuple[int, str], ...] = ()

    def is_decided(self, version: Version) -> bool:
        """Whether a version has been decided for, so that it will not be decided for again."""
        return self.last is not None and version.number <= self.last.version.number

    def is_given_up(self, version: Version, run: str) -> bool:
        """Whether nobody will decide for a run of a version."""
        return (version.number, run) in self.given_up

    def giving_up(self, runs: Collection[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        """Returns what is given up together with more; of versions that are decided nothing need be known, and of others the newest."""
        decided = -1 if self.last is None else self.last.version.number
        both = dict.fromkeys((*self.given_up, *sorted(runs)))
        return tuple(each for each in both if each[0] > decided)[-GIVEN_UP_MAX:]


class _Value(Struct):
    format: int
    version: int
    run: str
    attempts: list[tuple[int, int, int]] | None


class _GivenUp(Struct):
    format: int
    runs: list[tuple[int, str]]


class _AnyFormat(Struct):
    format: int


_values = msgspec.json.Decoder(_Value)
_given_up = msgspec.json.Decoder(_GivenUp)
_formats = msgspec.json.Decoder(_AnyFormat)


def bookmark_key(writer: str) -> bytes:
    """Returns the key of the records by which a driver knows how far it has read; no writer has such a name."""
    return f"{writer}/read".encode()


def given_up_key(writer: str) -> bytes:
    """Returns the key of the record of what is given up; no writer has such a name."""
    return f"{writer}/given-up".encode()


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
    read = _decoded(value, _values)
    attempts = None if read.attempts is None else tuple(Prepared(*each) for each in read.attempts)
    return Decision(Version(_writer(key), read.version), read.run, attempts)


def encode_given_up(runs: Collection[tuple[int, str]]) -> bytes:
    """Returns the value of the record of what is given up."""
    return msgspec.json.encode(_GivenUp(FORMAT, list(runs)))


def decode_given_up(value: bytes) -> tuple[tuple[int, str], ...]:
    """Returns the versions and runs of the record of what is given up.

    Raises:
        InvalidRecordError: As `decode`.
    """
    return tuple(_decoded(value, _given_up).runs)


def _writer(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise _no_decision(error) from error


def _decoded(value: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        found = _formats.decode(value).format
        if found != FORMAT:
            raise InvalidRecordError(
                f"topic {DECISIONS_TOPIC} has a decision in format {found}, and this replog reads {FORMAT}: use the newer version of "
                "replog that wrote it in all jobs"
            )
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise _no_decision(error) from error


def _no_decision(error: Exception) -> InvalidRecordError:
    return InvalidRecordError(
        f"topic {DECISIONS_TOPIC} has a record that is no decision ({error}): only Spark's writes may write to that topic"
    )
