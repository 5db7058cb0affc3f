"""Values of the metadata log, and values that are none of ours."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc_values import structs_of, values

from replog.errors import CorruptRecordError, MalformedFrameError, UnsupportedVersionError
from replog.metadata import records
from replog.metadata.records import MetadataRecord, NoOpRecord, RemoveTopicRecord, TopicRecord
from replog.pb.v1 import metadata_pb2
from replog.rpc.metadata_records import FRAME_VERSION, decode_metadata_record, encode_metadata_record

PARTS = {records.SupportedFeature, records.BrokerEndpoint, records.QuotaEntityPart}
KINDS = [cls for cls in structs_of(records) if cls not in PARTS]


@settings(max_examples=80, deadline=None)
@given(record=st.one_of(*(values(cls) for cls in KINDS)))
def test_round_trip(record: MetadataRecord) -> None:
    assert decode_metadata_record(encode_metadata_record(record), offset=3) == record


def test_a_field_of_a_later_version_is_passed_over() -> None:
    value = encode_metadata_record(TopicRecord("t", UUID(int=1)))
    later = bytes((*value[:2], value[2] + 2)) + value[3:] + b"\x18\x01"
    assert decode_metadata_record(later, offset=0) == TopicRecord("t", UUID(int=1))


def test_every_record_has_a_kind() -> None:
    assert len(KINDS) == len(metadata_pb2.MetadataRecord.DESCRIPTOR.fields)


def test_the_frame() -> None:
    """80 | field 4 (topic): name "t", id."""
    value = encode_metadata_record(TopicRecord("t", UUID(int=1)))
    assert value == bytes.fromhex("80 22 15 0a0174 1210") + UUID(int=1).bytes
    assert encode_metadata_record(NoOpRecord()) == bytes.fromhex("80 5a 00")


@pytest.mark.parametrize("version", [0, 1, FRAME_VERSION + 1, 0xFF])
def test_another_systems_frame_is_refused(version: int) -> None:
    value = bytes((version,)) + encode_metadata_record(NoOpRecord())[1:]
    with pytest.raises(UnsupportedVersionError, match=f"offset 17: frame version {version}, expected 128"):
        decode_metadata_record(value, offset=17)


@pytest.mark.parametrize("content", [b"", bytes.fromhex("fa01 00")])
def test_an_unknown_kind_stops_the_node(content: bytes) -> None:
    """Every node replays every record: one that cannot must not go on with a hole in its image."""
    with pytest.raises(UnsupportedVersionError, match="offset 17: a record of a kind this version does not know"):
        decode_metadata_record(bytes((FRAME_VERSION,)) + content, offset=17)


@pytest.mark.parametrize("value", [None, b"", bytes.fromhex("80 ff")])
def test_what_is_no_record_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="__cluster_metadata-0 at byte 17"):
        decode_metadata_record(value, offset=17)


def test_an_id_of_the_wrong_length_is_malformed() -> None:
    message = metadata_pb2.MetadataRecord(remove_topic={"topic_id": b"short"})
    with pytest.raises(MalformedFrameError, match=RemoveTopicRecord.__name__):
        decode_metadata_record(bytes((FRAME_VERSION,)) + message.SerializeToString(), offset=17)


@settings(max_examples=120, deadline=None)
@given(value=st.binary(max_size=60))
def test_any_bytes_are_a_record_or_an_error_of_ours(value: bytes) -> None:
    with contextlib.suppress(CorruptRecordError, UnsupportedVersionError, MalformedFrameError):
        decode_metadata_record(bytes((FRAME_VERSION,)) + value, offset=0)
