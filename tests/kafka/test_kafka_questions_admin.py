"""Our own `Admin` with a real Kafka and with a broker of ours: what it does, and the errors that it raises.

The oldest Kafka that it is for comes in campaigns (`mark.campaign`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import client_functions as functions
import pytest
from brokers import KINDS, OLDEST_KAFKA, Broker, of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from served_cluster import served_cluster

from replog.client import Admin
from replog.client.admin.operations import CLUSTER
from replog.controller.requests import ConfigEntry, NewTopic
from replog.errors import (
    ConfigError,
    ErrorCode,
    FeatureUpdateFailedError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    LogDirNotFoundError,
    ReplogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from replog.metadata.records import ElectionType, ResourceType

TIMEOUT_S = 60
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def disks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with two log directories."""
    folder = tmp_path_factory.mktemp("disks")
    if request.param == "replog":
        with served_cluster(folder / "cluster", log_dirs=[str(folder / "a"), str(folder / "b")]) as cluster:
            yield of_replog(cluster)
        return
    kafka: KafkaInstall = request.getfixturevalue("oldest_kafka" if request.param == OLDEST_KAFKA else "kafka")
    node = KafkaNode(kafka, folder / "node", {"log.dirs": f"{folder / 'a'},{folder / 'b'}"})
    try:
        node.start()
        yield of_kafka(node)
    finally:
        node.give_up()


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[Admin]:
    async with asyncio.timeout(TIMEOUT_S), Admin(broker.servers) as admin:
        yield admin


def name() -> str:
    return f"asked-{next(_numbers)}"


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    while not await met():
        await asyncio.sleep(0.05)


@pytest.mark.served(functions.METADATA, client="replog")
@pytest.mark.served(functions.TOPICS, client="replog")
async def test_topics_are_created_described_grown_and_deleted(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        topic = name()
        made = await admin.create_topic(topic, 2, 1, {"retention.ms": 5_000})
        assert (made.name, [one.replicas for one in made.partitions]) == (topic, [(1,), (1,)])
        described = (await admin.describe_topics([topic]))[topic]
        assert described.topic_id == made.topic_id
        assert topic in await admin.list_topics()
        await admin.create_partitions(topic, 3, assignments=[[1]])
        await admin.create_partitions(topic, 9, validate_only=True)
        assert len((await admin.wait_until_in_sync(topic)).partitions) == 3
        placed = await admin.create_topic(name(), assignments=[[1], [1]])
        assert len(placed.partitions) == 2
        await admin.delete_topic(topic)
        assert topic not in await admin.list_topics()


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (TopicExistsError, NewTopic("there", 1, 1)),
        (InvalidTopicError, NewTopic("no/name", 1, 1)),
        (InvalidPartitionsError, NewTopic("none", 0, 1)),
        (InvalidReplicationFactorError, NewTopic("copies", 1, 2)),
        (InvalidReplicaAssignmentError, NewTopic("unknown", assignments=((99,),))),
        (ConfigError, NewTopic("config", 1, 1, configs=(ConfigEntry("retention.mx", "5"),))),
    ],
)
async def test_topics_that_are_refused(disks: Broker, error: type[ReplogError], refused: NewTopic) -> None:
    async with admin_of(disks) as admin:
        if "there" not in await admin.list_topics():
            await admin.create_topic("there", 1, 1)
        counts = refused.num_partitions, refused.replication_factor
        configs = {one.name: one.value for one in refused.configs}
        with pytest.raises(error) as raised:
            await admin.create_topic(refused.name, *counts, configs, assignments=refused.assignments)
        assert str(raised.value) != error.code.name, "with a text"


async def test_several_topics_have_results_in_their_order(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        first, last = name(), name()
        wanted = [NewTopic(first, 1, 1), NewTopic("no/name", 1, 1), NewTopic(last, 2, 1)]
        for validate_only in (True, False):
            results = await admin.create_topics(wanted, validate_only=validate_only)
            codes = [(one.name, one.error) for one in results]
            assert codes == [(first, 0), ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION), (last, 0)]
            assert [one.num_partitions for one in results] == [1, -1, 2]
            assert (results[0].topic_id is None) == validate_only


