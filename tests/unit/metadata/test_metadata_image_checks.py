"""What must hold of images: each rule broken once, and histories of a cluster that break none."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_histories import bounded, records_of, replayed
from msgspec.structs import replace

from replog.metadata import MetadataDelta, MetadataImage, TopicImage, image_records
from replog.metadata.image_checks import image_differences, image_problems, partition_problems, step_problems
from replog.metadata.records import (
    DrainBrokerRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from replog.metadata.registrations import PartitionRegistration

A = UUID(int=1)
SOUND = PartitionRegistration((1, 2, 3), (1, 2), 1, 4, 9, elr=(3,), adding_replicas=(3,), removing_replicas=(2,))


def test_sound_partitions() -> None:
    assert list(partition_problems(SOUND)) == []
    assert list(partition_problems(replace(SOUND, leader=-1, isr=()))) == []


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (
            replace(SOUND, replicas=(), isr=(), elr=(), leader=-1, adding_replicas=(), removing_replicas=()),
            "no replicas",
        ),
        (replace(SOUND, replicas=(1, 2, 3, 1)), "twice in its replicas [1, 2, 3, 1]"),
        (replace(SOUND, isr=(1, 4)), "isr has [4], which are not among the replicas"),
        (replace(SOUND, isr=(1, 1)), "twice in its isr [1, 1]"),
        (replace(SOUND, elr=(3, 5)), "elr has [5]"),
        (replace(SOUND, last_known_elr=(6,)), "last_known_elr has [6]"),
        (replace(SOUND, adding_replicas=(7,)), "adding_replicas has [7]"),
        (replace(SOUND, removing_replicas=(8,)), "removing_replicas has [8]"),
        (replace(SOUND, elr=(2, 3)), "[2] are in the ISR and in the ELR"),
        (replace(SOUND, leader=3), "its leader 3 is not in the ISR [1, 2]"),
        (replace(SOUND, leader_epoch=-1), "an epoch is negative"),
    ],
)
def test_each_rule_of_partitions(broken: PartitionRegistration, problem: str) -> None:
    problems = list(partition_problems(broken))
    assert len(problems) == 1
    assert problem in problems[0]


def image_of(*partitions: PartitionRegistration, name: str = "a") -> MetadataImage:
    topic = TopicImage("a", A, dict(enumerate(partitions)))
    return MetadataImage(topics_by_id={A: topic}, topics_by_name={name: topic})


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        (replace(SOUND, elr=()), "partition epoch does not rise: 9, then 9"),
        (replace(SOUND, partition_epoch=8), "partition epoch does not rise: 9, then 8"),
        (replace(SOUND, partition_epoch=10, leader_epoch=3), "leader epoch goes back from 4 to 3"),
        (replace(SOUND, partition_epoch=10, leader=2), "changes from 1 to 2 within leader epoch 4"),
    ],
)
def test_each_rule_of_steps(after: PartitionRegistration, problem: str) -> None:
    image = image_of(after)
    problems = list(step_problems(MetadataDelta.between(image_of(SOUND), image), image))
    assert len(problems) == 1
    assert problem in problems[0]
    assert "partition a-0" in problems[0]


def test_a_step_that_is_right() -> None:
    image = image_of(replace(SOUND, partition_epoch=10, leader_epoch=5, leader=2))
    assert list(step_problems(MetadataDelta.between(image_of(SOUND), image), image)) == []


def test_partitions_are_numbered_without_a_gap() -> None:
    topic = TopicImage("a", A, {1: SOUND})
    (problem,) = image_problems(MetadataImage(topics_by_id={A: topic}, topics_by_name={"a": topic}))
    assert problem == 'topic "a" has partitions [1], not 0 to 0'


def test_a_topic_is_found_by_its_name() -> None:
    assert list(image_problems(image_of(SOUND, name="b"))) == ['topic "a" is not the one found by its name']
    image = replace(image_of(SOUND), topics_by_id={})
    assert list(image_problems(image)) == ["0 topics by id, 1 by name"]


def test_a_broker_epoch_never_goes_back() -> None:
    def registered(epoch: int) -> list[RegisterBrokerRecord]:
        return [RegisterBrokerRecord(1, UUID(int=epoch), epoch, "host", 1, (A,))]

    after = replayed([*registered(3)])
    delta = MetadataDelta.between(replayed([*registered(5)]), after)
    assert list(step_problems(delta, after)) == ["broker 1 goes back from epoch 5 to 3"]


def test_differences_of_images() -> None:
    partition = PartitionRecord(0, A, (1,), (1,), 1, 0, 0)
    one = replayed([TopicRecord("a", A), partition, FeatureLevelRecord("x", 1)])
    same = replayed([FeatureLevelRecord("x", 1), TopicRecord("a", A), partition])
    assert list(image_differences(one, replace(same, end_offset=77, epoch=9))) == []
    other = replayed([PartitionChangeRecord(0, A, isr=()), DrainBrokerRecord(1, drained=True)], same)
    names = [difference.split("[")[0].split(":")[0] for difference in image_differences(one, other)]
    assert names == ["drained_brokers", "topics_by_id", "topics_by_name"]


@bounded
@given(st.data())
def test_images_have_no_difference_from_what_their_snapshot_says(data: st.DataObject) -> None:
    image = replayed(records_of(data))
    assert list(image_differences(image, replayed(list(image_records(image))))) == []
