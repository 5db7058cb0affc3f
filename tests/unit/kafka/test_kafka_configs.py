"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, over a node's port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from kafka_node_kit import Served, serving

from replog.errors import ErrorCode
from replog.metadata.image import ConfigResource
from replog.metadata.records import ResourceType
from replog.protocol.handlers import configs, node, unkept_configs
from replog.protocol.handlers.known_configs import ConfigType
from replog.protocol.handlers.node import Failure
from replog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from replog.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

Asked = DescribeConfigsRequest.DescribeConfigsResource
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = IncrementalAlterConfigsRequest.AlterableConfig
Replaced = AlterConfigsRequest.AlterConfigsResource
Value = AlterConfigsRequest.AlterableConfig
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
T = (TOPIC, "t")
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_CLUSTER, OF_FILE, DEFAULT = range(1, 6)
NONE, INVALID_CONFIG, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


async def described(it: Served, *asked: Any, version: int = 4, more: bool = True) -> DescribeConfigsResponse:
    request = DescribeConfigsRequest(list(asked), include_synonyms=more, include_documentation=more)
    answer = await it.ask(request, version, DescribeConfigsResponse)
    assert isinstance(answer, DescribeConfigsResponse)
    return answer


async def incremented(it: Served, *changed: Any, version: int = 1, validate_only: bool = False) -> list[Any]:
    request = IncrementalAlterConfigsRequest(list(changed), validate_only)
    answer = await it.ask(request, version, IncrementalAlterConfigsResponse)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in changed
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in answer.responses)
    return [ErrorCode(one.error_code) for one in answer.responses]


async def stored(it: Served, resource: ConfigResource, expected: Mapping[str, str]) -> None:
    """Waits until the node knows exactly these values."""
    async with asyncio.timeout(60):
        while it.kafka.image.configs.get(resource, {}) != expected:
            await asyncio.sleep(0.001)


# ---- describe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
async def test_what_is_in_force_for_a_topic_and_what_it_hides(version: int) -> None:
    async with serving(log_retention_ms=70_000) as it:
        await it.create(retention_ms="5")
        assert await incremented(it, Changed(BROKER, "", [Change("log.retention.ms", SET, "60000")])) == [NONE]
        await stored(it, (BROKER, ""), {**it.kafka.image.configs[BROKER, ""], "log.retention.ms": "60000"})
        answer = await described(it, Asked(TOPIC, "t", ["retention.ms", "segment.bytes", "nonsense"]), version=version)
        (topic,) = answer.results
        assert [config.name for config in topic.configs] == ["retention.ms", "segment.bytes"]
        retention, segment = topic.configs
        assert (retention.value, retention.config_source, retention.read_only) == ("5", OF_TOPIC, False)
        assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
            ("retention.ms", "5", OF_TOPIC),
            ("log.retention.ms", "60000", OF_CLUSTER),
            ("log.retention.ms", "70000", OF_FILE),
            ("log.retention.ms", "604800000", DEFAULT),
        ]
        assert (segment.value, segment.config_source) == ("1073741824", DEFAULT)
        if version >= 3:
            assert (retention.config_type, segment.config_type) == (ConfigType.LONG, ConfigType.INT)
            assert retention.documentation


async def test_all_are_described_where_none_is_named() -> None:
    async with serving() as it:
        await it.create()
        (every,) = (await described(it, Asked(TOPIC, "t", None), more=False)).results
        (too,) = (await described(it, Asked(TOPIC, "t", []), more=False)).results
        assert len(every.configs) == len(too.configs) > 15
        assert all(config.synonyms == [] and config.documentation is None for config in every.configs)
        types = {config.name: config.config_type for config in every.configs}
        assert all(config.value is not None for config in every.configs), "what is not set has a default"
        assert types["cleanup.policy"] == ConfigType.LIST
        assert types["unclean.leader.election.enable"] == ConfigType.BOOLEAN
        assert types["min.cleanable.dirty.ratio"] == ConfigType.DOUBLE
        assert types["message.timestamp.type"] == ConfigType.STRING


async def test_a_broker_tells_its_file_too() -> None:
    async with serving(num_partitions=3) as it:
        answer = await described(it, Asked(BROKER, "1", None), Asked(BROKER, "", None))
        broker, cluster = answer.results
        of_broker = {config.name: config for config in broker.configs}
        partitions = of_broker["num.partitions"]
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", OF_FILE, True)
        assert [one.source for one in partitions.synonyms] == [OF_FILE, DEFAULT]
        assert of_broker["log.dirs"].config_type == ConfigType.LIST
        assert not of_broker["log.retention.ms"].read_only
        assert all(config.documentation for config in broker.configs)
        assert {config.name for config in cluster.configs} == set(it.kafka.image.configs[BROKER, ""]), "what is set"


