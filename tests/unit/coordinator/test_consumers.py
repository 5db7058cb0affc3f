"""Groups of KIP-848 in a shard: members join, are moved, leave, are put out; what a new coordinator knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from consumer_kit import CONFIG, REBALANCE_MS, SESSION_MS, T, beat, commit, joining, parts, pass_time, told
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.config import ConsumersConfig, OffsetsConfig
from replog.coordinator.consumers.requests import ConsumerHeartbeat, DeleteGroup
from replog.coordinator.offsets.requests import (
    DeleteOffsets,
    FetchOffsets,
    TopicToForget,
)
from replog.coordinator.runtime.messages import AppendRefused, Resigned, Tick
from replog.coordinator.runtime.shard import TIMER_RETRY_MS
from replog.errors import (
    ConfigError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupSubscribedToTopicError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    NonEmptyGroupError,
    ReplogError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from replog_timeline import TimelineHashMap


@pytest.fixture
def topics() -> Topics:
    return Topics(t=4, u=2)


@pytest.fixture
def host(topics: Topics) -> Host:
    found = group_host(topics, CONFIG)
    found.lead()
    return found


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


def test_a_member_that_wants_nothing_begins_no_epoch(host: Host) -> None:
    """Goal: nobody is moved when one comes that reads nothing yet, such as one whose pattern is still resolved."""
    told(host, joining("a"))
    beside = ConsumerHeartbeat("g", "n", 0, rebalance_timeout_ms=REBALANCE_MS, subscribed_topics=(), owned={})
    assert told(host, beside) == (1, {})
    assert told(host, beat("n", 1)) == (1, None)
    assert told(host, replace(beside, group_id="another", member_id="first")) == (1, {})
    assert told(host, beat("a", 1)) == (1, None)


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


def test_a_member_whose_departure_the_log_refuses_after_its_session_is_put_out_all_the_same(host: Host) -> None:
    """Its session ended while the group was without it; nobody would speak for it, and keep its partitions."""
    for each in ("a", "b"):
        host.ask(joining(each))
    end_offset = len(host.log)
    host.submit(beat("b", -1))
    host.submit(beat("a", 1, parts(0, 1)))
    host.now_ms = SESSION_MS
    host.step(Tick())
    host.lose(end_offset)
    group = host.machine._groups.find("g")
    assert "b" in group.members
    pass_time(host, SESSION_MS + TIMER_RETRY_MS)
    assert "b" not in group.members


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


def test_the_rebalance_timeout_begins_when_the_member_hears_what_it_has_to_give_back(host: Host) -> None:
    """It takes what the log takes to commit, and others' requests meanwhile do not begin it."""
    told(host, joining("a"))
    told(host, joining("b"))
    host.submit(beat("a", 1))
    host.submit(beat("a", 1))
    pass_without_commits(host, REBALANCE_MS - 1)
    host.commit()
    told(host, beat("b", 2))
    pass_time(host, 2 * REBALANCE_MS - 2)
    assert told(host, beat("a", 1)) == (1, None)
    pass_time(host, 2 * REBALANCE_MS - 1)
    with pytest.raises(UnknownMemberIdError):
        host.ask(beat("a", 1))


def pass_without_commits(host: Host, until_ms: int) -> None:
    while (due := host.shard.next_deadline_ms()) is not None and due <= until_ms:
        host.now_ms = due
        host.step(Tick())
    host.now_ms = until_ms


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


def test_there_is_one_timer_of_a_member_however_often_it_gives_back(host: Host) -> None:
    """Goal: a member with a rebalance timeout of weeks leaves no timer behind for each rebalance."""
    epoch, _ = told(host, joining("a"))
    timers = []
    for _ in range(5):
        told(host, joining("b"))
        told(host, beat("a", epoch))
        told(host, beat("a", epoch, parts(0, 1)))
        host.ask(beat("b", -1))
        epoch, found = told(host, beat("a", epoch + 1))
        assert found == parts(0, 1, 2, 3)
        timers.append(len(host.shard._timers))
    assert timers == timers[:1] * 5


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


def test_what_a_static_member_was_to_give_back_is_free_when_it_leaves_for_a_while(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, joining("b"))
    assert told(host, beat("a", 1, instance_id="i")) == (1, parts(0, 1))
    told(host, beat("a", -2, instance_id="i"))
    assert told(host, beat("b", 2)) == (2, parts(2, 3))
    assert told(host, joining("a2", instance_id="i")) == (2, parts(0, 1))


def test_a_static_member_that_does_not_come_back_is_put_out(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, beat("a", -2, instance_id="i"))
    pass_time(host, SESSION_MS)
    with pytest.raises(UnknownMemberIdError, match="no instance 'i'"):
        host.ask(beat("a", 1, instance_id="i"))


