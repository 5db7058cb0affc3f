"""A broker that is behind lets a change through, and the controller does not: over a node's port, for each API that changes the cluster."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from kafka_node_kit import Served, serving
from msgspec import Struct
from rights_kit import BehindEverybody, govern
from test_kafka_rights import AnyAnswer

from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
from replog.controller.requests import CreateAcls, CreateTopics, DeleteAcls, DrainBroker, NewTopic
from replog.errors import ErrorCode
from replog.protocol.private import PRIVATE_APIS, PrivateRequest
from replog.protocol.rights.table import RIGHTS
from replog.wire.messages import (
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    metadata,
    remove_raft_voter,
    unregister_broker,
    update_features,
)
from replog.wire.messages.apis import APIS
from tests.envelopes import ADMIN, sender

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, CLUSTER = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TIMEOUT_MS = 20_000
CREATES = AclEntry(
    ResourceKind.TOPIC, "new", PatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.CREATE, Permission.ALLOW
)
New, Grown = create_topics.CreateTopicsRequest.CreatableTopic, create_partitions.CreatePartitionsRequest


@asynccontextmanager
async def behind(**keys: object) -> AsyncIterator[Served]:
    """A node with a topic, whose clients may do nothing, and whose broker allows everything."""
    async with serving(authorizer_class_name=STANDARD, super_users="User:admin", **keys) as it:
        await it.kafka.change(CreateTopics((NewTopic("t", 1, 1),)), TIMEOUT_MS, sender(ADMIN))
        await it.until(lambda: "t" in it.kafka.image.topics_by_name)
        govern(it, BehindEverybody())
        yield it


def codes(answer: Any) -> Iterator[int]:
    """The codes of errors in an answer, wherever they are."""
    if isinstance(answer, Struct):
        for name in answer.__struct_fields__:
            value = getattr(answer, name)
            if name == "error_code" and value:
                yield value
            yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes(each)


async def new_topics(it: Served, names: str) -> Any:
    request = create_topics.CreateTopicsRequest([New(name, 1, 1) for name in names.split()], TIMEOUT_MS)
    return await it.ask(request, 7, create_topics.CreateTopicsResponse)


def named_topics(_image: Any) -> Any:
    return delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicsRequest.DeleteTopicState("t")], [], TIMEOUT_MS)


def topics_by_id(image: Any) -> Any:
    states = [delete_topics.DeleteTopicsRequest.DeleteTopicState(None, image.topics_by_name["t"].topic_id)]
    return delete_topics.DeleteTopicsRequest(states, [], TIMEOUT_MS)


def growth(_image: Any) -> Any:
    return Grown([Grown.CreatePartitionsTopic("t", 2)], TIMEOUT_MS)


def increments(_image: Any) -> Any:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest
    set_it = [request.AlterableConfig("retention.ms", 0, "5")]
    return request([request.AlterConfigsResource(2, "t", set_it), request.AlterConfigsResource(4, "", set_it)])


def configs(_image: Any) -> Any:
    request = alter_configs.AlterConfigsRequest
    set_it = [request.AlterableConfig("retention.ms", "5")]
    return request([request.AlterConfigsResource(2, "t", set_it), request.AlterConfigsResource(4, "", set_it)])


def quotas(_image: Any) -> Any:
    request = alter_client_quotas.AlterClientQuotasRequest
    entry = request.EntryData([request.EntityData("user", "bob")], [request.OpData("producer_byte_rate", 5.0)])
    return request([entry])


def credentials(_image: Any) -> Any:
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest
    return request([], [request.ScramCredentialUpsertion("bob", 1, 4096, b"salt", bytes(32))])


def entries(_image: Any) -> Any:
    return create_acls.CreateAclsRequest(
        [create_acls.CreateAclsRequest.AclCreation(2, "t", 3, "User:ANONYMOUS", "*", 2, 3)]
    )


def filters(_image: Any) -> Any:
    return delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)])


def elections(_image: Any) -> Any:
    return elect_leaders.ElectLeadersRequest(0, None, TIMEOUT_MS)


def moves(_image: Any) -> Any:
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest
    return request(
        TIMEOUT_MS,
        topics=[request.ReassignableTopic("t", [request.ReassignablePartition(0, [1])])],
    )


def levels(_image: Any) -> Any:
    request = update_features.UpdateFeaturesRequest
    return request(TIMEOUT_MS, [request.FeatureUpdateKey("metadata.version", 5, upgrade_type=1)])


def added(_image: Any) -> Any:
    request = add_raft_voter.AddRaftVoterRequest
    return request("c", TIMEOUT_MS, 9, UUID(int=9), [request.Listener("CONTROLLER", "127.0.0.1", 9)])


CHANGES: dict[str, tuple[Callable[[Any], Any], set[ErrorCode]]] = {
    "delete_topics": (named_topics, {TOPIC}),
    "delete_topics by id": (topics_by_id, {TOPIC}),
    "create_partitions": (growth, {TOPIC}),
    "incremental_alter_configs": (increments, {TOPIC, CLUSTER}),
    "alter_configs": (configs, {TOPIC, CLUSTER}),
    "alter_client_quotas": (quotas, {CLUSTER}),
    "alter_user_scram_credentials": (credentials, {CLUSTER}),
    "create_acls": (entries, {CLUSTER}),
    "delete_acls": (filters, {CLUSTER}),
    "elect_leaders": (elections, {CLUSTER}),
    "alter_partition_reassignments": (moves, {CLUSTER}),
    "update_features": (levels, {CLUSTER}),
    "unregister_broker": (lambda _: unregister_broker.UnregisterBrokerRequest(9), {CLUSTER}),
    "add_raft_voter": (added, {CLUSTER}),
    "remove_raft_voter": (
        lambda _: remove_raft_voter.RemoveRaftVoterRequest("c", 9, UUID(int=9), TIMEOUT_MS),
        {CLUSTER},
    ),
}


async def test_a_right_that_was_taken_away_is_gone_before_the_broker_has_heard_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    async with serving(authorizer_class_name=STANDARD, super_users="User:admin") as it:
        await it.kafka.change(CreateAcls((CREATES,)), TIMEOUT_MS, sender(ADMIN))
        await it.until(lambda: len(it.kafka.image.acls) == 1)
        it.node.parts.replicas.publisher._on_image = None  # from here on it hears of no list
        await it.kafka.change(DeleteAcls((AclFilter(),)), TIMEOUT_MS, sender(ADMIN))
        assert it.kafka.authorizer.allows(ADMIN.principal, "127.0.0.1", AclOperation.CREATE, ResourceKind.TOPIC, "new")
        (answer,) = (await new_topics(it, "new")).topics
        assert (answer.error_code, "new" in it.kafka.image.topics_by_name) == (TOPIC, False)
        assert all(word in answer.error_message for word in ("User:ANONYMOUS", "127.0.0.1", "CREATE", '"new"'))
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "replog.audit"]
    denied, administered = lines[-2:]
    assert (denied["event"], denied["principal"], denied["resource_name"]) == ("denied", "User:ANONYMOUS", "new")
    assert (denied["address"], denied["api"], denied["operation"]) == ("127.0.0.1", "CreateTopics", "CREATE")
    assert (administered["event"], administered["errors"]) == ("administered", ["TOPIC_AUTHORIZATION_FAILED"])


async def test_a_topic_that_is_made_because_it_is_asked_for_needs_its_right_at_the_controller() -> None:
    async with behind(auto_create_topics_enable=True) as it:
        asked = metadata.MetadataRequest(
            [metadata.MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
        )
        answer = await it.ask(asked, 12, metadata.MetadataResponse)
        assert [topic.error_code for topic in answer.topics] == [TOPIC]
        assert "new" not in it.kafka.image.topics_by_name


async def test_what_is_allowed_among_refused_topics_is_made() -> None:
    async with behind() as it:
        await it.kafka.change(CreateAcls((CREATES,)), TIMEOUT_MS, sender(ADMIN))
        answer = await new_topics(it, "a new b")
        assert {one.name: one.error_code for one in answer.topics} == {"a": TOPIC, "new": 0, "b": TOPIC}


@pytest.mark.parametrize("name", CHANGES)
async def test_the_controller_refuses_what_a_broker_that_is_behind_lets_through(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The audit log names the API that the client asked, and the metric of denials counts each once."""
    made, expected = CHANGES[name]
    caplog.set_level(logging.INFO, "replog.audit")
    async with behind() as it:
        request, before = made(it.kafka.image), it.kafka.image.end_offset
        kind = type(request)
        answer_kind = getattr(sys.modules[kind.__module__], kind.__name__.replace("Request", "Response"))
        answer = await it.ask(request, max(kind.VERSIONS), answer_kind)
        assert set(codes(answer)) == expected
        assert it.kafka.image.end_offset == before
        controller = it.node.parts.metadata.controller
        assert controller is not None
        assert controller.denials_count == len(expected)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "replog.audit"]
    told = [line["api"] for line in lines if line["event"] == "denied"]
    assert told == [APIS[name.split(maxsplit=1)[0]].name] * len(expected)


async def test_our_own_apis_are_refused_too() -> None:
    async with behind() as it:
        asked = PrivateRequest(PRIVATE_APIS[DrainBroker], DrainBroker(1, drained=True), TIMEOUT_MS)
        assert (await it.ask(asked, 0, AnyAnswer)).error_code == CLUSTER


def test_each_api_whose_change_the_controller_makes_is_asked_here() -> None:
    here = {"delete_records", "offset_delete", "delete_groups", "alter_replica_log_dirs", "write_txn_markers"}
    tokens = {"create_delegation_token", "renew_delegation_token", "expire_delegation_token"}
    others = here | tokens | {"create_topics"}
    administering = {name for name, api in APIS.items() if api.key in RIGHTS and RIGHTS[api.key].administers}
    assert {name.split()[0] for name in CHANGES} | others == administering, "the others are made by brokers"
