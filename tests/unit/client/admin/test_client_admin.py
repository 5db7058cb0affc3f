"""`Admin`: what is retried, what is not, and what a lost answer means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster, FakeNode

from replog.client import Admin
from replog.controller.requests import AlterConfigsResponse
from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    NotControllerError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.records import ResourceType
from replog.rpc.transport import ConnectionLostError
from tests.quiet import quiet_for


def make(cluster: FakeCluster) -> Admin:
    return Admin(cluster.bootstrap, transport=cluster.transport())


async def test_topics_come_and_go() -> None:
    cluster = FakeCluster(3)
    async with make(cluster) as admin:
        info = await admin.create_topic("flights", 6, 3, {"min.insync.replicas": 2})
        assert len(info.partitions) == 6
        assert await admin.list_topics() == ["flights"]
        assert (await admin.describe_topics(["flights"]))["flights"].name == "flights"
        with pytest.raises(TopicExistsError):
            await admin.create_topic("flights", 6, 3)
        await admin.delete_topic("flights")
        assert await admin.list_topics() == []
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topic("flights")
        with pytest.raises(UnknownTopicOrPartitionError, match='topic "flights" does not exist'):
            await admin.describe_topics(["flights"], visible_within_ms=50)


async def test_a_controller_that_moves_is_found() -> None:
    cluster = FakeCluster(2)
    cluster.controller_script.extend([NotControllerError("moved"), BrokerNotAvailableError("starting")])
    async with make(cluster) as admin:
        await admin.create_topic("t", 1, 1)
        assert list(await admin.describe_topics(["t"])) == ["t"]
    assert not cluster.controller_script, "both refusals were met"


async def test_who_had_leaders_elected_finds_them() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 3)
    async with make(cluster) as admin:
        (result,) = await admin.elect_leaders([("t", 1)])
        assert result.error is ErrorCode.NONE
        assert cluster.logs["t", 1].leader == 1, "the brokers had not heard of it yet when the call returned"


async def test_who_added_partitions_finds_them() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as admin:
        await admin.create_partitions("t", 2)
        assert ("t", 1) in cluster.logs, "the brokers had not heard of it yet when the call returned"


async def test_a_broker_tells_its_configuration_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one would tell what its own file says."""
    asked: list[int] = []
    answer = FakeNode.handle_client_call

    async def heard(node: FakeNode, *call: Any) -> Any:
        asked.append(node.node_id)
        return await answer(node, *call)

    monkeypatch.setattr(FakeNode, "handle_client_call", heard)
    cluster = FakeCluster(3)
    async with make(cluster) as admin:
        for broker_id in (2, 3, 1):
            await admin.describe_configs((ResourceType.BROKER, str(broker_id)))
        assert asked == [2, 3, 1]
        cluster.nodes[2].is_down = True
        with pytest.raises(BrokerNotAvailableError, match="broker 2 does not answer, and nobody else knows"):
            await admin.describe_configs((ResourceType.BROKER, "2"))