def test_a_heartbeat_from_before_a_static_member_left_for_a_while_does_not_bring_it_back(host: Host) -> None:
    """Goal: one that comes late over another connection does not keep the place of an instance that is started again."""
    told(host, joining("a", instance_id="i"))
    told(host, beat("a", -2, instance_id="i"))
    for late in (beat("a", 1, parts(0, 1, 2, 3), instance_id="i"), beat("a", 1, {}, instance_id="i")):
        with pytest.raises(FencedMemberEpochError):
            host.ask(late)
    assert told(host, joining("a2", instance_id="i")) == (1, parts(0, 1, 2, 3))


def test_what_a_member_had_before_it_takes_the_place_of_another_goes_to_the_group(host: Host) -> None:
    told(host, joining("a", instance_id="i"))
    told(host, joining("b"))
    told(host, beat("a", 1, instance_id="i"))
    told(host, beat("a", 1, parts(0, 1), instance_id="i"))
    told(host, beat("b", 2))
    told(host, beat("a", -2, instance_id="i"))
    assert told(host, joining("b", instance_id="i")) == (3, parts(0, 1, 2, 3))


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


def test_a_member_that_has_left_for_a_while_neither_commits_nor_asks(host: Host) -> None:
    """Goal: what it was to give back is read by others, whose offset a commit in the epoch of the leave would take back."""
    told(host, joining("a", instance_id="i"))
    host.ask(commit("a", 1, 10))
    told(host, beat("a", -2, instance_id="i"))
    for request in (commit("a", -2, 9), commit("a", 1, 9), FetchOffsets("g", None, "a", -2)):
        with pytest.raises(StaleMemberEpochError, match="has left for a while"):
            host.ask(request)
    with pytest.raises(UnknownMemberIdError):
        host.ask(commit("", -1, 9))
    told(host, joining("a2", instance_id="i"))
    assert host.ask(FetchOffsets("g", None, "a2", 1)).topics[0].partitions[0].offset == 10


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


RETENTION_MS = 10 * SESSION_MS


@pytest.mark.parametrize("moves", [False, True])
def test_an_offset_is_kept_from_when_the_last_member_went(moves: bool) -> None:
    """Goal: a group that reads a quiet partition is not told where it was last week by nobody."""
    offsets = OffsetsConfig(retention_ms=RETENTION_MS, check_interval_ms=100)
    host = group_host(Topics(t=4), replace(CONFIG, offsets=offsets))
    host.lead()
    told(host, joining("a"))
    host.ask(commit("a", 1, 4711))
    for _ in range(4 * RETENTION_MS // SESSION_MS):
        pass_time(host, host.now_ms + SESSION_MS // 2)
        told(host, beat("a", 1))
    told(host, beat("a", -1))
    if moves:
        host.lead()
    pass_time(host, host.now_ms + RETENTION_MS - 1)
    assert host.ask(FetchOffsets("g")).topics[0].partitions[0].offset == 4711
    pass_time(host, host.now_ms + 200)
    assert host.ask(FetchOffsets("g")).topics == ()


# ---- a coordinator that moves -------------------------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_group_that_was_deleted(host: Host) -> None:
    """Goal: a coordinator of groups that are used once each, as by jobs of a minute, does not grow."""
    told(host, joining("a"))
    told(host, beat("a", 1))
    host.ask(beat("a", -1))
    host.ask(DeleteGroup("g"))
    kept = [name for name, value in vars(host.machine._consumers).items() if isinstance(value, dict) and "g" in value]
    assert kept == []


def state_of(host: Host) -> Any:
    """What the log says of all groups."""
    groups = host.machine._groups
    return {
        group_id: {
            name: dict(value) if hasattr(value, "items") else value.get()
            for name, value in vars(groups.find(group_id)).items()
            if name not in {"topics_seen", "decides_again_ms", "too_large_epoch", "tries_again_ms", "emptied_ms"}
        }
        for group_id in groups.group_ids()
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


class Walked(list[str]):
    """A list that counts how often it is looked through."""

    walks = 0

    def __contains__(self, name: object) -> bool:
        Walked.walks += 1
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        Walked.walks += 1
        return super().__iter__()


def test_what_members_read_is_looked_through_once_for_a_deletion() -> None:
    """Trap: for each topic that was named the list of each member; 9,000 beside one list of 10,000 held the loop for 0.6 s."""
    host = group_host(Topics(), CONFIG)
    host.lead()
    for member_id in "ab":
        host.ask(joining(member_id, "t", member_id))
    for each in host.machine._groups.consumers.find("g").members.values():
        each.subscribed_topic_names = Walked(each.subscribed_topic_names)
    Walked.walks = 0
    names = ("u", "t", "b", *(f"u{number}" for number in range(100)))
    told = host.ask(DeleteOffsets("g", tuple(TopicToForget(name, (0,)) for name in names)))
    assert [each.topic for each in told.topics if each.partitions[0].error is not None] == ["t", "b"]
    assert Walked.walks == 2
