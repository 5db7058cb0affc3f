"""Settings that are one of a few words: what is not known is refused, never taken for a default."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from replog.errors import ConfigError


def require_choice(name: str, value: object, accepted: Sequence[object]) -> None:
    """Returns if `value` is one of `accepted`, in type and value.

    Args:
        name: The setting's name, for the error.
        value: What was given.
        accepted: What may be given.

    Raises:
        ConfigError: it is something else; the text lists what is accepted.
    """
    if any(type(value) is type(known) and value == known for known in accepted):
        return
    listed = ", ".join(_shown(known) for known in accepted)
    raise ConfigError(name, value, f"{name} is {value!r}; it must be one of {listed}")


def _shown(known: object) -> str:
    if isinstance(known, Enum):
        return f"{type(known).__name__}.{known.name}"
    return f'"{known}"' if type(known) is str else str(known)
