"""Groups of KIP-848 in a shard: members join, are moved, leave, are put out; what a new coordinator knows of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.assignors.model import Assignment, TopicPartition, assignment_of, partitions_of
from replog.coordinator.consumers.config import ConsumersConfig
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse, DeleteGroup
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicToCommit,
    TopicToForget,
)
from replog.coordinator.runtime.messages import AppendRefused, ReplyError, Resigned, Tick
from replog.errors import ConfigError, InvalidRequestError, ReplogError
from replog.group_errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupSubscribedToTopicError,
    InvalidRegularExpressionError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from replog_timeline import TimelineHashMap

SESSION_MS, REBALANCE_MS = 1_000, 300
CONFIG = GroupsConfig(consumers=ConsumersConfig(SESSION_MS, 100, max_size=4))
T = topic_id("t")


@pytest.fixture
def topics() -> Topics:
    return Topics(t=4, u=2)


@pytest.fixture
def host(topics: Topics) -> Host:
    found = group_host(topics, CONFIG)
    found.lead()
    return found


def parts(*partitions: int) -> Assignment:
    return assignment_of((T, each) for each in partitions)


def joining(member_id: str, *names: str, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g", member_id, 0, rebalance_timeout_ms=REBALANCE_MS, subscribed_topics=names or ("t",), owned={}, **more
    )


def beat(member_id: str, epoch: int, owned: Assignment | None = None, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member_id, epoch, owned=owned, **more)


def told(host: Host, request: ConsumerHeartbeat) -> tuple[int, Assignment | None]:
    """Epoch and assignment of the answer."""
    answer: ConsumerHeartbeatResponse = host.ask(request)
    assert answer.heartbeat_interval_ms == CONFIG.consumers.heartbeat_interval_ms
    return answer.member_epoch, answer.assignment


def commit(member_id: str, epoch: int, offset: int = 1) -> CommitOffsets:
    topic = TopicToCommit("t", T, (OffsetToCommit(0, offset),))
    return CommitOffsets("g", (topic,), member_id, None, epoch)


def pass_time(host: Host, until_ms: int) -> None:
    while (due := host.shard.next_deadline_ms()) is not None and due <= until_ms:
        host.now_ms = max(host.now_ms, due)
        host.step(Tick())
    host.now_ms = until_ms
    host.commit()


# ---- joining and moving -------------------------------------------------------------------------------------------------


def test_a_partition_goes_over_when_the_one_who_had_it_says_so(host: Host) -> None:
    assert told(host, joining("a")) == (1, parts(0, 1, 2, 3))
    assert told(host, joining("b")) == (2, {})
    assert told(host, beat("b", 2)) == (2, None)
    assert told(host, beat("a", 1)) == (1, parts(0, 1))
    assert told(host, beat("a", 1, parts(0, 1, 2, 3))) == (1, None)
    assert told(host, beat("a", 1, parts(0, 1))) == (2, None)
    assert told(host, beat("b", 2)) == (2, parts(2, 3))
    records = len(host.log)
    assert told(host, beat("a", 2)) == told(host, beat("b", 2)) == (2, None)
    assert len(host.log) == records


def test_a_heartbeat_without_news_does_not_look_at_the_other_members(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a group of 1,000 members that was most of what the heartbeats cost."""
    told(host, joining("a"))
    told(host, beat("a", 1))

    def looked(*_: object, **__: object) -> None:
        raise AssertionError("all members were looked at")

    for name in ("__iter__", "items", "keys", "values"):
        monkeypatch.setattr(TimelineHashMap, name, looked)
    assert told(host, beat("a", 1)) == (1, None)
    with pytest.raises(ReplogError, match="all members were looked at"):
        told(host, joining("b"))


def test_a_member_without_an_id_gets_one(host: Host) -> None:
    first, second = host.ask(joining("")), host.ask(joining(""))
    assert first.member_id != second.member_id
    assert told(host, beat(first.member_id, 1)) == (1, parts(0, 1))


