"""Quorum messages as protobuf envelopes, one per stream message."""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from replog.errors import MalformedFrameError
from replog.pb.v1 import quorum_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import Hello
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)

QuorumFrame: TypeAlias = Hello | Request | Response

_KINDS: dict[str, type] = {
    "hello": Hello,
    "vote_request": VoteRequest,
    "vote_response": VoteResponse,
    "begin_request": BeginQuorumEpochRequest,
    "begin_response": BeginQuorumEpochResponse,
    "end_request": EndQuorumEpochRequest,
    "end_response": EndQuorumEpochResponse,
    "fetch_request": QuorumFetchRequest,
    "fetch_response": QuorumFetchResponse,
    "fetch_snapshot_request": FetchSnapshotRequest,
    "fetch_snapshot_response": FetchSnapshotResponse,
    "update_voter_request": UpdateVoterRequest,
    "update_voter_response": UpdateVoterResponse,
}
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
