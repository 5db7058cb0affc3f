"""Forks of topics: what the copy is made like, and what is refused."""

from __future__ import annotations

import pytest
from controller_kit import Quorum
from msgspec.structs import replace

from replog.controller.requests import ForkTopic, ForkTopicResponse
from replog.errors import (
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ReplogError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from replog.metadata.records import FeatureLevelRecord, ResourceType
from replog.metadata.topic_names import OFFSETS_TOPIC


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    quorum.create("flights", 2, 1, 3, partitions=2, retention_ms="5")
    return quorum


def wish(quorum: Quorum, *ends: int) -> ForkTopic:
    return ForkTopic("flights", quorum.image.topics_by_name["flights"].topic_id, "try", ends or (10, 0))


def test_the_copy_is_on_the_same_brokers_and_begins_with_a_later_epoch(quorum: Quorum) -> None:
    """Broker 3 is not in sync: it is a replica of the copy, and not of its ISR."""
    quorum.alter_isr("flights", (2, 1))
    asked = wish(quorum)
    answer = quorum.ask(asked)
    copy = quorum.image.topics_by_name["try"]
    assert answer == ForkTopicResponse(copy.topic_id)
    assert quorum.image.configs[ResourceType.TOPIC, "try"] == {"retention.ms": "5"}
    first, second = copy.partitions[0], copy.partitions[1]
    assert (first.replicas, first.isr, first.leader, first.leader_epoch) == ((2, 1, 3), (2, 1), 2, 1)
    assert (first.forked_topic_id, first.forked_end_offset) == (asked.topic_id, 10)
    assert (second.isr, second.forked_end_offset) == ((2, 1, 3), 0)
    quorum.alter_isr("try", (2,))
    assert quorum.partition("try").forked_end_offset == 10


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"source": "none"}, UnknownTopicOrPartitionError),
        ({"copy": "flights"}, TopicExistsError),
        ({"copy": OFFSETS_TOPIC}, InvalidTopicError),
        ({"copy": "a/b"}, InvalidTopicError),
        ({"end_offsets": (1,)}, InvalidRequestError),
        ({"end_offsets": (1, -1)}, InvalidRequestError),
        ({"end_offsets": ()}, InvalidRequestError),
    ],
)
def test_what_is_refused_changes_nothing(quorum: Quorum, change: dict[str, object], error: type[ReplogError]) -> None:
    end_offset = quorum.image.end_offset
    with pytest.raises(error):
        quorum.ask(replace(wish(quorum), **change))
    assert quorum.image.end_offset == end_offset


def test_a_source_that_was_created_anew_is_another_one(quorum: Quorum) -> None:
    quorum.create("other", 1)
    other = quorum.image.topics_by_name["other"].topic_id
    with pytest.raises(UnknownTopicIdError, match="created anew"):
        quorum.ask(replace(wish(quorum), topic_id=other))


def test_a_source_that_moves_or_has_no_leader_is_refused(quorum: Quorum) -> None:
    quorum.create("lone", 3)
    alone = replace(wish(quorum, 1), source="lone", topic_id=quorum.image.topics_by_name["lone"].topic_id)
    quorum.heartbeat(3, want_fence=True)
    with pytest.raises(LeaderNotAvailableError, match="lone-0"):
        quorum.ask(alone)
    quorum.start(4)
    quorum.reassign("flights", (4, 1))
    with pytest.raises(LeaderNotAvailableError, match="moving"):
        quorum.ask(wish(quorum))


def test_nodes_that_are_too_old_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "replog.controller.state.features.FeatureControl.bootstrap_records",
        lambda _: (FeatureLevelRecord("metadata.version", 4),),
    )
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    quorum.create("flights", 1)
    with pytest.raises(UnsupportedVersionError, match=r"metadata\.version 5"):
        quorum.ask(wish(quorum, 1))
