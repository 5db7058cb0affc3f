"""Members of both protocols share one group, which goes back and forth, whatever happens: one reader a partition, no standstill."""

from __future__ import annotations

import random
from typing import Any

import pytest
from classic_kit import beat, joining, leaving, pass_time, syncing
from consumer_bytes import wanting
from group_record_kit import unhurried
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mixed_kit import CONFIG, SESSION_MS, T, consuming
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host

from replog.coordinator.assignors import assignment_of, partitions_of
from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.requests import (
    ClassicHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    Protocol,
    SyncGroupResponse,
)
from replog.coordinator.classic.subscription import read_assignment, read_subscription, write_assignment
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.runtime.messages import ReplyError, Resigned
from replog.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tests.random_examples import examples

pytestmark = pytest.mark.exhaustive

REBALANCE_MS = 5 * SESSION_MS
"""Longer than a session, so that whoever does not go on stops by itself before the coordinator gives away what it reads."""


class Client:
    """A consumer with one request under way at a time; it stops to read when nobody has answered for a session.

    Attributes:
        reads: The partitions that it reads.
        request_id: The request whose answer it waits for; 0 where there is none.
        heard_ms: When it sent the last request that was answered.
    """

    def __init__(self, name: str, topics: Topics) -> None:
        self.name = name
        self.topics = topics
        self.instance_id = name if name.startswith("s") else None
        self.reads: frozenset[int] = frozenset()
        self.request_id = 0
        self.sent_ms = self.heard_ms = 0

    def ask(self, host: Host) -> None:
        """Sends its next request, unless one is under way."""
        if not self.request_id:
            request = self.next_request()
            self.sent_ms = host.now_ms
            self.request_id = host.submit(request)

    def take(self, host: Host, *, is_lost: bool = False) -> None:
        """Hears the answer, if there is one; a lost one says as much as none."""
        answer = host.answers.get(self.request_id)
        if answer is None:
            return
        self.request_id = 0
        if is_lost:
            self.miss()
        elif isinstance(answer, ReplyError):
            self.fail(answer.error)
        else:
            self.heard_ms = self.sent_ms
            self.hear(answer.response)

    def pass_time(self, now_ms: int) -> None:
        """Stops to read when it may have been put out; what it asks meanwhile says that it reads, so it asks anew."""
        if self.reads and now_ms - self.heard_ms >= SESSION_MS:
            self.stop()
            self.request_id = 0

    def next_request(self) -> Any:
        raise NotImplementedError

    def hear(self, response: Any) -> None:
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        raise NotImplementedError

    def miss(self) -> None:
        """An answer was lost."""

    def stop(self) -> None:
        raise NotImplementedError

    def leaves(self) -> JoinGroup | LeaveGroup | ConsumerHeartbeat | None:
        raise NotImplementedError


class NewClient(Client):
    """A consumer of KIP-848."""

    epoch = 0
    has_missed = False

    def next_request(self) -> ConsumerHeartbeat:
        more: dict[str, Any] = {"instance_id": self.instance_id}
        if self.epoch == 0:
            return consuming(self.name, rebalance_timeout_ms=REBALANCE_MS, **more)
        if self.has_missed:
            more |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topics": ("t",)}
        return consuming(self.name, self.epoch, owned=assignment_of((T, each) for each in self.reads), **more)

    def hear(self, response: ConsumerHeartbeatResponse) -> None:
        self.epoch, self.has_missed = response.member_epoch, False
        if response.assignment is not None:
            self.reads = frozenset(response.assignment.get(T, ()))

    def fail(self, error: Exception) -> None:
        if isinstance(
            error, UnknownMemberIdError | FencedMemberEpochError | GroupIdNotFoundError | FencedInstanceIdError
        ):
            self.stop()
        self.has_missed = True

    def miss(self) -> None:
        self.has_missed = True

    def stop(self) -> None:
        self.epoch, self.reads = 0, frozenset()

    def leaves(self) -> ConsumerHeartbeat | None:
        return consuming(self.name, -1, instance_id=self.instance_id) if self.epoch > 0 else None


