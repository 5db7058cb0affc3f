"""A membership in a consumer group: when to speak to the coordinator, and the way from one assignment to the next.

========== ==============================================================================================================
state      what happens
========== ==============================================================================================================
OUT        nothing is subscribed yet, or the member has left
JOINING    heartbeats with epoch 0, until the coordinator takes the member in
MEMBER     heartbeats at the interval told; the way to another assignment has three steps, one after the other: give back what is
           not wanted any more, have that acknowledged, take what is new
FENCED     the coordinator has put the member out: what it read is lost, and it joins again once the application knows
AWAY       the application was too slow: the member has left, and joins again when the application comes back
LEAVING    the last heartbeat is under way
FAILED     the group does not take the member
========== ==============================================================================================================

A heartbeat says what is new since the last one that was answered; after an error, which may have cost an answer, everything.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from replog.client.backoff import Backoff
from replog.client.groups.messages import (
    Answered,
    Assign,
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
    Revoke,
    Say,
    SendHeartbeat,
    Subscribe,
    Tick,
)
from replog.coordinator.assignors.model import assignment_of, partitions_of
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    ReplogError,
    RetriableError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
FIRST_INTERVAL_MS: Final = 1_000
"""Between heartbeats until the coordinator has said how often it wants them."""

PUT_OUT: Final = (UnknownMemberIdError, FencedMemberEpochError, StaleMemberEpochError, GroupIdNotFoundError)
"""What a coordinator answers to somebody who is no member, or not any more.  Whoever joins a group that is not found is kept out:
members of the classic protocol have it, and it cannot be converted."""

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
        rebalance_timeout_ms: How long it may take to give back partitions.
    """

    group_id: str
    member_id: str
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""


