"""Groups of the classic protocol in a shard: members meet in generations, leave, come back, are put out."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import (
    CONFIG,
    DELAY_MS,
    NEW_MEMBER_MS,
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
from msgspec.structs import replace
from shard_kit import WALL_MS, Host

from replog.coordinator.classic.requests import (
    JoinedMember,
    Protocol,
)
from replog.coordinator.messages import GroupMetadataValue
from replog.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@pytest.fixture
def host() -> Host:
    return classic_host()


# ---- a generation -------------------------------------------------------------------------------------------------------


def test_members_meet_one_assigns_all_are_told(host: Host) -> None:
    first = host.submit(joining(id_of(host, client_id="one"), client_id="one", client_host="/h"))
    second = host.submit(joining(id_of(host, client_id="two"), client_id="two"))
    assert not host.answers.keys() & {first, second}
    leader, follower = met(host, first, second)
    assert leader.member_id.startswith("one-")
    assert (leader.generation, leader.protocol_type, leader.protocol) == (1, "consumer", "range")
    assert leader.leader_id == follower.leader_id == leader.member_id
    assert leader.members == tuple(JoinedMember(each.member_id, None, RANGE[0].metadata) for each in (leader, follower))
    assert (follower.members, leader.skip_assignment, host.log) == ((), False, [])

    waiting = host.submit(syncing(follower.member_id, 1))
    leading = host.submit(syncing(leader.member_id, 1, {follower.member_id: b"f", "nobody": b"x"}))
    assert not host.answers.keys() & {waiting, leading}
    host.commit()
    assert [host.response(each).assignment for each in (waiting, leading)] == [b"f", b""]
    assert host.ask(syncing(follower.member_id, 1)).assignment == b"f"
    member = GroupMetadataValue.MemberMetadata
    metadata = RANGE[0].metadata
    members = [
        member(leader.member_id, None, "one", "/h", REBALANCE_MS, SESSION_MS, metadata, b""),
        member(follower.member_id, None, "two", "", REBALANCE_MS, SESSION_MS, metadata, b"f"),
    ]
    value = GroupMetadataValue("consumer", 1, "range", leader.member_id, WALL_MS + host.now_ms, members)
    assert written(host) == [value]


def test_a_member_that_needs_no_id_first_is_taken_at_once(host: Host) -> None:
    (told,) = meet(host, joining(is_id_required=False))
    assert told.member_id.startswith("c-")


def test_the_first_generation_waits_while_members_come(host: Host) -> None:
    first = host.submit(joining(is_id_required=False))
    for _ in range(3):
        pass_time(host, DELAY_MS - 1)
        assert first not in host.answers
        host.submit(joining(is_id_required=False))
        pass_time(host, 1)
    assert first not in host.answers
    pass_time(host, DELAY_MS)
    assert len(host.response(first).members) == 4


def test_the_first_generation_waits_no_longer_than_the_rebalance_timeout(host: Host) -> None:
    first = host.submit(joining(is_id_required=False, rebalance_timeout_ms=2 * DELAY_MS))
    for _ in range(2):
        pass_time(host, DELAY_MS - 1)
        host.submit(joining(is_id_required=False, rebalance_timeout_ms=9 * DELAY_MS))
        pass_time(host, 1)
    assert len(host.response(first).members) == 3


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    host = classic_host(replace(CONFIG, classic=replace(CONFIG.classic, initial_rebalance_delay_ms=0)))
    assert host.response(host.submit(joining(is_id_required=False))).generation == 1


def test_a_new_member_makes_all_join_again_and_assignments_are_new(host: Host) -> None:
    one, two = stable(host, "one", "two")
    three = host.submit(joining(is_id_required=False))
    for member_id in (one, two):
        refused(host, beat(member_id, 1), RebalanceInProgressError)
        refused(host, syncing(member_id, 1), RebalanceInProgressError)
    joins = [host.submit(joining(each)) for each in (one, two)]
    told = [host.response(each) for each in (*joins, three)]
    assert {each.generation for each in told} == {2}
    assert {each.leader_id for each in told} == {one}
    refused(host, beat(one, 1), IllegalGenerationError)
    settle(host, told)


def test_a_member_that_does_not_join_again_in_time_is_put_out(host: Host) -> None:
    one, two = stable(host, "one", "two")
    waiting = host.submit(joining(two, protocols=(*RANGE, Protocol("other", b""))))
    pass_time(host, REBALANCE_MS - 1)
    assert waiting not in host.answers
    pass_time(host, 1)
    told = host.response(waiting)
    assert ([each.member_id for each in told.members], told.leader_id, told.generation) == ([two], two, 2)
    refused(host, beat(one, 1), UnknownMemberIdError)


def test_a_member_that_does_not_sync_in_time_is_put_out(host: Host) -> None:
    told = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    leader, lazy = told
    host.ask(syncing(leader.member_id, 1))
    host.ask(beat(lazy.member_id, 1))
    pass_time(host, REBALANCE_MS)
    refused(host, beat(leader.member_id, 1), RebalanceInProgressError)
    refused(host, beat(lazy.member_id, 1), UnknownMemberIdError)


def test_syncs_wait_for_a_leader_no_longer_than_the_rebalance_timeout(host: Host) -> None:
    _, follower = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    waiting = host.submit(syncing(follower.member_id, 1))
    pass_time(host, REBALANCE_MS - 1)
    assert waiting not in host.answers
    pass_time(host, 1)
    with pytest.raises(RebalanceInProgressError):
        host.response(waiting)
    assert host.response(host.submit(joining(follower.member_id))).leader_id == follower.member_id


def test_the_protocol_that_most_members_like_best_is_chosen_among_those_of_all(host: Host) -> None:
    a, b, c = (Protocol(each, each.encode()) for each in "abc")
    told = meet(
        host,
        *(joining(is_id_required=False, protocol_type="x", protocols=each) for each in ((c, a, b), (b, a), (b, a, c))),
    )
    assert {(each.protocol_type, each.protocol) for each in told} == {("x", "b")}
    assert [each.metadata for each in told[0].members] == [b"b"] * 3
    refused(host, joining(protocol_type="x", protocols=(c,)), InconsistentGroupProtocolError, "supported by all")
    refused(host, joining(protocol_type="y", protocols=(b,)), InconsistentGroupProtocolError)
    refused(host, syncing(told[0].member_id, 1, protocol="a"), InconsistentGroupProtocolError, "agreed on 'b'")
    refused(host, syncing(told[0].member_id, 1, protocol_type="y"), InconsistentGroupProtocolError)
    settle(host, told)


# ---- joins that change nothing ------------------------------------------------------------------------------------------


def test_a_join_whose_answer_was_lost_is_told_of_the_generation(host: Host) -> None:
    told = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    for each in told:
        assert host.response(host.submit(joining(each.member_id))) == each
    settle(host, told)
    assert host.ask(joining(told[1].member_id)) == told[1]
    assert host.response(host.submit(beat(told[0].member_id, 1))) is not None


def test_a_leader_that_joins_again_or_a_member_that_wants_something_else_begins_a_rebalance(host: Host) -> None:
    one, two = stable(host, "one", "two")
    joins = [host.submit(joining(one))]
    refused(host, beat(two, 1), RebalanceInProgressError)
    joins.append(host.submit(joining(two)))
    settle(host, [host.response(each) for each in joins])
    host.submit(joining(two, protocols=(Protocol("range", subscription("u")),)))
    refused(host, beat(one, 2), RebalanceInProgressError)


def test_a_second_join_or_sync_takes_the_place_of_the_first(host: Host) -> None:
    """Goal: a client that has lost its connection asks anew; the request that waits is answered, too."""
    member_id = id_of(host)
    first, second = host.submit(joining(member_id)), host.submit(joining(member_id))
    other = host.submit(joining(is_id_required=False))
    with pytest.raises(RebalanceInProgressError, match="another request"):
        host.response(first)
    assert met(host, second)[0].generation == 1
    syncs = [host.submit(syncing(host.response(other).member_id, 1)) for _ in range(2)]
    with pytest.raises(RebalanceInProgressError, match="another request"):
        host.response(syncs[0])
    host.ask(syncing(member_id, 1))
    assert host.response(syncs[1]).assignment == b""


def test_a_member_that_joins_during_the_sync_makes_those_that_wait_join_again(host: Host) -> None:
    _, follower = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    waiting = host.submit(syncing(follower.member_id, 1))
    host.submit(joining(is_id_required=False))
    with pytest.raises(RebalanceInProgressError):
        host.response(waiting)


# ---- sessions -----------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_put_out_and_one_that_beats_stays(host: Host) -> None:
    one, two = stable(host, "one", "two")
    pass_time(host, SESSION_MS - 1)
    host.ask(beat(two, 1))
    pass_time(host, 1)
    refused(host, beat(one, 1), UnknownMemberIdError)
    refused(host, beat(two, 1), RebalanceInProgressError)
    assert host.response(host.submit(joining(two))).leader_id == two


def test_an_empty_group_keeps_its_generation_and_begins_anew_with_a_delay(host: Host) -> None:
    stable(host, "one", "two")
    pass_time(host, 2 * SESSION_MS)
    ((_, empty),) = [written(host)]
    assert empty is not None
    assert (empty.generation, empty.protocol, empty.leader, empty.members) == (2, None, None, [])
    first = host.submit(joining(is_id_required=False))
    assert first not in host.answers
    assert met(host, first)[0].generation == 3


def test_an_id_that_nobody_comes_back_with_is_forgotten(host: Host) -> None:
    member_id = id_of(host)
    assert (group_of(host) is None, len(host.shard._timers)) == (False, 2)
    pass_time(host, SESSION_MS)
    assert group_of(host) is None
    refused(host, joining(member_id), UnknownMemberIdError, "no group")


def test_a_rebalance_waits_for_members_that_have_an_id(host: Host) -> None:
    (one,) = stable(host, "one")
    two = id_of(host)
    waiting = host.submit(joining(one))
    assert waiting not in host.answers
    second = host.submit(joining(two))
    assert len(host.response(waiting).members) == 2
    settle(host, [host.response(each) for each in (waiting, second)])
    id_of(host)
    waiting = host.submit(joining(one))
    host.submit(joining(two))
    pass_time(host, REBALANCE_MS)
    assert len(host.response(waiting).members) == 2


def test_a_new_member_that_waits_too_long_is_put_out_and_told(host: Host) -> None:
    slow: dict[str, Any] = {"rebalance_timeout_ms": 3 * NEW_MEMBER_MS, "session_timeout_ms": 10 * SESSION_MS}
    told = meet(host, joining(is_id_required=False, **slow))
    settle(host, told)
    waiting = host.submit(joining(is_id_required=False))
    pass_time(host, NEW_MEMBER_MS)
    with pytest.raises(UnknownMemberIdError):
        host.response(waiting)
    group = group_of(host)
    assert group is not None
    assert list(group.members) == [told[0].member_id]


def test_who_waits_is_not_silent(host: Host) -> None:
    """Goal: a client does not send heartbeats while a join of it waits."""
    slow: dict[str, Any] = {"rebalance_timeout_ms": 3 * SESSION_MS}
    told = meet(host, *(joining(is_id_required=False, **slow) for _ in range(2)))
    settle(host, told)
    waiting = host.submit(joining(told[0].member_id, **slow))
    for _ in range(4):
        pass_time(host, SESSION_MS // 2)
        refused(host, beat(told[1].member_id, 1), RebalanceInProgressError)
    host.submit(joining(told[1].member_id, **slow))
    assert host.response(waiting).generation == 2
    pass_time(host, SESSION_MS - 1)
    host.ask(beat(told[0].member_id, 2))


# ---- leaving ------------------------------------------------------------------------------------------------------------


def test_members_that_leave_are_gone_at_once_and_the_others_join_again(host: Host) -> None:
    one, two, three = stable(host, "one", "two", "three")
    left = host.ask(leaving(one, "nobody", three, three)).members
    assert [type(each.error) for each in left] == [type(None), UnknownMemberIdError, type(None), UnknownMemberIdError]
    assert host.response(host.submit(joining(two))).leader_id == two


def test_the_last_one_that_leaves_leaves_an_empty_group(host: Host) -> None:
    (one,) = stable(host, "one")
    assert host.ask(leaving(one)).members[0].error is None
    empty = written(host)[-1]
    assert empty is not None
    assert (empty.protocol_type, empty.generation, empty.members) == ("consumer", 2, [])
    (left,) = host.ask(leaving(one)).members
    assert isinstance(left.error, UnknownMemberIdError)


def test_a_member_that_leaves_while_it_waits_is_told_so(host: Host) -> None:
    (one,) = stable(host, "one")
    waiting = host.submit(joining(is_id_required=False, client_id="w"))
    group = group_of(host)
    assert group is not None
    host.ask(leaving(list(group.members)[1]))
    with pytest.raises(UnknownMemberIdError):
        host.response(waiting)
    other = host.submit(joining(is_id_required=False))
    host.submit(joining(one))
    told = host.response(other)
    waiting = host.submit(syncing(told.member_id, told.generation))
    host.ask(leaving(told.member_id))
    with pytest.raises(UnknownMemberIdError):
        host.response(waiting)


def test_an_id_that_is_given_back_disturbs_nobody(host: Host) -> None:
    (one,) = stable(host, "one")
    assert host.ask(leaving(id_of(host))).members[0].error is None
    host.ask(beat(one, 1))
