"""Members of the classic protocol against a real shard: full logs, lost leaderships, silent, slow and static members."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from classic_kit import (
    CONFIG,
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    beat,
    classic_host,
    group_of,
    joining,
    leaving,
    pass_time,
    syncing,
    written,
)
from group_record_kit import unhurried
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from shard_kit import FULL, Host

from replog.coordinator.classic.requests import JoinGroupResponse, SyncGroupResponse
from replog.coordinator.config import ShardConfig
from replog.coordinator.runtime.messages import ReplyError, Resigned
from replog.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tests.random_examples import examples
from tests.work_counts import calls_of

pytestmark = pytest.mark.exhaustive

MEMBERS_THAT_MEET = 250
WAIT_MS_MAX = DELAY_MS + REBALANCE_MS
"""How long a join or a sync may wait, all members having the same timeouts."""

COMMIT_MS_MAX = ShardConfig().commit_timeout_ms


def name_of(member_id: str) -> str:
    """The name of the client that a member id was made for."""
    return member_id.partition("-")[0]


class Client:
    """A consumer that has one request under way at a time, and does what the answer says.

    Attributes:
        request_id: The request whose answer it waits for; 0 where there is none.
        generation: The generation that it is in; -1 where it has to join.
        assignment: What it has been told to read; None where it has to ask.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance_id = name if name.startswith("s") else None
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.joined: JoinGroupResponse | None = None
        self.request_id = 0
        self.request: Any = None

    def next_request(self) -> Any:
        """What it asks next."""
        if self.generation < 0:
            return joining(self.member_id, client_id=self.name, instance_id=self.instance_id)
        if self.assignment is not None:
            return beat(self.member_id, self.generation, instance_id=self.instance_id)
        told = self.joined
        is_leader = told is not None and told.leader_id == self.member_id and not told.skip_assignment
        given = (
            {each.member_id: name_of(each.member_id).encode() for each in told.members} if told and is_leader else {}
        )
        return syncing(self.member_id, self.generation, given, instance_id=self.instance_id)

    def hear(self, answer: Any) -> None:
        """Takes in an answer."""
        if isinstance(answer, ReplyError):
            self.hear_error(answer.error)
        elif isinstance(answer.response, JoinGroupResponse):
            self.joined = answer.response
            self.member_id, self.generation, self.assignment = self.joined.member_id, self.joined.generation, None
        elif isinstance(answer.response, SyncGroupResponse):
            self.assignment = answer.response.assignment

    def hear_error(self, error: Any) -> None:
        self.generation, self.assignment = -1, None
        match error:
            case MemberIdRequiredError():
                self.member_id = error.member_id
            case UnknownMemberIdError() | IllegalGenerationError() | FencedInstanceIdError():
                self.member_id = ""
            case RebalanceInProgressError() | _:
                pass

    def restart(self) -> None:
        """Forgets everything, as a process that ends."""
        self.__init__(self.name)  # type: ignore[misc]