class OldClient(Client):
    """A consumer of the classic protocol.

    Attributes:
        member_id: The id that it was told.
        generation: The generation that it is in; -1 where it has to join.
        joined: What it was told of the generation; None once it knows what it gets.
    """

    cooperates = False

    def __init__(self, name: str, topics: Topics) -> None:
        super().__init__(name, topics)
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    def next_request(self) -> Any:
        if self.generation < 0:
            if not self.cooperates:
                self.reads = frozenset()
            protocols = (Protocol("range", wanting("t", owned=tuple(sorted(self.reads)))),)
            more: dict[str, Any] = {"protocols": protocols, "rebalance_timeout_ms": REBALANCE_MS}
            return joining(self.member_id, client_id=self.name, instance_id=self.instance_id, **more)
        if self.joined is None:
            return beat(self.member_id, self.generation, instance_id=self.instance_id)
        leads = self.joined.leader_id == self.member_id and not self.joined.skip_assignment
        given = self.assign(self.joined) if leads else {}
        return syncing(self.member_id, self.generation, given, instance_id=self.instance_id)

    def assign(self, told: JoinGroupResponse) -> dict[str, bytes]:
        """Shares all partitions; what one reads goes to another one in a later generation."""
        ids = sorted(each.member_id for each in told.members)
        readers = {
            partition: each.member_id
            for each in told.members
            for _, partition in getattr(read_subscription(each.metadata), "owned", ())
        }
        shares: dict[str, list[int]] = {each: [] for each in ids}
        for partition in range(self.topics.partitions["t"]):
            member_id = ids[partition % len(ids)]
            if readers.get(partition, member_id) == member_id:
                shares[member_id].append(partition)
        return {each: write_assignment(1, {"t": share} if share else {}) for each, share in shares.items()}

    def hear(self, response: Any) -> None:
        match response:
            case JoinGroupResponse():
                self.joined, self.member_id, self.generation = response, response.member_id, response.generation
            case SyncGroupResponse():
                found = read_assignment(response.assignment)
                assert found is not None
                reads = frozenset(partition for _, partition in found.partitions)
                has_to_rejoin = bool(self.reads - reads)
                self.reads, self.joined = reads, None
                self.generation = -1 if has_to_rejoin else self.generation
            case ClassicHeartbeatResponse():
                pass

    def fail(self, error: Exception) -> None:
        self.generation, self.joined = -1, None
        match error:
            case MemberIdRequiredError():
                self.member_id = error.member_id
            case UnknownMemberIdError() | FencedInstanceIdError():
                self.stop()
                self.member_id = ""
            case IllegalGenerationError():
                self.reads = frozenset()
            case RebalanceInProgressError() | _:
                pass

    def miss(self) -> None:
        self.generation, self.joined = -1, None

    def stop(self) -> None:
        self.generation, self.joined, self.reads = -1, None, frozenset()

    def leaves(self) -> LeaveGroup | None:
        return leaving(self.member_id) if self.member_id else None


class CooperativeClient(OldClient):
    """One that reads on while it joins."""

    cooperates = True


NAMES = ("a", "b", "c", "s")


