"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Replog: TypeAlias = Callable[..., Done]
"""`replog("topics", "list")`: one command line, run in this process."""
