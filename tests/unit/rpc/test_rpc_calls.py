"""Unary calls: every request, every response, every error, and what is none of them."""

from __future__ import annotations

import threading
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rpc_handlers import Handlers
from rpc_values import alike, values

from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.controller.requests import AllocateProducerIds, ClientChange, DeleteTopics, ForkTopic
from replog.errors import (
    InvalidRequestError,
    MalformedFrameError,
    NotLeaderOrFollowerError,
    ReplogError,
    TopicExistsError,
    UnsupportedVersionError,
)
from replog.pb.v1 import controller_pb2, data_pb2
from replog.rpc import calls
from replog.rpc.calls import IncomingCall
from replog.rpc.metadata_messages import MetadataRequest
from replog.rpc.node_messages import AddVoterRequest, DescribeNodeRequest, RemoveVoterRequest
from replog.rpc.node_requests import VoterChange
from replog.rpc.serving import answer_controller_call, answer_node_call
from replog.rpc.transport import RequestContext
from tests.envelopes import in_envelope

CLIENT = list(calls.NODE_KINDS.values())
CONTROLLER = list(calls.CONTROLLER_KINDS.values())


def one_of(kinds: list[tuple[type, type]], side: int) -> st.SearchStrategy[Any]:
    return st.one_of(values(kind[side]) for kind in kinds)


@settings(max_examples=50, deadline=None)
@given(request=one_of(CLIENT, 0), response=one_of(CLIENT, 1), timeout_ms=st.integers(0, 2**40))
def test_client_calls(request: Any, response: Any, timeout_ms: int) -> None:
    wish = in_envelope(request)
    data = calls.encode_node_request(wish, cluster_id="c", timeout_ms=timeout_ms)
    assert calls.decode_node_request(data) == IncomingCall(wish, "c", timeout_ms)
    assert alike(calls.decode_node_response(calls.encode_node_response(response))) == alike(response)


@settings(max_examples=80, deadline=None)
@given(request=one_of(CONTROLLER, 0), response=one_of(CONTROLLER, 1))
def test_controller_calls(request: Any, response: Any) -> None:
    wish = in_envelope(request)
    data = calls.encode_controller_request(wish, cluster_id="c", timeout_ms=5)
    assert calls.decode_controller_request(data) == IncomingCall(wish, "c", 5)
    assert calls.decode_controller_response(calls.encode_controller_response(response)) == response


@pytest.mark.parametrize("name", ["ANONYMOUS", "CN=billing,O=Example", ""])
def test_who_makes_a_change_hears_who_asked_the_broker(name: str) -> None:
    """KIP-590: who passes a request on says for whom."""
    client = ClientIdentity(Principal(name), "::1")
    wish: Any = Envelope(DeleteTopics(()), client, "DeleteTopics")
    data = calls.encode_controller_request(wish, cluster_id="c", timeout_ms=5)
    assert calls.decode_controller_request(data) == IncomingCall(wish, "c", 5)
    vote: Any = Envelope(RemoveVoterRequest(1), client)
    data = calls.encode_node_request(vote, cluster_id="c", timeout_ms=5, forwarded=True)
    assert calls.decode_node_request(data) == IncomingCall(vote, "c", 5, True)  # noqa: FBT003
    for long in (
        replace(wish, client=replace(client, principal=Principal("p" * 5_000))),
        replace(wish, client=replace(client, host="p" * 5_000)),
        replace(wish, api="p" * 5_000),
    ):
        with pytest.raises(MalformedFrameError, match=r"client.\w+ has 5000 characters"):
            calls.decode_controller_request(calls.encode_controller_request(long, cluster_id="", timeout_ms=0))


@pytest.mark.parametrize("change", [*get_args(ClientChange), *get_args(VoterChange)])
def test_a_change_of_a_client_arrives_with_its_client_or_not_at_all(change: Any) -> None:
    """Whoever handled it would not know whose right to ask for; an older broker names nobody."""
    is_vote = change in get_args(VoterChange)
    message: Any = data_pb2.NodeRequest() if is_vote else controller_pb2.ControllerRequest()
    kinds = calls.NODE_KINDS if is_vote else calls.CONTROLLER_KINDS
    (name,) = [name for name, (request, _) in kinds.items() if request is change]
    getattr(message, name).SetInParent()
    if change is ForkTopic:
        message.fork_topic.topic_id = bytes(16)
    if change is AddVoterRequest:
        message.add_voter.directory_id = bytes(16)
    decode: Any = calls.decode_node_request if is_vote else calls.decode_controller_request
    with pytest.raises(UnsupportedVersionError, match="does not say for which one"):
        decode(message.SerializeToString())