async def test_what_is_not_there_is_told(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        for asked in (
            lambda: admin.delete_topic("nowhere"),
            lambda: admin.create_partitions("nowhere", 2),
            lambda: admin.alter_topic_configs("nowhere", {"retention.ms": 1}),
            lambda: admin.describe_configs((ResourceType.TOPIC, "nowhere")),
            lambda: admin.move_replica("nowhere", 0, broker=1, path="/nowhere"),
        ):
            with pytest.raises((UnknownTopicOrPartitionError, LogDirNotFoundError), match="nowhere"):
                await asked()
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions((await admin.create_topic(name(), 2, 1)).name, 1)
        with pytest.raises(ReplogError) as raised:
            await admin.unregister_broker(99)
        assert raised.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_configurations_are_altered_and_described(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        topic = (await admin.create_topic(name(), 1, 1, {"flush.ms": 9})).name
        of_topic = ResourceType.TOPIC, topic

        async def own() -> dict[str, str | None]:
            return {one.name: one.value for one in await admin.describe_configs(of_topic) if one.source == "topic"}

        assert await own() == {"flush.ms": "9"}
        await admin.alter_configs(of_topic, {"retention.ms": 7}, validate_only=True)
        await admin.alter_configs(of_topic, {"retention.ms": 5_000, "flush.ms": None})

        async def is_altered() -> bool:
            return await own() == {"retention.ms": "5000"}

        await until(is_altered)
        assert "default" in {one.source for one in await admin.describe_configs(of_topic)}
        for wrong in ({"retention.mx": 5}, {"retention.ms": "soon"}):
            with pytest.raises(ConfigError) as raised:
                await admin.alter_configs(of_topic, wrong)
            assert str(raised.value) != "INVALID_CONFIG"


@pytest.mark.parametrize(("resource", "source"), [((ResourceType.BROKER, "1"), "broker"), (CLUSTER, "cluster")])
async def test_configurations_of_brokers(disks: Broker, resource: tuple[ResourceType, str], source: str) -> None:
    key = "log.retention.ms" if disks.name == "kafka" else "leader.replication.throttled.rate"
    async with admin_of(disks) as admin:

        async def is_set() -> bool:
            found = {one.name: one for one in await admin.describe_configs(resource)}.get(key)
            return found is not None and (found.value, found.source) == ("123456", source)

        async def is_not_set() -> bool:
            return all(one.name != key or one.source != source for one in await admin.describe_configs(resource))

        await admin.alter_configs(resource, {key: 123_456})
        await until(is_set)
        await admin.alter_configs(resource, {key: None})
        await until(is_not_set)
        with pytest.raises(InvalidRequestError):
            await admin.describe_configs((ResourceType.BROKER, "99"))


async def test_leaders_are_elected(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        topic = (await admin.create_topic(name(), 2, 1)).name
        wanted = [(topic, 1), ("nowhere", 0), (topic, 0)]
        for election_type in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
            results = await admin.elect_leaders(wanted, election_type=election_type)
            assert [(one.topic, one.partition_id) for one in results] == wanted
            codes = [one.error for one in results]
            needless = ErrorCode.ELECTION_NOT_NEEDED
            assert codes == [needless, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, needless]
            assert await admin.elect_leaders(election_type=election_type) == ()


async def test_partitions_are_reassigned(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        topic = (await admin.create_topic(name(), 3, 1)).name
        wanted = {(topic, 2): [1], ("nowhere", 0): [1], (topic, 0): None, (topic, 1): [99]}
        results = await admin.reassign_partitions(wanted)
        assert {(one.topic, one.partition_id): one.error for one in results} == {
            (topic, 2): ErrorCode.NONE,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (topic, 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            (topic, 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        }
        assert [(one.topic, one.partition_id) for one in results] == list(wanted)
        try:
            (same,) = await admin.reassign_partitions({(topic, 2): [1]}, allow_replication_factor_change=False)
        except UnsupportedVersionError as error:
            assert "cannot refuse to change the number of replicas" in str(error), "Kafka before 4.0"  # noqa: PT017
        else:
            assert same.error is ErrorCode.NONE


async def test_log_directories_are_described_and_replicas_move(disks: Broker, tmp_path: Path) -> None:
    async with admin_of(disks) as admin:
        topic = (await admin.create_topic(name(), 1, 1)).name

        async def place() -> str:
            directories = await admin.describe_log_dirs(1)
            held = [one.path for one in directories for each in one.replicas if each.topic == topic]
            return held[0] if len(held) == 1 else ""

        async def is_there() -> bool:
            return await place() != ""

        await until(is_there)
        here = await place()
        directories = await admin.describe_log_dirs(1)
        assert len(directories) == 2
        assert all((one.error, one.total_bytes >= one.free_bytes > 0) == ("", True) for one in directories)
        (there,) = (one.path for one in directories if one.path != here)
        await admin.move_replica(topic, 0, broker=1, path=there)

        async def has_moved() -> bool:
            moves = [each for one in await admin.describe_log_dirs(1) for each in one.moves]
            return not moves and await place() == there

        await until(has_moved)
        with pytest.raises(LogDirNotFoundError):
            await admin.move_replica(topic, 0, broker=1, path=str(tmp_path / "nowhere"))


async def test_the_quorum_is_described(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        quorum = await admin.describe_quorum()
        assert quorum.leader_id == 1
        assert quorum.leader_epoch > 0
        assert quorum.log_end_offset >= quorum.high_watermark > 0
        (voter,) = (one for one in quorum.members if one.is_voter)
        assert (voter.node_id, voter.last_fetch_age_ms, voter.last_caught_up_age_ms) == (1, 0, 0)
        assert voter.endpoint.startswith("127.0.0.1:")
        assert quorum.is_dynamic == (disks.name == "replog"), "the voters of this Kafka stand in its file"


async def test_features_are_updated(disks: Broker) -> None:
    async with admin_of(disks) as admin:
        for levels in ({"no.such": 1}, {"metadata.version": 9_999}):
            with pytest.raises(FeatureUpdateFailedError) as raised:
                await admin.update_features(levels)
            assert str(raised.value) not in {"FEATURE_UPDATE_FAILED", "INVALID_UPDATE_VERSION"}
