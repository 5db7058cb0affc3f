"""A group of the classic protocol becomes one of KIP-848 when a member of that joins, or says why it does not."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import beat, joining, leaving, met, pass_time, refused, syncing, written
from consumer_bytes import wanting
from mixed_kit import (
    CONFIG,
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    T,
    classics,
    coming,
    consumer_group,
    consuming,
    given,
    mixed_host,
    parts,
    records_since,
    synced,
)
from msgspec.structs import replace
from shard_kit import FULL, Host

from replog.coordinator import records
from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.requests import Protocol
from replog.coordinator.classic.subscription import write_assignment
from replog.coordinator.consumers.decisions import STALE_MAX
from replog.coordinator.conversion import upgrades
from replog.coordinator.describing.requests import DescribeConsumerGroup, GroupType, ListedGroup, ListGroups
from replog.coordinator.messages import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
)
from replog.coordinator.offsets.requests import NO_TOPIC_ID, CommitOffsets, OffsetToCommit, TopicToCommit
from replog.coordinator.runtime.messages import ReplyError
from replog.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@pytest.fixture
def host() -> Host:
    return mixed_host()


def test_a_member_of_the_new_protocol_converts_a_group_and_all_share(host: Host) -> None:
    """Goal: nobody reads what another one has not given back, and all is read in the end."""
    one, two = classics(host, (0, 1), (2, 3))
    answer = host.ask(consuming("m"))
    assert (answer.member_epoch, answer.assignment) == (2, {})
    moved = 0
    for member_id, owned in ((one, (0, 1)), (two, (2, 3))):
        refused(host, beat(member_id, 1), RebalanceInProgressError)
        told = host.ask(coming(member_id, owned=owned))
        assert (told.leader_id, told.members, told.protocol_type, told.protocol) == ("", (), "consumer", "range")
        kept = synced(host, member_id, told.generation)
        if told.generation == 1:  # it has to give something back before it is in the new generation
            assert set(kept) < set(owned)
            refused(host, beat(member_id, 1), RebalanceInProgressError)
            told = host.ask(coming(member_id, owned=tuple(kept)))
            moved += 1
        assert told.generation == 2
        assert synced(host, member_id, 2) == kept
        host.ask(beat(member_id, 2))
    assert moved == 1
    answer = host.ask(consuming("m", 2))
    assert answer.member_epoch == 2
    group = consumer_group(host)
    shares = [set(each.assigned.get(T, ())) for each in group.current.values()]
    assert sorted(map(len, shares)) == [1, 1, 2]
    assert set().union(*shares) == {0, 1, 2, 3}


def test_a_conversion_is_one_change(host: Host) -> None:
    """Goal: whatever becomes of the log, it has a group of one kind."""
    one, two = classics(host, (0, 1), (2, 3), instance_id=None, client_host="/h")
    start, appends = len(host.log), len(host.appended)
    host.ask(consuming("m"))
    assert len(host.appended) == appends + 1
    records = records_since(host, start)
    assert records[0].key == GroupMetadataKey("g")
    assert records[0].value is None
    members = {
        each.key.member_id: each.value for each in records if isinstance(each.key, ConsumerGroupMemberMetadataKey)
    }
    assert members.keys() == {one, two, "m"}
    value: Any = members[one]
    protocol = ConsumerGroupMemberMetadataValue.ClassicProtocol("range", wanting("t"))
    assert value.classic_member_metadata == ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        SESSION_MS, [protocol]
    )
    assert (value.client_id, value.client_host, value.subscribed_topic_names) == ("c0", "/h", ["t"])
    assert (value.rebalance_timeout_ms, value.instance_id, value.rack_id) == (REBALANCE_MS, None, None)
    assert members["m"].classic_member_metadata is None  # type: ignore[union-attr]
    assert written(host)[-1] is None


def test_a_conversion_that_the_log_refuses_leaves_the_group_as_it_was(host: Host) -> None:
    one, two = classics(host, (0, 1), (2, 3))
    host.refuses = FULL
    refused(host, consuming("m"), type(FULL))
    host.refuses = None
    for member_id in (one, two):
        host.ask(beat(member_id, 1))
        assert synced(host, member_id, 1) == ([0, 1] if member_id == one else [2, 3])
    assert host.ask(consuming("m")).member_epoch == 2


def test_a_converted_group_goes_on_under_another_coordinator(host: Host) -> None:
    one, two = classics(host, (0, 1), (2, 3))
    host.ask(consuming("m"))
    before = {name: dict(getattr(consumer_group(host), name)) for name in ("members", "current", "targets", "holders")}
    host.lead()
    assert {name: dict(getattr(consumer_group(host), name)) for name in before} == before
    refused(host, beat(one, 1), RebalanceInProgressError)
    pass_time(host, SESSION_MS - 1)
    assert consumer_group(host).members.keys() == {two, "m"}  # one has not joined again in time
    pass_time(host, 1)
    assert not consumer_group(host).members


def test_people_see_one_group_with_members_of_both(host: Host) -> None:
    one, _ = classics(host, (0, 1), (2, 3))
    host.ask(consuming("m"))
    assert host.ask(ListGroups()).groups == (ListedGroup("g", "consumer", "Reconciling", GroupType.CONSUMER),)
    found = {each.member_id: each for each in host.ask(DescribeConsumerGroup("g")).members}
    assert {name: each.group_type.value for name, each in found.items() if name in {one, "m"}} == {
        one: "classic",
        "m": "consumer",
    }
    assert (found[one].assignment, found[one].member_epoch) == (parts(0, 1), 1)


# ---- a group that is between two generations ----------------------------------------------------------------------------


def test_joins_and_syncs_that_wait_are_told_to_come_again(host: Host) -> None:
    one, two = classics(host, (0, 1), (2, 3))
    join = host.submit(coming(one, topics=("t", "u")))
    host.ask(consuming("m"))
    with pytest.raises(RebalanceInProgressError):
        host.response(join)
    assert host.ask(coming(one, topics=("t", "u"))).generation == 2
    refused(host, beat(two, 1), RebalanceInProgressError)


def test_a_sync_that_waits_for_the_leader_is_told_to_come_again(host: Host) -> None:
    told = met(host, host.submit(coming(client_id="a")), host.submit(coming(client_id="b")))
    leader = told[0].leader_id
    (other,) = {each.member_id for each in told} - {leader}
    sync = host.submit(syncing(other, 1))
    host.ask(consuming("m"))
    with pytest.raises(RebalanceInProgressError):
        host.response(sync)
    refused(host, syncing(leader, 1, {leader: given(0), other: given(1)}), RebalanceInProgressError)
    assert host.ask(coming(leader)).generation == 2


def test_what_a_member_reads_that_has_not_asked_yet_is_not_given_away(host: Host) -> None:
    """Goal: in a generation in which it is to give something back, and has not heard of that, nobody else has it."""
    (one,) = classics(host, (0, 1, 2, 3))
    joins = [host.submit(coming(client_id="two")), host.submit(coming(one, owned=(0, 1, 2, 3)))]
    (two, _) = met(host, *joins)
    assert two.leader_id == one
    waiting = host.submit(syncing(two.member_id, 2))
    host.ask(syncing(one, 2, {one: given(0, 1)}))  # the leader's own answer tells it; take that of another one
    host.response(waiting)
    third = host.submit(coming(client_id="three"))
    for each in (coming(one, owned=(0, 1)), coming(two.member_id, owned=(2, 3))):
        host.submit(each)
    host.commit()
    assert host.response(third).generation == 3
    host.ask(syncing(one, 3, {one: given(0, 1)}))
    host.ask(consuming("m"))
    group = consumer_group(host)
    assert group.current[two.member_id].revoked == parts(2, 3)
    assert not {2, 3} & set(group.current["m"].assigned.get(T, ()))
    refused(host, beat(two.member_id, 3), RebalanceInProgressError)
    assert host.ask(coming(two.member_id, owned=(2, 3))).generation == 3
    assert host.ask(coming(two.member_id)).generation == 4
    assert not group.current[two.member_id].revoked


def meeting_again(host: Host) -> tuple[str, str, str]:
    """Two members that read on while a third one comes, in a generation that nobody has assigned; the leader is the first."""
    one, two = classics(host, (0, 1), (2, 3))
    joins = [coming(client_id="three"), coming(one, owned=(0, 1)), coming(two, owned=(2, 3))]
    told = met(host, *map(host.submit, joins))
    assert told[0].leader_id == one
    return one, two, told[0].member_id


def test_what_a_member_reads_whose_sync_was_turned_away_is_not_given_away(host: Host) -> None:
    one, two, three = meeting_again(host)
    waiting = host.submit(syncing(two, 2))
    host.ask(leaving(three))
    with pytest.raises(RebalanceInProgressError):
        host.response(waiting)
    host.ask(consuming("m"))
    group = consumer_group(host)
    assert (group.current[one].revoked, group.current[two].revoked) == (parts(0, 1), parts(2, 3))


def test_what_a_member_reads_whose_sync_waits_is_not_given_away(host: Host) -> None:
    one, two, three = meeting_again(host)
    host.ask(leaving(three))  # nobody knows any more what it gets
    met(host, host.submit(coming(one, owned=(0, 1))), host.submit(coming(two, owned=(2, 3))))
    host.submit(syncing(two, 3))
    host.ask(consuming("m"))
    group = consumer_group(host)
    assert (group.current[one].revoked, group.current[two].revoked) == (parts(0, 1), parts(2, 3))


def test_what_a_member_reads_is_not_given_away_by_the_next_coordinator(host: Host) -> None:
    """Goal: that coordinator does not know who has asked what it gets."""
    one, two, _ = meeting_again(host)
    host.ask(syncing(one, 2, {one: given(0, 1), two: given(2)}))
    host.lead()
    host.ask(consuming("m"))
    assert consumer_group(host).current[two].revoked == parts(3)


def test_a_group_that_has_not_had_a_generation_is_converted(host: Host) -> None:
    """Goal: a member of the classic protocol that waits for its first generation goes on in the converted group."""
    join = host.submit(coming(client_id="a"))
    answer = host.ask(consuming("m"))
    assert answer.member_epoch == 1
    with pytest.raises(RebalanceInProgressError):
        host.response(join)
    (first,) = consumer_group(host).members.keys() - {"m"}
    told = host.ask(coming(first))
    assert told.generation == 1
    assert sorted([*synced(host, first, 1), *answer.assignment[T]]) == [0, 1, 2, 3]
    pass_time(host, DELAY_MS)  # what was set for the classic group does nothing
    assert consumer_group(host).members.keys() == {first, "m"}


def test_a_member_that_was_told_an_id_joins_the_converted_group_with_it(host: Host) -> None:
    classics(host, (0, 1, 2, 3))
    asked = host.submit(coming(is_id_required=True))
    error: Any = host.answers[asked]
    host.ask(consuming("m"))
    assert host.ask(coming(error.error.member_id)).member_id == error.error.member_id
    assert host.machine._groups.classic.pending_members == 0


def test_a_static_member_changes_its_protocol(host: Host) -> None:
    """Goal: a process that comes back with the new protocol has what it had, and the old one is out."""
    (one,) = classics(host, (0, 1, 2, 3), instance_id="i")
    answer = host.ask(consuming("m", instance_id="i"))
    assert (answer.member_epoch, answer.assignment) == (1, parts(0, 1, 2, 3))
    assert consumer_group(host).members.keys() == {"m"}
    refused(host, beat(one, 1), UnknownMemberIdError)


def test_what_two_members_were_given_is_that_of_one(host: Host) -> None:
    """Goal: an assignor of a client that gives a partition twice does not make two owners here."""
    one, two = classics(host, (0, 1, 2), (2, 3))
    host.ask(consuming("m"))
    group = consumer_group(host)
    assert (group.current[one].assigned, group.current[two].assigned) == (parts(0, 1, 2), parts(3))


def test_what_does_not_exist_any_more_is_nobodys(host: Host) -> None:
    one, _ = classics(host, (0, 1, 17), (2, 3))
    host.ask(consuming("m"))
    assert consumer_group(host).current[one].assigned == parts(0, 1)


def test_offsets_go_with_the_group(host: Host) -> None:
    (one,) = classics(host, (0, 1, 2, 3))
    commit = CommitOffsets("g", (TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 5),)),), one, None, 1)
    host.ask(commit)
    host.ask(consuming("m"))
    host.ask(commit)  # its generation is its epoch, until it joins again
    assert host.ask(coming(one, owned=(0, 1, 2, 3))).generation == 1


# ---- refusals -----------------------------------------------------------------------------------------------------------


def stays(host: Host, match: str, **more: Any) -> None:
    """The group cannot be converted, and is as it was."""
    before = len(host.log)
    refused(host, consuming("m", **more), GroupIdNotFoundError, match)
    refused(host, consuming("m", **more), GroupIdNotFoundError, "group.protocol=classic")
    assert len(host.log) == before
    assert isinstance(host.machine._groups.find("g"), ClassicGroup)


def test_the_policy_may_not_allow_it() -> None:
    host = mixed_host(upgrades=False)
    (one,) = classics(host, (0,))
    stays(host, "group.consumer.migration.policy")
    host.ask(beat(one, 1))


def test_members_of_another_kind_stay_among_themselves(host: Host) -> None:
    join = host.submit(joining(protocol_type="connect", is_id_required=False))
    met(host, join)
    stays(host, "'connect'")


def test_a_group_may_be_too_large() -> None:
    host = mixed_host(replace(CONFIG, consumers=replace(CONFIG.consumers, max_size=1)))
    classics(host, (0,), (1,))
    stays(host, "group.consumer.max.size")


def test_a_group_that_is_full_takes_no_member_of_the_new_protocol() -> None:
    host = mixed_host(replace(CONFIG, consumers=replace(CONFIG.consumers, max_size=2)))
    one, _ = classics(host, (0,), (1,))
    refused(host, consuming("m"), GroupMaxSizeReachedError)
    host.ask(beat(one, 1))


def test_a_change_may_be_too_large_and_nobody_is_disturbed() -> None:
    host = mixed_host(max_change_bytes=300)
    one, _ = classics(host, (0,), (1,))
    join = host.submit(coming(one, topics=("u",)))
    stays(host, "300 bytes")
    assert join not in host.answers


@pytest.mark.parametrize("metadata", [b"", b"?", b"\xff\xff", wanting("t")[:-6]])
def test_what_members_want_has_to_be_understood(host: Host, metadata: bytes) -> None:
    join = host.submit(joining(protocols=(Protocol("range", metadata),), is_id_required=False))
    met(host, join)
    stays(host, "wants is not understood")


def test_what_members_have_has_to_be_understood(host: Host) -> None:
    (told,) = met(host, host.submit(coming()))
    host.ask(syncing(told.member_id, 1, {told.member_id: b"?"}))
    stays(host, "has got is not understood")


def test_what_an_assignor_keeps_for_itself_is_not_lost(host: Host) -> None:
    (told,) = met(host, host.submit(coming()))
    kept = write_assignment(1, {"t": [0]})[:-4] + b"\0\0\0\1x"
    host.ask(syncing(told.member_id, 1, {told.member_id: kept}))
    stays(host, "data of its own")


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_what_a_sticky_assignor_keeps_is_what_it_has_given(host: Host, name: str) -> None:
    """Goal: groups of librdkafka, whose sticky assignor adds what it has given, are converted, though not by Kafka 4.1.1."""
    (told,) = met(host, host.submit(coming(protocols=(Protocol(name, wanting("t")),))))
    kept = write_assignment(1, {"t": [0]})[:-4] + b"\0\0\0\1x"
    host.ask(syncing(told.member_id, 1, {told.member_id: kept}))
    host.ask(consuming("m"))
    assert consumer_group(host).current[told.member_id].assigned == parts(0)


def test_only_who_joins_converts(host: Host) -> None:
    classics(host, (0,))
    for epoch in (1, -1):
        refused(host, consuming("m", epoch), GroupIdNotFoundError, "join it anew")
    refused(host, consuming("m", rebalance_timeout_ms=-1), InvalidRequestError, "rebalance timeout")
    assert isinstance(host.machine._groups.find("g"), ClassicGroup)


def test_a_conversion_needs_room_for_something() -> None:
    with pytest.raises(ConfigError):
        mixed_host(max_change_bytes=0)


def test_a_refused_conversion_answers_everybody_once(host: Host) -> None:
    """Goal: joins that wait are answered once, whatever becomes of the conversion."""
    one, _ = classics(host, (0, 1), (2, 3))
    join = host.submit(coming(one, topics=("u",)))
    host.refuses = FULL
    beaten = host.submit(consuming("m"))
    host.refuses = None
    host.commit()
    assert isinstance(host.answers[join], ReplyError)
    assert isinstance(host.answers[beaten], ReplyError)
    pass_time(host, 2 * REBALANCE_MS)


def test_who_left_before_a_refused_conversion_is_put_out_again(host: Host) -> None:
    """Goal: the log has a member that has gone; as it is silent, what it had does not wait for it for ever."""
    one, two = classics(host, (0, 1), (2, 3))
    static = coming(instance_id="i", owned=())
    joins = [host.submit(each) for each in (static, coming(one), coming(two))]
    third = met(host, *joins)[0].member_id
    host.ask(syncing(one, 2, {one: given(0, 1), two: given(2), third: given(3)}))
    host.ask(leaving(third))
    host.refuses = FULL
    refused(host, consuming("m"), type(FULL))
    host.refuses = None
    assert third in host.machine._groups.find("g").members  # type: ignore[union-attr]
    pass_time(host, 2 * SESSION_MS)
    assert third not in host.machine._groups.find("g").members  # type: ignore[union-attr]


def test_a_static_member_that_changes_its_protocol_in_an_unsettled_group_makes_a_new_epoch(host: Host) -> None:
    """Goal: nobody joins or goes, and yet what nobody has is given to somebody."""
    host.submit(coming(instance_id="i"))
    answer = host.ask(consuming("m", instance_id="i"))
    assert (answer.member_epoch, answer.assignment) == (1, parts(0, 1, 2, 3))


def test_what_nobody_was_given_is_given_out_when_a_static_member_changes_its_protocol(host: Host) -> None:
    classics(host, (0, 1), instance_id="i")
    answer = host.ask(consuming("m", instance_id="i"))
    assert (answer.member_epoch, answer.assignment) == (2, parts(0, 1, 2, 3))


# ---- large groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A coordinator for which each group is large, and that has to wait for what a group becomes."""
    monkeypatch.setattr(upgrades, "AT_ONCE_BYTES", 0)
    host.holds_beside = True
    return host


