"""What one request, or one timer, leads to, gathered on the way."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from replog.coordinator.rebalance_reasons import RebalanceReason
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Moment, Outcome
from replog.coordinator.runtime.messages import Answer, Reply, ReplyError
from replog.errors import ReplogError


class ClassicSessionTimer(Struct, frozen=True):
    """A member, or one that has an id and has not come back with it, has been silent for a session."""

    group_id: str
    member_id: str


class JoinTimer(Struct, frozen=True):
    """The next generation begins without the members that have not joined."""

    group_id: str


class SyncTimer(Struct, frozen=True):
    """The members that have not asked what they get in this generation are put out."""

    group_id: str
    generation: int


class EmptyTimer(Struct, frozen=True):
    """A group without members says so again, unless the log has it."""

    group_id: str


class RecoveryTimer(Struct, frozen=True):
    """The log has something of a group that this coordinator has not looked at."""

    group_id: str


Timer: TypeAlias = ClassicSessionTimer | JoinTimer | SyncTimer | EmptyTimer | RecoveryTimer


class Turn:
    """Records and answers of one request or timer.

    Attributes:
        moment: The time.
        reason: The reason of a rebalance that it sets off.
        records: The records, in order.
        answers: The answers, to this request or to others that have waited.
    """

    def __init__(self, moment: Moment, reason: RebalanceReason) -> None:
        self.moment = moment
        self.reason = reason
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answer] = []

    def reply(self, request_id: int | None, response: Any) -> None:
        """Answers a request; does nothing if there is none."""
        if request_id is not None:
            self.answers.append(Reply(request_id, response))

    def fail(self, request_id: int | None, error: ReplogError) -> None:
        """Answers a request with an error; does nothing if there is none."""
        if request_id is not None:
            self.answers.append(ReplyError(request_id, error))

    def outcome(self) -> Outcome:
        """Returns all of it."""
        return Outcome(tuple(self.records), tuple(self.answers))