async def test_large_calls_are_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a stranger puts into one: its decoding would be time of the loop that serves everybody."""
    threads: set[int] = set()

    def noting(name: str) -> None:
        real = getattr(calls, name)

        def noted(message: Any) -> Any:
            threads.add(threading.get_ident())
            return real(message)

        monkeypatch.setattr(calls, name, noted)

    noting("decode_controller_request")
    noting("encode_controller_response")
    asked = in_envelope(DeleteTopics(tuple(f"topic-{number}" for number in range(2_000))))
    body = calls.encode_controller_request(asked, cluster_id="", timeout_ms=0)
    context = RequestContext("", "", "", "")
    await answer_controller_call(Handlers(), body, context)
    assert threads
    assert threading.get_ident() not in threads
    data = await answer_node_call(Handlers(), bytes(17 << 20), context)
    with pytest.raises(InvalidRequestError, match="may have 16,777,216: name fewer things"):
        calls.decode_node_response(data)


def test_a_message_without_fields_arrives() -> None:
    data = calls.encode_node_request(DescribeNodeRequest(), cluster_id="", timeout_ms=0)
    assert calls.decode_node_request(data).request == DescribeNodeRequest()


def test_an_error_is_raised_where_it_arrives() -> None:
    with pytest.raises(TopicExistsError, match=r"^there is one$"):
        calls.decode_controller_response(calls.encode_controller_response(TopicExistsError("there is one")))


def test_an_error_carries_the_leader() -> None:
    error = NotLeaderOrFollowerError("ask the other", 2, 7)
    with pytest.raises(NotLeaderOrFollowerError) as caught:
        calls.decode_node_response(calls.encode_node_response(error))
    assert (caught.value.leader_id, caught.value.leader_epoch) == (2, 7)


def test_an_exception_that_is_not_ours_is_an_unknown_error() -> None:
    with pytest.raises(ReplogError, match="boom") as caught:
        calls.decode_node_response(calls.encode_node_response(ValueError("boom")))
    assert type(caught.value) is ReplogError


def test_an_error_of_a_newer_version_keeps_its_number_and_text() -> None:
    data = data_pb2.NodeResponse(error={"code": 4711, "message": "new"}).SerializeToString()
    with pytest.raises(ReplogError, match="error 4711: new"):
        calls.decode_node_response(data)


@pytest.mark.parametrize(
    "decode",
    [
        calls.decode_node_request,
        calls.decode_node_response,
        calls.decode_controller_request,
        calls.decode_controller_response,
    ],
)
def test_nothing_is_of_another_version_and_nonsense_is_malformed(decode: Any) -> None:
    with pytest.raises(UnsupportedVersionError, match="a kind this version does not know"):
        decode(b"")
    with pytest.raises(MalformedFrameError, match="not a"):
        decode(b"\xff\xff")


def test_a_message_of_another_call_is_a_bug_of_ours() -> None:
    with pytest.raises(TypeError, match="MetadataRequest is not a message of this call"):
        calls.encode_controller_request(MetadataRequest(), cluster_id="", timeout_ms=0)  # type: ignore[arg-type]


def test_every_kind_of_the_envelope_has_its_classes() -> None:
    """A kind in the proto file that nobody decodes would be a request without an answer."""
    for message, oneof, kinds in (
        (data_pb2.NodeRequest, "request", calls.NODE_KINDS),
        (data_pb2.NodeResponse, "response", calls.NODE_KINDS),
        (controller_pb2.ControllerRequest, "request", calls.CONTROLLER_KINDS),
        (controller_pb2.ControllerResponse, "response", calls.CONTROLLER_KINDS),
    ):
        names = {field.name for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields} - {"error"}
        assert names == set(kinds)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200, 1.5, "0"])
def test_a_number_that_its_field_cannot_hold_is_named(number: Any) -> None:
    """Whoever made the request reads which argument it was, and gets an error of ours."""
    request = AllocateProducerIds(broker_id=1, broker_epoch=number)
    with pytest.raises(InvalidRequestError, match=r"AllocateProducerIds\.broker_epoch is .*cannot be sent"):
        calls.encode_controller_request(request, cluster_id="c", timeout_ms=5)
    for encode in (calls.encode_node_request, calls.encode_controller_request):
        with pytest.raises(InvalidRequestError, match=r"timeout_ms is .*cannot be sent"):
            encode(DescribeNodeRequest(), cluster_id="c", timeout_ms=number)  # type: ignore[arg-type]
