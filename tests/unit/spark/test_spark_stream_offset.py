"""The offset that Spark keeps in a checkpoint."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from replog.client.types import TopicPartition
from replog.errors import ConfigError
from replog.spark.stream.offset import Place, StreamOffset, from_json, to_json

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b-1", "c.d_e"]), st.integers(0, 12))
TOPIC_IDS = {"a": UUID(int=1), "b-1": UUID(int=2**127), "c.d_e": UUID(int=3)}
places = st.dictionaries(partitions, st.tuples(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1)), max_size=8).map(
    lambda found: {key: Place(TOPIC_IDS[key.topic], offset, epoch) for key, (offset, epoch) in found.items()}
)


def _offset(
    cluster_id: str, end: dict[TopicPartition, Place], begun_count: int | None, metadata_offset: int, lost: str
) -> StreamOffset:
    """A batch that began in the first `begun_count` of its partitions; None: the start of a query."""
    begun = {key: end[key]._replace(leader_epoch=0) for key in sorted(end)[:begun_count]}
    return StreamOffset(cluster_id, end, None if begun_count is None else begun, metadata_offset, lost)


offsets = st.builds(
    _offset, st.text(max_size=5), places, st.none() | st.integers(0, 8), st.integers(-1, 2**63 - 1), st.text(max_size=5)
)

SOME = StreamOffset(
    "c",
    {TopicPartition("t", 10): Place(UUID(int=7), 5, 1), TopicPartition("t", 9): Place(UUID(int=7), 6, 2)},
    {TopicPartition("t", 9): Place(UUID(int=7), 3, 0)},
)


@given(offsets)
def test_it_comes_back_through_json(offset: StreamOffset) -> None:
    assert from_json(json.loads(json.dumps(to_json(offset)))) == offset


@given(offsets, st.randoms(use_true_random=False))
def test_equal_offsets_are_the_same_text(offset: StreamOffset, random: Any) -> None:
    """Goal: Spark compares texts, and takes another order of keys for new records."""

    def shuffled(found: Any) -> Any:
        return None if found is None else dict(random.sample(sorted(found.items()), len(found)))

    other = StreamOffset(
        offset.cluster_id, shuffled(offset.end), shuffled(offset.start), offset.metadata_offset, offset.lost
    )
    text = json.dumps(to_json(offset))
    assert json.dumps(to_json(other)) == text
    assert json.dumps(json.loads(text)) == text


def test_what_it_looks_like() -> None:
    """Goal: an offset that some release has written is read by every later one."""
    topic_id = "00000000-0000-0000-0000-000000000007"
    assert json.dumps(to_json(SOME)) == (
        '{"v": 1, "cluster": "c", '
        f'"from": {{"t": {{"id": "{topic_id}", "offsets": {{"9": 3}}, "epochs": {{"9": 0}}}}}}, '
        f'"to": {{"t": {{"id": "{topic_id}", "offsets": {{"9": 6, "10": 5}}, "epochs": {{"9": 2, "10": 1}}}}}}}}'
    )
    later = json.dumps(to_json(replace(SOME, start=None, metadata_offset=70)))
    assert later.startswith('{"v": 1, "cluster": "c", "metadata": 70, "to": ')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({**to_json(SOME), "v": 2}, "the checkpoint has offsets of version 2, and this replog reads version 1"),
        ({**to_json(SOME), "v": "1"}, "offsets of version '1'"),
        ({"t": {"0": 500}}, "no offset of a replog stream"),
        ([], "no offset of a replog stream"),
        (None, "no offset of a replog stream"),
        ({"v": 1, "cluster": "c"}, '"to" is damaged'),
        ({"v": 1, "cluster": 5, "to": {}}, "cluster is missing"),
        ({**to_json(SOME), "metadata": "7"}, '"metadata" is damaged'),
        ({**to_json(SOME), "lost": ["t-0"]}, '"lost" is damaged'),
        ({"v": 1, "cluster": "c", "to": {"t": {"id": "x", "offsets": {"0": 1}, "epochs": {"0": 1}}}}, '"to" is damaged'),
        ({**to_json(SOME), "from": {"t": {"id": str(UUID(int=1)), "offsets": {"0": True}, "epochs": {"0": 1}}}}, '"from" is'),
        ({**to_json(SOME), "to": {"t": {"id": str(UUID(int=1)), "offsets": {"0": 3}, "epochs": {}}}}, '"to" is damaged'),
        ({**to_json(SOME), "to": [1]}, '"to" is damaged'),
        ({**to_json(SOME), "to": {}}, '"from" has t-9, which "to" lacks'),
    ],
)  # fmt: skip
def test_other_checkpoints_are_refused(value: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(value)
    assert text in str(caught.value)
    assert "checkpointLocation" in str(caught.value)


def test_a_refusal_is_short() -> None:
    with pytest.raises(ConfigError) as caught:
        from_json({"v": 1, "cluster": "c", "to": {"t" * 9_000_000: 1}})
    assert len(str(caught.value)) < 1000