class World:
    """Clients, a shard, and what has been seen.

    Attributes:
        asked_ms: When each request was asked.
        leaders: The leader of each generation under each leader of the partition.
    """

    def __init__(self) -> None:
        self.host: Host = classic_host()
        self.clients = {name: Client(name) for name in ("a", "b", "s1", "s2")}
        self.asked_ms: dict[int, int] = {}
        self.leaders: dict[tuple[int, int], str] = {}
        self.newest: dict[int, int] = {}
        self.last_request_id = 0

    def act(self, name: str) -> None:
        """Lets a client ask, unless it waits; one that has waited for too long has lost its connection."""
        client = self.clients[name]
        if client.request_id:
            return
        client.request = client.next_request()
        client.request_id = self.submit(client.request)

    def submit(self, request: Any) -> int:
        """Asks."""
        self.last_request_id = self.host.submit(request)
        self.asked_ms[self.last_request_id] = self.host.now_ms
        return self.last_request_id

    def hear(self) -> None:
        """Lets clients hear what has been answered, in the order in which it was."""
        waiting = {client.request_id: client for client in self.clients.values() if client.request_id}
        for request_id, answer in self.host.answers.items():
            client = waiting.get(request_id)
            if client is None:
                continue
            client.request_id = 0
            client.hear(answer)
            self.check_answer(client, answer)

    def check_answer(self, client: Client, answer: Any) -> None:
        response = getattr(answer, "response", None)
        epoch = self.host.epoch
        if isinstance(response, SyncGroupResponse):
            assert response.assignment == client.name.encode(), (client.name, response)
            kept = [each for each in written(self.host, end_offset=self.host.high_watermark) if each is not None]
            members = [one.member_id for each in kept if each.generation == client.generation for one in each.members]
            assert client.member_id in members, "it was told what has not committed"
        if isinstance(response, JoinGroupResponse):
            leader = self.leaders.setdefault((epoch, response.generation), name_of(response.leader_id))
            assert leader == name_of(response.leader_id)
            assert response.generation >= self.newest.get(epoch, 0)
            self.newest[epoch] = response.generation

    def check(self) -> None:
        """Nobody waits for too long, and what waits is counted."""
        open_since_ms = [self.asked_ms[each] for each in self.asked_ms.keys() - self.host.answers.keys()]
        assert self.host.now_ms - min(open_since_ms, default=self.host.now_ms) <= WAIT_MS_MAX + COMMIT_MS_MAX
        group = group_of(self.host)
        generations = [each.generation for each in written(self.host) if each is not None]
        assert generations == sorted(generations)
        if group is None:
            return
        waiting = group.waiting_requests()
        assert len(waiting) == len(set(waiting))
        assert not set(waiting) & self.host.answers.keys()
        assert all(self.host.now_ms - self.asked_ms[each] <= WAIT_MS_MAX for each in waiting)
        assert group.waiting_joins == sum(each.join_request is not None for each in group.members.values())
        assert group.size_bytes == sum(
            len(one.name) + len(one.metadata) for each in group.members.values() for one in each.protocols
        )
        assert group.instances == {
            each.instance_id: each.member_id for each in group.members.values() if each.instance_id is not None
        }
        assert (group.leader_id in group.members) is bool(group.members)

    def change_leader(self) -> None:
        """Another leader has what has committed, and nothing else."""
        del self.host.log[self.host.high_watermark :]
        self.host.step(Resigned())
        self.hear()
        self.host.lead()
        values = written(self.host)
        group = group_of(self.host)
        assert (None if group is None else group.record) == (values[-1] if values else None)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask"] * 8 + ["wait"] * 4 + ["restart", "leave", "refuse", "cut", "commit", "hold", "retry", "sleep"]
        ),
        st.sampled_from(["a", "b", "s1", "s2"]),
    ),
    max_size=120,
)


@settings(unhurried, max_examples=examples(80))
@given(ACTIONS)
def test_members_meet_whatever_happens(actions: list[tuple[str, str]]) -> None:
    """Goal: one leader a generation, each request answered once and in time, told is what has committed, and to all in the end."""
    world = World()
    host, is_held = world.host, False
    for action, name in actions:
        match action:
            case "ask":
                world.act(name)
            case "wait":
                pass_time(host, REBALANCE_MS // 4, commits=not is_held)
            case "sleep":
                pass_time(host, 3 * SESSION_MS, commits=not is_held)
            case "restart":
                world.clients[name].restart()
            case "leave" if world.clients[name].member_id:
                world.submit(leaving(world.clients[name].member_id))
                world.clients[name].restart()
            case "refuse":
                host.refuses = None if host.refuses else FULL
            case "cut":
                world.change_leader()
            case "commit" | "hold":
                is_held = action == "hold"
            case "retry":  # it has lost its connection, and asks again on another one
                world.clients[name].request_id = 0
                world.act(name)
        if not is_held:
            host.commit()
        world.hear()
        world.check()
    host.refuses = None
    for _ in range(120):
        for name in world.clients:
            world.act(name)
        pass_time(host, SESSION_MS // 10)
        world.hear()
        world.check()
    clients = world.clients.values()
    assert [each.assignment for each in clients] == [each.name.encode() for each in clients]
    assert len({each.generation for each in clients}) == 1
    host.step(Resigned())
    assert host.answers.keys() == set(range(1, world.last_request_id + 1))


# ---- many members -------------------------------------------------------------------------------------------------------


def meet_and_be_assigned(count: int) -> None:
    """Members meet, join again because of one more, and are assigned."""
    host = classic_host(replace(CONFIG, classic=replace(CONFIG.classic, max_size=9_999, max_group_bytes=10_000_000)))
    joins = [host.submit(joining(is_id_required=False)) for _ in range(count)]
    pass_time(host, DELAY_MS + REBALANCE_MS)
    members = [host.response(each).member_id for each in joins]
    for _ in range(2):
        syncs = [host.submit(syncing(each, host.response(joins[0]).generation)) for each in reversed(members)]
        host.commit()
        assert all(host.response(each).assignment == b"" for each in syncs)
        joins = [host.submit(joining(each)) for each in members]  # the leader is the first one
        for each in members[1:]:
            host.submit(beat(each, 1))
    assert host.response(joins[0]).generation == 3
    pass_time(host, 3 * SESSION_MS)


def test_a_thousand_members_cost_four_times_as_much_as_a_quarter_of_them() -> None:
    few = calls_of(partial(meet_and_be_assigned, MEMBERS_THAT_MEET))
    assert calls_of(partial(meet_and_be_assigned, 4 * MEMBERS_THAT_MEET)) < 4.5 * few
