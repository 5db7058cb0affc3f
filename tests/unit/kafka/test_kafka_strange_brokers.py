"""What a client cannot do at the port of clients: what brokers and controllers of Kafka do among themselves."""

from __future__ import annotations

import asyncio
import struct

from kafka_node_kit import Served, batch, serving
from registered_broker import register

from replog.errors import ErrorCode
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.headers import RequestHeader
from replog.wire.primitives import Writer

AMONG_BROKERS = {
    "LeaderAndIsr": 4,
    "StopReplica": 5,
    "UpdateMetadata": 6,
    "ControlledShutdown": 7,
    "Vote": 52,
    "BeginQuorumEpoch": 53,
    "EndQuorumEpoch": 54,
    "AlterPartition": 56,
    "Envelope": 58,
    "FetchSnapshot": 59,
    "BrokerRegistration": 62,
    "BrokerHeartbeat": 63,
    "AllocateProducerIds": 67,
    "ControllerRegistration": 70,
    "AssignReplicasToDirs": 73,
    "UpdateRaftVoter": 82,
}
"""The keys of Kafka's APIs that none of its clients calls."""


async def closes_upon(it: Served, key: int) -> bool:
    client = await it.client()
    writer = Writer()
    RequestHeader(key, 0, 1, "broker-7").write(writer, 1)
    body = writer.joined() + struct.pack(">i", 7) + bytes(64)  # an id of a broker, and zeros for what follows
    client.connection.sendall(struct.pack(">i", len(body)) + body)
    return await asyncio.to_thread(client.is_closed)


async def test_nobody_becomes_a_broker_at_the_port_of_clients() -> None:
    async with serving() as it:
        told = await it.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)
        assert not {each.api_key for each in told.api_keys} & set(AMONG_BROKERS.values())
        closed = {name: await closes_upon(it, key) for name, key in AMONG_BROKERS.items()}
        assert closed == dict.fromkeys(AMONG_BROKERS, True)
        assert set(it.kafka.image.brokers) == {1}


async def test_the_id_of_a_registered_broker_makes_nobody_its_follower() -> None:
    """Neither is anything above the high watermark read, nor counts it as progress of a replica."""
    async with serving() as it:
        topic_id = await it.create()
        await register(it, 2)
        epoch = it.kafka.image.brokers[2].broker_epoch
        partition = FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
        asked = FetchRequest(
            replica_state=FetchRequest.ReplicaState(2, epoch),
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        await it.produce(batch())
        told = await it.ask(asked, 17, FetchResponse)
        assert told.error_code == ErrorCode.INVALID_REQUEST
        assert [bytes(each.records or b"") for topic in told.responses for each in topic.partitions] == [b""]
        assert it.kafka.image.topics_by_name["t"].partitions[0].isr == (1,)
