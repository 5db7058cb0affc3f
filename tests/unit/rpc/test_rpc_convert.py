"""Every message that travels, to protobuf and back by field name."""

from __future__ import annotations

import typing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import defstruct
from rpc_values import ALL, ON_THE_WIRE, alike, proto_of, sent_fields, values

from replog.controller import requests as controller
from replog.errors import ErrorCode, InvalidRequestError, MalformedFrameError
from replog.metadata import records
from replog.pb.v1 import controller_pb2, metadata_pb2, quorum_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import FetchResponse, FetchResult, Hello
from replog_quorum import messages as quorum

# what `frames` writes by hand: the sizes of the record bytes in the header, the bytes themselves behind it
ONLY_IN_PROTO = {FetchResult: {"size_bytes"}}
ONLY_IN_STRUCT = {FetchResponse: {"batches"}}
CONVERTIBLE = [cls for cls in ON_THE_WIRE if cls not in ONLY_IN_STRUCT]

NEVER_SENT = {
    "replog.controller.messages": {
        "Tick", "Submit", "Claim", "Renounce", "CommittedRecords",
        "Skip", "LoadSnapshot", "BrokerGone", "ChangeFailed", "AppendRefused", "AppendRecords", "WatchBrokers", "WatchedBroker", "Reply", "ReplyError", "ResignLeadership",
    },
    "replog.controller.requests": {"LongResult", "Result"},
    "replog_quorum.voters": {"VoterSet"},
}  # fmt: skip


def name_of(cls: type) -> str:
    return f"{cls.__module__.removesuffix('.messages').rpartition('.')[2]}.{cls.__name__}"


def test_only_messages_and_effects_of_cores_have_no_protobuf_message() -> None:
    without: dict[str, set[str]] = {}
    for cls in ALL:  # what nodes ask one another is tried in test_rpc_calls; the rest of replog.rpc has other codecs
        if proto_of(cls) is None and not cls.__module__.startswith("replog.rpc."):
            without.setdefault(cls.__module__, set()).add(cls.__name__)
    assert without == NEVER_SENT


def test_field_names_are_equal() -> None:
    wrong = {}
    for cls in ON_THE_WIRE:
        proto = proto_of(cls)
        assert proto is not None
        in_proto = set(proto.DESCRIPTOR.fields_by_name) - ONLY_IN_PROTO.get(cls, set())
        if differing := in_proto ^ (set(sent_fields(cls)) - ONLY_IN_STRUCT.get(cls, set())):
            wrong[name_of(cls)] = differing
    assert wrong == {}


@pytest.mark.parametrize("cls", CONVERTIBLE, ids=name_of)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_round_trip(cls: type, draw: st.DataObject) -> None:
    value = draw.draw(values(cls))
    proto = proto_of(cls)
    assert proto is not None
    sent = proto()
    to_proto(value, sent)
    received = proto.FromString(sent.SerializeToString())
    assert alike(from_proto(cls, received)) == alike(value)


@pytest.mark.parametrize("isr", [None, (), (1, 2)])
def test_no_change_and_an_empty_list_are_two_things(isr: tuple[int, ...] | None) -> None:
    record = records.PartitionChangeRecord(partition_id=0, topic_id=UUID(int=1), isr=isr)
    message = metadata_pb2.PartitionChangeRecord()
    to_proto(record, message)
    assert from_proto(records.PartitionChangeRecord, message).isr == isr


def test_a_nested_message_without_fields_set_is_not_absent() -> None:
    message = quorum_pb2.QuorumFetchResponse()
    to_proto(
        quorum.QuorumFetchResponse(1, 2, quorum.QuorumError.NONE, None, 3, 4, 0, diverging=quorum.EpochEnd(0, 0)),
        message,
    )
    assert from_proto(quorum.QuorumFetchResponse, message).diverging == quorum.EpochEnd(0, 0)


def test_an_unknown_enum_value_is_named() -> None:
    message = controller_pb2.TopicResult(name="t", error=12345)
    with pytest.raises(MalformedFrameError, match="TopicResult from another version or damaged: 12345"):
        from_proto(controller.TopicResult, message)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_that_is_not_16_bytes_is_malformed(size: int) -> None:
    message = quorum_pb2.Hello(incarnation_id=bytes(size))
    with pytest.raises(MalformedFrameError, match="Use the same replog version on both sides"):
        from_proto(Hello, message)


def test_a_view_is_copied() -> None:
    message = quorum_pb2.QuorumFetchResponse()
    batches = bytearray(b"abc")
    response = quorum.QuorumFetchResponse(1, 2, quorum.QuorumError.NONE, None, 3, 4, 0, batches=memoryview(batches))
    to_proto(response, message)
    batches[0] = 0
    assert from_proto(quorum.QuorumFetchResponse, message).batches == b"abc"


@pytest.mark.parametrize("hint", [dict[str, int], complex, "int | str"])
def test_a_field_that_cannot_travel_is_a_bug_of_ours(hint: Any) -> None:
    cls = defstruct("Odd", [("field", hint)])
    with pytest.raises(TypeError, match="protobuf mapping"):
        from_proto(cls, metadata_pb2.NoOpRecord())


def test_error_codes_travel_as_numbers() -> None:
    message = controller_pb2.PartitionIsrResult()
    to_proto(controller.PartitionIsrResult(UUID(int=1), 0, ErrorCode.UNKNOWN_SERVER_ERROR), message)
    assert message.error == -1


def test_nothing_where_a_value_must_be_names_the_field() -> None:
    isr = typing.cast("tuple[int, ...]", None)
    change = controller.PartitionIsrResult(UUID(int=1), 0, ErrorCode.NONE, isr=isr)
    with pytest.raises(InvalidRequestError, match=r"PartitionIsrResult\.isr is None"):
        to_proto(change, controller_pb2.PartitionIsrResult())