async def test_each_resource_is_described_for_itself() -> None:
    async with serving() as it:
        await it.create()
        asked = [(TOPIC, "t"), (TOPIC, "none"), (TOPIC, "no/name"), (BROKER, "9"), (BROKER, "x"), (8, "1"), (99, "")]
        answer = await described(it, *(Asked(kind, name, None) for kind, name in asked))
        assert [(one.resource_type, one.resource_name, one.error_code) for one in answer.results] == [
            (TOPIC, "t", NONE),
            (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "9", INVALID_REQUEST),
            (BROKER, "x", INVALID_REQUEST),
            (8, "1", INVALID_REQUEST),
            (99, "", INVALID_REQUEST),
        ]
        assert all(bool(one.error_message) == bool(one.error_code) for one in answer.results)


async def test_a_resource_that_is_named_again_is_described_once() -> None:
    """A name is some bytes, and what is said of a broker a hundred thousand."""
    async with serving() as it:
        await it.create()
        keys = (["retention.ms"], ["segment.ms", "retention.ms"])
        topic, broker = (
            await described(
                it, *(Asked(TOPIC, "t", some) for some in keys), *(Asked(BROKER, "1", some) for some in ([], ["a"]))
            )
        ).results
        assert {config.name for config in topic.configs} == {"retention.ms", "segment.ms"}
        assert len(topic.configs) == 2
        assert len(broker.configs) > 100


@pytest.mark.parametrize("name", ["01", "+1", " 1", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 5_000])
async def test_a_broker_has_one_name(name: str) -> None:
    async with serving() as it:
        (told,) = (await described(it, Asked(BROKER, name, None))).results
        assert told.error_code == INVALID_REQUEST
        assert told.error_message.startswith('there is no broker "')


async def test_so_many_resources_are_described_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "NAMED_MAX", 3)
    async with serving() as it:
        await it.create()
        asked = [Asked(TOPIC, "t", ["retention.ms"])] * 4
        told = (await described(it, *asked)).results
        assert [one.error_code for one in told] == [INVALID_REQUEST] * 4
        assert "at most 3 resources, not 4" in told[0].error_message
        assert [one.error_code for one in (await described(it, *asked[:3])).results] == [NONE]


# ---- alter -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", IncrementalAlterConfigsRequest.VERSIONS)
async def test_what_is_not_named_stays(version: int) -> None:
    async with serving() as it:
        await it.create(retention_ms="5", segment_bytes="2000000")
        changes = [
            Change("retention.ms", SET, "7"),
            Change("segment.bytes", DELETE, None),
            Change("flush.ms", SET, "9"),
        ]
        assert await incremented(it, Changed(TOPIC, "t", changes), version=version, validate_only=True) == [NONE]
        assert await incremented(it, Changed(TOPIC, "t", changes[:1]), version=version) == [NONE]
        await stored(it, T, {"retention.ms": "7", "segment.bytes": "2000000"})
        assert await incremented(it, Changed(TOPIC, "t", changes[1:]), version=version) == [NONE]
        await stored(it, T, {"retention.ms": "7", "flush.ms": "9"})


async def test_words_are_added_to_a_list_and_taken_from_it() -> None:
    async with serving() as it:
        await it.create()
        assert await incremented(it, Changed(TOPIC, "t", [Change("cleanup.policy", APPEND, "compact")])) == [NONE]
        await stored(it, T, {"cleanup.policy": "compact,delete"})
        assert await incremented(it, Changed(TOPIC, "t", [Change("cleanup.policy", APPEND, "compact")])) == [NONE]
        assert await incremented(it, Changed(TOPIC, "t", [Change("cleanup.policy", SUBTRACT, "delete")])) == [NONE]
        await stored(it, T, {"cleanup.policy": "compact"})
        for wrong in (Change("cleanup.policy", SUBTRACT, "compact"), Change("retention.ms", APPEND, "1")):
            assert await incremented(it, Changed(TOPIC, "t", [wrong])) == [INVALID_CONFIG]
        assert it.kafka.image.configs[T] == {"cleanup.policy": "compact"}


