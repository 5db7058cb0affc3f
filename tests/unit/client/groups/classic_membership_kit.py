"""Memberships of the classic protocol that speak to a real coordinator: a test says what is lost, and when an application answers."""

from __future__ import annotations

import random
from typing import Any

from replog.client.backoff import Backoff
from replog.client.groups.classic_membership import ClassicMembership
from replog.client.groups.membership import MemberConfig
from replog.client.groups.messages import (
    Answered,
    Ask,
    Assign,
    Effect,
    Fail,
    Failed,
    GiveUp,
    IdPartitions,
    Lose,
    Message,
    Released,
    Revoke,
    Said,
    Say,
    Subscribe,
    Tick,
    Topics,
    TopicsChanged,
)
from replog.coordinator.config import ClassicConfig
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.runtime.messages import Tick as CoordinatorTick
from replog.errors import ReplogError, RequestTimedOutError
from replog.rpc.metadata_messages import PartitionInfo, TopicInfo
from tests.unit.coordinator.shard_kit import Host, group_host, topic_id
from tests.unit.coordinator.shard_kit import Topics as HostTopics

SESSION_MS, INTERVAL_MS, REBALANCE_MS = 1_000, 100, 300


def coordinator() -> Host:
    """A coordinator of groups; nothing ends a session, or a wait for a member, but `settle`."""
    classic = ClassicConfig(min_session_timeout_ms=1, initial_rebalance_delay_ms=0, max_size=4)
    host = group_host(HostTopics(t=4), GroupsConfig(classic=classic))
    host.lead()
    return host


def cluster(**partitions: int) -> Topics:
    """The topics of a cluster, with so many partitions."""
    return {
        name: TopicInfo(name, topic_id(name), tuple(PartitionInfo(each, 1, 0, 0, (1,), (1,)) for each in range(count)))
        for name, count in partitions.items()
    }


def parts(*partitions: int, topic: str = "t") -> IdPartitions:
    return frozenset((topic_id(topic), each) for each in partitions)


class Member:
    """A membership, what it wants done, and what it has done.

    Attributes:
        reads: The partitions that are read.
        giving_back: What the application has been told of, and has not answered.
        asking: What is under way.
        said: All that was asked.
    """

    def __init__(self, host: Host, **config: Any) -> None:
        names = {"group_id": "g", "member_id": "unused", "rebalance_timeout_ms": REBALANCE_MS}
        times = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": INTERVAL_MS}
        self.core = ClassicMembership(MemberConfig(**{**names, **times, **config}), Backoff(random.Random(1)))
        self.reads: IdPartitions = frozenset()
        self.giving_back: Revoke | Lose | None = None
        self.asking: Said | None = None
        self.said: list[Said] = []
        self.texts: list[str] = []
        self.failure: ReplogError | None = None
        self._host = host
        self._request_id: int | None = None
        self.step(TopicsChanged(cluster(t=4)))

    def step(self, message: Message) -> None:
        for effect in self.core.step(message, self._host.now_ms):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Ask(request):
                assert self.asking is None
                self.asking, self._request_id = request, None
                self.said.append(request)
            case GiveUp():
                assert self.asking is not None
                self.asking = None
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

    def subscribe(self, *topics: str) -> None:
        self.step(Subscribe(topics))

    def send(self) -> None:
        """What is under way arrives."""
        if self.asking is not None and self._request_id is None:
            self._request_id = self._host.submit(self.asking)
            self._host.commit()

    def hear(self) -> bool:
        """The answer arrives, if there is one."""
        if self.asking is None or self._request_id not in self._host.answers:
            return False
        self.asking = None
        try:
            self.step(Answered(self._host.response(self._request_id)))
        except ReplogError as error:
            self.step(Failed(error))
        return True

    def fail(self, error: ReplogError | None = None) -> None:
        """What is under way fails; whether it has arrived is the test's affair."""
        self.asking = None
        self.step(Failed(error or RequestTimedOutError("lost")))

    def give_back(self) -> None:
        """The application has been told."""
        assert self.giving_back is not None
        partitions, self.giving_back = self.giving_back.partitions, None
        self.reads -= partitions
        self.step(Released(partitions))

    def act(self) -> None:
        """Does all that can be done at once."""
        if self.giving_back is not None:
            self.give_back()
        self.step(Tick())
        self.send()
        self.hear()


def settle(host: Host, *members: Member, turns: int = 40) -> None:
    """Lets everybody speak and answer for some intervals, and time pass at the coordinator, too."""
    for _ in range(turns):
        for member in members:
            member.act()
        host.now_ms += INTERVAL_MS // 2
        host.step(CoordinatorTick())
        host.commit()
