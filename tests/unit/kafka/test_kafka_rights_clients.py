"""Our own clients without a right: an error of its kind at once, with the cause and the next step; and what clients of rights still do."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from kafka_node_kit import serving
from rights_kit import AllowedOnly, Grant, govern, on

from replog import Admin, Consumer, Producer
from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.access.principal import ClientIdentity, Principal
from replog.access.rights import Denial
from replog.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    RetriableError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
)
from replog.protocol import audit
from replog.protocol.audit import Audit

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
MINE: tuple[Grant, ...] = tuple(on(TOPIC, "mine", READ, WRITE, DESCRIBE))
SEEN: tuple[Grant, ...] = ((DESCRIBE, TOPIC, "secret"),)


def test_a_client_does_not_ask_again_what_it_may_not_do() -> None:
    assert not issubclass(AuthorizationError, RetriableError)
    kinds = (
        TopicAuthorizationError,
        GroupAuthorizationError,
        ClusterAuthorizationError,
        TransactionalIdAuthorizationError,
    )
    assert all(issubclass(kind, AuthorizationError) for kind in kinds)


async def test_producer_and_consumer_do_what_they_may_and_hear_what_they_may_not() -> None:
    async with serving(offsets_topic_num_partitions=1) as it:
        await it.create("mine")
        await it.create("secret")
        govern(it, AllowedOnly(*MINE, *SEEN))
        servers = str(it.node.address)
        async with asyncio.timeout(60), Producer(servers) as producer:
            sent = await producer.send_and_wait("mine", b"v")
            with pytest.raises(TopicAuthorizationError, match=r"User:ANONYMOUS.*WRITE.*secret.*allow"):
                await producer.send_and_wait("secret", b"v")
        async with asyncio.timeout(60), Consumer(servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([("mine", 0)])
            record = await anext(consumer)
            assert (record.offset, record.value) == (sent.offset, b"v")
        async with asyncio.timeout(60), Consumer(servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([("secret", 0)])
            with pytest.raises(TopicAuthorizationError, match=r"READ.*secret"):
                await consumer.poll()


async def test_a_consumer_of_a_group_hears_that_it_may_not_be_a_member() -> None:
    async with serving(offsets_topic_num_partitions=1) as it:
        await it.create("mine")
        govern(it, AllowedOnly(*MINE))
        async with asyncio.timeout(60):
            with pytest.raises(GroupAuthorizationError, match='GROUP "g"'):
                await _read_as_member(str(it.node.address))


async def _read_as_member(servers: str) -> None:
    async with Consumer(servers, group_id="g") as consumer:
        await consumer.subscribe(["mine"])
        while True:
            await consumer.poll()


async def test_a_transaction_needs_its_transactional_id() -> None:
    async with serving(transaction_state_log_num_partitions=1) as it:
        await it.create("mine")
        govern(it, AllowedOnly(*MINE))
        async with asyncio.timeout(60):
            with pytest.raises(TransactionalIdAuthorizationError, match='"pay"'):
                async with Producer(str(it.node.address), transactional_id="pay") as producer, producer.transaction():
                    await producer.send("mine", b"v")


async def test_an_operator_sees_what_is_allowed_and_is_told_the_rest() -> None:
    async with serving() as it:
        await it.create("mine")
        await it.create("secret")
        authorizer = AllowedOnly(*MINE)
        govern(it, authorizer)
        async with asyncio.timeout(60), Admin(str(it.node.address)) as admin:
            assert [topic.name for topic in (await admin.describe_cluster()).topics] == ["mine"]
            with pytest.raises(UnknownTopicOrPartitionError, match="may not DESCRIBE"):
                await admin.describe_topics(["secret"])
            with pytest.raises(ClusterAuthorizationError, match="DESCRIBE the cluster"):
                await admin.describe_log_dirs(1)


# ---- the audit log ---------------------------------------------------------------------------------------------------


async def test_what_is_denied_and_what_is_administered_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    async with serving() as it:
        await it.create("mine")
        govern(it, AllowedOnly(*MINE, (AclOperation.DELETE, TOPIC, "mine")))
        async with asyncio.timeout(60), Admin(str(it.node.address)) as admin:
            with pytest.raises(TopicAuthorizationError):
                await admin.create_topic("new")
            await admin.delete_topic("mine")
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "replog.audit"]
    who = {"principal": "User:ANONYMOUS", "address": "127.0.0.1"}
    resource = {"operation": "CREATE", "resource_type": "TOPIC", "resource_name": "new"}
    assert {"event": "denied", **who, "api": "CreateTopics", **resource} in lines
    told = {"resources": ["mine"], "resources_count": 1, "errors": []}
    assert {"event": "administered", **who, "api": "DeleteTopics", **told} in lines
    assert not any(line["api"] in {"Metadata", "FindCoordinator"} for line in lines), "what is allowed is not told"


def test_the_lines_of_a_second_are_bounded_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    now = 5.0
    log = Audit(lambda: now)
    principal = AllowedOnly.__name__ * 100
    for _ in range(audit.LINES_A_SECOND_MAX + 7):
        log.denied(Denial(ClientIdentity(Principal(principal), "h"), "Fetch", READ, CLUSTER, CLUSTER_NAME))
    assert len(caplog.records) == audit.LINES_A_SECOND_MAX
    assert len(caplog.records[0].getMessage()) < audit.NAME_CHARACTERS_MAX + 300
    now = 6.0
    log.denied(Denial(ClientIdentity(Principal("a"), "h"), "Fetch", READ, CLUSTER, CLUSTER_NAME))
    assert json.loads(caplog.records[-1].getMessage())["left_out_before"] == 7