def test_a_full_heartbeat_is_told_everything(host: Host) -> None:
    told(host, joining("a"))
    full = beat("a", 1, parts(0), rebalance_timeout_ms=5, subscribed_topics=("t",))
    assert told(host, full) == (1, parts(0, 1, 2, 3))


def test_a_lost_answer_is_asked_for_again_and_an_old_epoch_is_fenced(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    told(host, beat("a", 1))
    told(host, beat("a", 1, parts(0, 1)))
    assert told(host, beat("a", 1, parts(0, 1))) == (2, None)
    for epoch, owned in ((1, None), (1, parts(0, 3)), (3, parts(0)), (0x7FFF, None)):
        with pytest.raises(FencedMemberEpochError):
            host.ask(beat("a", epoch, owned))


def test_new_subscriptions_partitions_and_topics_are_noticed(host: Host, topics: Topics) -> None:
    told(host, joining("a"))
    assert told(host, beat("a", 1, subscribed_topics=("t", "u", "none"))) == (
        2,
        {T: {0, 1, 2, 3}, topic_id("u"): {0, 1}},
    )
    topics.change(t=5)
    assert told(host, beat("a", 2)) == (3, {T: {0, 1, 2, 3, 4}, topic_id("u"): {0, 1}})
    topics.change(t=0, none=1)
    epoch, assignment = told(host, beat("a", 3, {topic_id("u"): frozenset({0, 1})}))
    assert (epoch, assignment) == (4, {topic_id("u"): {0, 1}, topic_id("none"): {0}})
    topics.change(other=1)
    assert told(host, beat("a", 4)) == (4, None)


def test_a_change_of_topics_whose_records_are_refused_is_noticed_again(host: Host, topics: Topics) -> None:
    told(host, joining("a"))
    told(host, beat("a", 1))
    topics.change(t=5)
    host.refuses = FULL
    with pytest.raises(ReplogError, match="full"):
        host.ask(beat("a", 1))
    host.refuses = None
    assert told(host, beat("a", 1)) == (2, parts(0, 1, 2, 3, 4))


def test_a_change_of_topics_that_is_taken_back_after_others_have_seen_it_is_noticed_again(
    host: Host, topics: Topics
) -> None:
    """The log takes what one heartbeat leads to later, or not: in between others are compared with what may be taken back."""
    told(host, joining("a"))
    told(host, joining("b"))
    told(host, beat("a", 1))
    told(host, beat("a", 1, parts(0, 1)))
    assert told(host, beat("b", 2)) == (2, parts(2, 3))
    topics.change(t=5)
    base_offset = len(host.log)
    waiting = [host.submit(beat("a", 2)), host.submit(beat("b", 2))]
    del host.log[base_offset:]
    host.step(AppendRefused(host.epoch, base_offset, FULL))
    for each in waiting:
        with pytest.raises(ReplogError, match="full"):
            host.response(each)
    assert told(host, beat("a", 2))[0] == 3
    assert told(host, beat("b", 2))[0] == 3


def test_the_assignor_that_most_members_want_decides(host: Host) -> None:
    told(host, joining("a", "t", server_assignor="range"))
    told(host, joining("b", "t", server_assignor="range"))
    told(host, joining("c", "t", server_assignor="uniform"))
    told(host, beat("a", 1))
    assert told(host, beat("a", 1, parts(0, 1)))[0] == 3
    assert told(host, beat("b", 2))[1] == parts(2)


# ---- leaving ------------------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_leaves_its_partitions_at_once(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    assert told(host, beat("a", -1)) == (-1, None)
    assert told(host, beat("b", 2)) == (3, parts(0, 1, 2, 3))
    with pytest.raises(UnknownMemberIdError):
        host.ask(beat("a", 1))


def test_a_silent_member_is_put_out_when_its_session_is_over(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    pass_time(host, SESSION_MS - 1)
    told(host, beat("b", 2))
    pass_time(host, SESSION_MS)
    assert told(host, beat("b", 2)) == (3, parts(0, 1, 2, 3))


def test_a_member_that_gives_nothing_back_is_put_out_after_its_rebalance_timeout(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    told(host, beat("a", 1))
    pass_time(host, REBALANCE_MS - 1)
    told(host, beat("a", 1, parts(0, 1, 2, 3)))
    pass_time(host, REBALANCE_MS)
    with pytest.raises(UnknownMemberIdError):
        host.ask(beat("a", 1, parts(0, 1, 2, 3)))
    assert told(host, beat("b", 2)) == (3, parts(0, 1, 2, 3))


def test_the_rebalance_timeout_begins_when_the_log_has_what_is_to_be_given_back(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    host.refuses = FULL
    with pytest.raises(ReplogError):
        told(host, beat("a", 1))
    host.refuses = None
    pass_time(host, REBALANCE_MS - 1)
    assert told(host, beat("a", 1)) == (1, parts(0, 1))
    pass_time(host, 2 * REBALANCE_MS - 2)
    assert told(host, beat("a", 1, parts(0, 1))) == (2, None)


def test_one_that_has_given_back_in_time_stays(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    told(host, beat("a", 1))
    told(host, beat("a", 1, parts(0, 1)))
    pass_time(host, REBALANCE_MS)
    assert told(host, beat("a", 2)) == (2, None)


# ---- static members -------------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, joining("b"))
    told(host, beat("a", 1, instance_id="i"))
    told(host, beat("a", 1, parts(0, 1), instance_id="i"))
    told(host, beat("b", 2))
    assert told(host, beat("a", -2, instance_id="i")) == (-2, None)
    assert told(host, beat("b", 2)) == (2, None)
    assert told(host, joining("a2", instance_id="i")) == (2, parts(0, 1))
    assert told(host, beat("b", 2)) == (2, None)
    with pytest.raises(FencedInstanceIdError, match="'a2' now"):
        host.ask(beat("a", 2, instance_id="i"))


def test_a_static_member_that_does_not_come_back_is_put_out(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, beat("a", -2, instance_id="i"))
    pass_time(host, SESSION_MS)
    with pytest.raises(UnknownMemberIdError, match="no instance 'i'"):
        host.ask(beat("a", 1, instance_id="i"))


def test_an_instance_id_is_used_once(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    with pytest.raises(UnreleasedInstanceIdError, match="which has not left"):
        host.ask(joining("b", instance_id="i"))
    assert told(host, joining("a", instance_id="i")) == (1, parts(0, 1, 2, 3))


# ---- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ConsumerHeartbeat("", "m", 0), InvalidRequestError),
        (beat("m", -3), InvalidRequestError),
        (beat("", 1), InvalidRequestError),
        (beat("m", -2), InvalidRequestError),
        (ConsumerHeartbeat("g", "m", 0, owned={}, subscribed_topics=("t",)), InvalidRequestError),
        (ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1, subscribed_topics=("t",)), InvalidRequestError),
        (ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1, owned={}), InvalidRequestError),
        (joining("m", subscribed_regex="t("), InvalidRegularExpressionError),
        (joining("m", server_assignor="best"), UnsupportedAssignorError),
        (beat("m", 1), GroupIdNotFoundError),
        (beat("m", -1), GroupIdNotFoundError),
    ],
)
def test_wrong_heartbeats_are_refused_and_make_no_group(host: Host, request_: ConsumerHeartbeat, error: type) -> None:
    with pytest.raises(error):
        host.ask(request_)
    assert host.log == []


def test_a_group_has_as_many_members_as_it_may(host: Host) -> None:
    for member_id in "abcd":
        told(host, joining(member_id))
    with pytest.raises(GroupMaxSizeReachedError, match="may have 4"):
        host.ask(joining("e"))
    told(host, joining("a"))
    told(host, beat("b", -1))
    told(host, joining("e"))


@pytest.mark.parametrize("values", [(0, 1, 1), (5, 0, 1), (5, 1, 0), (5, 5, 1)])
def test_settings_are_checked(values: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError):
        ConsumersConfig(*values)
    with pytest.raises(ConfigError, match="has to be an assignor"):
        ConsumersConfig(assignors={})


# ---- offsets of members -----------------------------------------------------------------------------------------------------


def test_only_a_member_in_its_epoch_commits_and_asks(host: Host) -> None:
    """Goal: a commit of a former owner never lands after the new owner has read the offset."""
    told(host, joining("a"))
    host.ask(commit("a", 1, 10))
    told(host, joining("b"))
    told(host, beat("a", 1))
    host.ask(commit("a", 1, 11))
    told(host, beat("a", 1, parts(0, 1)))
    for request, error in (
        (commit("a", 1, 12), StaleMemberEpochError),
        (commit("z", 2, 12), UnknownMemberIdError),
        (commit("", -1, 12), UnknownMemberIdError),
        (FetchOffsets("g", None, "a", 1), StaleMemberEpochError),
        (FetchOffsets("g", None, "z", 2), UnknownMemberIdError),
    ):
        with pytest.raises(error):
            host.ask(request)
    for request in (FetchOffsets("g", None, "a", 2), FetchOffsets("g")):
        assert host.ask(request).topics[0].partitions[0].offset == 11
    (outcome,) = host.ask(DeleteOffsets("g", (TopicToForget("t", (0,)),))).topics
    assert isinstance(outcome.partitions[0].error, GroupSubscribedToTopicError)


def test_a_group_without_members_is_deleted_with_its_offsets(host: Host) -> None:
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteGroup("g"))
    told(host, joining("a"))
    host.ask(commit("a", 1))
    with pytest.raises(NonEmptyGroupError, match="1 members"):
        host.ask(DeleteGroup("g"))
    told(host, beat("a", -1))
    host.ask(commit("", -1, 5))
    host.ask(DeleteGroup("g"))
    assert host.ask(FetchOffsets("g")).topics == ()
    host.lead()
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteGroup("g"))


