"""A membership of the classic protocol with a real coordinator: generations, leaders, errors, leaving."""

from __future__ import annotations

import pytest
from classic_membership_kit import INTERVAL_MS, Member, cluster, coordinator, parts, settle
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.client.groups.membership import State
from replog.client.groups.messages import (
    Answered,
    Doubt,
    Leave,
    Lose,
    ReaderBack,
    ReaderLate,
    Revoke,
    Told,
    TopicsChanged,
)
from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.classic.subscription import (
    Subscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from replog.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    NotCoordinatorError,
    RebalanceInProgressError,
    ReplogError,
    UnknownMemberIdError,
)
from replog.rpc.metadata_messages import TopicInfo
from tests.random_examples import examples
from tests.unit.coordinator.shard_kit import Host, topic_id

ALL = parts(0, 1, 2, 3)


def alone() -> tuple[Host, Member]:
    """A member that reads everything, whose next heartbeat is not due yet."""
    host = coordinator()
    member = Member(host)
    member.subscribe("t")
    settle(host, member)
    assert (member.core.state, member.reads, member.core.epoch) == (State.MEMBER, ALL, 1)
    return host, member


def follower() -> Member:
    """A member of a generation whose leader is another one, which has given it two partitions."""
    member = Member(coordinator())
    member.subscribe("t", "u")
    joined(member, "other")
    told(member, SyncGroupResponse("consumer", "range", write_assignment(1, {"t": [1], "u": [0]})))
    return member


def told(member: Member, response: Told) -> None:
    member.asking = None
    member.step(Answered(response))


def joined(member: Member, leader: str, *, skip_assignment: bool = False) -> None:
    me = JoinedMember("m", None, write_subscription(("t",), None))
    told(member, JoinGroupResponse("m", 2, "consumer", "range", leader, (me,), skip_assignment))


# ---- joining ----------------------------------------------------------------------------------------------------------


def test_a_member_is_told_its_id_joins_with_it_assigns_and_says_that_it_is_there() -> None:
    _, member = alone()
    kinds = [type(each) for each in member.said[:5]]
    assert kinds == [JoinGroup, JoinGroup, SyncGroup, ClassicHeartbeat, ClassicHeartbeat]
    first, second, *_ = member.said
    assert isinstance(first, JoinGroup)
    assert isinstance(second, JoinGroup)
    assert (first.member_id, second.member_id) == ("", member.core.member_id)
    assert [each.name for each in first.protocols] == ["range", "roundrobin"]
    assert read_subscription(first.protocols[0].metadata) == Subscription(3, ("t",), (), None)


def test_two_members_share_and_when_one_leaves_the_other_has_all() -> None:
    host, first = alone()
    second = Member(host)
    second.subscribe("t")
    settle(host, first, second)
    assert sorted(map(len, (first.reads, second.reads))) == [2, 2]
    assert first.reads | second.reads == ALL
    assert first.core.epoch == second.core.epoch == 2
    second.reads = frozenset()
    second.step(Leave())
    assert isinstance(second.asking, LeaveGroup)
    settle(host, first, second)
    assert (second.core.state, first.reads) == (State.OUT, ALL)


def test_a_rebalance_takes_everything_back_before_it_joins_and_heartbeats_go_on_meanwhile() -> None:
    host, first = alone()
    second = Member(host)
    second.subscribe("t")
    for _ in range(3):
        second.act()
    host.now_ms += INTERVAL_MS
    first.act()
    assert first.giving_back == Revoke(ALL)
    assert first.core.epoch == 1  # with which the last commits go out
    said = len(first.said)
    for _ in range(3):  # the application takes its time
        host.now_ms += INTERVAL_MS
        first.step(Doubt())
        first.send()
        first.hear()
    assert {type(each) for each in first.said[said:]} == {ClassicHeartbeat}
    first.give_back()
    assert isinstance(first.asking, JoinGroup)
    assert first.core.epoch == 0
    settle(host, first, second)
    assert first.reads | second.reads == ALL
    assert not first.reads & second.reads


