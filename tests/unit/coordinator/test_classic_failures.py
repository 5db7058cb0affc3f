"""Groups of the classic protocol when the log takes nothing, when another node leads, and beside groups of KIP-848."""

from __future__ import annotations

import random
from typing import Any

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
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics

from replog.coordinator.classic.rebalances import WRITE_AGAIN_MS
from replog.coordinator.classic.requests import LeavingMember, Protocol
from replog.coordinator.config import OffsetsConfig
from replog.coordinator.consumers.requests import ConsumerHeartbeat, DeleteGroup
from replog.coordinator.describing.requests import DescribeConsumerGroup
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import GroupMetadataKey, GroupMetadataValue
from replog.coordinator.offsets.cleaner import EXPIRY
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicToCommit,
    TopicToForget,
)
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.messages import Resigned, Tick
from replog.errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RecordTooLargeError,
    ReplogError,
    UnknownMemberIdError,
)

RETENTION_MS = 20 * SESSION_MS


@pytest.fixture
def host() -> Host:
    return classic_host()


def rejoined(host: Host, *members: str) -> None:
    """Lets all members of a group join again, and its leader assign."""
    waiting = [host.submit(joining(each)) for each in members]
    settle(host, [host.response(each) for each in waiting])


# ---- records that are refused ---------------------------------------------------------------------------------------------


def test_who_waits_for_an_assignment_that_is_not_written_hears_it_and_joins_again(host: Host) -> None:
    told = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    leader, follower = (each.member_id for each in told)
    host.refuses = FULL
    syncs = [host.submit(syncing(each, 1, {follower: b"x"})) for each in (follower, leader)]
    for each in syncs:
        with pytest.raises(ReplogError, match="the log is full"):
            host.response(each)
    host.refuses = None
    refused(host, beat(follower, 1), RebalanceInProgressError)
    rejoined(host, leader, follower)
    assert [each.generation for each in written(host) if each] == [2]


def test_an_assignment_that_is_larger_than_a_batch_is_refused_for_all_who_wait() -> None:
    host = Host(
        lambda registry, timers: GroupMachine(registry, timers, CONFIG, Topics(), random.Random(1)), max_batch_bytes=400
    )
    host.lead()
    told = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    leader, follower = (each.member_id for each in told)
    syncs = [host.submit(syncing(each, 1, {follower: b"x" * 400})) for each in (follower, leader)]
    for each in syncs:
        with pytest.raises(RecordTooLargeError, match="400"):
            host.response(each)
    assert host.log == []
    refused(host, beat(follower, 1), RebalanceInProgressError)
    rejoined(host, leader, follower)


@pytest.mark.parametrize("steps", ["joining", "assigning", "assigned", "gone"])
def test_a_group_that_began_anew_and_whose_removal_was_taken_back_goes_on_with_its_generations(
    host: Host, steps: str
) -> None:
    """Goal: generations never go back, also where a client joins between a removal and the word that the log refuses it."""
    host.ask(leaving(*stable(host, "first")))
    assert [each.generation for each in written(host) if each is not None] == [1, 2]
    base_offset = len(host.log)
    host.submit(DeleteGroup("g"))
    host.step(Tick())
    assert group_of(host) is None
    waiting = host.submit(joining(is_id_required=False))
    if steps != "joining":
        pass_time(host, CONFIG.classic.initial_rebalance_delay_ms, commits=False)
        group = group_of(host)
        assert group is not None
        (new_id,) = group.members
        if steps == "assigned":
            host.submit(syncing(new_id, 1, {new_id: b"x"}))
        if steps == "gone":
            host.submit(leaving(new_id))
    host.lose(base_offset)
    if steps == "gone":
        pass_time(host, 2 * WRITE_AGAIN_MS)
    if steps != "joining":
        waiting = host.submit(joining(is_id_required=False))
    settle(host, met(host, waiting))
    generations = [each.generation for each in written(host) if each is not None]
    assert generations[-1] > 2
    assert generations == sorted(generations)


