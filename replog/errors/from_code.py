"""Errors across the wire: an exception becomes (code, message), a code becomes the exception again."""

from __future__ import annotations

from replog import errors
from replog.errors import ErrorCode, ReplogError


def error_code_of(error: BaseException) -> ErrorCode:
    """Returns Kafka's code for an exception; UNKNOWN_SERVER_ERROR for what is not ours."""
    return error.code if isinstance(error, ReplogError) else ErrorCode.UNKNOWN_SERVER_ERROR


def error_from_code(code: ErrorCode, message: str, *, leader_id: int = -1, leader_epoch: int = -1) -> ReplogError:
    """Returns the exception a client raises for an answer with this code.

    Args:
        code: The code of the answer; not NONE.
        message: The text that the other side sent; kept as it is.
        leader_id: The node that the other side believes to lead, -1 when it does not know.
        leader_epoch: The leader epoch it knows.
    """
    text = message or code.name
    match code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return errors.NotLeaderOrFollowerError(text, leader_id, leader_epoch)
        case ErrorCode.CORRUPT_MESSAGE:
            return errors.CorruptRecordError("", 0, text)
        case ErrorCode.INVALID_CONFIG:
            return errors.ConfigError("", "", text)
        case _:
            return _BY_CODE.get(code, ReplogError)(text)


def error_from_number(number: int, message: str, *, leader_id: int = -1, leader_epoch: int = -1) -> ReplogError:
    """Returns as `error_from_code` does; of a number that this version does not know it keeps number and text."""
    try:
        code = ErrorCode(number)
    except ValueError:
        return ReplogError(f"error {number}: {message}")
    return error_from_code(code, message, leader_id=leader_id, leader_epoch=leader_epoch)


def _classes(base: type[ReplogError]) -> list[type[ReplogError]]:
    found = [base]
    for child in base.__subclasses__():
        found.extend(_classes(child))
    return found


def _by_code() -> dict[ErrorCode, type[ReplogError]]:
    """Returns the most general class of each code: a subclass that inherits its parent's code does not replace it."""
    table: dict[ErrorCode, type[ReplogError]] = {}
    for cls in _classes(ReplogError):
        table.setdefault(cls.code, cls)
    return table


_BY_CODE = _by_code()
