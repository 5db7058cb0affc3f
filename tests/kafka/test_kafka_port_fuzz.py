"""Whatever bytes come to the port for Kafka's clients: the node goes on, others are served, and little is logged and kept.

`REPLOG_KAFKA_FUZZ=20000` tries that many inputs, new ones every time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_client import RawClient
from served_cluster import ServedCluster, served_cluster

from replog.protocol.private import PrivateApi
from replog.protocol.served import SERVED
from replog.records import encode_batch
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.metadata import MetadataRequest
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest
from replog.wire.primitives import Writer
from tests.unit.kafka import kio_messages as kio

TOPIC = "untouched"
EXAMPLES = int(os.environ.get("REPLOG_KAFKA_FUZZ", "300"))
IS_LONG = "REPLOG_KAFKA_FUZZ" in os.environ
GROWTH_MAX_BYTES = 64 << 20
"""What a node may have more after all of it than in the middle: caches that fill up, not what each input leaves."""

SERVED_BY_KEY = {
    api.load().request.API_KEY: api.load().request
    for api in SERVED
    if not isinstance(api.load().request, PrivateApi)
    and api.load().request not in {AddRaftVoterRequest, RemoveRaftVoterRequest, UnregisterBrokerRequest}
}
"""All but what would take the node apart if it made sense by chance."""

PATIENCE_S = 0.05
"""How long an answer may take before the next bytes are thrown; what comes later is thrown away."""


def framed(request: Any, version: int) -> bytes:
    writer = Writer()
    RequestHeader(request.API_KEY, version, 7, "fuzz").write(writer, 2 if version >= request.FLEXIBLE_FROM else 1)
    request.write(writer, version)
    body = writer.joined()
    return struct.pack(">i", len(body)) + body


@st.composite
def valid(draw: st.DrawFn) -> bytes:
    """A request of an API that is served, filled by kio's classes with anything."""
    key = draw(st.sampled_from(sorted(SERVED_BY_KEY)))
    request = SERVED_BY_KEY[key]
    version = draw(st.sampled_from(request.VERSIONS))
    name = request.__module__.rpartition(".")[2]
    message = kio.any_message(kio.kio_class(name, "request", version), Random(draw(st.integers(0, 2**32))))
    header = Writer()
    RequestHeader(key, version, 7, "fuzz").write(header, 2 if version >= request.FLEXIBLE_FROM else 1)
    body = header.joined() + kio.written(message)
    return struct.pack(">i", len(body)) + body


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A request that is cut, or has some other bytes, more or fewer of them, with its size corrected or not."""
    data = bytearray(draw(valid()))
    match draw(st.sampled_from(["cut", "other", "more", "fewer"])):
        case "cut":
            del data[draw(st.integers(0, len(data))) :]
        case "other":
            for at, byte in draw(st.lists(st.tuples(st.integers(4, len(data) - 1), st.integers(0, 255)), max_size=4)):
                data[at] = byte
        case "more":
            at = draw(st.integers(4, len(data)))
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        case _:
            at = draw(st.integers(4, len(data)))
            del data[at : at + draw(st.integers(1, 8))]
    if len(data) >= 4 and draw(st.booleans()):
        data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


anything = st.one_of(st.binary(max_size=200), valid(), mutated())


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """A node of its own: nobody else's complaints are in its log."""
    with served_cluster(tmp_path_factory.mktemp("fuzzed") / "cluster") as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


def throw(address: str, data: bytes) -> None:
    """Sends bytes and takes what comes, until nothing does or the node has ended the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as thrown:
        thrown.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
            thrown.sendall(data)
            answer = thrown.recv(1 << 16)
            while answer and len(answer) == 1 << 16:
                answer = thrown.recv(1 << 16)


def append(client: RawClient) -> int:
    """Appends a record on a connection that stays; returns its offset."""
    data = ProduceRequest.PartitionProduceData(0, encode_batch([(0, None, b"v", ())]))
    topics = [ProduceRequest.TopicProduceData(TOPIC, partition_data=[data])]
    response = client.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=topics), 9, ProduceResponse)
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == 0, partition
    offset: int = partition.base_offset
    return offset


def rss_bytes(cluster: ServedCluster) -> int:
    return int(psutil.Process(cluster.process_id()).memory_info().rss)


def test_whatever_bytes_come(fuzzed: ServedCluster) -> None:
    address = fuzzed.bootstrap_servers
    client = RawClient(address)
    seen: list[int] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=not IS_LONG,
        suppress_health_check=list(HealthCheck),
    )
    @given(anything)
    def go_on(data: bytes) -> None:
        throw(address, data)
        fuzzed.process_id()
        seen.append(rss_bytes(fuzzed))
        if len(seen) % 20 == 0:
            append(client)

    before = append(client)
    go_on()
    assert append(client) == before + len(seen) // 20 + 1
    client.connection.close()
    assert seen[-1] - seen[len(seen) // 2] < GROWTH_MAX_BYTES
    lines = fuzzed.log_text().splitlines()
    minutes = 2 + len(seen) // 1000
    complaints = [line for line in lines if "was ended" in line]
    assert len(complaints) <= minutes, complaints[:5]
    assert [line for line in lines if "Traceback" in line or " ERROR " in line] == []


@pytest.mark.parametrize("size", [8, 40, 2**31 - 1])
def test_many_connections_that_stop_in_the_middle(fuzzed: ServedCluster, size: int) -> None:
    """What they announce takes no memory, and others are served meanwhile."""
    host, _, port = fuzzed.bootstrap_servers.rpartition(":")
    start = framed(MetadataRequest([]), 9)[4:10]
    before = rss_bytes(fuzzed)
    halves = [socket.create_connection((host, int(port)), timeout=30) for _ in range(200)]
    try:
        for half in halves:
            half.sendall(struct.pack(">i", size) + start)
        client = RawClient(fuzzed.bootstrap_servers)
        answer = client.ask(ApiVersionsRequest("raw", "1"), 4, ApiVersionsResponse)
        client.connection.close()
        assert answer.error_code == 0
        assert rss_bytes(fuzzed) - before < GROWTH_MAX_BYTES
    finally:
        for half in halves:
            half.close()
