"""Unary calls: every request, every response, every error, and what is none of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc_handlers import Handlers
from rpc_values import alike, values

from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.describing.requests import GroupType, ListedGroup, ListGroups, ListGroupsResponse
from replog.coordinator.offsets.requests import CommitOffsetsResponse
from replog.errors import (
    ErrorCode,
    InvalidRequestError,
    MalformedFrameError,
    NotLeaderOrFollowerError,
    ReplogError,
    StaleMemberEpochError,
    TopicExistsError,
)
from replog.pb.v1 import controller_pb2, data_pb2
from replog.rpc import calls
from replog.rpc.calls import IncomingCall
from replog.rpc.client_messages import NODE_KINDS
from replog.rpc.messages import ListOffsetsPartition, ListOffsetsRequest
from replog.rpc.metadata_messages import MetadataRequest
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.serving import answer_node_call
from replog.rpc.transport import RequestContext

CLIENT = list(NODE_KINDS.values())
CONTROLLER = list(calls._CONTROLLER_KINDS.values())


def one_of(kinds: list[tuple[type, type]], side: int) -> st.SearchStrategy[Any]:
    return st.one_of(values(kind[side]) for kind in kinds)


@settings(max_examples=50, deadline=None)
@given(request=one_of(CLIENT, 0), response=one_of(CLIENT, 1), timeout_ms=st.integers(0, 2**40))
def test_client_calls(request: Any, response: Any, timeout_ms: int) -> None:
    data = calls.encode_node_request(request, cluster_id="c", timeout_ms=timeout_ms)
    assert calls.decode_node_request(data) == IncomingCall(request, "c", timeout_ms)
    assert alike(calls.decode_node_response(calls.encode_node_response(response))) == alike(response)


@settings(max_examples=80, deadline=None)
@given(request=one_of(CONTROLLER, 0), response=one_of(CONTROLLER, 1), forwarded=st.booleans())
def test_controller_calls(request: Any, response: Any, forwarded: bool) -> None:
    data = calls.encode_controller_request(request, cluster_id="c", timeout_ms=5, forwarded=forwarded)
    assert calls.decode_controller_request(data) == IncomingCall(request, "c", 5, forwarded)
    assert calls.decode_controller_response(calls.encode_controller_response(response)) == response


@pytest.mark.parametrize("count", [0, 1, 10, 95])
def test_a_long_list_of_groups_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Goal: 10,000 groups do not hold the loop of a broker for 30 ms; whoever reads them sees no difference."""
    monkeypatch.setattr(calls, "GROUPS_AT_ONCE", 10)
    groups = tuple(ListedGroup(f"g{number}", "consumer", "Stable", GroupType.CONSUMER) for number in range(count))
    turns = 0

    class Listing(Handlers):
        async def handle_node_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
            return ListGroupsResponse(groups)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> bytes:
        other = asyncio.create_task(take_turns())
        asked = calls.encode_node_request(ListGroups(), cluster_id="", timeout_ms=0)
        context = RequestContext("", "", "", "", 0)
        data = await answer_node_call(Listing(), asked, context)
        other.cancel()
        return data

    assert calls.decode_node_response(asyncio.run(main())) == ListGroupsResponse(groups)
    assert turns >= (count - 1) // 10