def worked_out(host: Host) -> None:
    """Lets a member ask, which is told to ask again, and works out what is to be."""
    with pytest.raises(CoordinatorLoadInProgressError, match="becomes one of the consumer protocol"):
        host.ask(consuming("m"))
    assert len(host.beside) == 1
    host.do_beside()


def test_what_a_large_group_becomes_is_worked_out_beside_the_loop(large: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a thousand members of the classic protocol were converted in one step of 230 ms, most of it to write their records."""
    members = classics(large, (0, 1), (2,), (3,))
    with pytest.raises(CoordinatorLoadInProgressError):
        large.ask(consuming("m"))
    worked_out(large)
    written_in_step: list[object] = []
    write = records._written

    def noted(part: Any, *asked: Any) -> Any:
        written_in_step.append(part)
        return write(part, *asked)

    monkeypatch.setattr(records, "_written", noted)
    assert large.ask(consuming("m")).member_epoch == 2
    told = {each.member_id for each in written_in_step if isinstance(each, ConsumerGroupMemberMetadataKey)}
    assert told == {"m"}, "all else was written before"
    group = consumer_group(large)
    assert set(group.members) == {*members, "m"}
    assert {each: group.current[each].assigned for each in members} == dict(
        zip(members, (parts(0, 1), parts(2), parts(3)), strict=True)
    )


def test_a_large_group_that_has_changed_meanwhile_is_worked_out_anew(large: Host) -> None:
    one, two = classics(large, (0, 1), (2, 3))
    worked_out(large)
    large.ask(leaving(two))
    met(large, large.submit(coming(one)))
    large.ask(syncing(one, 2, {one: given(0, 1, 2, 3)}))
    worked_out(large)
    topics: Any = large.machine._upgrades._topics
    topics.change(t=5)
    worked_out(large)
    large.ask(consuming("m"))
    group = consumer_group(large)
    assert set(group.members) == {one, "m"}
    assert group.current[one].assigned == parts(0, 1, 2, 3)


def test_a_member_comes_into_a_large_group_also_where_topics_change_all_the_time(large: Host) -> None:
    """Trap: any topic that came to the cluster made what was worked out void, and the member was told to ask again for ever."""
    classics(large, (0, 1), (2, 3))
    topics: Any = large.machine._upgrades._topics
    for count in range(5, 6 + STALE_MAX):
        worked_out(large)
        topics.change(t=count)
    assert large.ask(consuming("m")).member_epoch == 2
    assert not large.machine._upgrades._stale_counts


def test_a_large_group_that_cannot_be_converted_says_so_to_whoever_asks_again(large: Host) -> None:
    classics(large, (0, 1), (2, 3), protocols=(Protocol("range", b"no consumer's"),))
    worked_out(large)
    for _ in range(2):
        with pytest.raises(GroupIdNotFoundError, match=r"names \d+ topics, and may name"):
            large.ask(consuming("m"))
    assert not large.beside


def test_what_nobody_asks_for_is_not_kept(large: Host) -> None:
    classics(large, (0, 1), (2, 3), session_timeout_ms=10 * SESSION_MS)
    worked_out(large)
    kept = large.machine._upgrades._ready
    assert set(kept) == {"g"}
    pass_time(large, upgrades.READY_KEPT_MS)
    assert not kept
    assert not large.beside


def test_a_new_leadership_works_it_out_anew(large: Host) -> None:
    classics(large, (0, 1), (2, 3))
    with pytest.raises(CoordinatorLoadInProgressError):
        large.ask(consuming("m"))
    large.lead()
    large.do_beside()
    assert not large.machine._upgrades._ready
    worked_out(large)
    assert large.ask(consuming("m")).member_epoch > 0
