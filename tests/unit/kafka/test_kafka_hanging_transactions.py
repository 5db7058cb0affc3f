"""An operator finds a transaction that hangs with a node of ours, and ends it; one that is known is left alone (KIP-664)."""

from __future__ import annotations

import pytest
from kafka_node_kit import Served, batch, serving

from replog.client import Admin, Consumer, Producer
from replog.errors import InvalidTxnStateError

PRODUCER_ID = 7_000


async def hang(it: Served) -> None:
    """Appends a batch of a transaction that no coordinator knows of, as brokers of before KIP-890 let through."""
    topic_id = await it.create()
    replica = it.node.parts.replicas.stepper.replicas[topic_id, 0]
    data = batch(producer_id=PRODUCER_ID, producer_epoch=3, base_sequence=0, is_transactional=True)
    await it.node.parts.replicas.stepper.driver.call(
        lambda: replica.log.append_as_leader(data, leader_epoch=0, now_ms=0)
    )


async def test_a_hanging_transaction_is_found_and_ended() -> None:
    async with serving() as it:
        await hang(it)
        servers = it.node.address or ""
        async with Admin(servers) as admin, Consumer(servers) as consumer:
            (found,) = await admin.find_hanging_transactions()
            assert (found.topic, found.partition, found.producer_id, found.first_offset) == ("t", 0, PRODUCER_ID, 0)
            assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 0}
            await admin.abort_hanging_transaction(("t", 0), 0)
            assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 2}
            assert await admin.find_hanging_transactions(silent_for_ms=-1) == ()


async def test_a_transaction_that_its_coordinator_knows_is_no_hanging_one() -> None:
    async with serving() as it:
        await it.create()
        servers = it.node.address or ""
        async with Admin(servers) as admin, Producer(servers, transactional_id="pay") as producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"kept")
                assert await admin.find_hanging_transactions(silent_for_ms=-1_000_000) == ()
                with pytest.raises(InvalidTxnStateError, match="transactional id 'pay' has it open"):
                    await admin.abort_hanging_transaction(("t", 0), 0)
            (told,) = await admin.list_transactions()
        assert (told.transactional_id, told.coordinator_id) == ("pay", 1)
