"""Committed offsets: who may commit, what is told, what is forgotten and when."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from shard_kit import WALL_MS, Host, Topics, group_host, topic_id

from replog.coordinator.config import OffsetsConfig
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitValue
from replog.coordinator.offsets.cleaner import EXPIRY, NEXT_PASS_MS, OF_TOPICS, OffsetCleaner
from replog.coordinator.offsets.manager import OffsetManager
from replog.coordinator.offsets.owners import OffsetOwner, SimpleGroup
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    OffsetToCommit,
    TopicOffsets,
    TopicToCommit,
    TopicToFetch,
    TopicToForget,
)
from replog.coordinator.offsets.state import OffsetState, commit_record
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import PAUSE_MS
from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.runtime.messages import Reply, Tick
from replog.coordinator.runtime.shard import ShardState
from replog.errors import (
    ConfigError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RecordTooLargeError,
    ReplogError,
    UnknownMemberIdError,
)
from replog_timeline import SnapshotRegistry

OLD_ID, NEW_ID, NO_ID = UUID(int=1), UUID(int=2), UUID(int=0)
CONFIG = OffsetsConfig(
    metadata_max_chars=8, retention_ms=1_000, check_interval_ms=100, removals_per_step=3, visits_per_step=1_000
)
COMMIT: Any = GROUP_RECORDS.encode(commit_record("group", ("topic", 7), OffsetCommitValue(42, 5, "note", WALL_MS)))


@pytest.fixture
def host() -> Host:
    found = group_host(Topics(), GroupsConfig(CONFIG))
    found.lead()
    return found


def topic(name: str, *offsets: tuple[int, int], topic_id: UUID = NO_ID, metadata: str = "") -> TopicToCommit:
    """Offsets by partition."""
    return TopicToCommit(name, topic_id, tuple(OffsetToCommit(*each, 5, metadata) for each in offsets))


def told(host: Host, group: str, name: str, *partitions: int, topic_id: UUID = NO_ID) -> list[int]:
    """The offsets that the group has in partitions of a topic."""
    (found,) = host.ask(FetchOffsets(group, (TopicToFetch(name, topic_id, partitions),))).topics
    assert [each.partition for each in found.partitions] == list(partitions)
    return [each.offset for each in found.partitions]


def everything(host: Host, group: str) -> dict[tuple[str, int], int]:
    """All offsets of a group."""
    request_id = host.submit(FetchOffsets(group))
    host.commit()
    while request_id not in host.answers:
        host.now_ms += PAUSE_MS
        host.step(Tick())
        host.commit()
    topics = host.response(request_id).topics
    return {(each.topic, one.partition): one.offset for each in topics for one in each.partitions}


# ---- commits and fetches ----------------------------------------------------------------------------------------------


def test_what_was_committed_is_told(host: Host) -> None:
    response = host.ask(
        CommitOffsets("g", (topic("b", (1, 10), (0, 7), topic_id=OLD_ID, metadata="note"), topic("a", (2, 3))))
    )
    assert [(each.topic, [one.error for one in each.partitions]) for each in response.topics] == [
        ("b", [None, None]),
        ("a", [None]),
    ]
    assert host.ask(FetchOffsets("g")).topics == (
        TopicOffsets("a", NO_ID, (CommittedOffset(2, 3, 5, "", WALL_MS),)),
        TopicOffsets(
            "b", OLD_ID, (CommittedOffset(0, 7, 5, "note", WALL_MS), CommittedOffset(1, 10, 5, "note", WALL_MS))
        ),
    )
    assert told(host, "g", "b", 0, 1, 2) == [7, 10, -1]
    assert told(host, "another", "b", 0) == [-1]
    assert host.ask(FetchOffsets("another")).topics == ()


def test_more_offsets_than_one_request_may_commit_are_refused_before_anything_is_made_of_them() -> None:
    host = group_host(Topics(), GroupsConfig(replace(CONFIG, offsets_per_commit=3)))
    host.lead()
    with pytest.raises(RecordTooLargeError, match="4 offsets in one request, and may be 3: commit them in several"):
        host.ask(CommitOffsets("g", (topic("a", (0, 1), (1, 1)), topic("b", (0, 1), (1, 1)))))
    assert host.log == []
    host.ask(CommitOffsets("g", (topic("a", (0, 1), (1, 1)), topic("b", (0, 1)))))
    assert told(host, "g", "a", 0, 1) == [1, 1]


def test_records_are_those_that_kafka_writes(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (7, 42), topic_id=OLD_ID, metadata="note"),)))
    host.ask(CommitOffsets("g", (topic("t", (7, 43), topic_id=OLD_ID, metadata="note"),), retention_ms=50))
    first, second = (GROUP_RECORDS.decode(*each) for each in host.log)
    assert first is not None
    assert second is not None
    assert (first.version, first.value) == (4, OffsetCommitValue(42, 5, "note", WALL_MS, -1, OLD_ID))
    assert (second.version, second.value) == (1, OffsetCommitValue(43, -1, "note", WALL_MS, WALL_MS + 50))


def test_offsets_of_an_earlier_topic_of_the_same_name_are_not_told(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 42), topic_id=OLD_ID),)))
    assert told(host, "g", "t", 0, topic_id=NEW_ID) == [-1]
    assert told(host, "g", "t", 0, topic_id=OLD_ID) == told(host, "g", "t", 0) == [42]
    host.ask(CommitOffsets("g", (topic("t", (0, 43)),)))
    assert told(host, "g", "t", 0, topic_id=NEW_ID) == [43]


def test_a_text_that_is_too_long_is_an_error_of_its_partition(host: Host) -> None:
    response = host.ask(
        CommitOffsets("g", (topic("t", (0, 1), metadata="x" * 9), topic("u", (0, 1), metadata="x" * 8)))
    )
    ((long,), (short,)) = [each.partitions for each in response.topics]
    assert isinstance(long.error, OffsetMetadataTooLargeError)
    assert short.error is None
    assert everything(host, "g") == {("u", 0): 1}


def test_only_who_is_no_member_commits_to_a_group_without_members(host: Host) -> None:
    with pytest.raises(InvalidGroupIdError):
        host.ask(CommitOffsets("", (topic("t", (0, 1)),)))
    with pytest.raises(GroupIdNotFoundError, match="'g'"):
        host.ask(CommitOffsets("g", (topic("t", (0, 1)),), member_id="m", member_epoch=3))
    host.ask(CommitOffsets("g", (topic("t", (0, 1)),)))
    with pytest.raises(UnknownMemberIdError, match="has to join it first"):
        host.ask(CommitOffsets("g", (topic("t", (0, 2)),), "m", "i", 3))
    assert everything(host, "g") == {("t", 0): 1}


def test_a_commit_is_not_told_before_it_has_committed(host: Host) -> None:
    """Goal: who takes a partition over never begins before an offset that is then taken back."""
    host.ask(CommitOffsets("g", (topic("t", (0, 1)),)))
    host.submit(CommitOffsets("g", (topic("t", (0, 2)),)))
    reading = host.submit(FetchOffsets("g"))
    assert reading not in host.answers
    host.commit()
    assert host.response(reading).topics[0].partitions[0].offset == 2


def test_a_new_leader_knows_them_all(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 1), (1, 1)), topic("u", (0, 5)))))
    host.ask(CommitOffsets("h", (topic("t", (0, 9)),)))
    host.ask(DeleteOffsets("g", (TopicToForget("t", (1,)),)))
    before = everything(host, "g"), everything(host, "h")
    host.lead()
    assert (everything(host, "g"), everything(host, "h")) == before == ({("t", 0): 1, ("u", 0): 5}, {("t", 0): 9})


def test_records_of_a_very_old_kafka_are_read() -> None:
    host = group_host(Topics(), GroupsConfig(CONFIG))
    key = LegacyOffsetCommitKey("g", "t", 3)
    host.log = [GROUP_RECORDS.encode(CoordinatorRecord(key, LegacyOffsetCommitValue(42, "note", 17)))]
    host.high_watermark = 1
    host.lead()
    (found,) = host.ask(FetchOffsets("g")).topics
    assert found.partitions == (CommittedOffset(3, 42, -1, "note", 17),)
    host.log.append(GROUP_RECORDS.encode(CoordinatorRecord(key, None)))
    host.lead()
    assert host.ask(FetchOffsets("g")).topics == ()


def test_an_offset_that_expires_keeps_what_its_record_has_no_room_for(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 42), topic_id=OLD_ID, metadata="note"),), retention_ms=50))
    assert told(host, "g", "t", 0, topic_id=NEW_ID) == [-1]
    (found,) = host.ask(FetchOffsets("g")).topics
    assert found == TopicOffsets("t", OLD_ID, (CommittedOffset(0, 42, 5, "note", WALL_MS),))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (COMMIT[0], COMMIT[1][:-1], "MalformedFrameError"),
        (COMMIT[0], COMMIT[1] + b"\0", "MalformedFrameError"),
        (COMMIT[0], b"\0\5" + COMMIT[1][2:], "UnsupportedVersionError"),
        (COMMIT[0], COMMIT[1].replace(b"note", b"not\xff"), "MalformedFrameError"),
        (COMMIT[0][:-1], COMMIT[1], "MalformedFrameError"),
        (COMMIT[0].replace(b"group", b"grou\xff"), COMMIT[1], "MalformedFrameError"),
        (COMMIT[0].replace(b"topic", b"topi\xff"), COMMIT[1], "MalformedFrameError"),
        (COMMIT[0].replace(b"topic", b"topi\xff"), None, "MalformedFrameError"),
    ],
)
def test_a_damaged_record_is_an_error_when_the_log_is_read(key: bytes, value: bytes | None, reason: str) -> None:
    """Goal: offsets are not decoded then, and yet none is kept that nobody could read."""
    host = group_host(Topics(), GroupsConfig(CONFIG))
    host.log = [COMMIT, (key, value)]
    host.lead()
    assert host.shard.state is ShardState.FAILED
    assert f"the record at offset 1 of topic-0 cannot be replayed: {reason}" in host.shard.status().failure


def test_the_garbage_collector_has_no_work_with_offsets() -> None:
    """Goal: nothing that it walks over is kept of an offset, nor several objects of a group that has just one."""
    host = group_host(Topics(), GroupsConfig(CONFIG))
    value = OffsetCommitValue(42, 5, "note", WALL_MS, topic_id=OLD_ID)
    names = [f"g{number}" for number in range(500)]
    host.log = [GROUP_RECORDS.encode(commit_record(each, ("t", 7), value)) for each in names]
    old = replace(value, expire_timestamp=WALL_MS)
    host.log += [GROUP_RECORDS.encode(commit_record("g0", ("t", number), old)) for number in range(10)]
    host.piece = len(host.log)
    gc.collect()
    before = len(gc.get_objects())
    host.lead()
    gc.collect()
    assert len(gc.get_objects()) - before < 1.5 * len(names)
    kept = host.machine._offsets._packed.current
    assert (len(kept), len(kept["g0"])) == (500, 10)
    assert not [each for group in kept.values() for pair in group.items() for each in pair if gc.is_tracked(each)]


# ---- deletion ---------------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_and_those_that_are_not_there_are_no_error(host: Host) -> None:
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteOffsets("g", (TopicToForget("t", (0,)),)))
    host.ask(CommitOffsets("g", (topic("t", (0, 1), (1, 1)), topic("u", (0, 1)))))
    (outcome,) = host.ask(DeleteOffsets("g", (TopicToForget("t", (0, 0, 9)),))).topics
    assert [(each.partition, each.error) for each in outcome.partitions] == [(0, None), (0, None), (9, None)]
    assert len(host.log) == 4
    assert everything(host, "g") == {("t", 1): 1, ("u", 0): 1}
    host.ask(DeleteOffsets("g", (TopicToForget("t", (1,)), TopicToForget("u", (0,)))))
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteOffsets("g", ()))


def test_offsets_of_deleted_topics_are_forgotten_in_steps(host: Host) -> None:
    for group in ("g", "h"):
        host.ask(CommitOffsets(group, (topic("gone", *((n, 1) for n in range(4))), topic("here", (0, 1)))))
    before = len(host.log)
    host.ask(ForgetTopics(frozenset({"gone", "never"})))
    steps = [0, len(host.log) - before]
    while (due_ms := host.shard.next_deadline_ms() or 0) <= host.now_ms + PAUSE_MS:
        host.now_ms = due_ms
        host.step(Tick())
        steps.append(len(host.log) - before)
    assert steps[-1] == 8
    assert all(later - earlier <= CONFIG.removals_per_step for earlier, later in pairwise(steps))
    assert everything(host, "g") == everything(host, "h") == {("here", 0): 1}


def test_what_is_committed_of_a_topic_made_anew_stays_while_those_of_the_deleted_one_are_looked_for() -> None:
    topics = Topics(t=1)
    host = group_host(topics, GroupsConfig(offsets=replace(CONFIG, visits_per_step=1)))
    host.lead()
    for group in ("g", "h", "i"):
        host.ask(CommitOffsets(group, (topic("t", (0, 1), topic_id=OLD_ID), topic("u", *((n, 1) for n in range(9))))))
    host.ask(ForgetTopics(frozenset({"t"})))
    anew = CommitOffsets("g", (topic("t", (0, 2), topic_id=topic_id("t")),))
    host.ask(anew)
    pass_time(host, host.now_ms + 500)
    assert everything(host, "g")["t", 0] == 2
    assert {("t", 0)}.isdisjoint(everything(host, "h").keys() | everything(host, "i").keys())


def test_all_offsets_are_those_of_the_topics_that_have_the_names_now() -> None:
    topics = Topics(t=2, u=1)
    host = group_host(topics, GroupsConfig(offsets=CONFIG))
    host.lead()
    asked = (
        topic("t", (0, 1), topic_id=OLD_ID),
        topic("t", (1, 2), topic_id=topic_id("t")),
        topic("u", (0, 3)),
        topic("gone", (0, 4), topic_id=OLD_ID),
    )
    host.ask(CommitOffsets("g", asked))
    assert everything(host, "g") == {("t", 1): 2, ("u", 0): 3, ("gone", 0): 4}
    told = host.ask(FetchOffsets("g")).topics
    assert {each.topic: each.topic_id for each in told} == {"t": topic_id("t"), "u": NO_ID, "gone": OLD_ID}


def test_topics_that_are_deleted_one_by_one_are_looked_for_together() -> None:
    """Goal: a thousand topics that go do not cost a thousand looks at all offsets."""
    owners, state, _, _ = kept_by_members()
    timers = Timers()
    cleaner = OffsetCleaner(state, owners, Topics(), replace(CONFIG, visits_per_step=1), timers)
    cleaner.forget_topics(frozenset({"never"}), Moment(0, WALL_MS))
    steps, removed = 0, list[CoordinatorRecord]()
    for now_ms in range(0, 2 * NEXT_PASS_MS, PAUSE_MS):
        if now_ms < 100:
            cleaner.forget_topics(frozenset({"read" if now_ms == 50 else f"never-{now_ms}"}), Moment(now_ms, WALL_MS))
        if timers.take_due(now_ms) is not None:
            removed += cleaner.step(OF_TOPICS, Moment(now_ms, WALL_MS))
            steps += 1
    assert [each.key.topic for each in removed] == ["read"]  # type: ignore[attr-defined]
    assert steps < 100 // PAUSE_MS + 5


def test_a_group_with_many_offsets_is_looked_at_a_part_at_a_time() -> None:
    owners, state, manager, _ = kept_by_members()
    many = CommitOffsets("g", tuple(topic(f"other-{n}", (0, 1)) for n in range(3_000)), member_epoch=3)
    for record in manager.commit(many, Moment(0, WALL_MS))[0]:
        state.replay(record.key, record.value)  # type: ignore[arg-type]
    looked_at = 0

    def subscribed_among(topics: Collection[str]) -> Collection[str]:
        nonlocal looked_at
        looked_at += len(topics)
        return topics

    owners.group.empty_since_ms = WALL_MS
    owners.group.subscribed_among = subscribed_among  # type: ignore[method-assign]
    timers = Timers()
    cleaner = OffsetCleaner(state, owners, Topics(), replace(CONFIG, visits_per_step=100), timers)
    counts = [0]
    while timers.get(EXPIRY) is None or timers.get(EXPIRY) == PAUSE_MS:
        cleaner.step(EXPIRY, Moment(0, WALL_MS + 5_000))
        counts.append(looked_at)
    assert counts[-1] == 3_002
    assert all(later - earlier <= 100 for earlier, later in pairwise(counts))


# ---- retention --------------------------------------------------------------------------------------------------------


def pass_time(host: Host, now_ms: int) -> None:
    """Lets time pass, with all the timers on the way."""
    while (due := host.shard.next_deadline_ms()) is not None and due <= now_ms:
        host.now_ms = max(host.now_ms, due)
        host.step(Tick())
    host.now_ms = now_ms
    host.commit()


def test_offsets_are_kept_as_long_as_the_retention_from_their_last_commit(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 1), (1, 1)),)))
    pass_time(host, 500)
    host.ask(CommitOffsets("g", (topic("t", (1, 2)),)))
    pass_time(host, 999)
    assert everything(host, "g") == {("t", 0): 1, ("t", 1): 2}
    pass_time(host, 1_100)
    assert everything(host, "g") == {("t", 1): 2}
    pass_time(host, 1_600)
    assert everything(host, "g") == {}


def test_a_time_of_expiry_that_a_client_chose_counts_instead(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 1)),), retention_ms=150))
    host.ask(CommitOffsets("g", (topic("t", (1, 1)),), retention_ms=5_000))
    pass_time(host, 200)
    assert everything(host, "g") == {("t", 1): 1}
    pass_time(host, 4_900)
    assert everything(host, "g") == {("t", 1): 1}
    pass_time(host, 5_100)
    assert everything(host, "g") == {}


def test_old_offsets_of_groups_with_long_names_are_removed_in_changes_that_a_batch_holds() -> None:
    """Goal: a group whose names are long goes, and so do those that are removed in the same step."""
    host = group_host(Topics(), GroupsConfig(OffsetsConfig(retention_ms=1_000, check_interval_ms=100)))
    host.lead()
    long = "g" * 30_000
    host.ask(CommitOffsets("h", (topic("t", (0, 1)),)))
    for first in (0, 20):
        host.ask(CommitOffsets(long, (topic("t", *((number, 1) for number in range(first, first + 20))),)))
    for now_ms in (100, 2_000):
        pass_time(host, now_ms)
    assert everything(host, long) == everything(host, "h") == {}
    assert host.shard.status().timer_failures == 0


def test_a_retention_beyond_all_time_is_the_end_of_time(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", (0, 1)),), retention_ms=2**63 - 1))
    assert told(host, "g", "t", 0) == [1]


def test_a_removal_that_the_log_refuses_is_made_later(host: Host) -> None:
    host.ask(CommitOffsets("g", (topic("t", *((n, 1) for n in range(7))),)))
    pass_time(host, 950)
    host.refuses = ReplogError("the log is full")
    pass_time(host, 1_050)
    assert len(everything(host, "g")) == 7
    host.refuses = None
    pass_time(host, 2_000)
    assert everything(host, "g") == {}


class Members(SimpleGroup):
    """A group with members that read a topic."""

    def check_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        if member_epoch != 3:
            raise UnknownMemberIdError("another epoch")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_epoch not in {-1, 3}:
            raise UnknownMemberIdError("another epoch")

    def check_delete_offsets(self) -> None:
        if self.is_in_use:
            raise NonEmptyGroupError("in use")

    def subscribed_among(self, topics: Collection[str]) -> Collection[str]:
        return {"read"}.intersection(topics)

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        return self.empty_since_ms

    is_in_use = False
    empty_since_ms: int | None = None


class Owners:
    """One group with members."""

    def __init__(self) -> None:
        self.group = Members()

    def group_ids(self) -> Iterable[str]:
        return ("g",)

    def is_as_written(self, group_id: str) -> bool:
        return True

    def find(self, group_id: str) -> OffsetOwner | None:
        return self.group if group_id == "g" else None

    def removal(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        return (REMOVAL,) if group_id == "g" and self.group.empty_since_ms is not None else ()


REMOVAL: Any = "the group is gone"


def kept_by_members() -> tuple[Owners, OffsetState, OffsetManager, OffsetCleaner]:
    """A group with offsets of a topic that its members read, and of another."""
    owners, state, timers = Owners(), OffsetState(SnapshotRegistry()), Timers()
    manager = OffsetManager(state, owners, Topics(), CONFIG)
    request = CommitOffsets("g", (topic("read", (0, 1)), topic("other", (0, 1))), member_epoch=3)
    for record in manager.commit(request, Moment(0, WALL_MS))[0]:
        state.replay(record.key, record.value)  # type: ignore[arg-type]
    return owners, state, manager, OffsetCleaner(state, owners, Topics(), CONFIG, timers)


def test_a_group_decides_who_commits_and_who_is_told() -> None:
    _, _, manager, _ = kept_by_members()
    with pytest.raises(UnknownMemberIdError):
        manager.commit(CommitOffsets("g", (), member_epoch=-1), Moment(0, 0))
    with pytest.raises(UnknownMemberIdError):
        next(manager.fetch_all(1, FetchOffsets("g", member_id="m", member_epoch=2)))
    with pytest.raises(UnknownMemberIdError):
        manager.fetch(FetchOffsets("g", (TopicToFetch("read", NO_ID, (0,)),), member_id="m", member_epoch=2))
    (told,) = next(manager.fetch_all(1, FetchOffsets("g", member_id="m", member_epoch=3))).answers
    assert isinstance(told, Reply)
    assert len(told.response.topics) == 2


def test_offsets_that_members_use_are_not_deleted() -> None:
    owners, _, manager, _ = kept_by_members()
    records, response = manager.delete(DeleteOffsets("g", (TopicToForget("read", (0,)), TopicToForget("other", (0,)))))
    assert [type(each.partitions[0].error) for each in response.topics] == [GroupSubscribedToTopicError, type(None)]
    assert len(records) == 1
    owners.group.is_in_use = True
    with pytest.raises(NonEmptyGroupError):
        manager.delete(DeleteOffsets("g", (TopicToForget("other", (0,)),)))


def test_the_retention_begins_when_the_group_says_so_and_not_for_what_its_members_read() -> None:
    owners, _, _, cleaner = kept_by_members()
    assert cleaner.step(EXPIRY, Moment(0, WALL_MS + 5_000)) == ()
    owners.group.empty_since_ms = WALL_MS + 4_500
    assert cleaner.step(EXPIRY, Moment(0, WALL_MS + 5_000)) == ()
    (removed,) = cleaner.step(EXPIRY, Moment(0, WALL_MS + 5_500))
    assert removed.key.topic == "other"  # type: ignore[attr-defined]


def test_an_empty_group_goes_with_its_last_offset() -> None:
    owners, state, _, cleaner = kept_by_members()
    owners.group.empty_since_ms = WALL_MS
    owners.group.subscribed_among = lambda topics: ()  # type: ignore[method-assign]
    *offsets, group = cleaner.step(EXPIRY, Moment(0, WALL_MS + 5_000))
    assert (len(offsets), group) == (2, REMOVAL)
    for each in offsets:
        state.replay(each.key, None)  # type: ignore[arg-type]
    assert list(state.group_ids()) == []
    assert cleaner.step(EXPIRY, Moment(0, WALL_MS)) == (REMOVAL,)


@pytest.mark.parametrize(
    "field", ["retention_ms", "check_interval_ms", "removals_per_step", "visits_per_step", "metadata_max_chars"]
)
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} is -1"):
        OffsetsConfig(**{field: -1})


# ---- all of it --------------------------------------------------------------------------------------------------------

GROUPS, TOPICS = st.sampled_from("gh"), st.sampled_from("tu")
STEPS = st.one_of(
    st.tuples(st.just("commit"), GROUPS, TOPICS, st.integers(0, 2), st.integers(0, 99)),
    st.tuples(st.just("delete"), GROUPS, TOPICS, st.integers(0, 2)),
    st.tuples(st.just("forget"), TOPICS),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("lead")),
    st.tuples(st.just("wait"), st.integers(1, 700)),
)


@unhurried
@given(st.lists(STEPS, max_size=30))
def test_offsets_are_those_that_were_acknowledged_last_and_are_not_old(steps: list[tuple[Any, ...]]) -> None:
    """Goal: a committed offset is never lost nor goes back, whoever leads and whatever is refused."""
    host = group_host(Topics(), GroupsConfig(CONFIG))
    host.lead()
    model: dict[tuple[str, str, int], tuple[int, int]] = {}
    for kind, *values in steps:
        try:
            match kind:
                case "commit":
                    group, name, partition, offset = values
                    host.ask(CommitOffsets(group, (topic(name, (partition, offset)),)))
                    model[group, name, partition] = offset, host.now_ms
                case "delete":
                    group, name, partition = values
                    host.ask(DeleteOffsets(group, (TopicToForget(name, (partition,)),)))
                    model.pop((group, name, partition), None)
                case "forget":
                    host.refuses = None
                    host.ask(ForgetTopics(frozenset(values)))
                    pass_time(host, host.now_ms + 10 * PAUSE_MS)  # little by little
                    model = {key: value for key, value in model.items() if key[1] not in values}
                case "refuse":
                    host.refuses = ReplogError("the log is full") if values[0] else None
                case "lead":
                    host.lead()
                case "wait":
                    pass_time(host, host.now_ms + values[0])
        except ReplogError:
            pass
        found = {(group, *at): offset for group in "gh" for at, offset in everything(host, group).items()}
        assert found.items() <= {key: offset for key, (offset, _) in model.items()}.items()
        young = {key: offset for key, (offset, since) in model.items() if host.now_ms - since < CONFIG.retention_ms}
        assert young.items() <= found.items()