class World:
    """Clients, of which some change their protocol, and a shard."""

    def __init__(self, *, cooperates: bool) -> None:
        self.topics = Topics(t=4)
        config = replace(CONFIG, consumers=replace(CONFIG.consumers, max_size=10))
        self.host = group_host(self.topics, replace(config, classic=replace(config.classic, max_size=10)))
        self.host.lead()
        self.old: type[OldClient] = CooperativeClient if cooperates else OldClient
        self.clients: dict[str, Client] = {name: self.old(name, self.topics) for name in NAMES}
        self.kinds: set[type] = set()

    def speak(self, name: str, *, is_lost: bool = False) -> None:
        """Lets a client speak, and all hear what has been answered."""
        self.clients[name].ask(self.host)
        self.host.commit()
        self.hear(lost=name if is_lost else "")

    def hear(self, lost: str = "") -> None:
        for name, client in self.clients.items():
            client.take(self.host, is_lost=name == lost)

    def leave(self, name: str) -> None:
        """Lets a client leave, and its process end."""
        request = self.clients[name].leaves()
        self.clients[name] = type(self.clients[name])(name, self.topics)
        if request is not None:
            self.host.submit(request)
            self.host.commit()
            self.hear()

    def change(self, name: str) -> None:
        """Ends a process, which leaves if it is no static member, and begins one of the other protocol."""
        kind = self.old if isinstance(self.clients[name], NewClient) else NewClient
        if self.clients[name].instance_id is None:
            self.leave(name)
        self.clients[name] = kind(name, self.topics)

    def wait(self, for_ms: int) -> None:
        """Lets time pass, in steps in which clients see the time."""
        for _ in range(0, for_ms, SESSION_MS // 10):
            for client in self.clients.values():
                client.pass_time(self.host.now_ms + SESSION_MS // 10)
            pass_time(self.host, SESSION_MS // 10)
            self.hear()

    def check(self) -> None:
        """Nobody reads what another one reads, nor has it."""
        reads = [each for client in self.clients.values() for each in client.reads]
        assert len(reads) == len(set(reads)), {each.name: sorted(each.reads) for each in self.clients.values()}
        groups = self.host.machine._groups
        group = groups.find("g")
        self.kinds.add(type(group))
        if isinstance(group, ConsumerGroup) and group.members:
            held = [
                each
                for member in group.current.values()
                for each in (*partitions_of(member.assigned), *partitions_of(member.revoked))
            ]
            assert len(held) == len(set(held))
            assert set(group.holders) == set(held)
            assert group.members.keys() == group.current.keys()
            assert "g" not in groups.classic._written
        elif isinstance(group, ClassicGroup) and group.members:
            consumers = groups.consumers.find("g")
            assert consumers is None or not consumers.members

    def settle(self) -> None:
        """Lets everybody go on until all is read."""
        for _ in range(150):
            for name in self.clients:
                self.speak(name)
                self.check()
            self.wait(SESSION_MS // 10)
        assert sum(len(each.reads) for each in self.clients.values()) == self.topics.partitions["t"]
        shares = [len(each.reads) for each in self.clients.values()]
        assert max(shares) - min(shares) <= 1, shares


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["speak"] * 8 + ["lost", "change", "change", "leave", "wait", "sleep", "refuse", "cut", "grow"]
        ),
        st.sampled_from(NAMES),
    ),
    max_size=100,
)


def act(world: World, action: str, name: str) -> None:
    host = world.host
    match action:
        case "speak" | "lost":
            world.speak(name, is_lost=action == "lost")
        case "change":
            world.change(name)
        case "leave":
            world.leave(name)
        case "wait":
            world.wait(SESSION_MS // 5)
        case "sleep":
            world.wait(2 * SESSION_MS)
        case "refuse":
            host.refuses = None if host.refuses else FULL
        case "cut":  # another leader, without what has not committed
            world.clients[name].ask(host)
            del host.log[host.high_watermark :]
            host.step(Resigned())
            world.hear()
            host.lead()
        case "grow":
            world.topics.change(t=world.topics.partitions["t"] + 1)


@settings(unhurried, max_examples=examples(40))
@given(st.booleans(), ACTIONS)
@example(cooperates=True, actions=[("speak", "s"), ("wait", "a"), ("lost", "a")])  # `s` stops while its join waits
def test_nobody_reads_what_another_one_reads_whatever_they_speak(
    cooperates: bool, actions: list[tuple[str, str]]
) -> None:
    """Goal: rolling changes both ways, lost answers, silent members, full logs, other leaders, topics that grow."""
    world = World(cooperates=cooperates)
    for action, name in actions:
        act(world, action, name)
        world.check()
    world.host.refuses = None
    world.settle()
    world.host.step(Resigned())
    world.hear()
    assert all(client.request_id == 0 for client in world.clients.values())


def test_a_group_goes_over_and_back_one_by_one() -> None:
    """Goal: the simulation sees groups of both kinds, and a rolling change ends in the other one."""
    for cooperates in (False, True):
        world = World(cooperates=cooperates)
        world.settle()
        for kind in (ConsumerGroup, ClassicGroup):
            for name in random.Random(1).sample(NAMES, len(NAMES)):
                world.change(name)
                world.settle()
            assert isinstance(world.host.machine._groups.find("g"), kind)
        assert world.kinds >= {ConsumerGroup, ClassicGroup}
