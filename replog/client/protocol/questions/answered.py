"""What the answers to questions of an administrator have in common: codes, texts, and what of them is the whole request's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from replog.client.protocol.asking import Broker
from replog.client.protocol.records import known_code, text_of
from replog.errors import ErrorCode, MalformedFrameError
from replog.errors.from_code import error_from_number

K = TypeVar("K")
V = TypeVar("V")

_OF_THE_REQUEST: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    }
)
"""Errors that say nothing of a topic or a partition, but that nobody has answered for it."""


class Judged(Protocol):
    """What became of one of the things that a request names."""

    @property
    def error(self) -> ErrorCode: ...

    @property
    def message(self) -> str: ...


def told(number: int, message: str | None) -> tuple[ErrorCode, str]:
    """Returns the code and the text of one thing; a number that this version does not know stands in the text."""
    return known_code(number), text_of(number, message)


def raise_if_refused(number: int, message: str | None) -> None:
    """Raises the error of a request that was refused as a whole; returns where the number is that of no error."""
    if number != ErrorCode.NONE:
        raise error_from_number(number, message or "")


def raise_if_unanswered(outcomes: Iterable[Judged]) -> None:
    """Raises the error of a request that nobody has answered: another broker, or the same one later, may.

    Most answers have no place for the error of a whole request: it stands beside each thing that the request names.
    """
    errors = {(one.error, one.message) for one in outcomes}
    if len({code for code, _ in errors}) == 1:
        code, message = min(errors)
        if code in _OF_THE_REQUEST:
            raise error_from_number(code, message)


def in_order(broker: Broker, wanted: Sequence[K], found: Mapping[K, V]) -> tuple[V, ...]:
    """Returns what was found of each thing that was asked for, in that order.

    Raises:
        MalformedFrameError: The answer leaves one out.
    """
    missing = next((one for one in wanted if one not in found), None)
    if missing is not None:
        raise MalformedFrameError(f"the answer of {broker.address} leaves out {missing}; ask another broker")
    return tuple(found[one] for one in wanted)