@pytest.mark.parametrize("protocol", ["range", "roundrobin"])
def test_the_leader_assigns_as_the_members_have_agreed(protocol: str) -> None:
    member = Member(coordinator())
    member.step(TopicsChanged(cluster(t=3, u=3)))
    member.subscribe("t", "u")
    told = [JoinedMember(each, None, write_subscription(("t", "u"), None)) for each in "ab"]
    other = JoinedMember("c", None, b"\xff")
    member.asking = None
    member.step(Answered(JoinGroupResponse("a", 7, "consumer", protocol, "a", (*told, other))))
    sync = member.asking
    assert isinstance(sync, SyncGroup)
    assert (sync.generation, sync.protocol) == (7, protocol)
    shares = {"range": ({"t": [0, 1], "u": [0, 1]}, {"t": [2], "u": [2]})}.get(
        protocol, ({"t": [0, 2], "u": [1]}, {"t": [1], "u": [0, 2]})
    )
    assert sync.assignments == {
        "a": write_assignment(3, shares[0]),
        "b": write_assignment(3, shares[1]),
        "c": write_assignment(0, {}),
    }


def test_the_leader_joins_again_when_a_topic_of_any_member_has_changed() -> None:
    host, member = alone()
    for nothing_new in (cluster(t=4, other=1), cluster(other=1)):  # whoever reads a deleted topic has to be told so
        member.step(TopicsChanged(nothing_new))
        assert member.giving_back is None
    member.step(TopicsChanged(cluster(t=6)))
    assert member.giving_back == Revoke(ALL)
    settle(host, member)
    assert member.reads == parts(0, 1, 2, 3, 4, 5)


def test_a_topic_that_was_made_anew_is_given_up_also_by_who_does_not_lead() -> None:
    member = follower()
    anew = TopicInfo("t", topic_id("new"), cluster(t=4)["t"].partitions)
    member.step(TopicsChanged({}))  # deleted: who reads it is told so
    assert member.giving_back is None
    member.step(TopicsChanged({"t": anew}))
    assert member.giving_back == Revoke(parts(1))


def test_a_topic_that_the_leader_knew_first_is_read_as_soon_as_it_is_known() -> None:
    member = follower()
    assert member.reads == parts(1)
    member.step(TopicsChanged(cluster(t=4, u=1)))
    assert member.reads == parts(1) | parts(0, topic="u")
    assert member.giving_back is None


def test_a_leader_that_need_not_assign_watches_the_topics_all_the_same() -> None:
    member = Member(coordinator())
    member.subscribe("t")
    joined(member, "m", skip_assignment=True)
    assert isinstance(member.asking, SyncGroup)
    assert member.asking.assignments == {}
    told(member, SyncGroupResponse("consumer", "range", write_assignment(1, {"t": [0, 1, 2, 3]})))
    assert member.reads == ALL
    member.step(TopicsChanged(cluster(t=5)))
    assert member.giving_back == Revoke(ALL)


def test_a_leader_that_comes_back_assigns_what_came_while_it_was_away() -> None:
    """Goal: no partition is without a reader because its topic grew while a static leader restarted (KIP-814 lets it pass)."""
    host = coordinator()
    first = Member(host, instance_id="i")
    first.subscribe("t")
    settle(host, first)
    first.step(Leave())
    again = Member(host, instance_id="i")
    again.step(TopicsChanged(cluster(t=6)))
    again.subscribe("t")
    settle(host, again)
    assert again.reads == parts(0, 1, 2, 3, 4, 5)


def test_other_topics_are_subscribed_to_by_joining_again() -> None:
    host, member = alone()
    member.step(TopicsChanged(cluster(t=4, u=1)))
    member.subscribe("t", "u")
    assert member.giving_back == Revoke(ALL)
    settle(host, member)
    assert member.reads == ALL | parts(0, topic="u")


def test_what_is_subscribed_to_while_a_join_waits_is_joined_for_when_it_has_ended() -> None:
    member = Member(coordinator())
    member.subscribe("t")
    member.subscribe("u")
    joined(member, "other")
    told(member, SyncGroupResponse("consumer", "range", write_assignment(1, {"t": [1]})))
    assert isinstance(member.asking, JoinGroup)
    assert read_subscription(member.asking.protocols[0].metadata) == Subscription(3, ("u",))
    assert member.reads == frozenset()


