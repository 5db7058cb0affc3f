"""Members of the classic protocol in a group of KIP-848: what they may, what they are told, and when they are put out."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import beat, joining, leaving, pass_time, refused, syncing
from consumer_bytes import wanting
from mixed_kit import (
    CONFIG,
    REBALANCE_MS,
    SESSION_MS,
    classics,
    coming,
    consumer_group,
    consuming,
    mixed_host,
    parts,
    synced,
)
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host

from replog.coordinator.classic.checks import check_join
from replog.coordinator.classic.requests import Protocol
from replog.coordinator.classic.subscription import read_assignment, read_subscription, write_assignment
from replog.coordinator.consumers.group import classic_of
from replog.coordinator.messages import ConsumerGroupMemberMetadataValue
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicToCommit,
)
from replog.coordinator.runtime.messages import AppendRefused
from replog.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    JoinRefusal,
    MemberIdRequiredError,
    RebalanceInProgressError,
    ReplogError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from tests.work_counts import calls_of

PATIENT = {"session_timeout_ms": 5 * SESSION_MS, "rebalance_timeout_ms": 5 * SESSION_MS}


@pytest.fixture
def host() -> Host:
    """A group of `m`, a member of the new protocol, which has all of `t` in epoch 1."""
    found = mixed_host()
    assert found.ask(consuming("m")).assignment == parts(0, 1, 2, 3)
    return found


def halved(host: Host, **more: Any) -> str:
    """A member of the classic protocol joins, and has half of it in epoch 2; returns its id."""
    one: str = host.ask(coming(**more)).member_id
    kept = host.ask(consuming("m", 1, owned=parts(0, 1, 2, 3))).assignment
    host.ask(consuming("m", 1, owned=kept))
    told = host.ask(coming(one, **more))
    assert (told.generation, len(synced(host, one, 2, instance_id=more.get("instance_id")))) == (2, 2)
    return one


# ---- joining ------------------------------------------------------------------------------------------------------------


def test_a_member_waits_until_the_one_of_the_new_protocol_has_given_back(host: Host) -> None:
    """Goal: each partition has one reader, whatever the readers speak."""
    told = host.ask(coming())
    one = told.member_id
    assert (told.generation, synced(host, one, 2)) == (2, [])
    host.ask(beat(one, 2))  # nothing is free yet
    kept = host.ask(consuming("m", 1, owned=parts(0, 1, 2, 3))).assignment
    host.ask(beat(one, 2))
    host.ask(consuming("m", 1, owned=kept))
    refused(host, beat(one, 2), RebalanceInProgressError)
    assert host.ask(coming(one)).generation == 2
    assert {*synced(host, one, 2), *kept[next(iter(kept))]} == {0, 1, 2, 3}
    host.ask(beat(one, 2))


def test_a_member_without_an_id_is_told_one_and_nothing_is_kept_of_it(host: Host) -> None:
    before = len(host.log)
    request = host.submit(coming(is_id_required=True))
    with pytest.raises(MemberIdRequiredError) as told:
        host.response(request)
    assert len(host.log) == before
    member_id = told.value.member_id
    assert host.ask(coming(member_id, is_id_required=True)).member_id == member_id


def test_one_that_was_put_out_may_come_back_with_its_id(host: Host) -> None:
    one = halved(host)
    host.ask(leaving(one))
    refused(host, beat(one, 2), UnknownMemberIdError)
    assert host.ask(coming(one)).member_id == one


def test_one_that_was_put_out_and_reads_on_has_to_stop_first(host: Host) -> None:
    """Goal: one that keeps what it owns while it joins does not go on where it was, beside or after those who have it now."""
    one = halved(host)
    host.ask(leaving(one))
    refused(host, coming(one, owned=(0, 1)), UnknownMemberIdError, "give them up")
    assert host.ask(coming()).generation == 4


def test_the_bytes_of_all_versions_are_understood(host: Host) -> None:
    group = consumer_group(host)
    for version in (0, 1, 2, 3, 7):
        rack = "r" if version >= 3 else None
        metadata = wanting("u", "t", version=version, rack=rack)
        told = host.ask(coming(protocols=(Protocol("range", metadata),)))
        member = group.members[told.member_id]
        assert (member.subscribed_topic_names, member.rack_id) == (["t", "u"], rack)
        assignment = host.ask(syncing(told.member_id, told.generation)).assignment
        assert assignment[:2] == bytes((0, min(version, 3)))
        host.ask(leaving(told.member_id))


def test_what_it_wants_may_change(host: Host) -> None:
    one = halved(host)
    assert host.ask(coming(one, topics=("u",))).generation == 3
    assert read_assignment(host.ask(syncing(one, 3)).assignment).partitions == (("u", 0), ("u", 1))  # type: ignore[union-attr]
    assert host.ask(consuming("m", 2)).assignment == parts(0, 1, 2, 3)


@pytest.mark.parametrize("metadata", [b"", b"?", b"\xff\xff", wanting("t")[:-6], wanting("t", owned=(1,))[:-5]])
def test_what_it_wants_has_to_be_understood(host: Host, metadata: bytes) -> None:
    refused(
        host, coming(protocols=(Protocol("range", metadata),)), InconsistentGroupProtocolError, "not understood as that"
    )


def test_members_of_the_classic_protocol_need_one_that_all_support(host: Host) -> None:
    """Goal: they can meet as a classic group at any time."""
    both = (Protocol("range", wanting("t")), Protocol("sticky", wanting("t")))
    one = host.ask(coming(protocols=both)).member_id
    host.ask(coming(protocols=both[1:]))
    refused(host, coming(), InconsistentGroupProtocolError, "all others of the classic one")
    refused(host, coming(one, protocols=both[:1]), InconsistentGroupProtocolError)
    refused(host, coming(protocols=()), InconsistentGroupProtocolError)
    refused(host, joining(protocol_type="connect"), InconsistentGroupProtocolError, "'connect'")


def test_a_refusal_names_no_member_as_that_of_kafka_does(host: Host) -> None:
    for wrong in (coming("c0", protocols=()), coming("c0", instance_id="i")):
        error = host.answers[host.submit(wrong)].error
        assert isinstance(error, JoinRefusal)
        assert not error.names_member


def test_a_join_is_checked_as_one_to_a_classic_group(host: Host) -> None:
    refused(host, coming(session_timeout_ms=1), InvalidSessionTimeoutError)
    with pytest.raises(ReplogError):
        check_join(coming(rebalance_timeout_ms=-1), CONFIG.classic)
    refused(host, coming(rebalance_timeout_ms=-1), ReplogError, "rebalance timeout")


def test_a_group_has_as_many_members_as_it_may(host: Host) -> None:
    for number in range(3):
        host.ask(coming(f"c{number}"))
    refused(host, coming(), GroupMaxSizeReachedError, "4 members")
    host.ask(coming("c0"))


def test_members_tell_no_more_bytes_than_they_may(host: Host) -> None:
    protocols = (Protocol("range", wanting("t")), Protocol("x" * 1_000, b""))
    host.ask(coming("c0", protocols=protocols))
    host.ask(coming("c0", protocols=protocols))
    refused(host, coming("c1", protocols=protocols), GroupMaxSizeReachedError, "2000")


def test_a_join_that_the_log_refuses_changes_nothing(host: Host) -> None:
    host.refuses = FULL
    refused(host, coming("c0"), type(FULL))
    host.refuses = None
    assert consumer_group(host).members.keys() == {"m"}
    pass_time(host, REBALANCE_MS)
    assert consumer_group(host).members.keys() == {"m"}


# ---- static members -----------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_has_what_it_had(host: Host) -> None:
    one = halved(host, instance_id="i")
    had = synced(host, one, 2, instance_id="i")
    told = host.ask(coming(instance_id="i"))
    assert told.member_id != one
    assert (told.generation, synced(host, told.member_id, 2, instance_id="i")) == (2, had)
    host.ask(consuming("m", 2))
    refused(host, beat(one, 2, instance_id="i"), FencedInstanceIdError)
    refused(host, coming(one, instance_id="i"), FencedInstanceIdError)
    refused(host, beat(one, 2), UnknownMemberIdError)
    refused(host, coming(one, instance_id="j"), UnknownMemberIdError)


def test_a_static_member_changes_its_protocol_both_ways(host: Host) -> None:
    """Goal: a rolling restart with the other setting moves nothing, since others of both kinds are there."""
    one = halved(host, instance_id="i")
    had = parts(*synced(host, one, 2, instance_id="i"))
    answer = host.ask(consuming("n", instance_id="i"))
    assert (answer.member_epoch, answer.assignment) == (2, had)
    refused(host, consuming("o", instance_id="i"), UnreleasedInstanceIdError)
    told = host.ask(coming(instance_id="i"))
    assert (told.generation, parts(*synced(host, told.member_id, 2, instance_id="i"))) == (2, had)
    assert consumer_group(host).members.keys() == {"m", told.member_id}
    refused(host, consuming("n", 2, instance_id="i"), FencedInstanceIdError)


# ---- syncs, heartbeats, commits -------------------------------------------------------------------------------------------


def test_who_asks_has_to_be_a_member_of_the_classic_protocol_in_its_epoch(host: Host) -> None:
    one = halved(host)
    for request, error in (
        (beat("nobody", 2), UnknownMemberIdError),
        (beat("m", 2), UnknownMemberIdError),
        (syncing("m", 2), UnknownMemberIdError),
        (beat(one, 1), IllegalGenerationError),
        (syncing(one, 1), IllegalGenerationError),
        (beat(one, 2, instance_id="i"), UnknownMemberIdError),
        (syncing(one, 2, protocol_type="connect"), InconsistentGroupProtocolError),
        (syncing(one, 2, protocol="sticky"), InconsistentGroupProtocolError),
    ):
        refused(host, request, error)
    host.ask(syncing(one, 2, protocol_type="consumer", protocol="range"))


def test_a_newer_epoch_is_told_by_heartbeat_and_sync(host: Host) -> None:
    one = halved(host)
    host.ask(consuming("n"))
    for request in (beat(one, 2), syncing(one, 2)):
        refused(host, request, RebalanceInProgressError, "join it again")
    assert host.ask(coming(one, owned=())).generation == 3


def test_only_a_member_in_its_generation_commits_and_asks(host: Host) -> None:
    """Goal: a commit of a former owner never lands after the new owner has read the offset."""
    one = halved(host)

    def commit(member_id: str, epoch: int) -> CommitOffsets:
        topic = TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 5),))
        return CommitOffsets("g", (topic,), member_id, None, epoch)

    host.ask(commit(one, 2))
    host.ask(commit("m", 2))
    host.ask(FetchOffsets("g", None, one, 2))
    refused(host, commit(one, 1), IllegalGenerationError)
    refused(host, commit("m", 1), StaleMemberEpochError)
    refused(host, commit("", -1), UnknownMemberIdError)
    refused(host, FetchOffsets("g", None, one, 1), IllegalGenerationError)
    host.ask(coming(one, topics=("u",)))
    refused(host, commit(one, 2), IllegalGenerationError)
    host.ask(commit(one, 3))


# ---- those that do not go on ------------------------------------------------------------------------------------------------


def keep_alive(host: Host, for_ms: int, *requests: Any) -> None:
    """Lets time pass while members speak."""
    for _ in range(0, for_ms, SESSION_MS // 10):
        for each in requests:
            host.submit(each)
        host.commit()
        pass_time(host, SESSION_MS // 10)


def test_a_silent_member_is_put_out_when_its_own_session_is_over(host: Host) -> None:
    one = halved(host, session_timeout_ms=2 * SESSION_MS)
    host.ask(beat(one, 2))
    keep_alive(host, 2 * SESSION_MS - 100, consuming("m", 2))
    assert consumer_group(host).members.keys() == {one, "m"}
    keep_alive(host, 100, consuming("m", 2))
    assert consumer_group(host).members.keys() == {"m"}


def test_one_that_does_not_join_again_is_put_out_after_its_rebalance_timeout(host: Host) -> None:
    one = halved(host)
    host.ask(consuming("n"))
    speaking = (beat(one, 2), consuming("m", 2), consuming("n", 3))
    keep_alive(host, REBALANCE_MS - 100, *speaking)
    assert one in consumer_group(host).members
    keep_alive(host, 100, *speaking)
    assert one not in consumer_group(host).members


def test_one_that_joins_in_time_stays(host: Host) -> None:
    one = halved(host)
    host.ask(consuming("n"))
    keep_alive(host, REBALANCE_MS - 100, beat(one, 2), consuming("m", 2), consuming("n", 3))
    host.ask(coming(one))
    synced(host, one, 3)
    keep_alive(host, REBALANCE_MS, beat(one, 3), consuming("m", 2, owned={}), consuming("n", 3))
    assert one in consumer_group(host).members


def test_one_that_joins_and_asks_for_nothing_is_put_out(host: Host) -> None:
    one = host.ask(coming()).member_id
    speaking = (beat(one, 2), consuming("m", 1, owned=parts(0, 1, 2, 3)))
    keep_alive(host, REBALANCE_MS - 100, *speaking)
    assert one in consumer_group(host).members
    keep_alive(host, 100, *speaking)
    assert one not in consumer_group(host).members


def test_the_time_to_give_back_is_that_of_its_own_protocol(host: Host) -> None:
    """Goal: a member of the classic protocol is not put out by the rule of the other one."""
    (one,) = classics(fresh := mixed_host(), (0, 1, 2, 3), **PATIENT)
    fresh.ask(consuming("m"))
    fresh.ask(coming(one, owned=(0, 1, 2, 3), rebalance_timeout_ms=5 * SESSION_MS, session_timeout_ms=5 * SESSION_MS))
    keep_alive(fresh, 3 * SESSION_MS, consuming("m", 2))
    assert one in consumer_group(fresh).members
    keep_alive(fresh, 3 * SESSION_MS, consuming("m", 2))
    assert one not in consumer_group(fresh).members


def test_a_removal_that_is_refused_is_tried_again(host: Host) -> None:
    one = halved(host)
    keep_alive(host, SESSION_MS - 100, consuming("m", 2))
    host.refuses = FULL
    pass_time(host, 100)
    host.refuses = None
    assert one in consumer_group(host).members
    pass_time(host, SESSION_MS - 100)
    assert one not in consumer_group(host).members


def test_a_join_that_is_taken_back_leaves_the_member_where_it_was(host: Host) -> None:
    one = halved(host)
    host.submit(coming(one, topics=("u",)))
    del host.log[host.high_watermark :]
    host.step(AppendRefused(host.epoch, host.high_watermark, FULL))
    host.ask(beat(one, 2))
    pass_time(host, REBALANCE_MS)
    assert one in consumer_group(host).members


# ---- bytes --------------------------------------------------------------------------------------------------------------


def test_a_record_without_protocols_is_one_of_the_new_protocol() -> None:
    """Goal: what an early Kafka wrote, which knew no mixed groups, is not taken for a member of the classic protocol."""
    assert classic_of(ConsumerGroupMemberMetadataValue()) is None


def test_assignments_are_read_as_they_are_written() -> None:
    for partitions in ({}, {"t": [0, 7]}, {"t": [1], "u": [0, 1, 2]}):
        found = read_assignment(write_assignment(1, partitions))
        assert found is not None
        assert found.partitions == tuple((topic, each) for topic, numbers in partitions.items() for each in numbers)
    assert read_assignment(b"") == ((), b"")
    for wrong in (b"\0", b"\xff\xff", write_assignment(1, {"t": [0]})[:-5]):
        assert read_assignment(wrong) is None
    assert read_subscription(b"\0") is None


def test_topics_that_are_gone_are_given_to_nobody() -> None:
    topics = Topics(t=4)
    host = group_host(topics, replace(CONFIG))
    host.lead()
    host.ask(consuming("m"))
    one = host.ask(coming()).member_id
    topics.change(t=0)
    host.ask(beat(one, 2))
    assert synced(host, one, 2) == []
    refused(host, consuming("m", 17), FencedMemberEpochError)


# ---- many topics ------------------------------------------------------------------------------------------------------------


def test_a_member_of_many_topics_is_told_its_share_in_few_calls() -> None:
    """Trap: a sync read what the member had told, and wrote each topic in ten calls: 9,900 took 20 ms of the loop."""
    names = tuple(f"flights-{number:03}" for number in range(500))
    consumers = replace(CONFIG.consumers, session_timeout_ms=100_000)
    classic = replace(CONFIG.classic, max_group_bytes=1_000_000)
    host = group_host(Topics(**dict.fromkeys(names, 1)), replace(CONFIG, consumers=consumers, classic=classic))
    host.lead()
    host.ask(consuming(subscribed_topics=("u",)))
    told = host.ask(coming(topics=names, session_timeout_ms=10 * SESSION_MS))
    answers: list[bytes] = []
    asked = syncing(told.member_id, told.generation)
    calls = calls_of(lambda: answers.append(host.ask(asked).assignment))
    found = read_assignment(answers[0])
    assert found is not None
    assert [name for name, _ in found.partitions] == list(names)
    assert calls < 8 * len(names)


def test_a_member_that_names_more_topics_than_one_of_kip_848_may_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a hundred thousand names were read, sorted and written in one step of the loop."""
    monkeypatch.setattr("replog.coordinator.conversion.classic_members.TOPICS_MAX", 2)
    monkeypatch.setattr(
        "replog.coordinator.conversion.classic_members.read_subscription", lambda metadata: pytest.fail("it was read")
    )
    host = mixed_host()
    host.ask(consuming())
    with pytest.raises(InvalidRequestError, match="names 3 topics, and in a group of the consumer protocol may name 2"):
        host.ask(coming(topics=("t", "u", "v")))


def test_a_group_with_a_member_of_too_many_topics_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.coordinator.conversion.upgrades.TOPICS_MAX", 1)
    host = mixed_host()
    classics(host, (0, 1, 2, 3), protocols=(Protocol("range", wanting("t", "u")),))
    with pytest.raises(GroupIdNotFoundError, match="names 2 topics, and may name 1"):
        host.ask(consuming())
