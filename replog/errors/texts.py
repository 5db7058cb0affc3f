"""Errors of other people's code, told in one line of bounded length."""

from __future__ import annotations

from typing import Final

ERROR_CHARACTERS_MAX: Final = 2_000
"""Of an error's text; more is cut off."""


def error_text(error: BaseException) -> str:
    """Returns the type and text of an error, cut off where it is long, and with escapes for what is no Unicode.

    An error that cannot say what it is, is told by its type.
    """
    try:
        text = f"{type(error).__qualname__}: {error}"
    except Exception:  # noqa: BLE001 -- whatever its `__str__` raises
        text = f"{type(error).__qualname__}, whose text cannot be read"
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]}..."
