"""What every role can be asked; one subclass per file.

A role reacts to messages, sends through its context, and says that it must become something else by returning a
transition.  After every message the machine calls `poll`, where all timers and repeated requests live, so a handler
only notes what it learned.
"""

# ruff: noqa: ARG002 - the signature is for the subclasses
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from replog_quorum.context import Context
from replog_quorum.messages import Response, VoteRequest
from replog_quorum.transitions import RoleName, Transition


class Role(ABC):
    """Base of the six roles; the defaults are those of a role that does not care."""

    name: ClassVar[RoleName]

    def __init__(self, context: Context) -> None:
        self._context = context
        self.requests = context.new_requests()

    @property
    def leader_id(self) -> int | None:
        """Leader of the current epoch, as far as this role knows one."""
        return None

    @property
    def election_deadline_ms(self) -> int | None:
        """A running election timer that Unattached may take over; None when it should draw a new one."""
        return None

    @abstractmethod
    def poll(self, now_ms: int) -> Transition | None:
        """Acts on what is due: expires timers, sends what should be on its way; returns the change of role it wants."""

    @abstractmethod
    def next_deadline_ms(self) -> int | None:
        """Returns when `poll` has something to do although nothing arrived."""

    @abstractmethod
    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        """Whether this role votes for the sender of `request`, whose epoch is the current one."""

    def voted(self, now_ms: int) -> None:  # noqa: B027 - most roles do not care
        """Notes that a real vote has been given."""

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        """Takes an awaited answer of the current epoch (or an error of an earlier one), with nothing to adopt in it."""
        self.requests.back_off(source, now_ms)
        return None

    def request_failed(self, destination: int, now_ms: int, *, refused: bool = False) -> None:
        """Notes that a request of this role got no answer; `refused`: nobody listens there."""
        self.requests.back_off(destination, now_ms)

    def log_changed(self, now_ms: int) -> None:  # noqa: B027 - most roles do not care
        """Notes that the log was appended to or truncated; the log view already shows it."""

    def voters_changed(self, now_ms: int) -> None:  # noqa: B027 - most roles ask the context each time
        """Notes that another voter set is in force; the context already has it."""

    def snapshot_installed(self, now_ms: int) -> None:  # noqa: B027 - most roles do not care
        """Notes that a snapshot has taken the place of the log; the log view already shows it."""


def grants_without_leader(context: Context, request: VoteRequest, *, is_up_to_date: bool) -> bool:
    """Whether Unattached and Prospective grant a vote (docs/KAFKA.md 5.2): one real vote per epoch, none once this node
    knows the epoch's leader, and only for a log that holds everything ours does."""
    if request.pre_vote:
        return is_up_to_date
    election = context.election
    if election.voted_id is not None:
        is_same_directory = election.voted_directory_id in (None, request.replica_directory_id)
        return election.voted_id == request.replica_id and is_same_directory
    return election.leader_id is None and is_up_to_date
