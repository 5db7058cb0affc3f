"""Dead letters: records whose handler has failed, in a topic of their own or of retries, with where they came from and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from replog.client.types import ConsumerRecord
from replog.errors.texts import error_text
from replog.records import Header

PREFIX: Final = "dlq."
"""Of the names of headers that say where a record came from."""


class DeadLetter(Struct, frozen=True):
    """Where a dead letter came from, and why it is one; its key, value and further headers are those of the record.

    Attributes:
        topic, partition, offset: The place of the record that was handled.
        timestamp: The time of that record, milliseconds since 1970.
        group: The group whose worker has given it up.
        error: The type and text of the last error.
        attempts: The number of times that the handler was called.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    group: str
    error: str
    attempts: int

    @classmethod
    def of(
        cls, record: ConsumerRecord, group: str, error: BaseException, attempts: int, *, is_retry: bool = False
    ) -> DeadLetter:
        """Returns what is to be said of a record that is given up.

        Args:
            record: The record, as it was read.
            group: The group whose worker gives it up.
            error: The last error.
            attempts: The number of times that the handler was called for this record.
            is_retry: Whether it stood in a topic of retries: where it came from, and earlier attempts, stand in its headers.
        """
        before = cls.from_headers(record.headers) if is_retry else None
        if before is not None:
            return replace(before, group=group, error=error_text(error), attempts=before.attempts + attempts)
        place = (record.topic, record.partition, record.offset, record.timestamp)
        return cls(*place, group, error_text(error), attempts)

    @classmethod
    def from_headers(cls, headers: Iterable[Header]) -> DeadLetter | None:
        """Returns what the headers of a dead letter say; None where they are not those of one."""
        told = {name.removeprefix(PREFIX): _text(value) for name, value in headers if name.startswith(PREFIX)}
        try:
            return cls(
                told["topic"],
                int(told["partition"]),
                int(told["offset"]),
                int(told["timestamp"]),
                told["group"],
                told["error"],
                int(told["attempts"]),
            )
        except (KeyError, ValueError):
            return None

    def headers(self) -> list[Header]:
        """Returns the headers that say so."""
        return [(f"{PREFIX}{name}", str(value).encode()) for name, value in asdict(self).items()]


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def own_headers(headers: Iterable[Header]) -> list[Header]:
    """Returns the headers of the record itself: those of an earlier death are dropped."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]
