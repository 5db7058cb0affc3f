"""A real Kafka and a replog broker answer the same to those who read, look for offsets, and delete what is not there."""

from __future__ import annotations

import pytest
from sides import UNKNOWN_ID, Question, Side, Sides

from replog.records import encode_batch
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse

T0_MS = 1_700_000_000_000
NO_LIST = ("aborted_transactions",)
"""Where a partition fails the list is empty or null; clients look at the error first."""


@pytest.fixture(scope="module")
def topic(both: Sides) -> str:
    """A topic with offsets 0 and 1 in partition 0."""
    name = both.topic()
    data = encode_batch([(T0_MS, b"k", b"1", ()), (T0_MS + 5, b"k", b"2", ())])
    part = ProduceRequest.PartitionProduceData(0, data)
    topics = [ProduceRequest.TopicProduceData(name, partition_data=[part])]
    answer = both.same(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return name


def list_offsets(topic: str, timestamp_ms: int, partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    place = ListOffsetsRequest.ListOffsetsPartition(partition, epoch, timestamp_ms)
    return ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, [place])])


def fetch(topic: str, offset: int, partition: int = 0) -> Question:
    place = FetchRequest.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)

    def made(side: Side) -> FetchRequest:
        return FetchRequest(topics=[FetchRequest.FetchTopic(topic, side.ids.get(topic, UNKNOWN_ID), [place])])

    return made


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_list_offsets(both: Sides, topic: str, version: int) -> None:
    found = {}
    for time in (-1, -2, -3, -4, -5, -6, -7, 0, T0_MS, T0_MS + 1, T0_MS + 6):
        answer = both.same(list_offsets(topic, time), version, ListOffsetsResponse)
        found[time] = answer["topics"][0]["partitions"][0]["offset"]
    assert (found[-1], found[-2], found[T0_MS + 1], found[T0_MS + 6]) == (2, 0, 1, -1)


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_list_offsets_of_what_is_not_there(both: Sides, topic: str, version: int) -> None:
    asked = (list_offsets(topic, -1, 7), list_offsets("missing", -1), list_offsets(topic, -1, epoch=5))
    answers = [both.same(request, version, ListOffsetsResponse) for request in asked]
    codes = [answer["topics"][0]["partitions"][0]["error_code"] for answer in answers]
    assert codes == [3, 3, 75 if version >= 4 else 0]  # older ones have no epoch


@pytest.mark.parametrize("version", FetchRequest.VERSIONS)
def test_fetch(both: Sides, topic: str, version: int) -> None:
    """The same bytes, offsets and ends, and the same errors."""
    codes = []
    for offset in (0, 1, 2, 3, -1):
        answer = both.same(fetch(topic, offset), version, FetchResponse, beside=NO_LIST)
        codes.append(answer["responses"][0]["partitions"][0]["error_code"])
    assert codes == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("version", FetchRequest.VERSIONS)
def test_fetch_of_what_is_not_there(both: Sides, topic: str, version: int) -> None:
    for question in (fetch(topic, 0, 9), fetch("missing", 0)):
        answer = both.same(question, version, FetchResponse, beside=NO_LIST)
        assert answer["responses"][0]["partitions"][0]["error_code"] in {3, 100}


@pytest.mark.parametrize("version", [version for version in DeleteTopicsRequest.VERSIONS if version < 6])
def test_deletion_of_topics_that_are_not_there(both: Sides, version: int) -> None:
    for name in ("", "missing", "a/b"):
        answer = both.same(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), version, DeleteTopicsResponse)
        assert answer["responses"][0]["name"] == name
