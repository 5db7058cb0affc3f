"""The metadata watch: one request, then steps from one image of the cluster to the next."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from replog.errors import MalformedFrameError
from replog.pb.v1 import data_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest


def encode_watch_request(request: WatchRequest) -> bytes:
    message = data_pb2.WatchRequest()
    to_proto(request, message)
    return message.SerializeToString()


def decode_watch_request(data: bytes) -> WatchRequest:
    message = data_pb2.WatchRequest()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a watch request: {error}") from error
    return from_proto(WatchRequest, message)


def encode_update(update: MetadataUpdate) -> bytes:
    message = data_pb2.MetadataUpdate()
    to_proto(update, message)
    return message.SerializeToString()


def decode_update(data: bytes) -> MetadataUpdate:
    message = data_pb2.MetadataUpdate()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a metadata update: {error}") from error
    return from_proto(MetadataUpdate, message)
