"""A node with metrics: what a scrape finds, what it costs to leave them off, and what is missing without the library."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from broker_kit import batch, wait_until
from metrics_kit import parsed, scrape
from node_kit import config, node

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.errors import ConfigError
from replog.protocol.server import OTHER, SOFTWARE_MAX, RequestCounts
from replog.testing import SimulatedFileSystem
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.kafka.raw_client import raw_client
from tests.unit.kafka.tls_kit import TlsFiles, connected, is_ended, serving_tls


async def test_a_node_is_scraped_while_it_works() -> None:
    async with node(SimulatedFileSystem(), config(metrics_listener="127.0.0.1:0")) as it:
        address = it.node.metrics_address
        assert address is not None
        topic = await it.create()
        await it.produce(topic)
        assert await it.fetch(topic)
        status, text = await asyncio.to_thread(scrape, address)
        assert status == 200
        found = parsed(text)
        assert found["replog_broker_running"] == 1
        assert (found["replog_partitions"], found["replog_leaders"]) == (1, 1)
        assert (found["replog_under_replicated_partitions"], found["replog_offline_partitions"]) == (0, 0)
        assert found["replog_produced_bytes_total"] == len(batch())
        assert found['replog_fetched_bytes_total{reader="consumer"}'] == len(batch())
        assert found['replog_request_seconds_count{request="produce",stage="total"}'] == 1
        assert found['replog_request_seconds_count{request="fetch_consumer",stage="total"}'] == 1
        assert found["replog_fsync_seconds_count"] > 0, "one replica: an fsync is on the way"
        assert (found["replog_quorum_is_leader"], found["replog_quorum_leader_id"]) == (1, 1)
        assert found['replog_quorum_commit_seconds{quantile="0.5"}'] >= 0
        assert found['replog_elections_total{type="unclean"}'] == 0
    with pytest.raises(OSError, match="refused"):
        scrape(address)


async def test_kafkas_clients_are_counted() -> None:
    settings = config(metrics_listener="127.0.0.1:0")
    async with node(SimulatedFileSystem(), settings) as it:
        address = it.node.metrics_address
        assert address is not None
        await asyncio.to_thread(ask_and_babble, it.node.address)
        found = parsed((await asyncio.to_thread(scrape, address))[1])
        assert found["replog_client_connections_accepted_total"] == 3
        assert found["replog_client_connections_ended_total"] == 2
        assert found['replog_kafka_requests_total{api="ApiVersions",version="3"}'] == 2
        assert found['replog_kafka_requests_total{api="Metadata",version="12"}'] == 1
        assert found['replog_kafka_clients_total{software="a-client",version="1"}'] == 2
        assert found["replog_kafka_malformed_requests_total"] == 1
        assert found["replog_kafka_failures_total"] == 0


async def test_clients_that_are_not_believed_are_counted(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    async with serving_tls(files, metrics_listener="127.0.0.1:0") as it:
        address = it.node.metrics_address
        assert address is not None
        for _ in range(2):
            with await asyncio.to_thread(connected, it.node.address, files.context()) as client:
                assert await asyncio.to_thread(is_ended, client)
        found = parsed((await asyncio.to_thread(scrape, address))[1])
        assert found['replog_client_authentications_failed_total{listener="SSL"}'] == 2
        assert found["replog_client_connections_ended_total"] == 2


def ask_and_babble(port: str) -> None:
    """A client that asks three things; one whose request is of no API; one that speaks HTTP."""
    with raw_client(port) as client:
        for _ in range(2):
            client.ask(ApiVersionsRequest("a-client", "1"), 3, ApiVersionsResponse)
        client.ask(MetadataRequest(None), 12, MetadataResponse)
    for garbage in (struct.pack(">ihhi", 8, 999, 0, 1), b"GET / HTTP/1.1\r\n\r\n"):
        with raw_client(port) as client:
            client.connection.sendall(garbage)
            assert client.is_closed()


def test_kinds_of_software_are_bounded() -> None:
    counts = RequestCounts()
    for number in range(2 * SOFTWARE_MAX):
        counts.note_software("client", str(number))
    assert len(counts.software) == SOFTWARE_MAX + 1
    assert counts.software[OTHER, OTHER] == SOFTWARE_MAX


async def test_a_node_that_has_failed_says_why_the_scrape_fails() -> None:
    async with node(SimulatedFileSystem(), config(metrics_listener="127.0.0.1:0")) as it:
        address = it.node.metrics_address
        assert address is not None
        stepper, publisher = it.node.parts.replicas.stepper, it.node.parts.replicas.publisher
        stepper.driver.halt()
        await it.register()
        await wait_until(lambda: publisher.image.topics_by_name)
        stepper.replicas[next(iter(publisher.image.topics_by_id)), 0] = None  # type: ignore[assignment]
        assert (await asyncio.to_thread(scrape, address))[0] == 503
        stepper.replicas.clear()


async def test_with_metrics_off_requests_take_the_bare_paths() -> None:
    async with node(SimulatedFileSystem()) as it:
        parts = it.node.parts.requests.handlers._parts
        assert it.node.metrics_address is None
        assert parts.produces is it.node.parts.requests.produce_path
        assert parts.fetches is it.node.parts.requests.fetch_path
        assert it.node.parts.requests.produce_path.on_begin is None
        assert it.node.parts.flusher._on_flush_seconds is None


def test_with_metrics_off_the_library_is_not_imported() -> None:
    code = "import sys, replog.broker.node.node; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("prometheus_client", "replog.broker.metrics"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    environment = NodeEnvironment(fs=SimulatedFileSystem())
    with pytest.raises(ConfigError, match=r"pip install .*prometheus-client") as raised:
        await Node.start(config(metrics_listener="127.0.0.1:0"), environment=environment)
    assert raised.value.field == "metrics.listener"
