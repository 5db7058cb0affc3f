"""A membership in a group whose coordinator assigns (KIP-848): heartbeats, and the way from one assignment to the next.

A member joins by a heartbeat with epoch 0.  The way to another assignment has three steps, one after the other: give back what is
not wanted any more, have that acknowledged, take what is new.  A heartbeat says what is new since the last one that was answered;
after an error, which may have cost an answer, everything.  Where the broker has no such groups, or keeps the member out of one whose
members assign, the membership goes on by the classic protocol.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from replog.client.backoff import Backoff
from replog.client.groups.membership import NO_EPOCH, PUT_OUT, MemberConfig, Membership, State
from replog.client.groups.messages import (
    Ask,
    Assign,
    Effect,
    Revoke,
    Say,
    SpeakClassic,
    Told,
    TopicsChanged,
)
from replog.coordinator.assignors import assignment_of, partitions_of
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import (
    GroupIdNotFoundError,
    ReplogError,
    RetriableError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)

JOINING_EPOCH: Final = NO_EPOCH
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2


class ConsumerMembership(Membership):
    """Invariants:
        - a partition is said to be owned from its `Assign` to the `Released` that names it;
        - nothing is assigned before what was given back is acknowledged.

    Args:
        config: Who it is.
        backoff: The pauses after errors.
    """

    def __init__(self, config: MemberConfig, backoff: Backoff) -> None:
        super().__init__(config, backoff)
        self._must_acknowledge = False  # what was given back, by saying what is owned
        self._told: ConsumerHeartbeat | None = None  # what the coordinator knows; None: say everything
        self._under_way: ConsumerHeartbeat | None = None
        self._is_acknowledging = False  # the heartbeat that is under way
        self._is_late = False  # the answer that is under way says nothing: it is to a heartbeat of before
        self._has_said_unreleased = False

    @property
    def may_hear(self) -> bool:
        """Whether news from the coordinator would be taken up now: the last heartbeat was answered, and none is under way."""
        return self.state is State.MEMBER and self._told is not None and self._under_way is None

    @property
    def _is_asking(self) -> bool:
        return self._under_way is not None

    @property
    def _is_known(self) -> bool:
        return self.state is State.MEMBER or (self.state is State.JOINING and self._under_way is not None)

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def _speak(self, now_ms: int) -> tuple[Effect, ...]:
        if self._under_way is not None or self._due_ms is None or now_ms < self._due_ms:
            return ()
        self._under_way = self._heartbeat()
        self._is_acknowledging = self._must_acknowledge
        self._is_late = False
        self._sent_ms = now_ms
        return (Ask(self._under_way),)

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
        if self.state in {State.AWAY, State.LEAVING}:
            return LEAVING_EPOCH if self._config.instance_id is None else LEAVING_STATIC_EPOCH
        return self.epoch

    def _handle_answer(self, response: Told, now_ms: int) -> tuple[Effect, ...]:
        said = self._ended()
        if said is None or not isinstance(response, ConsumerHeartbeatResponse):
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
        if is_kept_out or isinstance(error, UnsupportedVersionError):
            self._forget_membership()
            self._due_ms = None
            return (SpeakClassic(error),)
        if isinstance(error, PUT_OUT):
            return self._fence(error)
        if isinstance(error, UnreleasedInstanceIdError):
            return self._wait_for_instance(error, now_ms)
        return () if isinstance(error, RetriableError) else self._fail(error)

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

    def _was_given_back(self, now_ms: int) -> tuple[Effect, ...]:
        self._must_acknowledge = True
        self._is_acknowledging = False
        self._due_ms = now_ms
        return ()

    def _handle_topics(self, message: TopicsChanged, now_ms: int) -> tuple[Effect, ...]:  # noqa: ARG002 -- of the other kind
        return ()  # the coordinator knows by itself

    # ---- coming and going -------------------------------------------------------------------------------------------

    def _wants_anew(self, now_ms: int) -> tuple[Effect, ...]:
        self._due_ms = now_ms
        return ()

    def _forget_membership(self) -> None:
        super()._forget_membership()
        self._told = None
        self._must_acknowledge = False

    def _drop_request(self) -> tuple[Effect, ...]:
        self._is_late = True
        return ()
