"""Access control lists of our brokers by Kafka's own tool, by our commands and by our clients: each sees what the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_install import KafkaInstall
from kafka_tools import Tools
from msgspec.structs import replace
from served_cluster import ServedCluster, served_cluster
from waiting import until

from replog.access.sentences import parse_entries, sentence
from replog.client import AclEntry, AclFilter, Admin, PatternType, SyncAdmin
from replog.errors import ClusterAuthorizationError, InvalidRequestError, SecurityDisabledError
from tests.cluster.cli_runs import Done, replog_here

pytestmark = pytest.mark.cluster

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Three nodes with an authorizer, at which everybody who shows no identity is an administrator."""
    folder = tmp_path_factory.mktemp("acls") / "cluster"
    keys = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
    with served_cluster(folder, 3, **keys) as cluster:
        yield cluster


def listed(cluster: ServedCluster, meant: AclFilter | None = None) -> list[str]:
    """The entries as sentences."""
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        return list(map(sentence, admin.describe_acls(meant)))


def ours(cluster: ServedCluster, *words: str, status: int = 0) -> list[str]:
    """The lines that one of our commands prints."""
    done: Done = replog_here("acls", *words, "-b", cluster.bootstrap_servers)
    assert done.status == status, done
    return done.out.splitlines()


@pytest.mark.served("kafka-acls: add, list, remove", client="tools")
def test_kafkas_tool_and_ours_change_the_same_entries(kafka: KafkaInstall, guarded: ServedCluster) -> None:
    tools = Tools(kafka, guarded.bootstrap_servers)
    alice = ("--allow-principal", "User:alice", "--allow-host", "10.0.0.1")
    tools.run("kafka-acls", "--add", *alice, "--producer", "--topic", "flights")
    tools.run(
        "kafka-acls", "--add", "--deny-principal", "User:*", "--topic", "fl", "--resource-pattern-type", "prefixed"
    )
    made = [
        "User:alice may create topic flights from 10.0.0.1",
        "User:alice may describe topic flights from 10.0.0.1",
        "User:alice may write topic flights from 10.0.0.1",
        "everybody may not all topic fl*",
    ]
    until(lambda: sorted(listed(guarded)) == made)
    assert sorted(ours(guarded, "list")) == made
    ours(guarded, "add", "bob may read,describe topic flights", "bob may read group *")
    until(lambda: len(listed(guarded)) == 7)
    shown = tools.run("kafka-acls", "--list", "--topic", "flights", "--resource-pattern-type", "match")
    assert "principal=User:bob, host=*, operation=READ, permissionType=ALLOW" in shown
    assert "resourceType=TOPIC, name=fl, patternType=PREFIXED" in shown
    assert "resourceType=GROUP" not in shown
    tools.run("kafka-acls", "--remove", *alice, "--producer", "--topic", "flights", "--force")
    gone = ours(guarded, "remove", "everybody may not all topic fl*", "bob may read group *")
    assert sorted(gone) == ["User:bob may read group *", "everybody may not all topic fl*"]
    left = ["User:bob may describe topic flights", "User:bob may read topic flights"]
    until(lambda: sorted(listed(guarded)) == left)
    assert sorted(ours(guarded, "remove", "--principal", "User:bob")) == left
    until(lambda: not listed(guarded))


def test_a_question_is_answered_with_the_entry_that_decides(guarded: ServedCluster) -> None:
    ours(guarded, "add", "carol may read topic flights*", "carol may not all topic flights-secret from 10.0.0.7")
    carols = AclFilter(principal="User:carol")
    until(lambda: len(listed(guarded, carols)) == 2)
    assert ours(guarded, "test", "may carol describe topic flights-eu?") == ["yes: User:carol may read topic flights*"]
    assert ours(guarded, "test", "may carol read topic flights-secret from 10.0.0.7", status=1) == [
        "no: User:carol may not all topic flights-secret from 10.0.0.7"
    ]
    (line,) = ours(guarded, "test", "may dave read topic flights-eu?", status=1)
    assert line.startswith("no: there are entries for topic flights-eu, and none of them lets User:dave do it")
    (line,) = ours(guarded, "test", "may dave read topic other?", status=1)
    assert line.endswith("and allow.everyone.if.no.acl.found is false")
    assert ours(guarded, "test", "may ANONYMOUS alter cluster?") == ["yes: User:ANONYMOUS is in super.users"]
    ours(guarded, "remove", "--principal", "User:carol")
    until(lambda: not listed(guarded, carols))


def test_entries_are_the_same_on_every_node_and_after_a_node_was_killed(guarded: ServedCluster) -> None:
    (entry,) = parse_entries("erin may write transactional-id pay*")

    async def add() -> None:
        async with Admin(guarded.bootstrap_servers) as admin:
            await admin.create_acls([entry, entry])
            with pytest.raises(InvalidRequestError, match="is no principal"):
                await admin.create_acls([replace(entry, principal="erin")])

    asyncio.run(add())
    guarded.kill(1)
    guarded.restart(1)

    def at_each_node() -> set[tuple[AclEntry, ...]]:
        found = set()
        for node in guarded.local.nodes.values():
            with SyncAdmin(node.address) as admin:
                found.add(admin.describe_acls(AclFilter(name="payments", pattern=PatternType.MATCH)))
        return found

    until(lambda: at_each_node() == {(entry,)})
    with SyncAdmin(guarded.bootstrap_servers) as admin:
        assert admin.delete_acls([AclFilter(principal="User:erin")]) == (entry,)
        assert admin.delete_acls([]) == ()


def test_strangers_change_nothing_and_entries_need_an_authorizer(
    replog_broker: ServedCluster, tmp_path: Path, kafka: KafkaInstall
) -> None:
    (entry,) = parse_entries("mallory may all topic *")
    with (
        SyncAdmin(replog_broker.bootstrap_servers) as admin,
        pytest.raises(SecurityDisabledError, match=r"set authorizer\.class"),
    ):
        admin.create_acls([entry])
    with served_cluster(tmp_path / "cluster", authorizer_class_name=STANDARD, super_users="User:admin") as cluster:
        with SyncAdmin(cluster.bootstrap_servers) as admin:
            with pytest.raises(
                ClusterAuthorizationError, match=r"User:ANONYMOUS, coming from .* may not ALTER the cluster"
            ):
                admin.create_acls([entry])
            with pytest.raises(ClusterAuthorizationError, match="DESCRIBE"):
                admin.describe_acls()
        refused = Tools(kafka, cluster.bootstrap_servers).errors("kafka-acls", "--list")
        assert "ClusterAuthorizationException" in refused