async def test_large_calls_are_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Example: a million and a half partitions in 64 MiB, which took five seconds of the loop that serves everybody."""
    threads: set[int] = set()

    class Listing(Handlers):
        async def handle_node_call(self, call: Any, context: Any) -> Any:
            return ListGroupsResponse(())

    def noting(name: str) -> None:
        real = getattr(calls, name)

        def noted(message: Any) -> Any:
            threads.add(threading.get_ident())
            return real(message)

        monkeypatch.setattr(calls, name, noted)

    noting("decode_node_request")
    noting("encode_node_response")
    asked = ListOffsetsRequest(tuple(ListOffsetsPartition(UUID(int=5), number, -1, -1) for number in range(1_000)))
    body = calls.encode_node_request(asked, cluster_id="", timeout_ms=0)
    await answer_node_call(Listing(), body, RequestContext("", "", "", "", 0))
    assert threads
    assert threading.get_ident() not in threads
    data = await answer_node_call(Listing(), bytes(17 << 20), RequestContext("", "", "", "", 0))
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
def test_nothing_and_nonsense_are_malformed(decode: Any) -> None:
    with pytest.raises(MalformedFrameError, match="a kind this version does not know"):
        decode(b"")
    with pytest.raises(MalformedFrameError, match="not a"):
        decode(b"\xff\xff")


def test_a_message_of_another_call_is_a_bug_of_ours() -> None:
    with pytest.raises(TypeError, match="MetadataRequest is not a message of this call"):
        calls.encode_controller_request(MetadataRequest(), cluster_id="", timeout_ms=0)  # type: ignore[arg-type]


def test_every_kind_of_the_envelope_has_its_classes() -> None:
    """A kind in the proto file that nobody decodes would be a request without an answer."""
    for message, oneof, kinds in (
        (data_pb2.NodeRequest, "request", NODE_KINDS),
        (data_pb2.NodeResponse, "response", NODE_KINDS),
        (controller_pb2.ControllerRequest, "request", calls._CONTROLLER_KINDS),
        (controller_pb2.ControllerResponse, "response", calls._CONTROLLER_KINDS),
    ):
        names = {field.name for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields} - {"error"}
        assert names == set(kinds)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200, 1.5, "0"])
def test_a_number_that_its_field_cannot_hold_is_named(number: Any) -> None:
    """Whoever made the request reads which argument it was, and gets an error of ours."""
    request = ListOffsetsRequest((ListOffsetsPartition(UUID(int=1), 0, timestamp=number),))
    with pytest.raises(InvalidRequestError, match=r"ListOffsetsPartition\.timestamp is .*cannot be sent"):
        calls.encode_node_request(request, cluster_id="c", timeout_ms=5)
    for encode in (calls.encode_node_request, calls.encode_controller_request):
        with pytest.raises(InvalidRequestError, match=r"timeout_ms is .*cannot be sent"):
            encode(DescribeNodeRequest(), cluster_id="c", timeout_ms=number)  # type: ignore[operator]


def test_the_bytes_of_a_heartbeat() -> None:
    """What a member leaves out is as it was told before, so that it must not look like something empty."""
    short = calls.encode_node_request(ConsumerHeartbeat("g", "m", 3), cluster_id="", timeout_ms=0)
    assert short == bytes.fromhex("d20113 0a0167 12016d 1803 30ffffffffffffffff ff01")
    owned = {UUID(int=1): frozenset({2, 0})}
    full = ConsumerHeartbeat("g", "m", 3, subscribed_topics=(), owned=owned)
    data = calls.encode_node_request(full, cluster_id="", timeout_ms=0)
    assert data.endswith(bytes.fromhex("3a00 5218 0a16 0a10 00000000000000000000000000000001 1202 0002"))
    assert calls.decode_node_request(data).request == full


def test_a_heartbeat_that_names_a_topic_twice_says_all_of_it() -> None:
    message = data_pb2.NodeRequest()
    message.consumer_heartbeat.group_id = "g"
    for partition in (2, 0):
        message.consumer_heartbeat.owned.values.add(topic_id=bytes(16), partitions=[partition])
    request = calls.decode_node_request(message.SerializeToString()).request
    assert isinstance(request, ConsumerHeartbeat)
    assert request.owned == {UUID(int=0): frozenset({0, 2})}


def test_where_a_heartbeat_comes_from_is_not_what_it_says() -> None:
    data = calls.encode_node_request(
        ConsumerHeartbeat("g", "m", 3, client_host="elsewhere"), cluster_id="", timeout_ms=0
    )
    assert calls.decode_node_request(data).request == ConsumerHeartbeat("g", "m", 3)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, 4711])
def test_the_error_of_one_partition_arrives_as_its_class(code: int) -> None:
    response = data_pb2.NodeResponse()
    outcome = response.commit_offsets.topics.add(topic="t", topic_id=bytes(16)).partitions.add(partition=3)
    outcome.error.code = code
    outcome.error.message = "not yours"
    found = calls.decode_node_response(response.SerializeToString())
    assert isinstance(found, CommitOffsetsResponse)
    error = found.topics[0].partitions[0].error
    assert type(error) is (StaleMemberEpochError if code != 4711 else ReplogError)
    assert "not yours" in str(error)