# ---- a coordinator that moves -------------------------------------------------------------------------------------------------


def state_of(host: Host) -> Any:
    groups = host.machine._groups
    return {
        group_id: {name: dict(value) if hasattr(value, "items") else value.get() for name, value in vars(group).items()}
        for group_id in groups.group_ids()
        for group in [groups.find(group_id)]
    }


def test_a_new_coordinator_goes_on_where_the_last_one_was(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, joining("b"))
    told(host, beat("a", 1, instance_id="i"))
    before = state_of(host)
    host.step(Resigned())
    assert state_of(host) == {}
    host.now_ms = 10 * SESSION_MS
    host.lead()
    assert state_of(host) == before
    assert told(host, beat("a", 1, parts(0, 1), instance_id="i")) == (2, None)
    pass_time(host, 11 * SESSION_MS - 1)
    assert told(host, beat("a", 2)) == (2, None)
    pass_time(host, 11 * SESSION_MS)
    with pytest.raises(UnknownMemberIdError):
        host.ask(beat("b", 2))


def test_a_member_in_the_middle_is_put_out_by_the_new_coordinator_too(host: Host) -> None:
    told(host, joining("a"))
    told(host, joining("b"))
    told(host, beat("a", 1))
    host.lead()
    pass_time(host, REBALANCE_MS)
    with pytest.raises(UnknownMemberIdError):
        host.ask(beat("a", 1))


