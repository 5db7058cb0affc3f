"""A group of KIP-848 becomes one of the classic protocol when its last member of the former goes."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import beat, group_of, leaving, met, pass_time, refused, syncing, written
from consumer_bytes import wanting
from mixed_kit import (
    CONFIG,
    REBALANCE_MS,
    SESSION_MS,
    classics,
    coming,
    consumer_group,
    consuming,
    got,
    mixed_host,
    parts,
    synced,
)
from msgspec.structs import replace
from shard_kit import FULL, Host

from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.requests import JoinGroup, LeavingMember, Protocol
from replog.coordinator.describing.requests import DescribeGroup, GroupType, ListedGroup, ListGroups
from replog.coordinator.offsets.requests import NO_TOPIC_ID, CommitOffsets, OffsetToCommit, TopicToCommit
from replog.coordinator.runtime.messages import AppendRefused, Resigned
from replog.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@pytest.fixture
def host() -> Host:
    return mixed_host()


def mixed(host: Host) -> str:
    """A group of `m`, of the new protocol, and one of the classic protocol, both settled in epoch 2; returns its id."""
    (one,) = classics(host, (0, 1, 2, 3), client_host="/h")
    host.ask(consuming("m"))
    host.ask(coming(one, owned=(0, 1, 2, 3), client_host="/h"))
    kept = synced(host, one, 1)
    assert host.ask(coming(one, owned=tuple(kept), client_host="/h")).generation == 2
    assert synced(host, one, 2) == kept
    assert len(kept) == len(host.ask(consuming("m", 2)).assignment) * 2 == 2
    return one


def classic_group(host: Host) -> ClassicGroup:
    found = host.machine._groups.find("g")
    assert isinstance(found, ClassicGroup)
    return found


def all_read_by(host: Host, member_id: str, generation: int) -> None:
    """The only member joins, leads, and is given all."""
    (told,) = met(host, host.submit(coming(member_id)))
    assert (told.generation, told.leader_id) == (generation, member_id)
    whole = host.ask(syncing(member_id, generation, {member_id: b"all"}))
    assert whole.assignment == b"all"
    host.ask(beat(member_id, generation))


def test_the_last_member_of_the_new_protocol_leaves_and_the_others_meet_as_before(host: Host) -> None:
    one = mixed(host)
    appends = len(host.appended)
    host.ask(consuming("m", -1))
    assert len(host.appended) == appends + 1
    assert host.machine._groups.consumers.find("g") is None
    assert host.ask(ListGroups()).groups == (ListedGroup("g", "consumer", "PreparingRebalance", GroupType.CLASSIC),)
    refused(host, beat(one, 2), RebalanceInProgressError)
    all_read_by(host, one, 3)
    assert host.ask(DescribeGroup("g")).state == "Stable"
    refused(host, consuming("m", 2), GroupIdNotFoundError, "join it anew")


def test_the_record_says_what_everybody_had_and_that_they_have_to_meet(host: Host) -> None:
    one = mixed(host)
    kept = synced(host, one, 2)
    host.ask(consuming("m", -1))
    value = written(host)[-1]
    assert value is not None
    (member,) = value.members
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == ("consumer", 2, "range", None)
    assert (member.member_id, member.client_host, member.session_timeout) == (one, "/h", SESSION_MS)
    assert (member.rebalance_timeout, member.subscription) == (REBALANCE_MS, wanting("t", owned=tuple(kept)))
    assert got(member.assignment) == kept


@pytest.mark.parametrize("how", ["silent", "slow", "removed"])
def test_it_may_go_in_any_way(host: Host, how: str) -> None:
    patient = {"session_timeout_ms": 5 * SESSION_MS, "rebalance_timeout_ms": 5 * SESSION_MS}
    (one,) = classics(host, (0, 1, 2, 3), **patient)
    host.ask(consuming("m", instance_id="i"))
    epoch = 2
    match how:
        case "removed":
            (left,) = host.ask(leaving(LeavingMember("", "i"))).members
            assert left.error is None
        case "silent":
            pass_time(host, SESSION_MS)
        case "slow":
            host.ask(coming(one, **patient))
            has = host.ask(consuming("m", 2, owned={})).assignment
            host.ask(consuming("m", 2, owned=has, subscribed_topics=("u",)))
            epoch = 3
            pass_time(host, REBALANCE_MS)
    group = classic_group(host)
    assert (list(group.members), group.generation) == ([one], epoch)
    all_read_by(host, one, epoch + 1)


def test_the_next_coordinator_lets_them_meet_too(host: Host) -> None:
    """Goal: what the last member of the new protocol had does not stay unread when the coordinator moves."""
    one = mixed(host)
    host.ask(consuming("m", -1))
    host.step(Resigned())
    host.lead()
    refused(host, beat(one, 2), RebalanceInProgressError)
    all_read_by(host, one, 3)
    host.lead()
    host.ask(beat(one, 3))


def test_a_conversion_that_is_taken_back_was_none(host: Host) -> None:
    """Goal: where the log loses a conversion, the group is of KIP-848, and whoever joined the other one joins this."""
    one = mixed(host)
    host.submit(consuming("m", -1))
    join = host.submit(coming(client_id="another"))
    del host.log[host.high_watermark :]
    host.step(AppendRefused(host.epoch, host.high_watermark, FULL))
    assert consumer_group(host).members.keys() == {one, "m"}
    host.ask(beat(one, 2))
    host.ask(consuming("m", 2))
    pass_time(host, REBALANCE_MS)
    with pytest.raises(RebalanceInProgressError):
        host.response(join)
    assert group_of(host) is None
    assert consumer_group(host).members.keys() == {one, "m"}


def test_the_next_conversion_is_not_taken_for_the_one_that_was_taken_back(host: Host) -> None:
    """Goal: the generation only rises, and those who have come meanwhile are members."""
    one = mixed(host)
    host.submit(consuming("m", -1))
    join = host.submit(coming(client_id="another"))
    del host.log[host.high_watermark :]
    host.step(AppendRefused(host.epoch, host.high_watermark, FULL))
    two = host.ask(coming(client_id="two")).member_id
    with pytest.raises(RebalanceInProgressError):
        host.response(join)
    epoch = consumer_group(host).epoch.get()
    host.ask(consuming("m", -1))
    group = classic_group(host)
    assert (group.generation, set(group.members)) == (epoch, {one, two})


def test_a_conversion_that_the_log_does_not_take_is_tried_again(host: Host) -> None:
    (one,) = classics(host, (0, 1, 2, 3), session_timeout_ms=5 * SESSION_MS, rebalance_timeout_ms=5 * SESSION_MS)
    host.ask(consuming("m"))
    host.refuses = FULL
    pass_time(host, SESSION_MS)
    assert consumer_group(host).members.keys() == {one, "m"}
    host.refuses = None
    pass_time(host, SESSION_MS)
    assert list(classic_group(host).members) == [one]


def test_a_group_that_goes_back_and_forth_counts_on(host: Host) -> None:
    (one,) = classics(host, (0, 1, 2, 3))
    for generation in (1, 3, 5):
        assert host.ask(consuming("m")).member_epoch == generation + 1
        host.ask(coming(one))
        host.ask(consuming("m", -1))
        (told,) = met(host, host.submit(coming(one)))
        assert told.generation == generation + 2
        host.ask(syncing(one, told.generation, {one: b""}))


def test_members_that_are_behind_join_anew(host: Host) -> None:
    one = mixed(host)
    host.ask(consuming("n"))
    host.ask(consuming("n", -1))  # a new epoch, which nobody has heard of
    host.ask(consuming("m", -1))
    refused(host, beat(one, 2), IllegalGenerationError)
    all_read_by(host, one, 5)


def test_offsets_go_with_the_group(host: Host) -> None:
    one = mixed(host)
    host.ask(consuming("m", -1))
    topic = TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 5),))
    host.ask(CommitOffsets("g", (topic,), one, None, 2))
    refused(host, CommitOffsets("g", (topic,), "m", None, 2), UnknownMemberIdError)


# ---- a static member takes the place of the last one -----------------------------------------------------------------------


def test_a_static_member_changes_back_and_nobody_has_to_meet(host: Host) -> None:
    """Goal: as everybody has what it is to have, and the new one wants the same, the others read on."""
    one = mixed_with_instance(host)
    told = host.ask(coming(instance_id="i"))
    group = classic_group(host)
    assert (told.generation, group.generation) == (2, 2)
    assert group.members.keys() == {one, told.member_id}
    assert sorted([*synced(host, one, 2), *synced(host, told.member_id, 2, instance_id="i")]) == [0, 1, 2, 3]
    host.ask(beat(one, 2))
    host.ask(beat(told.member_id, 2, instance_id="i"))
    host.lead()
    host.ask(beat(one, 2))


def test_a_static_member_that_changes_back_leads(host: Host) -> None:
    """Goal: somebody sees that a topic grows; all others have been told that they do not lead."""
    one = mixed_with_instance(host)
    told = host.ask(coming(instance_id="i"))
    assert (told.leader_id, told.skip_assignment) == (told.member_id, True)
    assert {each.member_id for each in told.members} == {one, told.member_id}
    assert len(synced(host, told.member_id, 2, instance_id="i")) == 2
    host.lead()  # the next coordinator knows it, too
    again = host.submit(coming(told.member_id, instance_id="i"))
    refused(host, beat(one, 2), RebalanceInProgressError)
    (first, other) = met(host, again, host.submit(coming(one)))
    assert (first.generation, first.leader_id, other.leader_id) == (3, told.member_id, told.member_id)


def test_one_that_cannot_be_told_to_lead_so_makes_the_others_meet(host: Host) -> None:
    """Goal: with a join older than version 9, which has no field for it, there is a leader, too."""
    one = mixed_with_instance(host)
    told = host.ask(coming(instance_id="i", can_skip_assignment=False))
    assert told.leader_id == ""
    refused(host, syncing(told.member_id, 2, instance_id="i"), RebalanceInProgressError)
    refused(host, beat(one, 2), RebalanceInProgressError)
    joins = host.submit(coming(told.member_id, instance_id="i")), host.submit(coming(one))
    leaders = {each.leader_id for each in met(host, *joins)}
    assert leaders < {one, told.member_id}
    assert len(leaders) == 1


def test_where_a_topic_has_grown_the_others_meet(host: Host) -> None:
    """Goal: the leader, which knows the new partitions already, does not take them for given out."""
    one = mixed_with_instance(host)
    host.machine._consumers._decisions._topics.change(t=6)
    told = host.ask(coming(instance_id="i"))
    assert told.leader_id == ""
    refused(host, beat(one, 2), RebalanceInProgressError)


def mixed_with_instance(host: Host, **more: Any) -> str:
    """As `mixed`; the member of the new protocol is a static one."""
    (one,) = classics(host, (0, 1, 2, 3))
    host.ask(consuming("m", instance_id="i", **more))
    host.ask(coming(one))
    assert len(synced(host, one, 2)) == len(host.ask(consuming("m", 2, instance_id="i")).assignment) * 2 == 2
    return one


def test_one_that_comes_without_its_pattern_makes_the_others_meet(host: Host) -> None:
    one = mixed_with_instance(host, subscribed_regex="t")
    told = host.ask(coming(instance_id="i"))
    refused(host, syncing(told.member_id, 2, instance_id="i"), RebalanceInProgressError)
    refused(host, beat(one, 2), RebalanceInProgressError)
    host.lead()  # its pattern is forgotten with the rest of the group
    assert host.machine._groups.consumers.find("g") is None


def test_one_that_wants_something_else_makes_the_others_meet(host: Host) -> None:
    one = mixed_with_instance(host)
    told = host.ask(coming(instance_id="i", topics=("t", "u")))
    assert (told.generation, classic_group(host).leader_id) == (2, one)
    refused(host, syncing(told.member_id, 2, instance_id="i"), RebalanceInProgressError)
    refused(host, beat(one, 2), RebalanceInProgressError)


def test_where_somebody_is_on_its_way_the_others_meet(host: Host) -> None:
    (one,) = classics(host, (0, 1, 2, 3))
    host.ask(consuming("m", instance_id="i"))
    told = host.ask(coming(instance_id="i"))  # `one` has not given back what is to be that of this one
    refused(host, beat(one, 1), IllegalGenerationError)
    refused(host, syncing(told.member_id, told.generation, instance_id="i"), RebalanceInProgressError)
    assert classic_group(host).members.keys() == {one, told.member_id}


# ---- it stays what it is ------------------------------------------------------------------------------------------------


def test_the_policy_may_not_allow_it() -> None:
    host = mixed_host(downgrades=False)
    one = mixed(host)
    host.ask(consuming("m", -1))
    assert consumer_group(host).members.keys() == {one}
    refused(host, beat(one, 2), RebalanceInProgressError)
    assert host.ask(coming(one)).generation == 3
    assert synced(host, one, 3) == [0, 1, 2, 3]


def test_a_group_may_be_too_large_for_the_classic_protocol() -> None:
    host = mixed_host(replace(CONFIG, classic=replace(CONFIG.classic, max_size=1)))
    one = mixed(host)
    two = host.ask(coming()).member_id
    host.ask(consuming("m", -1))
    assert consumer_group(host).members.keys() == {one, two}


def test_a_change_may_be_too_large_and_the_member_goes_all_the_same() -> None:
    host = mixed_host(max_change_bytes=300)
    host.ask(consuming("m"))
    one, two = (host.ask(coming(client_id="long" * 20)).member_id for _ in range(2))
    host.ask(consuming("m", -1))
    assert consumer_group(host).members.keys() == {one, two}


def test_others_of_the_new_protocol_stay(host: Host) -> None:
    one = mixed(host)
    host.ask(consuming("n"))
    host.ask(consuming("m", -1))
    assert consumer_group(host).members.keys() == {one, "n"}


def test_nobody_stays(host: Host) -> None:
    host.ask(consuming("m"))
    host.ask(consuming("m", -1))
    assert not consumer_group(host).members


def test_a_member_of_the_classic_protocol_goes(host: Host) -> None:
    one = mixed(host)
    host.ask(leaving(one))
    assert consumer_group(host).members.keys() == {"m"}
    answer = host.ask(consuming("m", 2))
    assert (answer.member_epoch, answer.assignment) == (3, parts(0, 1, 2, 3))


def test_all_leave_at_once(host: Host) -> None:
    one = mixed_with_instance(host)
    left = host.ask(leaving(one, LeavingMember("", "i"), "nobody")).members
    assert [type(each.error) for each in left] == [type(None), type(None), UnknownMemberIdError]
    assert not consumer_group(host).members


def test_one_that_is_away_for_a_while_holds_its_place(host: Host) -> None:
    one = mixed_with_instance(host)
    host.ask(consuming("m", -2, instance_id="i"))
    assert consumer_group(host).members.keys() == {one, "m"}


# ---- members that like protocols in another order ------------------------------------------------------------------------


def liking(*names: str, **more: Any) -> JoinGroup:
    """A join of a consumer that supports these protocols."""
    return coming(protocols=tuple(Protocol(name, wanting("t")) for name in names), **more)


def test_a_member_that_was_told_another_protocol_meets_the_others(host: Host) -> None:
    """Goal: in the mixed group each is told the one that it likes best; a sync with that is not refused for ever after."""
    classics(host, (0, 1, 2, 3))
    host.ask(consuming("m"))
    told = host.ask(liking("sticky", "range", client_id="two"))
    assert told.protocol == "sticky"
    host.ask(consuming("m", -1))
    assert classic_group(host).protocol == "range"
    refused(host, syncing(told.member_id, told.generation, protocol="sticky"), RebalanceInProgressError)


def test_a_static_member_that_is_told_another_protocol_makes_the_others_meet(host: Host) -> None:
    mixed_with_instance(host)
    told = host.ask(liking("sticky", "range", instance_id="i"))
    sync = syncing(told.member_id, told.generation, instance_id="i", protocol=told.protocol)
    refused(host, sync, RebalanceInProgressError)
