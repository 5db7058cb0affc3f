"""A node with several listeners: each client is told where brokers are reached by the listener that it came by."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replog.client import Admin
from replog.client.cluster.addresses import address_of
from replog.errors import ConfigError
from replog.metadata.records import BrokerEndpoint
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.kafka.raw_client import RawClient
from tests.unit.kafka.kafka_node_kit import Served, serving

TWO: dict[str, Any] = {
    "listeners": ["127.0.0.1:0", "OUTSIDE://localhost:0"],
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def told(it: Served, name: str) -> BrokerEndpoint:
    """What the clients of a listener are told of the node."""
    (endpoint,) = (each for each in it.node.parts.requests.kafka_node.image.brokers[1].endpoints if each.name == name)
    return endpoint


def addresses(endpoint: BrokerEndpoint) -> list[tuple[str, int]]:
    """What a client of an endpoint hears: of brokers, of those beside their topics, of coordinators."""
    client = RawClient(f"{endpoint.host}:{endpoint.port}")
    with client.connection:
        (broker,) = client.ask(MetadataRequest(None), 12, MetadataResponse).brokers
        (known,) = client.ask(DescribeClusterRequest(), 1, DescribeClusterResponse).brokers
        asked = FindCoordinatorRequest(coordinator_keys=["g"])
        while not (found := client.ask(asked, 4, FindCoordinatorResponse).coordinators[0]).host:
            pass  # the topic of groups is being made; each question waits for the controller
    return [(broker.host, broker.port), (known.host, known.port), (found.host, found.port)]


async def test_a_client_is_told_the_addresses_of_its_listener() -> None:
    async with serving(**TWO) as it:
        inside, outside = told(it, "PLAINTEXT"), told(it, "OUTSIDE")
        assert (inside.host, outside.host) == ("127.0.0.1", "localhost")
        assert inside.port != outside.port
        assert it.node.client_addresses == (f"127.0.0.1:{inside.port}", f"OUTSIDE://localhost:{outside.port}")
        for endpoint in (inside, outside, inside):  # the answers to one are not the other's, though all are kept
            heard = await asyncio.to_thread(addresses, endpoint)
            assert heard == [(endpoint.host, endpoint.port)] * 3


async def test_our_clients_go_where_their_listener_is() -> None:
    async with serving(**TWO) as it:
        for name in ("PLAINTEXT", "OUTSIDE"):
            at = told(it, name)
            async with Admin(f"{at.host}:{at.port}") as admin:
                known = await admin.describe_cluster()
                assert [address_of(broker) for broker in known.brokers] == [f"{at.host}:{at.port}"]


async def test_the_listeners_share_the_bounds_of_their_connections() -> None:
    async with serving(**TWO) as it:
        clients = [RawClient(f"127.0.0.1:{told(it, name).port}") for name in ("PLAINTEXT", "OUTSIDE")]
        reading = it.node._clients
        assert reading is not None
        await it.until(lambda: reading.read().connections == len(clients))
        for client in clients:
            client.connection.close()
        await it.until(lambda: reading.read().connections == 0)


async def test_a_listener_that_cannot_be_bound_leaves_no_other_bound() -> None:
    async with serving() as it:
        taken = it.node.address
        with pytest.raises(ConfigError, match="cannot listen"):
            async with serving(**{**TWO, "listeners": ["127.0.0.1:0", f"OUTSIDE://{taken}"]}):
                pass
