"""Committed records become images; the first one that counts knows this process."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, registered, topic

from replog.broker.quorum import metadata_publisher
from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.broker.quorum.metadata_publisher import KEPT_IMAGES, MetadataPublisher
from replog.controller.messages import CommittedRecords
from replog.errors import BrokerNotAvailableError
from replog.log.snapshots.files import SnapshotId
from replog.metadata.delta import LocalChanges
from replog.metadata.image import MetadataImage
from replog.metadata.records import MetadataRecord, RegisterBrokerRecord, RegisterControllerRecord, RemoveTopicRecord

THIS_PROCESS = UUID(int=999)


class Subscriber:
    def __init__(self, known_end_offset: int = 0) -> None:
        self.calls: list[tuple[MetadataImage, LocalChanges, tuple[int, ...]]] = []
        self.failures: list[BaseException] = []
        self.publisher = MetadataPublisher(
            1, THIS_PROCESS, known_end_offset, lambda *call: self.calls.append(call), self.failures.append
        )
        self.end_offset = 0

    def commit(self, *records: MetadataRecord) -> None:
        self.replay(*records)
        self.publisher.on_caught_up()

    def snapshot(self, end_offset: int, *records: MetadataRecord) -> None:
        self.end_offset = end_offset
        self.publisher.on_snapshot(LoadedSnapshot(SnapshotId(end_offset, 1), lambda: iter(records)))
        self.publisher.on_caught_up()

    def replay(self, *records: MetadataRecord) -> None:
        base_offset, self.end_offset = self.end_offset, self.end_offset + len(records)
        self.publisher.on_committed(CommittedRecords(base_offset, self.end_offset, 1, records))


def this_process() -> RegisterBrokerRecord:
    return RegisterBrokerRecord(1, THIS_PROCESS, 40, "h", 9, (UUID(int=51),))


def test_nothing_is_published_before_this_process_is_registered() -> None:
    """The past would have an earlier incarnation lead: an old leader epoch is never resumed."""
    it = Subscriber()
    it.commit(registered(1), *topic())
    it.commit(registered(2))
    assert it.calls == []
    assert not it.publisher.is_open
    assert it.publisher.image.end_offset == 4, "the image is there"
    with pytest.raises(BrokerNotAvailableError, match="node 1 has not read the metadata"):
        it.publisher.image_or_raise()
    it.commit(this_process())
    assert it.publisher.is_open
    assert it.publisher.image_or_raise() is it.publisher.image
    ((image, changes, brokers),) = it.calls
    assert image.end_offset == 5
    assert [local.partition_id for local in changes.leaders] == [0]
    assert changes.followers == changes.deletes == ()
    assert brokers == (1, 2)


def test_a_controller_alone_tells_what_it_knows_since_its_own_registration() -> None:
    """No broker of its id ever registers, so nothing is published to replicas."""
    it = Subscriber()
    it.commit(RegisterControllerRecord(1, UUID(int=998), "h", 9), *topic())
    with pytest.raises(BrokerNotAvailableError):
        it.publisher.image_or_raise()
    it.commit(RegisterControllerRecord(1, THIS_PROCESS, "h", 9))
    assert TOPIC in it.publisher.image_or_raise().topics_by_name
    assert not it.publisher.is_open


def test_the_first_image_tells_leaders_and_followers_apart() -> None:
    it = Subscriber()
    it.commit(this_process(), *topic((1, 2), leader=2), *topic((2, 3), leader=2, name="u", topic_id=UUID(int=101)))
    ((_, changes, _),) = it.calls
    assert changes.leaders == ()
    assert [local.topic_name for local in changes.followers] == [TOPIC]


def test_it_is_remembered_which_topics_the_log_has_removed_before_the_first_image() -> None:
    """A stop may have come between their deletion and that of their replicas here."""
    it = Subscriber()
    it.commit(*topic(), *topic(name="u", topic_id=UUID(int=101)), RemoveTopicRecord(UUID(int=101)))
    it.commit(this_process())
    it.commit(RemoveTopicRecord(TOPIC_ID))
    assert it.publisher.has_seen_removal(UUID(int=101))
    assert not it.publisher.has_seen_removal(TOPIC_ID), "its replicas are deleted with the image that lacks it"


def test_a_topic_is_later_than_the_disk_where_nothing_that_it_held_names_it() -> None:
    known, replayed, sent, behind = (UUID(int=number) for number in range(201, 205))
    it = Subscriber(known_end_offset=6)
    it.snapshot(3, *topic(name="known", topic_id=known))
    it.commit(*topic(name="replayed", topic_id=replayed), registered(2))
    it.snapshot(9, *topic(name="known", topic_id=known), *topic(name="sent", topic_id=sent))
    it.commit(*topic(name="behind", topic_id=behind))
    assert [it.publisher.is_later(each) for each in (known, replayed, sent, behind)] == [False, False, True, True]
    assert not Subscriber().publisher.is_later(sent), "it has lost what it knew"


def test_after_that_only_changes_are_published() -> None:
    it = Subscriber()
    it.commit(this_process(), *topic())
    it.commit(*topic(name="u", topic_id=UUID(int=101)))
    _, changes, brokers = it.calls[1]
    assert [local.topic_name for local in changes.leaders] == ["u"]
    assert brokers == ()


def test_batches_that_are_handed_over_together_are_one_image() -> None:
    it = Subscriber()
    it.replay(this_process())
    it.replay(*topic())
    it.publisher.on_caught_up()
    it.publisher.on_caught_up()  # nothing new
    assert len(it.calls) == 1
    assert it.publisher.image.end_offset == 3


async def test_watchers_are_told_now_and_after_changes_merged() -> None:
    it = Subscriber()
    seen: list[int] = []

    async def watch() -> None:
        async for _ in it.publisher.changes():
            seen.append(it.publisher.image.end_offset)  # noqa: PERF401 -- a stream without an end

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    assert seen == [0]
    it.commit(registered(2))
    it.commit(registered(3))
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [0, 2]
    it.publisher.notify()  # a new controller, say
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [0, 2, 2]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_past_images_are_kept_for_a_while() -> None:
    it = Subscriber()
    for _ in range(KEPT_IMAGES + 2):
        it.commit(registered(2))
    newest = it.publisher.image
    assert it.publisher.image_at(newest.end_offset) is newest
    oldest = newest.end_offset - KEPT_IMAGES + 1
    assert it.publisher.image_at(oldest).end_offset == oldest  # type: ignore[union-attr]
    assert it.publisher.image_at(oldest - 1) is None
    it.commit(registered(2), registered(1))
    assert it.publisher.image_at(it.end_offset - 1) is None, "no image ends there"


def test_a_long_row_of_batches_is_published_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_publisher, "PUBLISHED_TOGETHER", 3)
    it = Subscriber()
    it.commit(this_process())
    it.calls.clear()
    for broker_id in range(2, 10):
        it.replay(registered(broker_id))
    assert [image.end_offset for image, _, _ in it.calls] == [4, 7]
    it.publisher.on_caught_up()
    assert [image.end_offset for image, _, _ in it.calls] == [4, 7, 9]
    assert [brokers for _, _, brokers in it.calls] == [(2, 3, 4), (5, 6, 7), (8, 9)]