def test_the_join_waits_for_the_heartbeat_that_is_under_way_and_no_longer() -> None:
    _, member = alone()
    member.subscribe("t", "u")
    member.step(Doubt())
    member.give_back()
    assert isinstance(member.asking, ClassicHeartbeat)
    member.send()
    member.hear()
    assert isinstance(member.asking, JoinGroup)


# ---- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "keeps_id"), [(UnknownMemberIdError("gone"), False), (IllegalGenerationError("old"), True)]
)
def test_a_member_that_was_put_out_loses_everything_and_joins_again(error: ReplogError, *, keeps_id: bool) -> None:
    host, member = alone()
    before = member.core.member_id
    member.step(Doubt())
    member.fail(error)
    assert member.giving_back == Lose(ALL)
    assert member.core.epoch == 0
    assert "put out" in member.texts[0]
    member.give_back()
    assert isinstance(member.asking, JoinGroup)
    assert member.asking.member_id == (before if keeps_id else "")
    settle(host, member)
    assert member.reads == ALL


def test_an_instance_that_another_process_uses_too_is_an_error_for_the_application() -> None:
    host = coordinator()
    first, second = Member(host, instance_id="i"), Member(host, instance_id="i")
    first.subscribe("t")
    settle(host, first)
    second.subscribe("t")
    settle(host, second, turns=5)
    settle(host, first, second)
    assert isinstance(first.failure, FencedInstanceIdError)
    assert (first.core.state, first.reads, second.reads) == (State.FAILED, frozenset(), ALL)


@pytest.mark.parametrize(
    "error", [InconsistentGroupProtocolError("no assignor in common"), GroupMaxSizeReachedError("full")]
)
def test_a_group_that_does_not_take_it_is_told_once(error: ReplogError) -> None:
    member = Member(coordinator())
    member.subscribe("t")
    member.fail(error)
    assert (member.failure, member.core.state, member.core.next_deadline_ms()) == (error, State.FAILED, None)


@pytest.mark.parametrize("error", [NotCoordinatorError("moved"), RebalanceInProgressError("again")])
def test_a_sync_that_fails_is_a_join_again(error: ReplogError) -> None:
    host = coordinator()
    member = Member(host)
    member.subscribe("t")
    while not isinstance(member.asking, SyncGroup):
        member.act()
    member.fail(error)
    settle(host, member)
    assert member.reads == ALL


def test_a_coordinator_that_is_away_costs_nothing_but_heartbeats() -> None:
    host, member = alone()
    for _ in range(5):
        member.step(Doubt())
        member.fail(NotCoordinatorError("moved"))
        host.now_ms += INTERVAL_MS
    assert (member.reads, member.giving_back, member.core.state) == (ALL, None, State.MEMBER)
    settle(host, member)
    assert (member.core.epoch, member.texts) == (1, [])


def test_an_assignment_that_cannot_be_read_is_an_error() -> None:
    member = Member(coordinator())
    member.subscribe("t")
    joined(member, "other")
    told(member, SyncGroupResponse("consumer", "range", b"\x00\x01\x7f"))
    assert "assignors range or roundrobin" in str(member.failure)


# ---- going ------------------------------------------------------------------------------------------------------------


def test_a_join_that_waits_for_others_is_given_up_by_leaving() -> None:
    host, first = alone()
    second = Member(host)
    second.subscribe("t")
    for _ in range(3):
        second.act()
    assert isinstance(second.asking, JoinGroup)
    second.step(Leave())
    assert isinstance(second.asking, LeaveGroup)
    settle(host, first, second)
    assert (second.core.state, first.reads) == (State.OUT, ALL)


def test_a_static_member_goes_without_a_word_and_has_its_partitions_again() -> None:
    host = coordinator()
    first, other = Member(host, instance_id="i"), Member(host, instance_id="j")
    for member in (first, other):
        member.subscribe("t")
    settle(host, first, other)
    had, epoch = other.reads, first.core.epoch
    other.step(Leave())
    assert (other.core.state, other.asking) == (State.OUT, None)
    again = Member(host, instance_id="j")
    again.subscribe("t")
    settle(host, first, again)
    assert (again.reads, first.core.epoch) == (had, epoch)


