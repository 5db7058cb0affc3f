"""The metadata watch: one request, then the cluster's metadata at every change."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from replog.errors import MalformedFrameError
from replog.pb.v1 import data_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import ClusterMetadata, MetadataRequest


def encode_metadata_request(request: MetadataRequest) -> bytes:
    message = data_pb2.MetadataRequest()
    to_proto(request, message)
    return message.SerializeToString()


def decode_metadata_request(data: bytes) -> MetadataRequest:
    message = data_pb2.MetadataRequest()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a metadata request: {error}") from error
    return from_proto(MetadataRequest, message)


def encode_metadata(metadata: ClusterMetadata) -> bytes:
    message = data_pb2.ClusterMetadata()
    to_proto(metadata, message)
    return message.SerializeToString()


def decode_metadata(data: bytes) -> ClusterMetadata:
    message = data_pb2.ClusterMetadata()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not cluster metadata: {error}") from error
    return from_proto(ClusterMetadata, message)
