"""Quorum messages as protobuf envelopes, one per stream message."""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from replog.errors import MalformedFrameError
from replog.pb.v1 import quorum_pb2
from replog.rpc.convert import from_proto, structs_of, to_proto
from replog.rpc.messages import Hello
from replog_quorum import messages
from replog_quorum.messages import Request, Response

QuorumFrame: TypeAlias = Hello | Request | Response

_KINDS = {"hello": Hello, **structs_of(quorum_pb2.QuorumEnvelope, messages)}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def encode_quorum_message(message: QuorumFrame) -> bytes:
    envelope = quorum_pb2.QuorumEnvelope()
    target = getattr(envelope, _NAMES[type(message)])
    target.SetInParent()
    to_proto(message, target)
    return envelope.SerializeToString()


def decode_quorum_message(data: bytes | memoryview) -> QuorumFrame:
    """Raises `MalformedFrameError` for bytes that are no quorum message of this version."""
    envelope: Any = quorum_pb2.QuorumEnvelope()
    try:
        envelope.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a quorum message: {error}") from error
    name = envelope.WhichOneof("message")
    if name is None:
        raise MalformedFrameError("a quorum message of a kind this version does not know")
    message: QuorumFrame = from_proto(_KINDS[name], getattr(envelope, name))
    return message