# ---- all of it --------------------------------------------------------------------------------------------------------------


CLIENT_REBALANCE_MS = 5 * SESSION_MS


class Client:
    """A consumer: it reads what it is told, gives back when it gets to it, and stops when nobody answers for a session.

    It also stops when it has not come to giving back for long: before the coordinator, which may have told it earlier.  After
    an answer that was lost it says everything, to be told everything.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.reads: frozenset[TopicPartition] = frozenset()
        self.sent_ms = 0
        self.revoking_ms: int | None = None
        self.has_lost = False

    def request(self) -> ConsumerHeartbeat:
        if self.epoch == 0:
            return replace(joining(self.member_id), rebalance_timeout_ms=CLIENT_REBALANCE_MS)
        told = beat(self.member_id, self.epoch, assignment_of(self.reads))
        return (
            replace(told, rebalance_timeout_ms=CLIENT_REBALANCE_MS, subscribed_topics=("t",)) if self.has_lost else told
        )

    def hear(self, answer: Any, sent_ms: int) -> None:
        if isinstance(answer, ReplyError):
            if isinstance(answer.error, UnknownMemberIdError | FencedMemberEpochError | GroupIdNotFoundError):
                self.stop()
            return
        self.epoch, self.sent_ms = answer.response.member_epoch, sent_ms
        if answer.response.assignment is not None:
            self.assigned = partitions_of(answer.response.assignment)
        if not self.reads - self.assigned:
            self.reads, self.revoking_ms = self.assigned, None
        elif self.revoking_ms is None:
            self.revoking_ms = sent_ms

    def pass_time(self, now_ms: int) -> None:
        is_slow = self.revoking_ms is not None and now_ms - self.revoking_ms >= CLIENT_REBALANCE_MS - 2 * SESSION_MS
        if is_slow or now_ms - self.sent_ms >= SESSION_MS:
            self.stop()

    def stop(self) -> None:
        self.epoch, self.reads, self.assigned, self.revoking_ms = 0, frozenset(), frozenset(), None


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "beat", "lost", "slow", "leave", "grow", "refuse", "lead", "cut", "wait"]),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


def heartbeat(host: Host, client: Client, *, is_lost: bool = False, is_slow: bool = False) -> None:
    if not is_slow:
        client.reads &= client.assigned
    sent_ms = host.now_ms
    request = host.submit(client.request())
    host.commit()
    client.has_lost = is_lost or (client.has_lost and isinstance(host.answers[request], ReplyError))
    if not is_lost:
        client.hear(host.answers[request], sent_ms)


def check(host: Host, clients: dict[str, Client]) -> None:
    read = [each for client in clients.values() for each in client.reads]
    assert len(read) == len(set(read)), {each.member_id: sorted(each.reads) for each in clients.values()}
    group = host.machine._groups.find("g")
    if group is not None:
        held = [
            each
            for member in group.current.values()
            for each in (*partitions_of(member.assigned), *partitions_of(member.revoked))
        ]
        assert len(held) == len(set(held))
        assert set(group.holders) == set(held)
        assert group.members.keys() == group.current.keys()


@unhurried
@given(st.integers(0, 2**32), ACTIONS)
def test_nobody_reads_what_another_one_reads_and_all_is_read_in_the_end(
    seed: int, actions: list[tuple[str, str]]
) -> None:
    """Goal: lost answers, slow and silent members, full logs, other leaders: one reader a partition, and no standstill."""
    rng, topics = random.Random(seed), Topics(t=4)
    host = group_host(topics, CONFIG)
    host.lead()
    clients = {each: Client(each) for each in "abc"}
    for action, name in actions:
        client = clients[name]
        match action:
            case "beat" | "lost" | "slow":
                heartbeat(host, client, is_lost=action == "lost", is_slow=action == "slow")
            case "leave" if client.epoch > 0:
                client.stop()
                host.submit(beat(name, -1))
                host.commit()
            case "grow":
                topics.change(t=topics.partitions["t"] + 1)
            case "refuse":
                host.refuses = None if host.refuses else FULL
            case "lead":
                host.lead()
            case "cut":  # another leader, without what has not committed
                host.submit(clients[rng.choice("abc")].request())
                del host.log[host.high_watermark :]
                host.step(Resigned())
                host.lead()
            case "wait":
                pass_time(host, host.now_ms + SESSION_MS // 3)
                for each in clients.values():
                    each.pass_time(host.now_ms)
        check(host, clients)
    host.refuses = None
    for _ in range(12):
        for client in clients.values():
            heartbeat(host, client)
            check(host, clients)
    assert sum(len(each.reads) for each in clients.values()) == topics.partitions["t"]
    assert max(len(each.reads) for each in clients.values()) - min(len(each.reads) for each in clients.values()) <= 1