async def test_a_broker_is_told_its_configuration_itself_if_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of Apache Kafka refuses what is set for another one."""
    told: list[int] = []

    async def heard(node: FakeNode, *_call: Any) -> AlterConfigsResponse:
        told.append(node.node_id)
        return AlterConfigsResponse(())

    monkeypatch.setattr(FakeNode, "handle_controller_call", heard)
    cluster = FakeCluster(3)
    async with make(cluster) as admin:
        for broker_id in (2, 3, 1):
            await admin.alter_configs((ResourceType.BROKER, str(broker_id)), {"follower.replication.throttled.rate": 5})
        assert told == [2, 3, 1]
        cluster.nodes[2].is_down = True
        await admin.alter_configs((ResourceType.BROKER, "2"), {"follower.replication.throttled.rate": 6})
        assert told[3] != 2, "any broker of replog does"


async def test_a_lost_answer_to_create_and_delete_is_not_an_error() -> None:
    cluster = FakeCluster()
    async with make(cluster) as admin:
        cluster.controller_script.append("lose")
        assert (await admin.create_topic("t", 2, 1)).name == "t"
        cluster.controller_script.append("lose")
        await admin.delete_topic("t")


async def test_several_topics_are_deleted_each_for_itself() -> None:
    cluster = FakeCluster()
    for name in ("a", "b", "kept"):
        cluster.create_topic(name, 2)
    async with make(cluster) as admin:
        results = await admin.delete_topics(name for name in ("a", "missing", "b", "a"))
        assert await admin.list_topics() == ["kept"]
        assert await admin.delete_topics([]) == ()
        cluster.controller_script.append("lose")
        assert [result.error for result in await admin.delete_topics(["kept"])] == [ErrorCode.NONE]
    assert {result.name: result.error for result in results} == {
        "a": ErrorCode.NONE,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.NONE,
    }


async def test_a_lost_answer_does_not_hide_somebody_elses_topic() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 5)
    cluster.controller_script.append("lose")
    async with make(cluster) as admin:
        with pytest.raises(TopicExistsError):
            await admin.create_topic("t", 2, 1)


async def test_the_timeout_names_the_last_cause() -> None:
    cluster = FakeCluster()
    cluster.controller_script.extend([NotControllerError("no active controller")] * 50)
    async with make(cluster) as admin:
        with pytest.raises(RequestTimedOutError, match=r"300 ms.*NotControllerError: no active controller"):
            await admin.create_topic("t", 1, 1, timeout_ms=300)


async def test_it_waits_for_the_cluster() -> None:
    cluster = FakeCluster(3)
    for node in cluster.nodes.values():
        node.is_down = True
    async with make(cluster) as admin:
        waiting = asyncio.create_task(admin.wait_until_ready(brokers=3, timeout_ms=5_000))
        await quiet_for(0.05)
        assert not waiting.done()
        for node in cluster.nodes.values():
            node.is_down = False
        cluster.publish()
        assert len((await waiting).brokers) == 3
        with pytest.raises(RequestTimedOutError, match="wait for 4 brokers"):
            await admin.wait_until_ready(brokers=4, timeout_ms=50)


async def test_nodes_describe_themselves() -> None:
    cluster = FakeCluster(2)
    async with make(cluster) as admin:
        assert (await admin.describe_node(2)).node_id == 2
        assert (await admin.describe_node(cluster.addresses[1])).node_id == 1
        with pytest.raises(BrokerNotAvailableError, match="there are: 1, 2"):
            await admin.describe_node(9)
        cluster.nodes[2].is_down = True
        with pytest.raises(ConnectionLostError):
            await admin.describe_node(2)


async def test_the_watch_moves_to_another_broker() -> None:
    cluster = FakeCluster(2)
    async with make(cluster) as admin:
        await admin.wait_until_ready(brokers=2)
        cluster.nodes[1].is_down = True
        cluster.publish()
        await until(lambda: cluster.nodes[2].watchers == 1)
        cluster.create_topic("new")
        found = await admin.wait_for_topic("new", lambda topic: True, timeout_ms=1_000)
        assert found.name == "new"


async def test_a_broker_without_a_controller_is_believed_only_when_no_other_knows_of_one() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t")
    async with make(cluster) as admin:
        await admin.wait_until_ready(brokers=3)
        cluster.nodes[1].cut_off(knows_it=True)
        cluster.move_leader("t", 0, 3)
        assert (await admin.describe_topics(["t"]))["t"].partitions[0].leader == 3
    async with make(cluster) as newcomer:
        assert (await newcomer.describe_topics(["t"]))["t"].partitions[0].leader == 3
        for node in cluster.nodes.values():
            node.cut_off(knows_it=True)
        cluster.publish()
        metadata = await newcomer.describe_cluster()
        assert metadata.brokers, "what is known is shown without a quorum too"
        assert metadata.controller_id == -1


async def test_describing_keeps_to_its_time_where_others_are_silent() -> None:
    cluster = FakeCluster(60)
    async with make(cluster) as admin:
        await admin.wait_until_ready(brokers=60)
        cluster.nodes[1].cut_off(knows_it=True)
        for node in list(cluster.nodes.values())[1:]:
            node.is_mute = True
        async with asyncio.timeout(30):  # a second for each silent broker would be a minute
            assert (await admin.describe_cluster(timeout_ms=200)).controller_id == -1


async def test_the_watch_leaves_a_broker_that_finds_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.client.cluster.view.ATTEMPT_TIMEOUT_MS", 100)
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    async with make(cluster) as admin:
        await admin.wait_until_ready(brokers=2)
        cluster.nodes[1].cut_off(knows_it=True)
        cluster.publish()
        await until(lambda: (cluster.nodes[1].watchers, cluster.nodes[2].watchers) == (0, 1))
        cluster.move_leader("t", 0, 2)
        moved = await admin.wait_for_topic("t", lambda topic: topic.partitions[0].leader == 2, timeout_ms=3_000)
        assert moved.name == "t"


async def test_offsets() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as admin:
        assert await admin.list_offsets({("t", 0): -1}) == {("t", 0): (0, -1)}
