"""One member of a group of the classic protocol."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from msgspec import Struct

from replog.coordinator.classic.requests import Protocol

BYTES_BESIDE: Final = 64
"""The bytes that a member has at most in the record of its group beside names and what it wants and gets; the group itself, too."""


class ClassicMember(Struct, eq=False):
    """What a member has told, and which of its requests wait.

    Attributes:
        protocols: The protocols that it supports, the one that it likes best first, each name once.
        assignment: What the leader of its generation has given to it.
        is_new: Whether it waits for its first generation, without heartbeats.
        join_request: The id of its join that waits; None where none does.  Only its group changes it, which counts them.
        sync_request: The id of its sync that waits; None where none does.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_request: int | None = None
    sync_request: int | None = None

    def is_waiting(self) -> bool:
        """Whether a request of it waits: then it cannot send heartbeats, and is not silent."""
        return self.join_request is not None or self.sync_request is not None

    def metadata(self, protocol: str) -> bytes:
        """Returns what it tells in a protocol; nothing where it does not support it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def record_bytes(self, protocol: str | None = None) -> int:
        """Returns the bytes of it in the record of its group, or a few more, less those of its assignment.

        Args:
            protocol: The protocol of the generation; None for the one in which it tells least.
        """
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        least = min((len(each.metadata) for each in self.protocols), default=0)
        told = least if protocol is None else len(self.metadata(protocol))
        return sum(len(name.encode()) for name in names) + told + BYTES_BESIDE

    def vote(self, candidates: Container[str]) -> str:
        """Returns the one of the candidates that it likes best; "" where it supports none."""
        return next((each.name for each in self.protocols if each.name in candidates), "")


def size_of(protocols: tuple[Protocol, ...]) -> int:
    """Returns the bytes of what is told in protocols."""
    return sum(len(each.name) + len(each.metadata) for each in protocols)