def test_a_static_member_whose_new_id_is_not_written_keeps_the_old_one(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(instance_id="j"))
    settle(host, told)
    old = told[1].member_id
    host.refuses = FULL
    refused(host, joining(instance_id="j"), ReplogError, "full")
    host.refuses = None
    host.ask(beat(old, 1, instance_id="j"))
    assert host.ask(syncing(old, 1)).assignment == old.encode()
    group = group_of(host)
    assert group is not None
    assert group.record is host.machine._groups.classic.written("g")
    pass_time(host, SESSION_MS - 1)
    host.ask(beat(old, 1))
    host.ask(beat(told[0].member_id, 1))
    back = host.ask(joining(instance_id="j"))
    assert (back.generation, back.member_id != old) == (1, True)


def test_a_group_that_could_not_say_that_it_is_empty_goes_on(host: Host) -> None:
    (one,) = stable(host, "one")
    host.refuses = FULL
    refused(host, leaving(one), ReplogError, "full")
    host.refuses = None
    (told,) = meet(host, joining(is_id_required=False))
    assert told.generation == 3
    settle(host, [told])
    assert [each.generation for each in written(host) if each] == [1, 3]


def test_a_group_says_that_it_is_empty_until_the_log_takes_it(host: Host) -> None:
    (told,) = meet(host, joining(is_id_required=False))
    host.refuses = FULL
    refused(host, leaving(told.member_id), ReplogError, "full")
    refused(host, beat(told.member_id, 1), UnknownMemberIdError)
    pass_time(host, 2 * WRITE_AGAIN_MS)
    assert host.log == []
    host.refuses = None
    pass_time(host, WRITE_AGAIN_MS)
    assert [(each.generation, each.members) for each in written(host) if each] == [(2, [])]
    records = len(host.log)
    pass_time(host, 2 * WRITE_AGAIN_MS)
    assert len(host.log) == records


# ---- another leader ---------------------------------------------------------------------------------------------------------


def test_a_new_leader_goes_on_with_what_was_written(host: Host) -> None:
    told = meet(host, joining(instance_id="i"), joining(is_id_required=False))
    settle(host, told)
    one, two = (each.member_id for each in told)
    before = written(host)[-1]
    id_of(host)
    waiting = [host.submit(joining(one, instance_id="i")), host.submit(joining(is_id_required=False))]
    host.step(Resigned())
    for each in waiting:
        with pytest.raises(NotCoordinatorError):
            host.response(each)
    host.lead()
    group = group_of(host)
    assert group is not None
    assert (group.record, group.leader_id, dict(group.instances), dict(group.pending)) == (before, one, {"i": one}, {})
    assert host.machine._groups.classic.pending_members == 0
    host.ask(beat(two, 1))
    assert host.ask(syncing(two, 1)).assignment == two.encode()
    host.ask(beat(one, 1, instance_id="i"))
    rejoined(host, one, two)


def test_a_new_leader_gives_each_member_a_session(host: Host) -> None:
    one, two = stable(host, "one", "two")
    host.now_ms += 10 * SESSION_MS
    host.lead()
    pass_time(host, SESSION_MS - 1)
    host.ask(beat(two, 1))
    pass_time(host, 1)
    refused(host, beat(one, 1), UnknownMemberIdError)
    rejoined(host, two)


def test_who_waits_for_an_assignment_that_another_leader_does_not_know_hears_it(host: Host) -> None:
    told = meet(host, *(joining(is_id_required=False) for _ in range(2)))
    syncs = [host.submit(syncing(each.member_id, 1)) for each in reversed(told)]
    del host.log[:]
    host.lead()
    for each in syncs:
        with pytest.raises(ReplogError, match="may survive"):
            host.response(each)
    refused(host, beat(told[0].member_id, 1), UnknownMemberIdError, "no group")


def test_a_new_leader_knows_who_leads_a_group(host: Host) -> None:
    settle(host, told := meet(host, joining(instance_id="i"), joining(is_id_required=False)))
    host.submit(joining(told[1].member_id, protocols=(Protocol("range", subscription("u")),)))
    pass_time(host, REBALANCE_MS)
    host.ask(syncing(told[1].member_id, 2))
    host.lead()
    group = group_of(host)
    assert group is not None
    assert (list(group.members), group.leader_id) == ([each.member_id for each in told], told[1].member_id)