async def test_what_kafkas_tools_do_around_a_reassignment_changes_nothing() -> None:
    async with serving() as it:
        await it.create(retention_ms="5")
        listed = Change("leader.replication.throttled.replicas", SET, "0:1")
        too = Change("follower.replication.throttled.replicas", APPEND, "0:2")
        unknown = Change("no.such.name", DELETE, None)
        assert await incremented(it, Changed(TOPIC, "t", [listed, too, unknown])) == [NONE]
        assert await incremented(it, Changed(TOPIC, "none", [unknown])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await incremented(it, Changed(BROKER, "", [listed])) == [INVALID_CONFIG]
        assert it.kafka.image.configs[T] == {"retention.ms": "5"}


async def test_what_is_so_anyway_may_be_set_and_nothing_else() -> None:
    async with serving() as it:
        await it.create()
        every = [Change(name, SET, value) for name, value in unkept_configs.UNCHANGEABLE.items()]
        assert await incremented(it, Changed(TOPIC, "t", every)) == [NONE]
        assert T not in it.kafka.image.configs
        other = [Change("compression.type", SET, "zstd")]
        assert await incremented(it, Changed(TOPIC, "t", other)) == [INVALID_CONFIG]
        assert await incremented(it, Changed(BROKER, "", every[:1])) == [INVALID_CONFIG]


async def test_each_resource_is_altered_for_itself() -> None:
    async with serving() as it:
        for name in ("t", "u", "v", "w", "x", "y", "z"):
            await it.create(name)
        good = Change("retention.ms", SET, "7")
        codes = await incremented(
            it,
            Changed(TOPIC, "t", [good]),
            Changed(TOPIC, "u", [Change("retention.mx", SET, "7")]),
            Changed(TOPIC, "v", [good, good]),
            Changed(TOPIC, "w", [Change("retention.ms", SET, None)]),
            Changed(TOPIC, "x", [Change("retention.ms", 9, "1")]),
            Changed(TOPIC, "y", [good]),
            Changed(TOPIC, "y", [good]),
            Changed(TOPIC, "z", [Change("retention.ms", SET, "soon")]),
            Changed(TOPIC, "none", [good]),
            Changed(16, "t", [good]),
            Changed(BROKER, "1", [Change("num.partitions", SET, "4")]),
        )
        assert codes == [
            NONE,
            INVALID_CONFIG,
            *[INVALID_REQUEST] * 5,
            INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            INVALID_REQUEST,
            INVALID_CONFIG,
        ]
        await stored(it, T, {"retention.ms": "7"})
        assert {name for kind, name in it.kafka.image.configs if kind is TOPIC} == {"t"}


@pytest.mark.parametrize("version", AlterConfigsRequest.VERSIONS)
async def test_what_is_not_named_is_removed(version: int) -> None:
    async with serving() as it:
        await it.create(retention_ms="5", segment_bytes="2000000")
        before = dict(it.kafka.image.configs[BROKER, ""])
        wanted = [
            Replaced(TOPIC, "t", [Value("retention.ms", "7")]),
            Replaced(TOPIC, "none", []),
            Replaced(BROKER, "", []),
            Replaced(99, "", []),
        ]
        for validate_only in (True, False):
            answer = await it.ask(AlterConfigsRequest(wanted, validate_only), version, AlterConfigsResponse)
            assert [(one.resource_name, one.error_code) for one in answer.responses] == [
                ("t", NONE),
                ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("", INVALID_CONFIG),
                ("", INVALID_REQUEST),
            ]
        assert "min.insync.replicas" in answer.responses[2].error_message
        await stored(it, T, {"retention.ms": "7"})
        assert it.kafka.image.configs[BROKER, ""] == before, (
            "how many replicas must have a record is not lost unnoticed"
        )


# ---- list ------------------------------------------------------------------------------------------------------------


async def test_topics_and_brokers_are_listed() -> None:
    async with serving() as it:
        await it.create("t")
        await it.create("u")

        async def listed(version: int, *types: int) -> list[tuple[int, str]]:
            answer = await it.ask(ListConfigResourcesRequest(list(types)), version, ListConfigResourcesResponse)
            assert answer.error_code == NONE
            return [(one.resource_type, one.resource_name) for one in answer.config_resources]

        topics, brokers = [(TOPIC, "t"), (TOPIC, "u")], [(BROKER, "1")]
        assert await listed(1) == [*topics, *brokers]
        assert await listed(1, TOPIC) == topics
        assert await listed(1, BROKER) == brokers
        assert await listed(1, configs.CLIENT_METRICS, configs.GROUP, configs.BROKER_LOGGER) == []
        assert await listed(0) == []
        answer = await it.ask(ListConfigResourcesRequest([TOPIC, 99]), 1, ListConfigResourcesResponse)
        assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


# ---- as a whole ------------------------------------------------------------------------------------------------------


def test_what_fails_as_a_whole_is_told_of_each() -> None:
    failure = Failure(ErrorCode.REQUEST_TIMED_OUT, "too slow")
    told = configs.refuse_describe_configs(DescribeConfigsRequest([Asked(TOPIC, "t")]), failure).results
    assert [(one.resource_name, one.error_code, one.error_message) for one in told] == [("t", 7, "too slow")]
    incremental = configs.refuse_incremental_alter_configs(
        IncrementalAlterConfigsRequest([Changed(BROKER, "1")]), failure
    )
    legacy = configs.refuse_alter_configs(AlterConfigsRequest([Replaced(BROKER, "1")]), failure)
    for answer in (*incremental.responses, *legacy.responses):
        assert (answer.resource_type, answer.resource_name) == (BROKER, "1")
        assert (answer.error_code, answer.error_message) == (7, "too slow")


async def test_of_a_secret_only_its_name_is_told() -> None:
    """As Kafka does: no value, no synonyms' values, the type PASSWORD, and that it is sensitive."""
    async with serving(ssl_key_password="canary", listener_name={"x.ssl.key.password": "canary"}) as it:
        (answer,) = (await described(it, Asked(BROKER, "1", None))).results
        (one,) = (each for each in answer.configs if each.name == "ssl.key.password")
        assert (one.value, one.is_sensitive, one.config_type) == (None, True, ConfigType.PASSWORD)
        assert (one.config_source, one.read_only) == (OF_FILE, True)
        assert [each.value for each in one.synonyms] == [None, None]
        assert "canary" not in repr(answer)
        sensitive = [each.name for each in answer.configs if each.is_sensitive]
        assert sensitive == ["delegation.token.secret.key", "ssl.key.password"]
