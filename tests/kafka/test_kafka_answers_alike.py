"""A real Kafka and a replog broker answer the same to the same requests, in every version, right or wrong."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from sides import CLOSED, UNKNOWN_ID, Question, Side, Sides

from replog.protocol.private import FIRST_KEY
from replog.records import Codec, TimestampType, encode_batch
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse

PRODUCE = ProduceRequest.VERSIONS
METADATA = MetadataRequest.VERSIONS
API_VERSIONS = ApiVersionsRequest.VERSIONS

REFUSED = ("log_start_offset", "record_errors")
"""What is told beside an error differs: Kafka names each bad record and where the log starts, we name of those with a time that
is not taken the first, in the text."""

T0_MS = 1_700_000_000_000
PRODUCER = 4711


def batch(*values: bytes | None, **fields: Any) -> bytes:
    return encode_batch([(T0_MS, b"key", value, ()) for value in values or (b"value",)], **fields)


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def with_header(at: int, form: str, value: int) -> bytes:
    """A batch with another number in its header, and the checksum that fits."""
    return sealed(changed(batch(b"1", b"2"), at, struct.pack(form, value)))


def sealed(data: bytes) -> bytes:
    """The batch with the checksum that fits."""
    return changed(data, 17, struct.pack(">I", crc32c.crc32c(data[21:])))


def produce(topic: str, *parts: tuple[int, bytes | None], acks: int = -1, **fields: Any) -> Question:
    """A request with (partition, bytes) pairs for one topic, by name and by id."""
    data = [ProduceRequest.PartitionProduceData(*part) for part in parts]

    def made(side: Side) -> ProduceRequest:
        topics = [ProduceRequest.TopicProduceData(topic, side.ids.get(topic, UNKNOWN_ID), data)]
        return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics, **fields)

    return made


def codes(answer: Any) -> list[int]:
    return [part["error_code"] for topic in answer["responses"] for part in topic["partition_responses"]]


def base_offsets(answer: Any) -> list[int]:
    return [part["base_offset"] for topic in answer["responses"] for part in topic["partition_responses"]]


# ---- ApiVersions -----------------------------------------------------------------------------------------------------------

FEATURES = ("api_keys", "supported_features", "finalized_features", "finalized_features_epoch")


@pytest.mark.parametrize("version", API_VERSIONS)
def test_api_versions(both: Sides, version: int) -> None:
    request = ApiVersionsRequest("raw-client", "1.0")
    ours = both.same(request, version, ApiVersionsResponse, beside=FEATURES)
    theirs = both.kafka.answer(request, version, ApiVersionsResponse)
    ranges, known = ({each["api_key"]: each for each in side["api_keys"]} for side in (ours, theirs))
    ranges = {key: each for key, each in ranges.items() if key < FIRST_KEY}
    assert {key: known.get(key) for key in ranges} == ranges, "what we serve we serve in all versions"


@pytest.mark.parametrize("version", [API_VERSIONS.stop, 99, -1])
def test_api_versions_of_the_future(both: Sides, version: int) -> None:
    answer = both.same(ApiVersionsRequest("raw", "1"), version, ApiVersionsResponse, read_as=0)
    assert (answer["error_code"], answer["api_keys"]) == (35, [{"api_key": 18, "min_version": 0, "max_version": 4}])


@pytest.mark.parametrize(("name", "code"), [("raw", 0), ("", 42), ("-raw", 42), ("a b", 42), ("Raw.1-x", 0)])
def test_names_of_client_software(both: Sides, name: str, code: int) -> None:
    for request in (ApiVersionsRequest(name, "1"), ApiVersionsRequest("raw", name)):
        answer = both.same(request, 4, ApiVersionsResponse, beside=FEATURES)
        assert answer["error_code"] == code


# ---- Metadata --------------------------------------------------------------------------------------------------------------


def metadata(*names: str | None, by_id: tuple[str, ...] = (), **fields: Any) -> Question:
    def made(side: Side) -> MetadataRequest:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        topics += [MetadataRequest.MetadataRequestTopic(side.ids.get(name, UNKNOWN_ID), None) for name in by_id]
        return MetadataRequest(topics, **fields)

    return made


def topics_of(answer: Any) -> list[tuple[int, str]]:
    return [(topic["error_code"], topic["name"]) for topic in answer["topics"]]


@pytest.mark.parametrize("version", METADATA)
def test_metadata_of_all_topics(both: Sides, version: int) -> None:
    topic = both.topic(partitions=3)
    answers = [side.answer(MetadataRequest(None if version else []), version, MetadataResponse) for side in both]
    theirs, ours = ([each for each in answer["topics"] if each["name"] in both.ours.ids] for answer in answers)
    assert theirs == ours
    assert (0, topic) in topics_of(answers[1])


@pytest.mark.parametrize("version", METADATA)
def test_metadata_of_topics_by_name(both: Sides, version: int) -> None:
    topic = both.topic()
    for names in ([topic], [topic, topic], ["missing", topic, "missing"], ["missing"]):
        both.same(metadata(*names), version, MetadataResponse)
    if version:
        assert both.same(MetadataRequest([]), version, MetadataResponse)["topics"] == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a" * 250])
@pytest.mark.parametrize("version", [METADATA[0], METADATA[-1]])
def test_metadata_of_names_that_are_none(both: Sides, name: str, version: int) -> None:
    assert topics_of(both.same(metadata(name), version, MetadataResponse)) == [(17, name)]


@pytest.mark.parametrize("version", [version for version in METADATA if version >= 10])
def test_metadata_of_topics_by_id(both: Sides, version: int) -> None:
    topic = both.topic()
    for ids in ((topic,), ("unknown", topic, topic), ("unknown",)):
        answer = both.same(metadata(by_id=ids), version, MetadataResponse)
        if version < 12:
            assert {code for code, _ in topics_of(answer)} == {42}


@pytest.mark.parametrize("version", [version for version in METADATA if version >= 8])
def test_metadata_with_authorized_operations(both: Sides, version: int) -> None:
    topic = both.topic()
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": version <= 10}
    both.same(metadata(topic, "missing", **asked), version, MetadataResponse)


# ---- Produce ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE)
def test_produce(both: Sides, version: int) -> None:
    topic = both.topic(partitions=2)
    answer = both.same(produce(topic, (0, batch(b"1", b"2")), (1, batch())), version, ProduceResponse)
    assert (codes(answer), base_offsets(answer)) == ([0, 0], [0, 0])
    answer = both.same(produce(topic, (0, batch(None)), acks=1), version, ProduceResponse)
    assert (codes(answer), base_offsets(answer)) == ([0], [2])
    for part in ((5, batch()), (-1, batch())):
        assert codes(both.same(produce(topic, part), version, ProduceResponse)) == [3]
    assert codes(both.same(produce("missing", (0, batch())), version, ProduceResponse)) == [3 if version < 13 else 100]
    assert both.same(ProduceRequest(acks=1), version, ProduceResponse)["responses"] == []


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
@pytest.mark.parametrize("codec", Codec)
def test_produce_compressed(both: Sides, version: int, codec: Codec) -> None:
    topic = both.topic()
    answer = both.same(produce(topic, (0, batch(*[b"v" * 100] * 10, codec=codec))), version, ProduceResponse)
    assert codes(answer) == [76 if codec is Codec.ZSTD and version < 7 else 0]


@pytest.mark.parametrize("version", PRODUCE)
def test_produce_with_log_append_time(both: Sides, version: int) -> None:
    topic = both.topic(message_timestamp_type="LogAppendTime")
    answers = [side.answer(produce(topic, (0, batch())), version, ProduceResponse) for side in both]
    assert [codes(answer) for answer in answers] == [[0], [0]]
    times = [answer["responses"][0]["partition_responses"][0]["log_append_time_ms"] for answer in answers]
    assert min(times) > T0_MS


BAD_BATCHES = {
    "wrong CRC": (changed(batch(), 70, b"!"), 2),
    "zeros": (bytes(100), 2),
    "no bytes": (b"", 87),
    "half a header": (batch()[:30], 87),
    "cut": (batch()[:-1], 87),
    "two batches": (batch() * 2, 87),
    "base offset 7": (batch(base_offset=7), 87),
    "magic 0": (changed(batch(), 16, b"\x00"), 87),
    "magic 3": (changed(batch(), 16, b"\x03"), 2),
    "control batch": (batch(is_control=True), 87),
    "no records": (with_header(57, ">i", 0), 87),
    "more records than offsets": (with_header(57, ">i", 3), 87),
    "fewer records than offsets": (with_header(57, ">i", 1), 87),
    "less than no records": (with_header(57, ">i", -1), 87),
    "garbage for records": (
        sealed(changed(batch(b"1" * 60), 61, b"these are no records, whatever the checksum says")),
        87,
    ),
    "a record cut": (sealed(changed(batch(), 61, b"\x7e")), 87),
    "a key beyond its record": (sealed(changed(batch(), 65, b"\x7e")), 87),
}


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_produce_of_batches_that_are_none(both: Sides, version: int, name: str) -> None:
    topic = both.topic()
    data, code = BAD_BATCHES[name]
    assert codes(both.same(produce(topic, (0, data)), version, ProduceResponse, beside=REFUSED)) == [code]
    after = both.same(produce(topic, (0, batch())), version, ProduceResponse)
    assert base_offsets(after) == [0], "nothing was appended before"


STRICTER = {
    "unknown codec": (with_header(21, ">h", 5), {"kafka": [-1], "replog": [76]}),
    "its own append time": (batch(timestamp_type=TimestampType.LOG_APPEND_TIME), {"kafka": [0], "replog": [32]}),
    "id below -1": (batch(producer_id=-2, producer_epoch=0, base_sequence=0), {"kafka": [0], "replog": [87]}),
    "id without an epoch": (batch(producer_id=1, base_sequence=0), {"kafka": [0], "replog": [87]}),
}
"""What no client sends and a log had better not hold, or what Kafka answers with a bug of its own."""


@pytest.mark.parametrize("name", STRICTER)
def test_produce_of_what_we_refuse(both: Sides, name: str) -> None:
    topic = both.topic()
    data, expected = STRICTER[name]
    assert {side.name: codes(side.answer(produce(topic, (0, data)), 9, ProduceResponse)) for side in both} == expected


def test_produce_too_large(both: Sides) -> None:
    topic = both.topic(max_message_bytes=1000)
    exact = batch(bytes(1000 - len(batch(bytes(900))) + 900))
    assert len(exact) == 1000
    assert codes(both.same(produce(topic, (0, exact)), 9, ProduceResponse)) == [0]
    larger = batch(bytes(1001 - len(batch(bytes(900))) + 900))
    assert codes(both.same(produce(topic, (0, larger)), 9, ProduceResponse)) == [10]


@pytest.mark.parametrize("version", PRODUCE)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_produce_without_keys_to_a_compacted_topic(both: Sides, version: int, codec: Codec) -> None:
    topic = both.topic(cleanup_policy="compact")
    data = encode_batch([(T0_MS, key, b"v", ()) for key in (b"k", None, b"", None)], codec=codec)
    answer = both.same(produce(topic, (0, data)), version, ProduceResponse, beside=("log_start_offset",))
    assert codes(answer) == [87]
    (told,) = answer["responses"][0]["partition_responses"]
    assert [one["batch_index"] for one in told["record_errors"]] == ([1, 3] if version >= 8 else [])


def test_produce_of_times_that_are_too_far_away(both: Sides) -> None:
    topic = both.topic(message_timestamp_before_max_ms=1000)
    assert codes(both.same(produce(topic, (0, batch())), 9, ProduceResponse, beside=REFUSED)) == [32]


@pytest.mark.parametrize("version", PRODUCE)
@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_produce_with_acks_that_are_none(both: Sides, version: int, acks: int) -> None:
    topic = both.topic()
    assert codes(both.same(produce(topic, (0, batch()), acks=acks), version, ProduceResponse)) == [21]


@pytest.mark.parametrize("version", PRODUCE)
def test_produce_without_acks(both: Sides, version: int) -> None:
    topic = both.topic()
    both.send(produce(topic, (0, batch()), acks=0), version)
    both.send(produce(topic, (0, batch()), acks=0), version)
    after = both.same(produce(topic, (0, batch()), acks=1), version, ProduceResponse)
    assert base_offsets(after) == [2]


@pytest.mark.parametrize("data", [BAD_BATCHES["wrong CRC"][0], batch(base_offset=7)], ids=["wrong CRC", "base offset"])
def test_produce_without_acks_that_fails(both: Sides, data: bytes) -> None:
    topic = both.topic()
    both.send(produce(topic, (0, data), acks=0), 9)
    assert both.same(ApiVersionsRequest("raw", "1"), 0, ApiVersionsResponse) == CLOSED


def test_produce_of_null_records(both: Sides) -> None:
    """Kafka does not answer at all."""
    answer = both.ours.answer(produce(both.topic(), (0, None)), 9, ProduceResponse)
    assert codes(answer) == [87]


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
def test_produce_twice_to_a_partition_in_one_request(both: Sides, version: int) -> None:
    """Kafka appends one of the batches and says nothing of the other."""
    topic = both.topic()
    question = produce(topic, (0, batch(b"1")), (0, batch(b"2")))
    answers = {side.name: codes(side.answer(question, version, ProduceResponse)) for side in both}
    assert answers == {"kafka": [0], "replog": [0, 42]}


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
def test_produce_in_a_transaction(both: Sides, version: int) -> None:
    """Without the id of one; the scripts of transactions have those with it."""
    topic = both.topic()
    data = batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert codes(both.same(produce(topic, (0, data)), version, ProduceResponse)) == [53]


# ---- Produce, idempotent ---------------------------------------------------------------------------------------------------


def numbered(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    return batch(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
def test_duplicates_are_answered_as_before(both: Sides, version: int) -> None:
    topic = both.topic()
    for number in range(6):
        answer = both.same(produce(topic, (0, numbered(2 * number, 2))), version, ProduceResponse)
        assert (codes(answer), base_offsets(answer)) == ([0], [2 * number])
    for number in (1, 3, 5):  # Kafka tells the largest time of the batch as that of the append
        again = produce(topic, (0, numbered(2 * number, 2)))
        answer = both.same(again, version, ProduceResponse, beside=("log_append_time_ms",))
        assert (codes(answer), base_offsets(answer)) == ([0], [2 * number])
    sixth_back = both.same(produce(topic, (0, numbered(0, 2))), version, ProduceResponse, beside=REFUSED)
    assert codes(sixth_back) == [45]


@pytest.mark.parametrize("version", [PRODUCE[0], PRODUCE[-1]])
def test_sequences_and_epochs_that_do_not_follow(both: Sides, version: int) -> None:
    topic = both.topic()
    first = both.same(produce(topic, (0, numbered(5))), version, ProduceResponse)
    assert codes(first) == [0], "a producer that nobody knows begins where it wants"
    for data, code in (
        (numbered(7), 45),
        (numbered(6), 0),
        (numbered(1, epoch=1), 45),
        (numbered(0, epoch=1), 0),
        (numbered(7), 47),
        (numbered(5, 3, epoch=1), 45),
        (numbered(2**31 - 1, producer_id=PRODUCER + 1), 0),
        (numbered(0, producer_id=PRODUCER + 1), 0),
    ):
        beside = REFUSED if code else ()
        assert codes(both.same(produce(topic, (0, data)), version, ProduceResponse, beside=beside)) == [code]


# ---- bytes -----------------------------------------------------------------------------------------------------------------


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih3s", key, version, 1, 3, b"raw")


RAW = {
    "size -1": struct.pack(">i", -1),
    "size 0": struct.pack(">i", 0) + bytes(8),
    "size of 2 GiB": struct.pack(">i", 2**31 - 1) + bytes(8),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "half a header": framed(header(3, 1)[:6]),
    "a cut body": framed(header(3, 1) + struct.pack(">ih", 1, 7) + b"top"),
    "a count of 2 billion": framed(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "an API that nobody has": framed(header(999, 0)),
    "a negative API": framed(header(-1, 0)),
    "a version below": framed(header(0, 2)),
    "a version above": framed(header(3, 99) + bytes(20)),
    "a version of -1": framed(header(3, -1) + bytes(20)),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_request(both: Sides, name: str) -> None:
    assert {side.name: side.answer_to_bytes(RAW[name]) for side in both} == {"kafka": CLOSED, "replog": CLOSED}
