"""Who is told what, and when (docs/KAFKA.md 6.7)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_histories import bounded, contents, in_transaction, records_of, replayed
from msgspec.structs import replace

from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.errors import InvariantViolationError
from replog.metadata import MetadataDelta, MetadataImage, MetadataLoader, image_records
from replog.metadata.delta import LocalChanges
from replog.metadata.loader import Publisher
from replog.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from tests.work_counts import calls_of

A, B = UUID(int=1), UUID(int=2)


class Told:
    """A publisher that writes down what it is told."""

    def __init__(self, name: str = "told", diary: list[str] | None = None) -> None:
        self.name = name
        self.diary = [] if diary is None else diary
        self.image = MetadataImage()

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert contents(delta.image) == contents(self.image)  # the chain is unbroken
        self.image = image
        topics = [topic.name for topic in delta.changed_topics.values()]
        removed = [f"-{topic.name}" for topic in delta.removed_topics.values()]
        self.diary.append(f"{self.name} {image.end_offset} {' '.join([*removed, *topics])}".rstrip())


def fault(_publisher: Publisher, error: Exception) -> None:
    raise AssertionError("a publisher failed") from error


def loader_of(*publishers: Publisher, open_at: int = 0) -> MetadataLoader:
    return MetadataLoader(publishers, lambda image: image.end_offset >= open_at, fault)


def load(loader: MetadataLoader, end_offset: int, *records: MetadataRecord) -> None:
    loader.load_batch(records, end_offset=end_offset, epoch=1)


def test_batches_that_come_together_are_one_change() -> None:
    told = Told()
    loader = loader_of(told)
    load(loader, 1, TopicRecord("a", A))
    load(loader, 2, TopicRecord("b", B))
    assert (told.diary, loader.image.end_offset, loader.end_offset) == ([], 0, 2)
    assert loader.flush() is True
    assert loader.flush() is False
    assert told.diary == ["told 2 a b"]


def test_nothing_is_shown_before_the_gate_opens_and_then_everything_at_once() -> None:
    told = Told()
    loader = loader_of(told, open_at=3)
    load(loader, 1, TopicRecord("a", A))
    assert (loader.flush(), loader.is_open, loader.image.end_offset) == (False, False, 1)
    load(loader, 3, TopicRecord("b", B), NoOpRecord())
    assert (loader.flush(), loader.is_open) == (True, True)
    load(loader, 4, RemoveTopicRecord(A))
    loader.flush()
    assert told.diary == ["told 3 a b", "told 4 -a"]


def test_the_gate_is_not_asked_again() -> None:
    answers = iter([False, True])
    told = Told()
    loader = MetadataLoader([told], lambda _image: next(answers), fault)
    for end_offset in (1, 2, 3):
        load(loader, end_offset, NoOpRecord())
        loader.flush()
    assert told.diary == ["told 2", "told 3"]


def test_publishers_are_told_in_their_order() -> None:
    diary: list[str] = []
    loader = loader_of(Told("first", diary), Told("second", diary))
    load(loader, 1, TopicRecord("a", A))
    loader.flush()
    load(loader, 2, TopicRecord("b", B))
    loader.flush()
    load(loader, 3, RemoveTopicRecord(A))
    loader.flush()
    assert diary == ["first 1 a", "second 1 a", "first 2 b", "second 2 b", "first 3 -a", "second 3 -a"]


def test_a_publisher_that_fails_does_not_stop_the_others() -> None:
    faults: list[str] = []

    def broken(_delta: MetadataDelta, _image: MetadataImage) -> None:
        raise ValueError("broken")

    told = Told()
    loader = MetadataLoader([broken, told], lambda _image: True, lambda _publisher, error: faults.append(str(error)))
    load(loader, 1, TopicRecord("a", A))
    loader.flush()
    assert (faults, told.diary) == (["broken"], ["told 1 a"])


def test_a_transaction_shows_at_its_end() -> None:
    told = Told()
    loader = loader_of(told)
    load(loader, 2, TopicRecord("a", A), BeginTransactionRecord("t"))
    loader.flush()
    load(loader, 3, TopicRecord("b", B))
    loader.flush()
    load(loader, 4, EndTransactionRecord())
    loader.flush()
    assert told.diary == ["told 2 a", "told 3", "told 4 b"]


def test_a_batch_may_hold_several_transactions_and_the_beginning_of_one() -> None:
    told = Told()
    loader = loader_of(told)
    begin, end, abort = BeginTransactionRecord("t"), EndTransactionRecord(), AbortTransactionRecord("no")
    a, b, c, d = (TopicRecord(name, UUID(int=number)) for number, name in enumerate("abcd", 1))
    load(loader, 9, begin, a, end, b, begin, c, abort, begin, d)
    loader.flush()
    load(loader, 11, end, NoOpRecord())
    loader.flush()
    assert told.diary == ["told 9 a b", "told 11 d"]


@pytest.mark.parametrize(
    "records",
    [
        (BeginTransactionRecord("t"), TopicRecord("a", A)),
        (BeginTransactionRecord("t"), TopicRecord("a", A), EndTransactionRecord()),
        (BeginTransactionRecord("t"), TopicRecord("a", A), AbortTransactionRecord("no")),
        (TopicRecord("a", A), EndTransactionRecord()),
    ],
    ids=["open", "ended", "aborted", "only its end"],
)
def test_a_snapshot_with_marks_of_a_transaction_is_refused(records: tuple[MetadataRecord, ...]) -> None:
    """What it stands for counts or does not: whoever wrote the marks meant something else, as controllers say too."""
    loader = loader_of()
    with pytest.raises(InvariantViolationError, match="marks of a transaction"):
        loader.load_snapshot(records, end_offset=7, epoch=3)
    assert (loader.flush(), loader.end_offset, loader.image.end_offset) == (False, 0, 0)


def test_a_snapshot_over_an_image_tells_the_difference() -> None:
    told = Told()
    loader = loader_of(told)
    load(loader, 1, TopicRecord("a", A))
    loader.flush()
    load(loader, 2, TopicRecord("x", UUID(int=9)))  # never published: the snapshot replaces it
    loader.load_snapshot([TopicRecord("b", B)], end_offset=7, epoch=3)
    load(loader, 8, NoOpRecord())
    loader.flush()
    assert told.diary == ["told 1 a", "told 8 -a b"]
    assert (loader.image.end_offset, loader.image.epoch) == (8, 1)


def test_offsets_never_go_back() -> None:
    loader = loader_of()
    load(loader, 5, NoOpRecord())
    with pytest.raises(InvariantViolationError):
        load(loader, 5, NoOpRecord())
    with pytest.raises(InvariantViolationError):
        loader.load_snapshot([], end_offset=4, epoch=1)


@bounded
@given(st.data())
def test_however_the_log_comes_in_the_image_is_that_of_its_records(data: st.DataObject) -> None:
    told = Told()
    loader = loader_of(told, open_at=data.draw(st.integers(0, 10)))
    image = MetadataImage()
    for _ in range(data.draw(st.integers(1, 5))):
        records = records_of(data, image, max_size=8)
        image = replayed(records, image)
        if not records:
            continue
        if data.draw(st.booleans()):
            loader.load_batch(records, end_offset=image.end_offset, epoch=1)
        else:
            loader.load_snapshot(image_records(image), end_offset=image.end_offset, epoch=1)
        if data.draw(st.booleans()):
            loader.flush()
            assert contents(loader.image) == contents(image)
            if loader.is_open:
                assert contents(told.image) == contents(image)


@bounded
@given(st.data())
def test_a_transaction_that_comes_in_pieces_is_the_same_change_as_its_records_alone(data: st.DataObject) -> None:
    local: list[LocalChanges] = []
    loader = loader_of(lambda delta, _image: local.append(delta.local_changes(1)))
    before = [NoOpRecord(), *records_of(data)]
    load(loader, len(before), *before)
    loader.flush()
    base = loader.image
    records = records_of(data, base)
    aborted = data.draw(st.booleans())
    pieces = in_transaction(records, aborted=aborted)
    after = records_of(data, base if aborted else replayed(records, base), max_size=3)
    pieces += after
    while pieces:
        count = data.draw(st.integers(1, len(pieces)))
        load(loader, loader.end_offset + count, *pieces[:count])
        pieces = pieces[count:]
        if data.draw(st.booleans()):
            loader.flush()
    loader.flush()
    alone = [*([] if aborted else records), *after]
    assert contents(loader.image) == contents(replayed(alone, base))
    if not after:
        expected = MetadataDelta(base)
        for record in alone:
            expected.replay(record)
        said = [each for each in local[1:] if each != LocalChanges((), (), ())]
        assert said in ([], [expected.local_changes(1)])
        assert said or expected.local_changes(1) == LocalChanges((), (), ())


@pytest.mark.parametrize("kind", ["entries", "topics", "leaders", "configs"])
def test_the_end_of_a_large_transaction_is_no_longer_step_than_any_other(kind: str) -> None:
    """Trap: all its records were replayed at its end, and ten thousand new leaders held the loop for a tenth of a second."""
    ids = [UUID(int=number << 20) for number in range(1, 2_001)]
    entry = AclEntry(ResourceKind.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW)
    topics: list[MetadataRecord] = [TopicRecord(f"t{topic_id.int}", topic_id) for topic_id in ids]
    partitions: list[MetadataRecord] = [
        PartitionRecord(0, each, (1, 2), (1, 2), 1, leader_epoch=0, partition_epoch=0) for each in ids
    ]
    entries: list[MetadataRecord] = [
        AccessControlEntryRecord(each, replace(entry, name=f"t{each.int}")) for each in ids
    ]
    cases: dict[str, tuple[list[MetadataRecord], list[MetadataRecord]]] = {
        "entries": (entries, [RemoveAccessControlEntryRecord(each) for each in ids]),
        "topics": ([], [record for pair in zip(topics, partitions, strict=True) for record in pair]),
        "leaders": ([*topics, *partitions], [PartitionChangeRecord(0, each, leader=2) for each in ids]),
        "configs": ([], [ConfigRecord(ResourceType.TOPIC, f"t{each.int}", "retention.ms", "5") for each in ids]),
    }
    before, changes = cases[kind]
    loader = loader_of()
    load(loader, len(before) + 1, *before, NoOpRecord())
    loader.flush()
    calls: list[int] = []
    records = [BeginTransactionRecord("t"), *changes, EndTransactionRecord()]
    for start in range(0, len(records), 100):
        some = records[start : start + 100]

        def step(some: Sequence[MetadataRecord] = some) -> None:
            load(loader, loader.end_offset + len(some), *some)
            loader.flush()

        calls.append(calls_of(step))
    assert contents(loader.image) == contents(replayed([*before, NoOpRecord(), *records]))
    assert calls[-1] < 10_000
