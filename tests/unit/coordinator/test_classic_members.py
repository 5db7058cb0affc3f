"""Who may be in a group of the classic protocol: static members, what is wrong with a join, groups that are full."""

from __future__ import annotations

import pytest
from classic_kit import (
    CONFIG,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    beat,
    classic_host,
    group_of,
    id_of,
    joining,
    leaving,
    meet,
    met,
    pass_time,
    refused,
    settle,
    stable,
    subscription,
    syncing,
    written,
)
from mixed_kit import classics, coming
from msgspec.structs import replace
from shard_kit import Host

from replog.coordinator.classic.checks import NAME_BYTES_MAX
from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from replog.coordinator.config import ClassicConfig
from replog.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    ReplogError,
    UnknownMemberIdError,
)


@pytest.fixture
def host() -> Host:
    return classic_host()


# ---- static members -----------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_goes_on_with_what_it_had(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(instance_id="j"))
    assert [each.member_id.split("-")[0] for each in told] == ["i", "j"]
    settle(host, told)
    leader, follower = told
    owned = (Protocol("range", subscription("t", owned=b"what it had")),)
    back = host.ask(joining(instance_id="j", protocols=owned))
    assert (back.generation, back.leader_id, back.skip_assignment) == (1, leader.member_id, False)
    assert host.ask(syncing(back.member_id, 1, instance_id="j")).assignment == follower.member_id.encode()
    host.ask(beat(leader.member_id, 1))
    for request in (beat(follower.member_id, 1, instance_id="j"), joining(follower.member_id, instance_id="j")):
        refused(host, request, FencedInstanceIdError, "two processes")
    refused(host, beat(follower.member_id, 1), UnknownMemberIdError)
    assert [each.members[1].member_id for each in written(host) if each] == [follower.member_id, back.member_id]


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_leader_that_comes_back_need_not_assign(host: Host, can_skip: bool) -> None:
    told = meet(host, joining(instance_id="i"), joining(instance_id="j"))
    settle(host, told)
    back = host.ask(joining(instance_id="i", can_skip_assignment=can_skip))
    assert back.skip_assignment is can_skip
    assert (back.leader_id == back.member_id) is can_skip
    assert len(back.members) == (2 if can_skip else 0)
    assert host.ask(syncing(back.member_id, 1)).assignment == told[0].member_id.encode()
    host.ask(beat(told[1].member_id, 1))


@pytest.mark.parametrize(
    "changed", [(Protocol("range", subscription("u")),), (Protocol("sticky", b""), *RANGE), (Protocol("range", b"?"),)]
)
def test_a_static_member_that_wants_something_else_begins_a_rebalance(
    host: Host, changed: tuple[Protocol, ...]
) -> None:
    both = (*RANGE, Protocol("sticky", b""))
    told = meet(host, joining(instance_id="i", protocols=both))
    settle(host, told)
    back = host.ask(joining(instance_id="i", protocols=changed))
    assert back.generation == 2


@pytest.mark.parametrize(("owned", "generation"), [((3,), 1), ((0, 3), 2)])
def test_a_static_member_in_the_place_of_one_that_was_to_join_again_begins_a_rebalance(
    host: Host, owned: tuple[int, ...], generation: int
) -> None:
    """Goal: what the former one gave back, for others to get in the next generation, is not left to nobody."""
    classics(host, (3,), owned=owned, instance_id="i")
    assert host.ask(coming(instance_id="i")).generation == generation


def test_a_static_member_of_another_kind_is_not_looked_into(host: Host) -> None:
    connect = {"protocol_type": "connect", "instance_id": "w"}
    settle(host, meet(host, joining(protocols=(Protocol("v2", b"1"),), **connect)))
    assert host.ask(joining(protocols=(Protocol("v2", b"2"),), **connect)).generation == 1


def test_two_that_use_one_instance_id_fence_each_other_while_they_wait(host: Host) -> None:
    other = host.submit(joining(is_id_required=False))
    first = host.submit(joining(instance_id="i"))
    second = host.submit(joining(instance_id="i"))
    with pytest.raises(FencedInstanceIdError):
        host.response(first)
    old, member = met(host, second, other)
    waiting = host.submit(syncing(old.member_id, 1))
    joined = host.submit(joining(instance_id="i"))
    with pytest.raises(FencedInstanceIdError):
        host.response(waiting)
    assert joined not in host.answers
    host.submit(joining(member.member_id))
    assert host.response(joined).generation == 2


def test_static_members_that_do_not_join_again_keep_their_place_for_a_session(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(instance_id="j"))
    settle(host, told)
    host.submit(joining(told[1].member_id, protocols=(Protocol("range", subscription("u")),)))
    pass_time(host, REBALANCE_MS)
    group = group_of(host)
    assert group is not None
    assert (len(group.members), group.leader_id, group.generation) == (2, told[1].member_id, 2)


def test_when_only_static_members_are_left_and_none_joins_their_sessions_decide(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(is_id_required=False))
    settle(host, told)
    host.ask(leaving(told[1].member_id))
    for _ in range(3):
        pass_time(host, REBALANCE_MS)
        refused(host, beat(told[0].member_id, 1), RebalanceInProgressError)
    pass_time(host, 3 * SESSION_MS)
    empty = written(host)[-1]
    assert empty is not None
    assert (empty.generation, empty.members) == (2, [])


def test_static_members_are_removed_by_their_instance_ids(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(instance_id="j"))
    settle(host, told)
    wrong = LeavingMember(told[0].member_id, "j")
    left = host.ask(leaving(wrong, LeavingMember("", "i"), LeavingMember("", "x"), LeavingMember(""))).members
    errors = [FencedInstanceIdError, type(None), UnknownMemberIdError, UnknownMemberIdError]
    assert [type(each.error) for each in left] == errors
    assert [(each.member_id, each.instance_id) for each in left[1:3]] == [("", "i"), ("", "x")]
    assert host.response(host.submit(joining(told[1].member_id, instance_id="j"))).leader_id == told[1].member_id


