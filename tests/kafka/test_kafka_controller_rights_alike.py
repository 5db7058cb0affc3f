"""The controllers of a real Kafka and of ours answer the same about changes of a client whose broker lets everything through.

Kafka's broker passes changes on without a question.  So does ours here: its file makes a super user of the client, and that of the
controller does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from brokers import of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from served_cluster import QUICK, ServedCluster, run
from sides import Side, Sides, sides
from waiting import until

from replog.access.entries import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceKind
from replog.cluster import LocalCluster
from replog.config.access_keys import AuthorizerClass
from replog.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
)

pytestmark = pytest.mark.cluster

ALLOWED, DENIED, NONE = "allowed", "denied", "none"
MADE = (ALLOWED, DENIED)
TIMEOUT_MS = 20_000
KEYS = {"authorizer.class.name": AuthorizerClass.STANDARD.value, "allow.everyone.if.no.acl.found": "true"}
ENTRIES = (
    (ResourceKind.TOPIC, DENIED, PatternType.LITERAL),
    (ResourceKind.TOPIC, NONE, PatternType.PREFIXED),
    (ResourceKind.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
)
"""What only alice may do anything to, from the last step of the preparation on."""

Made, Grown, Gone = (
    create_topics.CreateTopicsRequest,
    create_partitions.CreatePartitionsRequest,
    delete_topics.DeleteTopicsRequest,
)


@pytest.fixture(scope="module")
def both(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """The two controllers behind their brokers, with two topics and the entries."""
    folder = tmp_path_factory.mktemp("rights")
    node = KafkaNode(kafka, folder / "kafka", dict(KEYS))
    node.start()
    try:
        cluster = run(
            LocalCluster.start(
                folder / "ours",
                nodes=2,
                config={**QUICK, **KEYS, "allow.everyone.if.no.acl.found": True},
                node_config={2: {"super.users": "User:ANONYMOUS"}},
                roles={1: ["controller"], 2: ["broker"]},
            )
        )
        try:
            ours = replace(of_replog(ServedCluster(cluster)), servers=cluster.nodes[2].address)
            with sides(Side(of_kafka(node)), Side(ours)) as pair:
                for side in (pair.kafka, pair.ours):
                    _prepare(side)
                yield pair
        finally:
            run(cluster.kill_all())
    finally:
        node.give_up()


def _prepare(side: Side) -> None:
    wanted = Made([Made.CreatableTopic(name, 1, 1) for name in MADE], TIMEOUT_MS)
    side.client().send(wanted, 7)
    answer = side.client().receive(create_topics.CreateTopicsResponse, 7)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    side.ids |= {topic.name: topic.topic_id for topic in answer.topics}
    creation = create_acls.CreateAclsRequest.AclCreation
    made = [creation(*where, "User:alice", "*", AclOperation.ALL, Permission.ALLOW) for where in ENTRIES]
    passes_on = AclOperation.CLUSTER_ACTION  # which Kafka's brokers need, who are ANONYMOUS here, too
    made.append(creation(*ENTRIES[-1], "User:ANONYMOUS", "*", passes_on, Permission.ALLOW))
    assert {
        one["error_code"]
        for one in side.answer(create_acls.CreateAclsRequest(made), 3, create_acls.CreateAclsResponse)["results"]
    } == {0}
    grown = Grown([Grown.CreatePartitionsTopic(DENIED, 3, None)], TIMEOUT_MS, validate_only=True)
    until(lambda: _code_of_growth(side, grown) == 29)


def _code_of_growth(side: Side, grown: Any) -> int:
    code: int = side.answer(grown, 3, create_partitions.CreatePartitionsResponse)["results"][0]["error_code"]
    return code


def test_topics_that_are_created(both: Sides) -> None:
    """Whether the configuration of a new topic is told, our broker decides."""
    wanted = [Made.CreatableTopic(name, 1, 1) for name in ("new", f"{NONE}-new", DENIED, ALLOWED)]
    of_new = ("topic_id", "configs", "topic_config_error_code", "num_partitions", "replication_factor")
    for version in (5, 7):
        request = Made(wanted, TIMEOUT_MS, validate_only=True)
        both.same(request, version, create_topics.CreateTopicsResponse, beside=of_new)


def test_topics_that_grow(both: Sides) -> None:
    wanted = [Grown.CreatePartitionsTopic(name, 3, None) for name in (*MADE, NONE, "other")]
    both.same(Grown(wanted, TIMEOUT_MS, validate_only=True), 3, create_partitions.CreatePartitionsResponse)


def test_topics_that_are_deleted(both: Sides) -> None:
    names = [DENIED, NONE, "other"]
    both.same(Gone(topic_names=names, timeout_ms=TIMEOUT_MS), 5, delete_topics.DeleteTopicsResponse)
    states = [Gone.DeleteTopicState(name) for name in names]
    both.same(Gone(states, timeout_ms=TIMEOUT_MS), 6, delete_topics.DeleteTopicsResponse)

    def by_id(side: Side) -> Any:
        ids = (side.ids[DENIED], UUID(int=0xDEADBEEF << 64))
        return Gone([Gone.DeleteTopicState(topic_id=topic_id) for topic_id in ids], timeout_ms=TIMEOUT_MS)

    both.same(by_id, 6, delete_topics.DeleteTopicsResponse)


def test_configurations_that_are_altered(both: Sides) -> None:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest
    change = [request.AlterableConfig("retention.ms", 0, "-1")]
    of = [request.AlterConfigsResource(2, name, change) for name in (*MADE, NONE)]
    of.append(request.AlterConfigsResource(4, "", [request.AlterableConfig("min.insync.replicas", 0, "1")]))
    both.same(request(of, validate_only=True), 1, incremental_alter_configs.IncrementalAlterConfigsResponse)


def _quotas() -> Any:
    request = alter_client_quotas.AlterClientQuotasRequest
    entity, quota = request.EntityData("user", "bob"), request.OpData("producer_byte_rate", 5.0)
    return request([request.EntryData([entity], [quota])]), 1, alter_client_quotas.AlterClientQuotasResponse


def _credentials() -> Any:
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest
    wish = request([], [request.ScramCredentialUpsertion("bob", 1, 4096, b"salt", bytes(32))])
    return wish, 0, alter_user_scram_credentials.AlterUserScramCredentialsResponse


def _entries() -> Any:
    creation = create_acls.CreateAclsRequest.AclCreation(2, "t", 3, "User:ANONYMOUS", "*", 2, 3)
    return create_acls.CreateAclsRequest([creation]), 3, create_acls.CreateAclsResponse


def _filters() -> Any:
    filters = [delete_acls.DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]
    return delete_acls.DeleteAclsRequest(filters), 3, delete_acls.DeleteAclsResponse


def _elections() -> Any:
    request = elect_leaders.ElectLeadersRequest
    wish = request(0, [request.TopicPartitions(ALLOWED, [0])], TIMEOUT_MS)
    return wish, 2, elect_leaders.ElectLeadersResponse


def _moves() -> Any:
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest
    moved = request.ReassignableTopic(ALLOWED, [request.ReassignablePartition(0, [1])])
    return request(TIMEOUT_MS, topics=[moved]), 0, alter_partition_reassignments.AlterPartitionReassignmentsResponse


def _unregistered() -> Any:
    return unregister_broker.UnregisterBrokerRequest(99), 0, unregister_broker.UnregisterBrokerResponse


@pytest.mark.parametrize("made", [_quotas, _credentials, _entries, _filters, _elections, _moves, _unregistered])
def test_what_changes_the_cluster_as_a_whole(both: Sides, made: Callable[[], Any]) -> None:
    both.same(*made())
