"""Text that nobody may read in a log, an error, a plan or a debugger's list of variables."""

from __future__ import annotations

from typing import Any, Final

HIDDEN: Final = "[hidden]"


class Secret:
    """A password or a token; what shows it shows `[hidden]`.  A pickle has it in plain text: it is to reach other processes.

    Args:
        text: The text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text."""
        return self._text

    def renewed(self) -> Secret:
        """Returns the secret as it is now; this one where nobody can have changed it."""
        return self

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._text,)
