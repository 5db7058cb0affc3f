"""What the refusals of a coordinator have in common: Kafka tells most of them by a code alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker
from replog.errors import ErrorCode, MalformedFrameError, ReplogError
from replog.errors.from_code import error_from_number

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
