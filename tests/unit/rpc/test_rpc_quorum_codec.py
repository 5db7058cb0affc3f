"""Quorum messages as bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc_values import values

from replog.errors import MalformedFrameError
from replog.pb.v1 import quorum_pb2
from replog.rpc import quorum_codec
from replog.rpc.quorum_codec import decode_quorum_message, encode_quorum_message

MESSAGES = st.one_of(*(values(cls) for cls in quorum_codec._KINDS.values()))


@settings(max_examples=80, deadline=None)
@given(message=MESSAGES)
def test_round_trip(message: Any) -> None:
    assert decode_quorum_message(encode_quorum_message(message)) == message


def test_every_kind_of_the_envelope_has_its_class() -> None:
    assert {field.name for field in quorum_pb2.QuorumEnvelope.DESCRIPTOR.fields} == set(quorum_codec._KINDS)


@pytest.mark.parametrize(("data", "why"), [(b"", "a kind this version does not know"), (b"\xff", "not a quorum")])
def test_what_is_no_message_is_malformed(data: bytes, why: str) -> None:
    with pytest.raises(MalformedFrameError, match=why):
        decode_quorum_message(data)


@settings(max_examples=120, deadline=None)
@given(message=MESSAGES, draw=st.data())
def test_damaged_bytes_are_malformed_and_nothing_else(message: Any, draw: st.DataObject) -> None:
    data = bytearray(encode_quorum_message(message))
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedFrameError):
        decode_quorum_message(bytes(data[: draw.draw(st.integers(0, len(data)))]))
