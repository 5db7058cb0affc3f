"""Unary calls: requests to any node (`NodeRequest`) and to the active controller (`ControllerRequest`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.controller import requests as controller
from replog.controller.requests import ClientChange, ControllerRequest, ControllerResponse
from replog.errors import MalformedFrameError, NotLeaderOrFollowerError, UnsupportedVersionError
from replog.errors.from_code import error_code_of, error_from_number
from replog.pb.v1 import controller_pb2, data_pb2
from replog.rpc import node_messages, transaction_messages
from replog.rpc.convert import from_proto, structs_of, to_proto, unsendable
from replog.rpc.node_requests import NodeRequest, NodeResponse, VoterChange
from replog.rpc.request_limits import check_request, check_text

T = TypeVar("T")

_Kinds: TypeAlias = Mapping[str, tuple[type[Struct], type[Struct]]]


def _kinds(request: type[Message], response: type[Message], *modules: ModuleType) -> _Kinds:
    answers = structs_of(response, *modules)
    return {name: (cls, answers[name]) for name, cls in structs_of(request, *modules).items()}


NODE_KINDS = _kinds(data_pb2.NodeRequest, data_pb2.NodeResponse, node_messages, transaction_messages)
"""What nodes ask one another, with the answer, by the name that both have on the wire."""

CONTROLLER_KINDS = _kinds(controller_pb2.ControllerRequest, controller_pb2.ControllerResponse, controller)
"""What the controller is asked, likewise."""


_OF_CLIENTS: Final = frozenset[type]((*get_args(ClientChange), *get_args(VoterChange)))
"""What is made for clients alone."""


class IncomingCall(Struct, Generic[T], frozen=True):
    """A request as it arrived: which cluster the caller thinks it talks to ("": any), and its time-out.

    `forwarded`: a node passes on a client's request; it is not passed on again.
    """

    request: T
    cluster_id: str
    timeout_ms: int
    forwarded: bool = False


def encode_node_request(request: NodeRequest, *, cluster_id: str, timeout_ms: int, forwarded: bool = False) -> bytes:
    message = data_pb2.NodeRequest(cluster_id=cluster_id, forwarded=forwarded)
    return _encode_request(request, message, timeout_ms, NODE_KINDS)


def decode_node_request(data: bytes | memoryview) -> IncomingCall[NodeRequest]:
    message = _parse(data_pb2.NodeRequest(), data)
    return IncomingCall(_checked(message, NODE_KINDS), message.cluster_id, message.timeout_ms, message.forwarded)


def encode_node_response(response: NodeResponse | BaseException) -> bytes:
    return _encode_response(response, data_pb2.NodeResponse(), NODE_KINDS)


def decode_node_response(data: bytes | memoryview) -> NodeResponse:
    """Raises the error that the other side answered with, as its own class."""
    message = _parse(data_pb2.NodeResponse(), data)
    _raise_error(message)
    response: NodeResponse = _decode(message, "response", NODE_KINDS, 1)
    return response


def encode_controller_request(request: ControllerRequest, *, cluster_id: str, timeout_ms: int) -> bytes:
    return _encode_request(
        request, controller_pb2.ControllerRequest(cluster_id=cluster_id), timeout_ms, CONTROLLER_KINDS
    )


def decode_controller_request(data: bytes | memoryview) -> IncomingCall[ControllerRequest]:
    message = _parse(controller_pb2.ControllerRequest(), data)
    return IncomingCall(_checked(message, CONTROLLER_KINDS), message.cluster_id, message.timeout_ms)


def encode_controller_response(response: ControllerResponse | BaseException) -> bytes:
    return _encode_response(response, controller_pb2.ControllerResponse(), CONTROLLER_KINDS)


def decode_controller_response(data: bytes | memoryview) -> ControllerResponse:
    """Raises the error that the controller answered with, as its own class."""
    message = _parse(controller_pb2.ControllerResponse(), data)
    _raise_error(message)
    response: ControllerResponse = _decode(message, "response", CONTROLLER_KINDS, 1)
    return response


def _encode_request(request: Any, message: Any, timeout_ms: int, kinds: _Kinds) -> bytes:
    try:
        message.timeout_ms = timeout_ms
    except (ValueError, TypeError) as error:
        raise unsendable("timeout_ms", timeout_ms, error) from None
    if isinstance(request, Envelope):
        message.client.principal = request.client.principal.name
        message.client.host = request.client.host
        message.client.api = request.api
        request = request.change
    return _encode(request, message, kinds, 0)


def _encode(value: Struct, message: Message, kinds: _Kinds, side: int) -> bytes:
    for name, classes in kinds.items():
        if type(value) is classes[side]:
            target = getattr(message, name)
            target.SetInParent()
            to_proto(value, target)
            return message.SerializeToString()
    raise TypeError(f"{type(value).__name__} is not a message of this call")


def _decode(message: Any, oneof: str, kinds: _Kinds, side: int) -> Any:
    name = message.WhichOneof(oneof)
    if name not in kinds:
        raise UnsupportedVersionError(
            f"a {type(message).__name__} of a kind this version does not know. Use the same replog version on both sides."
        )
    return from_proto(kinds[name][side], getattr(message, name))


def _checked(message: Any, kinds: _Kinds) -> Any:
    """Returns the request in a message, within its bounds; one that is made for clients in its envelope.

    Raises:
        MalformedFrameError: A text is too long.
        UnsupportedVersionError: It is of a kind that is not known, or made for a client that is not named.
    """
    check_text("cluster_id", message.cluster_id)
    request = _decode(message, "request", kinds, 0)
    check_request(request)
    if type(request) not in _OF_CLIENTS:
        return request
    if not message.HasField("client"):
        raise UnsupportedVersionError(
            f"{type(request).__name__} is made for clients, and the node that passes it on does not say for which one. Use the same "
            "replog version on all nodes."
        )
    check_text("client.principal", message.client.principal)
    check_text("client.host", message.client.host)
    check_text("client.api", message.client.api)
    client = ClientIdentity(Principal(message.client.principal), message.client.host)
    return Envelope(request, client, message.client.api)


def _encode_response(response: Struct | BaseException, message: Any, kinds: _Kinds) -> bytes:
    if not isinstance(response, BaseException):
        return _encode(response, message, kinds, 1)
    message.error.code = error_code_of(response)
    message.error.message = str(response)
    if isinstance(response, NotLeaderOrFollowerError):
        message.error.leader_id = response.leader_id
        message.error.leader_epoch = response.leader_epoch
    data: bytes = message.SerializeToString()
    return data


def _raise_error(message: Any) -> None:
    if not message.HasField("error"):
        return
    detail = message.error
    leader_id = detail.leader_id if detail.HasField("leader_id") else -1
    leader_epoch = detail.leader_epoch if detail.HasField("leader_epoch") else -1
    raise error_from_number(detail.code, detail.message, leader_id=leader_id, leader_epoch=leader_epoch)


def _parse(message: Any, data: bytes | memoryview) -> Any:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a {type(message).__name__}: {error}") from error
    return message