def test_a_record_of_a_very_old_kafka_has_one_timeout_for_both(host: Host) -> None:
    member = GroupMetadataValue.MemberMetadata("m", None, "c", "/h", -1, SESSION_MS, RANGE[0].metadata, b"x")
    value = GroupMetadataValue("consumer", 7, "range", "m", -1, [member])
    host.log.append(GROUP_RECORDS.encode(CoordinatorRecord(GroupMetadataKey("g"), value, 0)))
    host.high_watermark = 1
    host.lead()
    group = group_of(host)
    assert group is not None
    assert group.rebalance_timeout_ms() == SESSION_MS
    assert host.ask(syncing("m", 7)).assignment == b"x"


def test_timers_do_not_pile_up(host: Host) -> None:
    settle(host, told := meet(host, joining(instance_id="i"), joining(is_id_required=False)))
    for generation in range(2, 7):
        leader = host.ask(joining(instance_id="i")).member_id
        for each in (leader, told[1].member_id):
            host.submit(joining(each))
        host.ask(syncing(leader, generation))
    sessions, cleaning, the_others_sync = 2, 1, 1
    assert len(host.shard._timers) == sessions + cleaning + the_others_sync


def test_a_group_that_is_larger_than_it_may_be_now_comes_together_anew(host: Host) -> None:
    members = stable(host, "one", "two", "three")
    small = classic_host(replace(CONFIG, classic=replace(CONFIG.classic, max_size=2)))
    small.log, small.high_watermark = host.log, host.high_watermark
    small.lead()
    refused(small, beat(members[0], 1), RebalanceInProgressError)
    for each in members[:2]:
        small.submit(joining(each))
    pass_time(small, REBALANCE_MS)
    small.ask(beat(members[0], 2))
    refused(small, beat(members[2], 2), UnknownMemberIdError)


# ---- groups of the other kind -----------------------------------------------------------------------------------------------


