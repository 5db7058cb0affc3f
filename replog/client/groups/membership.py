"""A membership in a consumer group: what is the same whether the coordinator assigns (KIP-848) or the members do (the classic protocol).

========== ==============================================================================================================
state      what happens
========== ==============================================================================================================
OUT        nothing is subscribed yet, or the member has left
JOINING    it asks the coordinator to take it in
MEMBER     it has an assignment, and says at an interval that it is there
FENCED     the coordinator has put the member out: what it read is lost, and it joins again once the application knows
AWAY       the application was too slow: the member has left, and joins again when the application comes back.  A static
           member says that it leaves for a while (KIP-848), or nothing (the classic protocol), as Kafka's clients do: its
           partitions are kept for it until its session ends
LEAVING    it says that it leaves
FAILED     the group does not take the member
========== ==============================================================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, assert_never

from msgspec import Struct

from replog.client.backoff import Backoff
from replog.client.groups.messages import (
    Answered,
    Doubt,
    Effect,
    Fail,
    Failed,
    IdPartitions,
    Leave,
    Lose,
    Message,
    ReaderBack,
    ReaderLate,
    Released,
    Say,
    Subscribe,
    Tick,
    Told,
    TopicsChanged,
)
from replog.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    ReplogError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)

NO_EPOCH: Final = 0
"""The epoch, or generation, of who is no member."""

FIRST_INTERVAL_MS: Final = 1_000
"""Between heartbeats until the coordinator has said how often it wants them."""

PUT_OUT: Final = (
    UnknownMemberIdError,
    FencedMemberEpochError,
    StaleMemberEpochError,
    IllegalGenerationError,
    GroupIdNotFoundError,
)
"""What a coordinator answers to somebody who is no member, or not any more."""

NONE: Final[IdPartitions] = frozenset()


class State(Enum):
    """Where a membership is."""

    OUT = "is not in the group"
    JOINING = "is joining"
    MEMBER = "is a member"
    FENCED = "was put out"
    AWAY = "has left until it is asked for records"
    LEAVING = "is leaving"
    FAILED = "was refused"


class MemberConfig(Struct, frozen=True):
    """Who a member is.

    Attributes:
        member_id: The id of a member of KIP-848; by the classic protocol the coordinator chooses another.
        rebalance_timeout_ms: How long it may take to give back partitions.
        session_timeout_ms: How long a member of the classic protocol may be silent; the coordinator says so to one of KIP-848.
        heartbeat_interval_ms: How often a member of the classic protocol says that it is there, likewise.
    """

    group_id: str
    member_id: str
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    session_timeout_ms: int = 0
    heartbeat_interval_ms: int = 0


class Membership(ABC):
    """Owns no clock and no connection; driven by one task.

    Invariants:
        - one request is under way at a time;
        - a partition counts as owned from its `Assign` to the `Released` that names it;
        - one `Revoke` or `Lose` is unanswered at a time, and nothing is assigned before it is answered.

    Args:
        config: Who it is.
        backoff: The pauses after errors.

    Attributes:
        state: Where it is.
        member_id: Its id; "" while the coordinator has not said.
        epoch: The member epoch, or the generation, which commits carry; 0 for no member.
        owned: The partitions that are its own until it has given them back.
    """

    def __init__(self, config: MemberConfig, backoff: Backoff) -> None:
        self.state = State.OUT
        self.member_id = config.member_id
        self.epoch = NO_EPOCH
        self.owned: IdPartitions = NONE
        self._config = config
        self._backoff = backoff
        self._topics: tuple[str, ...] = ()
        self._target: IdPartitions | None = None  # what it may have; None: not told yet
        self._leaving: IdPartitions = NONE  # of what it owns: named in a Revoke or Lose that is not answered
        self._is_reader_back = False
        self._interval_ms = FIRST_INTERVAL_MS
        self._sent_ms = 0
        self._confirmed_ms = 0  # when the last request that was answered was sent
        self._failures_count = 0  # of requests since then
        self._due_ms: int | None = None

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Takes in one message, and returns what follows from it, to be done in order.

        Args:
            message: The message, which says what happened.
            now_ms: The time, which is never less than before.
        """
        effects = self._handle(message, now_ms)
        self._join_if_free(now_ms)
        return (*effects, *self._speak(now_ms))

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due; None where nothing happens by itself."""
        return None if self._is_asking else self._due_ms

    @property
    def may_hear(self) -> bool:
        """Whether news from the coordinator would be taken up now."""
        return False

    def is_in_doubt(self, now_ms: int) -> bool:
        """Whether this member has kept silent for so long that it may be out, and has not asked, or heard, since.

        A request that fails may have been under way for all of the silence; where the next one fails, too, nobody is there who knows.
        """
        return self.state is State.MEMBER and self._failures_count < 2 and self._is_late_for(now_ms)

    def _is_late_for(self, now_ms: int) -> bool:
        """Whether no heartbeat for two intervals before a time was answered: sessions are longer than one."""
        return now_ms - self._confirmed_ms >= 2 * self._interval_ms

    def _handle(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        match message:
            case Tick():
                return ()
            case Answered():
                return self._handle_answer(message.response, now_ms)
            case Failed():
                return self._handle_error(message.error, now_ms)
            case Released():
                return self._handle_released(message.partitions, now_ms)
            case Subscribe():
                return self._subscribe(message.topics, now_ms)
            case TopicsChanged():
                return self._handle_topics(message, now_ms)
            case ReaderLate():
                return self._go_away(message.late_ms, now_ms)
            case ReaderBack():
                self._is_reader_back = True
            case Doubt():
                if self.state is State.MEMBER:
                    self._due_ms = now_ms
            case Leave():
                return self._leave(now_ms)
            case _ as unreachable:
                assert_never(unreachable)
        return ()

    # ---- what is said, and what the answers mean ---------------------------------------------------------------------

    @property
    @abstractmethod
    def _is_asking(self) -> bool:
        """Whether a request is under way."""

    @abstractmethod
    def _speak(self, now_ms: int) -> tuple[Effect, ...]:
        """Sends what is due."""

    @abstractmethod
    def _handle_answer(self, response: Told, now_ms: int) -> tuple[Effect, ...]: ...

    @abstractmethod
    def _handle_error(self, error: ReplogError, now_ms: int) -> tuple[Effect, ...]: ...

    @abstractmethod
    def _was_given_back(self, now_ms: int) -> tuple[Effect, ...]:
        """Goes on after a member has given back all that was asked for."""

    @abstractmethod
    def _handle_topics(self, message: TopicsChanged, now_ms: int) -> tuple[Effect, ...]:
        """Takes in which topics there are."""

    @abstractmethod
    def _wants_anew(self, now_ms: int) -> tuple[Effect, ...]:
        """Goes on where a member subscribes to other topics than before."""

    @property
    @abstractmethod
    def _is_known(self) -> bool:
        """Whether the coordinator may know this member, so that it has to hear of the leaving."""

    @abstractmethod
    def _drop_request(self) -> tuple[Effect, ...]:
        """Lets the answer to what is under way say nothing any more."""

    # ---- the way to an assignment -----------------------------------------------------------------------------------

    def _handle_released(self, partitions: IdPartitions, now_ms: int) -> tuple[Effect, ...]:
        self.owned -= partitions
        self._leaving -= partitions
        if self._leaving:
            return ()
        return self._was_given_back(now_ms) if self.state is State.MEMBER else self._lose()

    def _lose(self) -> tuple[Effect, ...]:
        """Gives up all that it owns, once what is being given back is."""
        if self._leaving or not self.owned:
            return ()
        self._leaving = self.owned
        return (Lose(self.owned),)

    def _fence(self, error: ReplogError) -> tuple[Effect, ...]:
        text = (
            f"group {self._config.group_id!r}: this member was put out of the group: {error}. It joins again by itself; what it "
            "has read and not committed is read again. A process that stands still for longer than the session time-out is put "
            "out, and so is one whose instance id another process uses."
        )
        said = (self._silence() or (Say(text),)) if self.epoch > NO_EPOCH else ()
        self.state = State.FENCED
        self._forget_membership()
        self._due_ms = None
        return (*said, *self._lose())

    def _silence(self) -> tuple[Effect, ...]:
        """Says why the coordinator has put this member out, where that is its own silence."""
        if self.state is not State.MEMBER or not self._is_late_for(self._sent_ms):
            return ()
        silent_ms = self._sent_ms - self._confirmed_ms
        text = (
            f"group {self._config.group_id!r}: this member has sent no heartbeat in {silent_ms} ms and was put out: others read "
            "its partitions from the last commits on. Work that keeps the event loop from running for so long belongs in a "
            "thread, by asyncio.to_thread, or under a SyncConsumer, whose heartbeats have a thread of their own."
        )
        return (Say(text),)

    def _fail(self, error: ReplogError) -> tuple[Effect, ...]:
        self.state = State.FAILED
        self._forget_membership()
        self._due_ms = None
        return (Fail(error), *self._lose())

    # ---- coming and going -------------------------------------------------------------------------------------------

    def _subscribe(self, topics: tuple[str, ...], now_ms: int) -> tuple[Effect, ...]:
        is_news = topics != self._topics
        self._topics = topics
        if self.state is State.FAILED:
            self.state = State.OUT
        elif self.state is State.MEMBER and is_news:
            return self._wants_anew(now_ms)
        return ()

    def _join_if_free(self, now_ms: int) -> None:
        """Joins (again) when nothing is left of what it had before, and nothing keeps it away."""
        match self.state:
            case State.OUT | State.FENCED:
                is_wanted = bool(self._topics)
            case State.AWAY:
                is_wanted = self._is_reader_back and self._due_ms is None
            case _:
                is_wanted = False
        if is_wanted and not self.owned and not self._is_asking:
            self.state = State.JOINING
            self._due_ms = now_ms

    def _forget_membership(self) -> None:
        """Forgets what was told: this is no member any more."""
        self.epoch = NO_EPOCH
        self._target = None

    def _go_away(self, late_ms: int, now_ms: int) -> tuple[Effect, ...]:
        if self.state not in {State.JOINING, State.MEMBER}:
            return ()
        self.state = State.AWAY
        self._is_reader_back = False
        self._forget_membership()
        if self._config.instance_id is None:
            what = "has left for others to go on"
        else:
            what = "is silent, and others go on when its session ends"
        text = (
            f"group {self._config.group_id!r}: no records were asked for in {late_ms} ms, so that this member {what}; it joins "
            "again with the next read. If the work on one record, or on those of one poll, takes so long, raise "
            "max_poll_interval_ms or ask for fewer records at once."
        )
        self._due_ms = now_ms
        return (*self._drop_request(), Say(text), *self._lose())

    def _leave(self, now_ms: int) -> tuple[Effect, ...]:
        if self.state is State.LEAVING:
            return ()
        is_known = self._is_known
        self.state = State.LEAVING if is_known else State.OUT
        self._forget_membership()
        self.owned = self._leaving = NONE
        self._topics = ()
        self._due_ms = now_ms if is_known else None
        return self._drop_request()

    def succeed(self, former: Membership) -> tuple[Effect, ...]:
        """Goes on in the place of a membership that is over: joins when what that owned is given up."""
        self.owned, self._leaving, self._topics = former.owned, former._leaving, former._topics
        self.state = State.FENCED
        return self._lose()