def test_an_application_that_is_too_slow_lets_others_go_on_and_joins_with_its_next_read() -> None:
    host, member = alone()
    member.step(ReaderLate(5_000))
    assert member.giving_back == Lose(ALL)
    assert isinstance(member.asking, LeaveGroup)
    settle(host, member)
    assert (member.core.state, member.reads) == (State.AWAY, frozenset())
    member.step(ReaderBack())
    settle(host, member)
    assert (member.core.state, member.reads) == (State.MEMBER, ALL)


def test_a_static_member_that_is_too_slow_says_nothing_and_has_its_partitions_again() -> None:
    """Kafka's `AbstractCoordinator.maybeLeaveGroup`: the coordinator hears of it when the session ends, if the reader stays away."""
    host = coordinator()
    first, slow = Member(host, instance_id="i"), Member(host, instance_id="j")
    for member in (first, slow):
        member.subscribe("t")
    settle(host, first, slow)
    had, epoch = slow.reads, first.core.epoch
    slow.step(ReaderLate(5_000))
    assert (slow.giving_back, slow.asking) == (Lose(had), None)
    settle(host, first, slow, turns=10)  # half of a session
    assert (slow.core.state, slow.reads, first.core.epoch) == (State.AWAY, frozenset(), epoch)
    slow.step(ReaderBack())
    settle(host, first, slow, turns=10)
    assert (slow.core.state, slow.reads, first.core.epoch) == (State.MEMBER, had, epoch)
    slow.step(ReaderLate(5_000))
    settle(host, first, slow)  # two sessions
    assert (slow.core.state, first.reads) == (State.AWAY, ALL)


def test_nobody_hears_that_a_member_without_an_id_leaves() -> None:
    member = Member(coordinator())
    member.subscribe("t")
    member.step(ReaderLate(5_000))
    assert (member.core.state, member.asking) == (State.AWAY, None)
    member.step(ReaderBack())
    assert isinstance(member.asking, JoinGroup)


# ---- in any order -----------------------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(
    ["subscribe", "tick", "send", "send", "hear", "hear", "hear", "lose", "give back", "give back", "leave", "grow"]
)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), ACTIONS), max_size=80))
def test_no_partition_is_read_by_two_members_of_the_classic_protocol(steps: list[tuple[int, str]]) -> None:
    host = coordinator()
    members = [Member(host) for _ in range(3)]
    for number, action in steps:
        act(host, members[number], action)
        reading = [each.reads for each in members]
        assert sum(map(len, reading)) == len(frozenset().union(*reading)), action
        host.now_ms += 1
    for each in members:
        each.step(TopicsChanged(cluster(t=4)))
        each.subscribe("t")
    settle(host, *members, turns=80)
    assert frozenset().union(*(each.reads for each in members)) == ALL
    assert {each.core.state for each in members} == {State.MEMBER}


def act(host: Host, member: Member, action: str) -> None:
    match action:
        case "subscribe":
            member.subscribe("t")
        case "tick":
            host.now_ms += INTERVAL_MS // 4
            member.step(Doubt())
        case "send":
            member.send()
        case "hear":
            member.hear()
        case "lose" if member.asking is not None:
            member.fail()
        case "give back" if member.giving_back is not None:
            member.give_back()
        case "grow":
            member.step(TopicsChanged(cluster(t=5)))
        case "leave":  # as a consumer does it: everything is given back before
            member.reads, member.giving_back = frozenset(), None
            member.step(Leave())


def test_protocols_are_told_with_the_rack() -> None:
    member = Member(coordinator(), rack_id="r")
    member.subscribe("t")
    assert isinstance(member.asking, JoinGroup)
    told = write_subscription(("t",), "r")
    assert member.asking.protocols == (Protocol("range", told), Protocol("roundrobin", told))
    assert read_subscription(told) == Subscription(3, ("t",), (), "r")
