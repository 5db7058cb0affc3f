"""Memberships that speak to a real coordinator, step by step: a test says which answer is lost, and when a reader comes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from replog.client.backoff import Backoff
from replog.client.groups.consumer_membership import ConsumerMembership
from replog.client.groups.membership import MemberConfig
from replog.client.groups.messages import (
    Answered,
    Ask,
    Assign,
    Fail,
    Failed,
    IdPartitions,
    Lose,
    Message,
    Released,
    Revoke,
    Say,
    SpeakClassic,
    Subscribe,
    Tick,
)
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.group_machine import GroupsConfig
from replog.errors import ReplogError, RequestTimedOutError
from tests.unit.coordinator.shard_kit import Host, Topics, group_host, topic_id

SESSION_MS, INTERVAL_MS, REBALANCE_MS = 1_000, 100, 300
T = topic_id("t")


def coordinator(**partitions: int) -> Host:
    """A coordinator of groups that read these topics; nothing ends a session but a test that moves the clock."""
    config = GroupsConfig(consumers=ConsumersConfig(SESSION_MS, INTERVAL_MS, max_size=4))
    host = group_host(Topics(**partitions), config)
    host.lead()
    return host


def parts(*partitions: int) -> IdPartitions:
    return frozenset((T, each) for each in partitions)


class Member:
    """A membership, what it wants done, and what it has done.

    Attributes:
        reads: The partitions that are read.
        giving_back: What the application has been told of, or will be, and has not answered.
        under_way: The heartbeat that is not answered.
        said: The requests that were sent.
    """

    def __init__(self, name: str, **config: Any) -> None:
        self.core = ConsumerMembership(MemberConfig("g", name, REBALANCE_MS, **config), Backoff(random.Random(1)))
        self.reads: IdPartitions = frozenset()
        self.giving_back: Revoke | Lose | None = None
        self.under_way: ConsumerHeartbeat | None = None
        self.said: list[ConsumerHeartbeat] = []
        self.texts: list[str] = []
        self.failure: ReplogError | None = None
        self.classic_because: ReplogError | None = None

    def step(self, message: Message, now_ms: int = 0) -> None:
        for effect in self.core.step(message, now_ms):
            match effect:
                case Ask(ConsumerHeartbeat() as request):
                    assert self.under_way is None
                    self.under_way = request
                    self.said.append(request)
                case Assign(partitions):
                    assert self.giving_back is None
                    assert not partitions & self.reads
                    self.reads |= partitions
                case Revoke(partitions) | Lose(partitions):
                    assert self.giving_back is None
                    assert partitions <= self.reads
                    self.giving_back = effect
                case Say(text):
                    self.texts.append(text)
                case Fail(error):
                    self.failure = error
                case SpeakClassic(reason):
                    self.classic_because = reason

    def subscribe(self, host: Host, *topics: str) -> None:
        self.step(Subscribe(topics), host.now_ms)

    def answer(self, host: Host, lost: str = "") -> None:
        """The heartbeat that is under way arrives, and its answer, unless "request" or "answer" is lost."""
        request, self.under_way = self.under_way, None
        assert request is not None
        reply: Message = Failed(RequestTimedOutError("lost"))
        if lost != "request":
            try:
                response = Answered(host.ask(request))
            except ReplogError as error:
                response = Failed(error)  # type: ignore[assignment]
            reply = reply if lost == "answer" else response
        self.step(reply, host.now_ms)

    def give_back(self, host: Host) -> None:
        """The application has been told: what it was told of is not read any more."""
        assert self.giving_back is not None
        partitions, self.giving_back = self.giving_back.partitions, None
        self.reads -= partitions
        self.step(Released(partitions), host.now_ms)

    def tick(self, host: Host) -> None:
        self.step(Tick(), host.now_ms)


def settle(host: Host, *members: Member, turns: int = 40) -> None:
    """Lets everybody speak, and every application answer, until nobody has anything to do for an interval."""
    for _ in range(turns):
        for member in members:
            if member.giving_back is not None:
                member.give_back(host)
            member.tick(host)
            if member.under_way is not None:
                member.answer(host)
        host.now_ms += INTERVAL_MS // 2
        beat(host, members)


def beat(host: Host, members: Iterable[Member]) -> None:
    """Sends what is due by the clock."""
    for member in members:
        member.tick(host)
