"""What the answers to questions have in common: codes, texts, what of them is the whole request's, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from replog.client.protocol.asking import Broker
from replog.client.protocol.records import known_code, text_of
from replog.errors import ErrorCode, MalformedFrameError, ReplogError, ThrottledError
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


def raise_if_unanswered(outcomes: Iterable[Judged], throttle_time_ms: int = 0) -> None:
    """Raises the error of a request that nobody has answered: another broker, or the same one later, may.

    Most answers have no place for the error of a whole request: it stands beside each thing that the request names.

    Args:
        outcomes: What became of each thing.
        throttle_time_ms: How long this client has to wait for its quota, as the answer says.
    """
    errors = {(one.error, one.message) for one in outcomes}
    if len({code for code, _ in errors}) == 1:
        code, message = min(errors)
        if code in _OF_THE_REQUEST:
            error = error_from_number(code, message)
            if isinstance(error, ThrottledError):
                error.throttle_time_ms = throttle_time_ms
            raise error


def in_order(broker: Broker, wanted: Sequence[K], found: Mapping[K, V]) -> tuple[V, ...]:
    """Returns what was found of each thing that was asked for, in that order.

    Raises:
        MalformedFrameError: The answer leaves one out.
    """
    missing = next((one for one in wanted if one not in found), None)
    if missing is not None:
        raise MalformedFrameError(f"the answer of {broker.address} leaves out {missing}; ask another broker")
    return tuple(found[one] for one in wanted)


# ---- refusals of a coordinator: Kafka tells most of them by a code alone --------------------------------------------


_TEXTS: Final[Mapping[int, str]] = {
    ErrorCode.NOT_COORDINATOR: "it does not coordinate the group (any more)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator just now, or its log did not take the change in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "it still reads the group's log",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member, or it has members and was asked by somebody who is none",
    ErrorCode.STALE_MEMBER_EPOCH: "the member has another epoch by now",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read the topic: stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic of this id: it was deleted, or the broker has not heard of it yet",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction that has not ended has committed offsets: ask again when it has",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text beside the offset is longer than offset.metadata.max.bytes",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "these are more offsets than fit into one record batch: commit them in several",
}

_SAME: Final[Mapping[int, int]] = {ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.MESSAGE_TOO_LARGE}
"""Codes that say what another one does, of commits alone."""


def refusal(broker: Broker, number: int, message: str | None, what: str) -> ReplogError:
    """Returns the error of a code; its text is the broker's, or says what the code means.

    Args:
        broker: The broker that refuses.
        number: The code; not NONE.
        message: What the broker says; None or "": nothing.
        what: What was asked, such as "the commit of group g".
    """
    text = message or f"{broker.address} refuses {what}: {_meaning(number)}"
    return error_from_number(_SAME.get(number, number), text)


def require_answer(broker: Broker, number: int, message: str | None, what: str) -> None:
    """Raises a refusal, as `refusal` returns it; nothing where the code is NONE."""
    if number != ErrorCode.NONE:
        raise refusal(broker, number, message, what)


def lacking(broker: Broker, what: str) -> MalformedFrameError:
    """Returns the error of an answer that does not have what was asked for."""
    return MalformedFrameError(f"{broker.address} answers without {what}, which was asked for; ask another broker")


def _meaning(number: int) -> str:
    try:
        return _TEXTS.get(number) or ErrorCode(number).name
    except ValueError:
        return "this version does not know the code"
