"""What `group-pauses` makes of the notes that members take, and what a system must not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.model import WrongResultError
from bench.scenarios.group_pauses import (
    CONFIG,
    HANDOVER_MS,
    KAFKA_CONFIG,
    OTHERS_PAUSE_MS,
    PARTITIONS,
    SCENARIO,
    STEADY_PAUSE_MS,
    check,
    is_shared,
    owners,
    pauses,
)
from bench.systems.group_reader import NOTE
from bench.systems.group_readers import Handed, ReadingGroup

MOVED, STAYED = 0, 1
SENT = {(0, 0), (0, 1), (1, 0)}


def handed(*places: tuple[int, int]) -> list[Handed]:
    return [Handed(float(number), 7, *place) for number, place in enumerate(places)]


def test_pauses_are_the_longest_ones_of_partitions_that_moved_and_that_stayed() -> None:
    found = [
        Handed(1.0, 0, MOVED, 0),
        Handed(1.0, 1, STAYED, 0),
        Handed(1.25, 0, MOVED, 1),
        Handed(1.5, 1, STAYED, 1),
        Handed(2.0, 1, STAYED, 2),
        Handed(2.25, 1, MOVED, 2),
        Handed(2.5, 1, STAYED, 3),
        Handed(2.75, 1, MOVED, 3),
    ]
    assert pauses(found, 1.75) == {HANDOVER_MS: 1_000.0, OTHERS_PAUSE_MS: 500.0, STEADY_PAUSE_MS: 500.0}


def test_a_pause_that_the_event_falls_into_is_one_of_afterwards() -> None:
    found = [Handed(1.0, 0, STAYED, 0), Handed(1.5, 0, STAYED, 1), Handed(3.5, 0, STAYED, 2)]
    assert pauses(found, 2.0) == {OTHERS_PAUSE_MS: 2_000.0, STEADY_PAUSE_MS: 500.0}


def test_a_record_in_the_hands_of_nobody_is_refused() -> None:
    check("x", SENT, handed((0, 0), (1, 0), (0, 1), (0, 1)))
    with pytest.raises(WrongResultError, match=r"x: 1 of 3 records were handed out to nobody, as \(0, 1\)"):
        check("x", SENT, handed((0, 0), (1, 0)))
    with pytest.raises(WrongResultError, match=r"x: 1 records were handed out that nobody sent, as \(1, 9\)"):
        check("x", SENT, handed((0, 0), (1, 0), (0, 1), (1, 9)))


def test_partitions_are_shared_when_each_member_was_handed_the_last_records_of_as_many() -> None:
    first = [Handed(1.0, 0, partition, 0) for partition in range(PARTITIONS)]
    second = [Handed(2.0, 1, partition, 1) for partition in range(PARTITIONS // 2)]
    assert is_shared(owners(first), {0})
    assert not is_shared(owners(first), {0, 1})
    assert not is_shared(owners(first[1:]), {0})
    assert is_shared(owners(first + second), {0, 1})
    assert not is_shared(owners(first + second), {1, 2})


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReadingGroup]:
    (tmp_path / "members.log").touch()
    group = ReadingGroup("x", tmp_path, "replog", ["no such server"])
    yield group
    group.end()


def test_the_notes_of_all_members_are_read_in_order_of_time_and_once(group: ReadingGroup, tmp_path: Path) -> None:
    late, early = NOTE.pack(3, 17, 2.0), NOTE.pack(4, 18, 1.0)
    (tmp_path / "0.notes").write_bytes(late + early[:5])
    (tmp_path / "1.notes").write_bytes(NOTE.pack(4, 17, 1.5))
    assert list(group.handed()) == [Handed(1.5, 1, 4, 17), Handed(2.0, 0, 3, 17)]
    (tmp_path / "0.notes").write_bytes(late + early)
    assert list(group.handed()) == [Handed(1.0, 0, 4, 18), Handed(1.5, 1, 4, 17), Handed(2.0, 0, 3, 17)]


def test_a_member_that_ends_by_itself_is_told_with_its_last_words(group: ReadingGroup) -> None:
    group.start_member()  # with too few arguments
    with pytest.raises(WrongResultError, match=r"(?s)x: something: a member ended .*TypeError"):
        group.wait_until(bool, "something")


def test_brokers_of_both_sides_have_the_same_settings() -> None:
    assert CONFIG.items() <= KAFKA_CONFIG.items()
    assert {key.replace(".min.", ".") for key in KAFKA_CONFIG} == set(CONFIG)
    assert [system.name for system in SCENARIO.systems()] == ["replog", "replog-librdkafka", "kafka-librdkafka"]
    assert (
        len(
            {
                system.durability().partition(", flush.policy")[0].partition(", log.flush")[0]
                for system in SCENARIO.systems()
            }
        )
        == 1
    )