# ---- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error", "match"),
    [
        (joining(group_id=""), InvalidGroupIdError, "empty"),
        (SyncGroup("", "m", 1, {}), InvalidGroupIdError, "empty"),
        (ClassicHeartbeat("", "m", 1), InvalidGroupIdError, "empty"),
        (LeaveGroup("", ()), InvalidGroupIdError, "empty"),
        (joining(session_timeout_ms=SESSION_MS - 1), InvalidSessionTimeoutError, "session.timeout.ms"),
        (joining(session_timeout_ms=10 * SESSION_MS + 1), InvalidSessionTimeoutError, "10000"),
        (joining(rebalance_timeout_ms=-1), InvalidRequestError, "-1 ms"),
        (joining(instance_id=""), InvalidRequestError, "instance id is empty"),
        (joining(protocols=RANGE * 101), InvalidRequestError, "101 protocols"),
        (joining(client_id="é" * NAME_BYTES_MAX), InvalidRequestError, "a name has"),
        (joining(protocol_type=""), InconsistentGroupProtocolError, None),
        (joining(protocols=()), InconsistentGroupProtocolError, None),
        (joining(protocols=(Protocol("range", b"x" * 500),)), GroupMaxSizeReachedError, "505 bytes"),
        (joining("m"), UnknownMemberIdError, "no group"),
        (syncing("m", 1), UnknownMemberIdError, "no group"),
        (beat("m", 1), UnknownMemberIdError, "no group"),
    ],
)
def test_what_is_wrong_is_refused_and_makes_no_group(
    host: Host, request_: JoinGroup, error: type[ReplogError], match: str | None
) -> None:
    refused(host, request_, error, match)
    assert (host.log, group_of(host)) == ([], None)


def test_leaving_a_group_that_is_not_there_is_an_error_of_each_member(host: Host) -> None:
    assert [type(each.error) for each in host.ask(leaving("a", "b")).members] == [UnknownMemberIdError] * 2


def test_a_group_has_as_many_members_as_it_may(host: Host) -> None:
    members = stable(host, "one", "two", "three", "four")
    refused(host, joining(), GroupMaxSizeReachedError, "may have, 4")
    host.ask(beat(members[0], 1))
    host.ask(leaving(members[0]))
    joins = [host.submit(joining(is_id_required=False)) for _ in range(3)]
    waiting = host.submit(joining(members[1]))
    refused(host, joining(members[2]), GroupMaxSizeReachedError)
    host.ask(leaving(members[3]))
    assert {host.response(each).generation for each in (*joins, waiting)} == {2}


def test_the_last_one_that_does_not_fit_holds_up_nobody(host: Host) -> None:
    """Goal: who is told to stay away is not waited for."""
    one, two = stable(host, "one", "two")
    joins = [host.submit(joining(is_id_required=False)) for _ in range(3)]
    joins.append(host.submit(joining(one)))
    refused(host, joining(two), GroupMaxSizeReachedError)
    assert {host.response(each).generation for each in joins} == {2}


def test_ids_that_nobody_has_come_back_with_are_bounded() -> None:
    host = classic_host(replace(CONFIG, classic=replace(CONFIG.classic, max_pending_members=2)))
    ids = [id_of(host), id_of(host, group_id="h")]
    refused(host, joining(group_id="i"), CoordinatorLoadInProgressError, "2 members have an id")
    host.submit(joining(ids[0]))
    id_of(host)
    refused(host, joining(), CoordinatorLoadInProgressError)
    pass_time(host, SESSION_MS)
    id_of(host)
    refused(host, joining(ids[1], group_id="h"), UnknownMemberIdError)


def test_an_id_of_a_member_without_an_instance_id_is_not_one_with(host: Host) -> None:
    refused(host, joining(id_of(host), instance_id="i"), UnknownMemberIdError, "without an instance id")


def test_a_name_of_a_protocol_that_comes_twice_counts_once(host: Host) -> None:
    (told,) = meet(host, joining(is_id_required=False, protocols=(*RANGE, Protocol("range", b"second"))))
    assert told.members[0].metadata == RANGE[0].metadata
    settle(host, [told])


@pytest.mark.parametrize(
    "field",
    [
        "min_session_timeout_ms",
        "new_member_timeout_ms",
        "max_size",
        "max_group_bytes",
        "max_record_bytes",
        "max_pending_members",
    ],
)
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} is 0"):
        ClassicConfig(**{field: 0})
    with pytest.raises(ConfigError, match="must be at least 0"):
        ClassicConfig(initial_rebalance_delay_ms=-1)
    with pytest.raises(ConfigError, match="shorter than the shortest"):
        ClassicConfig(max_session_timeout_ms=5)


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_who_leaves_is_not_looked_for_among_all_who_leave(host: Host) -> None:
    """Goal: a request that names a thousand ids, one of them a thousand times, does not hold a loop."""
    ids = []
    for _ in range(300):
        asked = host.submit(joining())
        with pytest.raises(MemberIdRequiredError) as told:
            host.response(asked)
        ids.append(Counted(told.value.member_id))
    again = Counted(str(ids[-1]))
    Counted.comparisons = 0
    left = host.ask(leaving(*(LeavingMember(each) for each in (*ids, *[again] * 300)))).members
    assert [each.error is None for each in left] == [True] * 300 + [False] * 300
    assert Counted.comparisons < 20 * len(left)