class Membership:
    """Owns no clock and no connection; driven by one task.

    Invariants:
        - one heartbeat is under way at a time;
        - a partition counts as owned, and is said to be, from its `Assign` to the `Released` that names it;
        - one `Revoke` or `Lose` is unanswered at a time, and nothing is assigned before it is acknowledged.

    Args:
        config: Who it is.
        backoff: The pauses after errors.

    Attributes:
        state: Where it is.
        epoch: The member epoch, which commits carry; 0 for no member.
        owned: The partitions that are its own until it has given them back.
    """

    def __init__(self, config: MemberConfig, backoff: Backoff) -> None:
        self.state = State.OUT
        self.epoch = JOINING_EPOCH
        self.owned: IdPartitions = NONE
        self._config = config
        self._backoff = backoff
        self._topics: tuple[str, ...] = ()
        self._target: IdPartitions | None = None  # what it may have; None: not told yet
        self._leaving: IdPartitions = NONE  # of what it owns: named in a Revoke or Lose that is not answered
        self._must_acknowledge = False  # what was given back, by saying what is owned
        self._told: ConsumerHeartbeat | None = None  # what the coordinator knows; None: say everything
        self._under_way: ConsumerHeartbeat | None = None
        self._is_acknowledging = False  # the heartbeat that is under way
        self._is_late = False  # the answer that is under way says nothing: it is to a heartbeat of before
        self._is_reader_back = False
        self._interval_ms = FIRST_INTERVAL_MS
        self._sent_ms = 0
        self._confirmed_ms = 0  # when the last heartbeat that was answered was sent
        self._failures_count = 0  # of heartbeats since then
        self._due_ms: int | None = None
        self._has_said_unreleased = False

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Takes in one message, and returns what follows from it, to be done in order.

        Args:
            message: The message, which says what happened.
            now_ms: The time, which is never less than before.
        """
        effects = self._handle(message, now_ms)
        self._join_if_free(now_ms)
        return (*effects, *self._beat(now_ms))

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due; None where nothing happens by itself."""
        return None if self._under_way is not None else self._due_ms

    @property
    def may_hear(self) -> bool:
        """Whether news from the coordinator would be taken up now: the last heartbeat was answered, and none is under way."""
        return self.state is State.MEMBER and self._told is not None and self._under_way is None

    def is_in_doubt(self, now_ms: int) -> bool:
        """Whether this member has kept silent for so long that it may be out, and has not asked, or heard, since.

        A heartbeat that fails may have been under way for all of the silence; where the next one fails, too, nobody is there who knows.
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
                self._subscribe(message.topics, now_ms)
            case ReaderLate():
                return self._go_away(message.late_ms, now_ms)
            case ReaderBack():
                self._is_reader_back = True
            case Doubt():
                if self.state is State.MEMBER:
                    self._due_ms = now_ms
            case Leave():
                self._leave(now_ms)
            case _ as unreachable:
                assert_never(unreachable)
        return ()

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def _beat(self, now_ms: int) -> tuple[Effect, ...]:
        """Sends the heartbeat that is due."""
        if self._under_way is not None or self._due_ms is None or now_ms < self._due_ms:
            return ()
        self._under_way = self._heartbeat()
        self._is_acknowledging = self._must_acknowledge
        self._is_late = False
        self._sent_ms = now_ms
        return (SendHeartbeat(self._under_way),)

    def _heartbeat(self) -> ConsumerHeartbeat:
        config = self._config
        said = ConsumerHeartbeat(config.group_id, config.member_id, self._spoken_epoch(), config.instance_id)
        if said.member_epoch < JOINING_EPOCH:
            return said
        full = replace(
            said,
            rack_id=config.rack_id,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            subscribed_topics=self._topics,
            owned=assignment_of(self.owned),
            client_id=config.client_id,
        )
        told = self._told
        if told is None or said.member_epoch == JOINING_EPOCH:
            return full
        return replace(
            full,
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topics=None if told.subscribed_topics == full.subscribed_topics else full.subscribed_topics,
            owned=None if told.owned == full.owned and not self._must_acknowledge else full.owned,
        )

    def _spoken_epoch(self) -> int:
        if self.state is State.AWAY:
            return LEAVING_EPOCH
        if self.state is State.LEAVING:
            return LEAVING_EPOCH if self._config.instance_id is None else LEAVING_STATIC_EPOCH
        return self.epoch

    def _handle_answer(self, response: ConsumerHeartbeatResponse, now_ms: int) -> tuple[Effect, ...]:
        said = self._ended()
        if said is None:
            return ()
        self._backoff.reset()
        self._has_said_unreleased = False
        self.state = State.MEMBER
        self.epoch = response.member_epoch
        self._confirmed_ms = self._sent_ms
        self._failures_count = 0
        self._interval_ms = response.heartbeat_interval_ms
        self._told = told = self._known_after(said)
        if self._is_acknowledging:
            self._must_acknowledge = False
        has_news = self._must_acknowledge or told.subscribed_topics != self._topics
        self._due_ms = now_ms if has_news else self._sent_ms + self._interval_ms
        if response.assignment is not None:
            self._target = partitions_of(response.assignment)
        return self._next_step()

    def _ended(self) -> ConsumerHeartbeat | None:
        """Returns the heartbeat that has ended, if that says anything about the membership of now."""
        said, self._under_way = self._under_way, None
        if self._is_late or said is None:
            return None
        self._due_ms = None
        if said.member_epoch >= JOINING_EPOCH:
            return said
        if self.state is State.LEAVING:  # whatever was answered: else the session ends by itself
            self.state = State.OUT
        return None

    def _known_after(self, said: ConsumerHeartbeat) -> ConsumerHeartbeat:
        """Returns what the coordinator knows after a heartbeat: what it left out is as it was."""
        told = self._told
        if told is None:
            return said
        return replace(
            said,
            subscribed_topics=told.subscribed_topics if said.subscribed_topics is None else said.subscribed_topics,
            owned=told.owned if said.owned is None else said.owned,
        )

    def _handle_error(self, error: ReplogError, now_ms: int) -> tuple[Effect, ...]:
        said = self._ended()
        if said is None:
            return ()
        self._told = None
        self._failures_count += 1
        self._due_ms = now_ms + int(self._backoff.next_s() * 1000)
        is_kept_out = said.member_epoch == JOINING_EPOCH and isinstance(error, GroupIdNotFoundError)
        if isinstance(error, PUT_OUT) and not is_kept_out:
            return self._fence(error)
        if isinstance(error, UnreleasedInstanceIdError):
            return self._wait_for_instance(error, now_ms)
        if isinstance(error, RetriableError):
            return ()
        self.state = State.FAILED
        self._forget_membership()
        self._due_ms = None
        return (Fail(error), *self._lose())

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

    def _wait_for_instance(self, error: ReplogError, now_ms: int) -> tuple[Effect, ...]:
        """Waits for the place of a static member whose process died without leaving, or still runs."""
        self._due_ms = now_ms + self._interval_ms
        if self._has_said_unreleased:
            return ()
        self._has_said_unreleased = True
        text = (
            f"group {self._config.group_id!r}: {error}. This member takes the place of instance "
            f"{self._config.instance_id!r} when the session of that one ends; if two processes use the instance id, change one."
        )
        return (Say(text),)

    # ---- the way to an assignment -----------------------------------------------------------------------------------

    def _next_step(self) -> tuple[Effect, ...]:
        """Returns the next step to what the coordinator wants; none while one is not done."""
        if self._target is None or self._leaving or self._must_acknowledge:
            return ()
        surplus = self.owned - self._target
        if surplus:
            self._leaving = surplus
            return (Revoke(surplus),)
        new = self._target - self.owned
        if not new:
            return ()
        self.owned |= new
        return (Assign(new),)

    def _handle_released(self, partitions: IdPartitions, now_ms: int) -> tuple[Effect, ...]:
        self.owned -= partitions
        self._leaving -= partitions
        if self._leaving:
            return ()
        if self.state is not State.MEMBER:
            return self._lose()
        self._must_acknowledge = True
        self._is_acknowledging = False
        self._due_ms = now_ms
        return ()

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
        said = (self._silence() or (Say(text),)) if self.epoch > JOINING_EPOCH else ()
        self.state = State.FENCED
        self._forget_membership()
        self._due_ms = None
        return (*said, *self._lose())

    # ---- coming and going -------------------------------------------------------------------------------------------

    def _subscribe(self, topics: tuple[str, ...], now_ms: int) -> None:
        is_news = topics != self._topics
        self._topics = topics
        if self.state is State.FAILED:
            self.state = State.OUT
        elif self.state is State.MEMBER and is_news:
            self._due_ms = now_ms

    def _join_if_free(self, now_ms: int) -> None:
        """Joins (again) when nothing is left of what it had before, and nothing keeps it away."""
        match self.state:
            case State.OUT | State.FENCED:
                is_wanted = bool(self._topics)
            case State.AWAY:
                is_wanted = self._is_reader_back and self._due_ms is None
            case _:
                is_wanted = False
        if is_wanted and not self.owned and self._under_way is None:
            self.state = State.JOINING
            self._due_ms = now_ms

    def _forget_membership(self) -> None:
        """Forgets what was told: this is no member any more."""
        self.epoch = JOINING_EPOCH
        self._target = None
        self._told = None
        self._must_acknowledge = False

    def _go_away(self, late_ms: int, now_ms: int) -> tuple[Effect, ...]:
        if self.state not in {State.JOINING, State.MEMBER}:
            return ()
        self.state = State.AWAY
        self._is_reader_back = False
        self._forget_membership()
        self._is_late = True
        self._due_ms = now_ms
        text = (
            f"group {self._config.group_id!r}: no records were asked for in {late_ms} ms, so that this member has left for "
            "others to go on; it joins again with the next read. If the work on one record, or on those of one poll, takes "
            "so long, raise max_poll_interval_ms or ask for fewer records at once."
        )
        return (Say(text), *self._lose())

    def _leave(self, now_ms: int) -> None:
        if self.state is State.LEAVING:
            return
        is_known = self.state is State.MEMBER or (self.state is State.JOINING and self._under_way is not None)
        self.state = State.LEAVING if is_known else State.OUT
        self._forget_membership()
        self.owned = self._leaving = NONE
        self._topics = ()
        self._is_late = True
        self._due_ms = now_ms if is_known else None
