"""Settings that are one of a few words, or a number: what means nothing is refused, never taken for a default."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from replog.errors import ConfigError

INT32_MAX = 2**31 - 1
"""Of what a request says in 32 bits: sizes, times in milliseconds."""


def require_choice(name: str, value: object, accepted: Sequence[object]) -> None:
    """Returns if `value` is one of `accepted`, in type and value.

    Args:
        name: The setting's name, for the error.
        value: The value that was given.
        accepted: The values that may be given.

    Raises:
        ConfigError: It is something else; the text lists what is accepted.
    """
    if any(type(value) is type(known) and value == known for known in accepted):
        return
    listed = ", ".join(_shown(known) for known in accepted)
    raise ConfigError(name, value, f"{name} is {value!r}; it must be one of {listed}")


def _shown(known: object) -> str:
    if isinstance(known, Enum):
        return f"{type(known).__name__}.{known.name}"
    return f'"{known}"' if type(known) is str else str(known)


def require_kind(field: str, value: object, kind: type) -> None:
    """Refuses a setting of another type.

    Args:
        field: The dotted name of the setting, for the error.
        value: The value that was given.
        kind: The type that it must have.

    Raises:
        ConfigError: It has another one.
    """
    if not isinstance(value, kind):
        reason = f"{field} is {value!r} ({type(value).__name__}); it must be a {kind.__name__}."
        raise ConfigError(field, value, reason)


def require_at_least(field: str, value: object, low: int, high: int | None = None, *, is_whole: bool = True) -> None:
    """Refuses what is no number, or is below `low`: one that means nothing must not mean "never" or "nothing".

    Args:
        field: The dotted name of the setting, for the error.
        value: The value that was given.
        low: The lowest number that makes sense.
        high: The highest one that can be said to a broker; None: no limit.
        is_whole: Whether it must be an integer.

    Raises:
        ConfigError: It is of another type, not a number (NaN), too low or too high.
    """
    kinds = (int,) if is_whole else (int, float)
    if type(value) not in kinds:
        kind = "an integer" if is_whole else "a number"
        raise ConfigError(field, value, f"{field} is {value!r} ({type(value).__name__}); it must be {kind}.")
    if not value >= low:  # type: ignore[operator]  # a number; NaN is not at least anything
        raise ConfigError(field, value, f"{field} is {value}; it must be at least {low}.")
    if high is not None and value > high:  # type: ignore[operator]  # a number
        raise ConfigError(field, value, f"{field} is {value}; it must be at most {high}.")