def consuming(member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerHeartbeat:
    if epoch:
        return ConsumerHeartbeat("g", member_id, epoch, **more)
    return ConsumerHeartbeat("g", member_id, 0, rebalance_timeout_ms=500, subscribed_topics=("t",), owned={}, **more)


def test_an_empty_group_of_the_other_kind_is_replaced_and_its_offsets_stay(host: Host) -> None:
    host.ask(consuming())
    host.ask(consuming(epoch=-1))
    host.ask(commit())
    first = host.submit(joining(is_id_required=False))
    told = met(host, first)
    assert host.machine._groups.consumers.find("g") is not None
    settle(host, told)
    assert host.machine._groups.consumers.find("g") is None
    host.ask(leaving(told[0].member_id))
    assert host.ask(consuming()).member_epoch == 1
    assert written(host)[-1] is None
    host.lead()
    assert group_of(host) is None
    assert host.ask(consuming(epoch=1)).member_epoch == 1
    assert host.ask(FetchOffsets("g")).topics[0].partitions[0].offset == 1


def test_an_id_that_nobody_has_come_back_with_keeps_nobody_out(host: Host) -> None:
    late = id_of(host)
    host.ask(consuming())
    host.ask(commit("m", 1))
    assert host.ask(joining(late)).member_id == late


def test_a_replacement_that_is_refused_leaves_the_group_as_it_was(host: Host) -> None:
    (one,) = stable(host, "one")
    host.ask(leaving(one))
    host.refuses = FULL
    refused(host, consuming(), ReplogError, "full")
    host.refuses = None
    group = group_of(host)
    assert group is not None
    assert (group.generation, group.record) == (2, written(host)[-1])
    (told,) = meet(host, joining(is_id_required=False))
    assert told.generation == 3


def test_members_of_the_other_kind_are_removed_by_people(host: Host) -> None:
    """Goal: the request that removes static members of a group works whatever its members speak."""
    host.ask(consuming("m", instance_id="i"))
    host.ask(consuming("n", instance_id="j"))
    host.ask(consuming("o"))
    wrong = LeavingMember("n", "i")
    who = (wrong, LeavingMember("", "i"), LeavingMember("", "i"), LeavingMember("n", "j"), LeavingMember(""))
    left = host.ask(leaving(*who)).members
    assert [(each.member_id, each.instance_id) for each in left] == [(each.member_id, each.instance_id) for each in who]
    errors = [FencedInstanceIdError, None, UnknownMemberIdError, None, UnknownMemberIdError]
    assert [None if each.error is None else type(each.error) for each in left] == errors
    refused(host, consuming("m", 1), UnknownMemberIdError)
    assert host.ask(consuming("o", 3)).member_epoch == 4
    records = len(host.log)
    assert isinstance(host.ask(leaving("x")).members[0].error, UnknownMemberIdError)
    assert len(host.log) == records
    host.ask(leaving("o"))
    assert host.ask(DescribeConsumerGroup("g")).state == "Empty"


# ---- offsets ----------------------------------------------------------------------------------------------------------------


def commit(
    member_id: str = "", generation: int = -1, topic: str = "t", instance_id: str | None = None
) -> CommitOffsets:
    offsets = (TopicToCommit(topic, NO_TOPIC_ID, (OffsetToCommit(0, 1),)),)
    return CommitOffsets("g", offsets, member_id, instance_id, generation)


def test_only_a_member_in_its_generation_commits(host: Host) -> None:
    refused(host, commit("m", 1), GroupIdNotFoundError)
    told = meet(host, joining(instance_id="i"))
    one = told[0].member_id
    refused(host, commit(one, 1), RebalanceInProgressError)
    settle(host, told)
    host.ask(commit(one, 1))
    host.ask(commit(one, 1, instance_id="i"))
    refused(host, commit(one, 2), IllegalGenerationError)
    refused(host, commit("x", 1), UnknownMemberIdError)
    refused(host, commit("x", 1, instance_id="i"), FencedInstanceIdError)
    refused(host, commit(), UnknownMemberIdError)
    host.submit(joining(is_id_required=False))
    host.ask(commit(one, 1))  # what it has read before it joins again
    host.ask(leaving(one))
    pass_time(host, 2 * SESSION_MS + REBALANCE_MS)
    host.ask(commit())


def test_a_member_that_commits_need_not_speak_beside_it(host: Host) -> None:
    (one,) = stable(host, "one")
    for _ in range(4):
        pass_time(host, SESSION_MS // 2)
        host.ask(commit(one, 1))
    pass_time(host, SESSION_MS)
    refused(host, commit(one, 1), UnknownMemberIdError)


def test_offsets_of_topics_that_members_read_are_not_deleted(host: Host) -> None:
    (one,) = stable(host, "one")
    for topic in ("t", "u"):
        host.ask(commit(one, 1, topic))
    read, unread = host.ask(DeleteOffsets("g", (TopicToForget("t", (0,)), TopicToForget("u", (0,))))).topics
    assert isinstance(read.partitions[0].error, GroupSubscribedToTopicError)
    assert unread.partitions[0].error is None


def test_offsets_of_members_that_nothing_is_known_of_are_not_deleted(host: Host) -> None:
    stable(host, "w", protocol_type="connect", protocols=(Protocol("v2", b""),))
    refused(host, DeleteOffsets("g", (TopicToForget("t", (0,)),)), NonEmptyGroupError)


def test_a_consumer_whose_topics_cannot_be_told_may_read_any(host: Host) -> None:
    stable(host, "one", protocols=(Protocol("range", b"?"),))
    (topic,) = host.ask(DeleteOffsets("g", (TopicToForget("u", (0,)),))).topics
    assert isinstance(topic.partitions[0].error, GroupSubscribedToTopicError)


def aged_host() -> Host:
    return classic_host(
        GroupsConfig(OffsetsConfig(retention_ms=RETENTION_MS, check_interval_ms=SESSION_MS), classic=CONFIG.classic)
    )


def test_an_empty_group_goes_with_its_offsets_when_they_have_been_kept_long_enough() -> None:
    host = aged_host()
    (one,) = stable(host, "one")
    host.ask(commit(one, 1))
    for _ in range(RETENTION_MS // SESSION_MS + 2):
        pass_time(host, SESSION_MS - 1)
        host.ask(beat(one, 1))
    assert len(host.ask(FetchOffsets("g")).topics) == 1
    host.ask(leaving(one))
    pass_time(host, RETENTION_MS - 1)
    assert len(host.ask(FetchOffsets("g")).topics) == 1
    pass_time(host, 2 * SESSION_MS)
    assert host.ask(FetchOffsets("g")).topics == ()
    assert (group_of(host), written(host)[-1]) == (None, None)


def test_offsets_stay_until_the_log_says_that_the_group_is_empty() -> None:
    """Whoever reads the log would find offsets removed under a member."""
    host = aged_host()
    (one,) = stable(host, "one")
    host.ask(commit(one, 1))
    host.refuses = FULL
    refused(host, leaving(one), ReplogError, "full")
    pass_time(host, RETENTION_MS + SESSION_MS)
    host.refuses = None
    records = len(host.log)
    host.shard._timers.set(EXPIRY, host.now_ms)
    host.step(Tick())
    assert len(host.log) == records
    pass_time(host, RETENTION_MS + 2 * SESSION_MS)
    assert (written(host)[-2].members, written(host)[-1]) == ([], None)
    assert host.ask(FetchOffsets("g")).topics == ()


def test_offsets_of_topics_that_no_member_reads_any_more_go_while_the_group_is_used() -> None:
    host = aged_host()
    (one,) = stable(host, "one", session_timeout_ms=10 * SESSION_MS)
    for topic in ("t", "u"):
        host.ask(commit(one, 1, topic))
    for _ in range(RETENTION_MS // SESSION_MS + 2):
        pass_time(host, SESSION_MS)
        host.ask(beat(one, 1))
    assert [each.topic for each in host.ask(FetchOffsets("g")).topics] == ["t"]


@pytest.mark.parametrize("more", [{"protocol_type": "connect"}, {"protocols": (Protocol("range", b"?"),)}])
def test_offsets_of_members_that_do_not_tell_what_they_read_stay(more: dict[str, Any]) -> None:
    host = aged_host()
    (one,) = stable(host, "one", session_timeout_ms=10 * SESSION_MS, **more)
    host.ask(commit(one, 1, "u"))
    for _ in range(RETENTION_MS // SESSION_MS + 2):
        pass_time(host, SESSION_MS)
        host.ask(beat(one, 1))
    assert [each.topic for each in host.ask(FetchOffsets("g")).topics] == ["u"]


def test_a_group_is_deleted_when_it_is_empty(host: Host) -> None:
    (one,) = stable(host, "one")
    refused(host, DeleteGroup("g"), NonEmptyGroupError, "1 members")
    host.ask(leaving(one))
    host.ask(commit())
    lost = id_of(host)
    host.ask(DeleteGroup("g"))
    refused(host, joining(lost), UnknownMemberIdError, "no group")
    assert host.machine._groups.classic.pending_members == 0
    refused(host, DeleteGroup("g"), GroupIdNotFoundError)
    pass_time(host, SESSION_MS)
    assert stable(host, "two")


def test_a_group_that_nobody_has_come_back_to_is_deleted(host: Host) -> None:
    lost = id_of(host)
    host.ask(DeleteGroup("g"))
    assert group_of(host) is None
    assert host.machine._groups.classic.pending_members == 0
    refused(host, joining(lost), UnknownMemberIdError, "no group")
    refused(host, DeleteGroup("g"), GroupIdNotFoundError)


def test_records_are_those_that_kafka_reads(host: Host) -> None:
    stable(host, "one")
    (encoded,) = host.log
    record = GROUP_RECORDS.decode(*encoded)
    assert record is not None
    assert record.version == 3
